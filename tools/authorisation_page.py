"""The operators' page on authorisation. Made by `make docs`.

For chats every answer is one of `decide`'s: the tables go over the whole product of the facts that matter, with the
roles that stand on the tools and commands themselves, so a change of a rule shows as a change of the page, and a test
compares a corner of it with what people wrote down by thinking. For the keys of the API a gateway is started and asked
(`api_probe`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tests.support import api_probe

from gateway.access.authorisation import (
    TERMINAL,
    Action,
    Known,
    PlatformRules,
    Policy,
    Principal,
    Question,
    ReadableConversation,
    Resource,
    Surface,
    Usable,
    decide,
)
from hermes_agent.commands import registry as command_registry
from hermes_agent.tools import registry
from hermes_state.ids import LOCAL_OWNER, PersonId

if TYPE_CHECKING:
    from hermes_state.people.people import Role

CHAT, GROUP, LISTED_GROUP = "telegram", "-100", "-200"
ADA = PersonId("person_ada")
_KEY = (CHAT, "", "42")


class Who(NamedTuple):
    """Somebody, and what was said about them."""

    title: str
    principal: Principal
    policy: Callable[[Policy], Policy] = lambda policy: policy
    rules: Callable[[PlatformRules], PlatformRules] = lambda rules: rules
    addressed: bool = False


class EntryRules(NamedTuple):
    """What else is known of the installation."""

    title: str
    policy: Policy
    rules: PlatformRules


def _named(role: Role) -> Callable[[Policy], Policy]:
    return lambda policy: replace(policy, roles=MappingProxyType({(CHAT, "42"): role}))


def _known(known: Known) -> Callable[[Policy], Policy]:
    return lambda policy: replace(policy, people=MappingProxyType({_KEY: known}))


def _on_list(rules: PlatformRules) -> PlatformRules:
    return replace(rules, users=rules.users | {"42"}, unknown_dm="ignore")


def people() -> Iterator[Who]:
    ada, bot = Principal("user", CHAT, "42"), Principal("bot", CHAT, "42")
    yield Who("in `gateway.owners`", ada, _named("owner"))
    yield Who("in `gateway.admins`", ada, _named("admin"))
    yield Who("paired", ada, _known(Known(ADA, "member", "paired")))
    yield Who("paired, made an admin", ada, _known(Known(ADA, "admin", "paired")))
    yield Who("paired in an existing home", ada, lambda policy: replace(policy, imported=frozenset({(CHAT, "42")})))
    yield Who("on the platform's list", ada, rules=_on_list)
    yield Who("on the list for all platforms", ada, lambda policy: replace(policy, users=frozenset({"42"})))
    yield Who(
        "on the list for groups",
        ada,
        rules=lambda rules: replace(rules, group_users=frozenset({"42"}), unknown_dm="ignore"),
    )
    yield Who("a stranger", ada)
    yield Who("shut out, on the list", ada, _known(Known(ADA, "member", "revoked")), _on_list)
    yield Who("shut out, nothing else", ada, _known(Known(ADA, "member", "revoked")))
    yield Who("a bot", bot)
    yield Who("a bot that addresses us", bot, addressed=True)
    yield Who("a bot on the list", bot, rules=_on_list)
    yield Who("nobody (no id)", Principal("user", CHAT, ""))


def entry_rules() -> Iterator[EntryRules]:
    asking = PlatformRules(unknown_dm="pair")
    yield EntryRules("nothing set", Policy(), asking)
    yield EntryRules("a list of others", Policy(), PlatformRules(users=frozenset({"7"})))
    yield EntryRules("platform open", Policy(), PlatformRules(everyone=True, unknown_dm="pair"))
    yield EntryRules("gateway open", Policy(everyone=True), asking)
    yield EntryRules("gateway open, a list of others", Policy(everyone=True), PlatformRules(users=frozenset({"7"})))
    yield EntryRules("bots: mentions", Policy(), PlatformRules(bots="mentions", unknown_dm="pair"))
    yield EntryRules("bots: all", Policy(), PlatformRules(bots="all", unknown_dm="pair"))


def places() -> Iterator[tuple[str, str, str]]:
    """Title, kind, chat."""
    yield "private", "dm", "42"
    yield "group", "group", GROUP
    yield "listed group", "group", LISTED_GROUP


def entry(who: Who, place: tuple[str, str, str], given: EntryRules) -> str:
    """How `speak` ends: the role, `code` for a stranger who may ask, `–` for silence."""
    title, kind, chat = place
    rules = given.rules
    if title == "listed group":
        rules = replace(rules, group_chats=frozenset({LISTED_GROUP}))
    policy = who.policy(replace(given.policy, platforms={CHAT: who.rules(rules)}))
    surface = Surface("dm" if kind == "dm" else "group", CHAT, chat, addressed=who.addressed)
    answer = decide(who.principal, surface, "speak", None, policy)
    return answer.role if answer.allowed else "code" if answer.reply == "pair" else "–"


OWNERS_TOOLS = ("terminal", "read_file", "write_file", "patch", "search_files")


class Deed(NamedTuple):
    title: str
    action: Action
    resource: Resource


def _command(name: str) -> Usable:
    row = command_registry.table("gateway")[name]
    return Usable(name, row.roles, row.private)


def _tools(*names: str) -> Usable:
    """Tools that the same people may use."""
    (roles,) = {tool.roles for name in names if (tool := registry.shared().get(name)) is not None}
    return Usable(names[0], roles)


DEEDS = (
    Deed("speak, send files", "speak", None),
    Deed("a command", "command", _command("help")),
    Deed("a private command", "command", _command("sessions")),
    Deed("clarify, to-do, search", "tool", _tools("clarify", "todo", "session_search")),
    Deed("memory, skills", "tool", _tools("memory", "skills_list", "skill_view")),
    Deed("terminal, files", "tool", _tools(*OWNERS_TOOLS)),
    Deed("read own", "read", ReadableConversation(ADA)),
    Deed("read another's", "read", ReadableConversation(PersonId("person_bob"))),
    Deed("read this chat's", "read", ReadableConversation(None, (CHAT, "", GROUP))),
    Deed("read another chat's", "read", ReadableConversation(None, (CHAT, "", "-300"))),
    Deed("approve own call", "approve", Question(ADA)),
    Deed("approve another's", "approve", Question(PersonId("person_bob"))),
    Deed("approve what was put to Bob", "approve", Question(ADA, PersonId("person_bob"))),
)


def actors() -> Iterator[tuple[str, Principal, Surface, Policy]]:
    ada = Principal("user", CHAT, "42")
    for role in ("owner", "admin", "member", "guest"):
        known: dict[tuple[str, str, str], Known] = {_KEY: Known(ADA, role, "paired")}
        for title, kind, chat in places():
            if title != "listed group":
                surface = Surface("dm" if kind == "dm" else "group", CHAT, chat)
                yield f"{role}, {title}", ada, surface, Policy(people=known)
    approver = Policy(people={_KEY: Known(ADA, "member", "paired")}, approvers=frozenset({(CHAT, "42")}))
    yield "member named as approver, private", ada, Surface("dm", CHAT, "42"), approver
    yield "member named as approver, group", ada, Surface("group", CHAT, GROUP), approver
    bots = Policy(platforms={CHAT: PlatformRules(bots="all")})
    yield "an allowed bot, group", Principal("bot", CHAT, "42"), Surface("group", CHAT, GROUP), bots
    yield "terminal", *TERMINAL, Policy(people={("local", "", "owner"): Known(LOCAL_OWNER, "owner", "seen")})


def deed(actor: tuple[str, Principal, Surface, Policy], done: Deed) -> str:
    _, principal, surface, policy = actor
    return "yes" if decide(principal, surface, done.action, done.resource, policy).allowed else "–"


_INTRO = """# Who may do what

Hermes lets nobody in whom you did not let in. One pure function answers every such question, before anything is
stored, fetched or answered; the tables below are its answers. It looks at the platform's stable ids and never at names.

## Letting somebody in

- **Pair them.** A stranger who writes to Hermes in private is told a code and nothing else. On this machine, say
  `hermes pairing approve telegram CODE`. `--owner` says: that is me, the person at this machine; `--admin` and
  `--guest` give another role than member. `hermes pairing revoke telegram ID` shuts somebody out from their next
  message on, whatever a list says; they hear nothing more, a code neither. `hermes people link` lets them in again.
- **List them**, by id: `TELEGRAM_ALLOWED_USERS=42,43` in `.env`, or `platforms.telegram.allowed_users` in config.yaml.
  `GATEWAY_ALLOWED_USERS` holds for all platforms. As soon as there is a list, strangers are not offered codes any more;
  `unauthorized_dm_behavior: pair` brings that back.
- **Groups** are separate. `TELEGRAM_GROUP_ALLOWED_CHATS` lets everybody in a group speak there, as a guest, and lets
  nobody into a private chat. A stranger in a group is never answered.
- **Let everybody in**: `TELEGRAM_ALLOW_ALL_USERS=true`, or `*` on a list. Everybody is a guest.
  `GATEWAY_ALLOW_ALL_USERS` does it for every platform without a list.
- **Bots** start no turn, unless `TELEGRAM_ALLOW_BOTS` is `mentions` or `all`.

`gateway.owners`, `gateway.admins` and `gateway.approvers` in config.yaml are lists of `telegram:42`. A change of the
files or a command takes effect at the next message.

A second account of a platform, such as the bot `telegram@work`, has lists, codes and roles of its own, under that name
(`TELEGRAM_ALLOWED_USERS__WORK`, `telegram@work:42`): whoever may write to one account is a stranger to the other.

## Roles

The person at this machine is the owner. Whoever is paired or listed is a member unless you say otherwise:
`hermes people role PERSON admin`. Members and guests have no terminal and no files. A dangerous call asks the owner or
a named approver, in their own private chat; nobody else can allow it, least of all who asked for it.

With `/model` the owner and admins choose any model; members choose among the configured one, its fallbacks and what
`gateway.model_choice.member` lists (`"*"`: any; `gateway.model_choice.admin` bounds admins in the same way). Guests
choose none.
"""


_KEYS = """## What a key of the HTTP API can do

Everything in this table was done, or refused, by a running gateway. `hermes api key` prints the client key: a person of
its own, with its own conversations and memory. `hermes api key --role owner` makes the owner key: whoever has it is the
owner, and at `/api/ws` sits at the owner's terminal. Over plain HTTP no key answers a question of permission.
"""


def page() -> str:
    found_rules = list(entry_rules())
    lines = [_INTRO, "## Who gets in, and as what", ""]
    lines += ["`code`: told a pairing code. `–`: silence. A listed group is one in `…_GROUP_ALLOWED_CHATS`.", ""]
    titles = [one.title for one in found_rules]
    rows = (
        [who.title, place[0], *(entry(who, place, one) for one in found_rules)]
        for who in people()
        for place in places()
    )
    lines += _table(["who", "where", *titles], rows)
    lines += ["", "## What they may do then", ""]
    lines += ["Ada's own conversation is `own`, Bob's `another's`. `own call`: Ada asked for it.", ""]
    rows = ([actor[0], *(deed(actor, done) for done in DEEDS)] for actor in actors())
    lines += _table(["who, where", *(done.title for done in DEEDS)], rows)
    lines += ["", _shared_rooms()]
    lines += ["", _KEYS]
    marks = ([row.deed, *("yes" if done else "–" for done in row.done)] for row in api_probe.measure())
    lines += _table(["with", *api_probe.Probe.COLUMNS], marks)
    lines += [
        "",
        "This page is made by `make docs`: the tables on chats from `src/gateway/access/authorisation.py`, the one on",
    ]
    lines += ["keys by asking a gateway that was started for it (`tests/support/api_probe.py`)."]
    return "\n".join(lines) + "\n"


def _shared_rooms() -> str:
    """From the rows of the commands themselves."""
    rows = command_registry.table("gateway").values()
    always = ", ".join(f"`/{row.name}`" for row in rows if row.alters == "always")
    words = ", ".join(f"`/{row.name}`" for row in rows if row.alters == "with words")
    return (
        "Where several people share one conversation (`group_sessions_per_user: false`, a thread), what changes it\n"
        f"for all of them is for owners and admins: {always}, and {words} when they set\n"
        "something. Anybody may begin anew with `/new`, while nothing of somebody else's runs."
    )


def _table(titles: Sequence[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


if __name__ == "__main__":
    print(page(), end="")
