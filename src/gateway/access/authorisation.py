"""Who may do what: one pure function over facts and a policy in memory.

`decide` is asked before any side effect. It is total (every input has an answer), does no I/O, denies by default and
looks at stable ids only: a display name is not even among its arguments. Ids are compared as they are, character by
character; nothing is trimmed, folded or read as a number, so that what looks alike is not alike.

First `admit`: does this sender get in here, and as what? Then one small rule an action. Who may use a tool or a command
is said by the tool or the command itself (`roles`) and is handed in as the resource: there is no second table.

How somebody gets in, strongest first: named in `gateway.owners` or `gateway.admins`; paired by hand; on a list of
users; by the chat being on a list; by a platform that is open to everybody. Pairing and lists make a member unless a
role was given; an open platform makes a guest. Whoever was shut out by hand (`hermes pairing revoke`) stays out,
whatever a list says. A bot is never more than a guest, and gets in only where bots are allowed; a client key of the API
is never more than a member. The operators' page on authorisation shows all of it as tables, made by this function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from hermes_state.ids import LOCAL_OWNER, PersonId

if TYPE_CHECKING:
    from gateway.routes.source import SessionSource
    from hermes_state.people.people import Role


Kind = Literal["user", "bot", "api_key", "local"]
SurfaceKind = Literal["dm", "group", "api", "terminal"]
Action = Literal["speak", "attach", "command", "tool", "read", "approve", "pair"]
Key = tuple[str, str, str]
"""(platform, our account there, their id)."""

LOCAL = "local"
API = "api_server"


class Principal(NamedTuple):
    """Who asks, as the platform vouches for it."""

    kind: Kind
    platform: str
    native_id: str
    account: str = ""

    @property
    def key(self) -> Key:
        return (self.platform, self.account, self.native_id)


class Surface(NamedTuple):
    """Where it is asked. Everything that is not certainly between two is a group."""

    kind: SurfaceKind
    platform: str
    chat_id: str = ""
    account: str = ""
    addressed: bool = False
    """The message names us or answers us."""

    @property
    def room(self) -> Key:
        return (self.platform, self.account, self.chat_id)


class Usable(NamedTuple):
    """A tool or a command, with who may use it."""

    name: str
    roles: frozenset[str]
    private: bool = False
    """Its answer is for one person's eyes."""


class ReadableConversation(NamedTuple):
    """What may be read. Without an owner it belongs to the room."""

    owner_id: PersonId | None
    room: Key | None = None


class Question(NamedTuple):
    """A call that waits for permission."""

    requester_id: PersonId | None
    approver_id: PersonId | None = None
    """The one person it was put to; None: anybody who may approve."""


Resource = Usable | ReadableConversation | Question | None


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """For the operator's eyes: why."""
    role: Role = "guest"
    reply: Literal["", "pair"] = ""
    """What somebody who was not let in may be told; nothing, mostly."""
    person_id: PersonId | None = None
    """None: somebody we have no row of yet."""


class Known(NamedTuple):
    """What the store says of an identity."""

    person_id: PersonId | None
    role: Role
    standing: Literal["paired", "revoked", "seen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRules:
    """Who gets in on one platform."""

    everyone: bool = False
    users: frozenset[str] = frozenset()
    group_everyone: bool = False
    group_users: frozenset[str] = frozenset()
    every_group: bool = False
    group_chats: frozenset[str] = frozenset()
    bots: Literal["none", "mentions", "all"] = "none"
    unknown_dm: Literal["pair", "ignore"] = "ignore"

    @property
    def lists(self) -> bool:
        return bool(self.users or self.group_users or self.group_chats)


_CLOSED = PlatformRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything `decide` knows. `gateway.access.policy` makes it from configuration, environment and store."""

    platforms: Mapping[str, PlatformRules] = field(default_factory=lambda: MappingProxyType({}))
    others: PlatformRules = _CLOSED
    """For a platform nobody said anything about."""
    everyone: bool = False
    """`GATEWAY_ALLOW_ALL_USERS`: holds where no list does."""
    users: frozenset[str] = frozenset()
    """`GATEWAY_ALLOWED_USERS`."""
    roles: Mapping[tuple[str, str], Role] = field(default_factory=lambda: MappingProxyType({}))
    """(platform, id) → owner or admin, from the configuration."""
    approvers: frozenset[tuple[str, str]] = frozenset()
    people: Mapping[Key, Known] = field(default_factory=lambda: MappingProxyType({}))
    imported: frozenset[tuple[str, str]] = frozenset()
    """Paired by another program in an existing home."""

    def rules(self, platform: str) -> PlatformRules:
        return self.platforms.get(platform, self.others)

    def known(self, who: Principal) -> Known | None:
        """What the store says of this sender. A word by hand that names none of our accounts holds for all of them."""
        exact = self.people.get(who.key)
        if exact is None or exact.standing == "seen":
            general = self.people.get((who.platform, "", who.native_id))
            if exact is None or (general is not None and general.standing != "seen"):
                return general
        return exact


# -- the facts of a message --------------------------------------------------------------------------------------


def principal_of(source: SessionSource, *, account: str = "") -> Principal:
    """Who wrote it. Only our own API server makes sources of its platform, for who showed a key: `user_id` names it."""
    platform = source.platform.value
    kind: Kind = "api_key" if platform == API else "bot" if source.is_bot else "user"
    return Principal(kind, platform, "" if source.user_id is None else str(source.user_id), account)


def surface_of(source: SessionSource, *, account: str = "", addressed: bool = False) -> Surface:
    platform = source.platform.value
    kind: SurfaceKind = "api" if platform == API else "dm" if source.chat_type == "dm" else "group"
    return Surface(kind, platform, str(source.chat_id), account, addressed)


TERMINAL = (Principal("local", LOCAL, "owner"), Surface("terminal", LOCAL))
"""The person at this machine, there."""


def api_client(key_id: str) -> tuple[Principal, Surface]:
    """Whoever holds the key with this id. The caller has compared the key."""
    return Principal("api_key", API, key_id), Surface("api", API)


_LONGEST_ID = 512


def decide(principal: Principal, surface: Surface, action: Action, resource: Resource, policy: Policy) -> Decision:
    """May this sender do this, here? What is not allowed by a rule is denied."""
    entry = admit(principal, surface, policy)
    if action == "pair":
        wanted = not entry.allowed and entry.reply == "pair"
        return entry._replace(allowed=wanted, reason="a stranger may ask" if wanted else f"no code: {entry.reason}")
    if not entry.allowed or action == "speak":
        return entry
    if principal.kind == "bot" and action != "tool":
        return entry._replace(allowed=False, reason="a bot speaks, and nothing else")
    rule = _RULES.get(action)
    refusal = "no such action" if rule is None else rule(principal, surface, entry, resource, policy)
    return entry._replace(allowed=False, reason=refusal) if refusal else entry


def admit(principal: Principal, surface: Surface, policy: Policy) -> Decision:
    """Does this sender get in here, and as what?"""
    kind = principal.kind
    if (principal.platform, principal.account) != (surface.platform, surface.account):
        return _no("sender and surface do not belong together")
    if kind == "local":
        here = (principal, surface) == TERMINAL
        return Decision(True, "at this machine", "owner", person_id=LOCAL_OWNER) if here else _no("not this machine")
    if not is_stable(principal.native_id):
        return _no("no stable id")
    known = policy.known(principal)
    if known is not None and known.standing == "revoked":
        return _no("shut out by hand")  # no code either: whoever shut them out knows how to let them in again
    if kind == "api_key":
        if surface.kind != "api" or surface.platform != API:
            return _no("a key is good for the API only")
        return _admit_key(known)
    if kind not in ("user", "bot") or surface.kind not in ("dm", "group") or surface.platform in (LOCAL, API, ""):
        return _no("nobody writes from there")
    return _admit_bot(surface, policy) if kind == "bot" else _admit_user(principal, surface, known, policy)


def role_of(source: SessionSource, policy: Policy, *, account: str = "") -> Role:
    """The role in force for who wrote this; for somebody who does not get in any more, a guest's."""
    entry = admit(principal_of(source, account=account), surface_of(source, account=account), policy)
    return entry.role if entry.allowed else "guest"


def is_shut_out(source: SessionSource, policy: Policy, *, account: str = "") -> bool:
    """Whether a person who was let in when they wrote this would not be now."""
    who = principal_of(source, account=account)
    return who.kind == "user" and not admit(who, surface_of(source, account=account), policy).allowed


def is_stable(native_id: str) -> bool:
    """Whether this can be an id at all: some visible characters, no space, no control, no direction mark."""
    return 0 < len(native_id) <= _LONGEST_ID and native_id.isprintable() and " " not in native_id


def _admit_key(known: Known | None) -> Decision:
    """An owner key is the owner's. Any other key is a client's: never more than a member, whoever it is linked to."""
    if known is not None and known.person_id == LOCAL_OWNER:
        return _yes("holds an owner key", known, "owner")
    entry = _yes("holds a client key", known, "member")
    return entry if entry.role == "guest" else entry._replace(role="member")


def _admit_bot(surface: Surface, policy: Policy) -> Decision:
    allowed = policy.rules(surface.platform).bots
    if allowed == "all" or (allowed == "mentions" and surface.addressed):
        return Decision(True, f"bots are allowed ({allowed})")
    return _no("a bot")


def _admit_user(principal: Principal, surface: Surface, known: Known | None, policy: Policy) -> Decision:
    who = (principal.platform, principal.native_id)
    rules = policy.rules(principal.platform)
    group = surface.kind == "group"
    if (role := policy.roles.get(who)) is not None:
        return Decision(True, f"named as {role} in the configuration", role, person_id=known and known.person_id)
    if known is not None and known.standing == "paired":
        return _yes("paired", known, "member")
    if who in policy.imported:
        return _yes("paired in the home that was brought over", known, "member")
    if principal.native_id in rules.users:
        return _yes(f"on the list of {principal.platform}", known, "member")
    if principal.native_id in policy.users:
        return _yes("on the list for all platforms", known, "member")
    if group and principal.native_id in rules.group_users:
        return _yes(f"on the list for groups of {principal.platform}", known, "member")
    if group and surface.chat_id and surface.chat_id in rules.group_chats:
        return _yes("the chat is on the list", known, "guest")
    if group and (rules.group_everyone or (rules.every_group and surface.chat_id)):
        return _yes(f"groups of {principal.platform} are open to everybody", known, "guest")
    if rules.everyone:
        return _yes(f"{principal.platform} is open to everybody", known, "guest")
    if policy.everyone and not rules.lists and not policy.users:
        return _yes("everything is open to everybody", known, "guest")
    return _stranger(principal, surface, policy, "not on any list")


def _yes(reason: str, known: Known | None, role: Role) -> Decision:
    """In, with the role that was given by hand, or else with `role`."""
    if known is None:
        return Decision(True, reason, role)
    return Decision(True, reason, known.role, person_id=known.person_id)


def _no(reason: str) -> Decision:
    return Decision(False, reason)


def _stranger(principal: Principal, surface: Surface, policy: Policy, reason: str) -> Decision:
    """Out. In private a person may be told how to get in; a group never hears of it."""
    private = principal.kind == "user" and surface.kind == "dm" and surface.platform not in (LOCAL, API, "")
    may_ask = private and policy.rules(surface.platform).unknown_dm == "pair"
    return Decision(False, reason, reply="pair" if may_ask else "")


# -- one rule an action: why not, or nothing ---------------------------------------------------------------------


def _attach(_: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    return ""  # whoever may speak may show something; sizes and types are bounded elsewhere


def _use(_: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    if not isinstance(resource, Usable):
        return "nothing to use was named"
    if entry.role not in resource.roles:
        return f"not for a {entry.role}"
    return "answered in private only" if resource.private and surface.kind == "group" else ""


def _read(principal: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    if not isinstance(resource, ReadableConversation):
        return "no conversation was named"
    if principal.kind == "local":
        return ""  # the person at this machine can read its files
    here = surface.kind == "group" and resource.room == surface.room
    if resource.owner_id is None:
        return "" if here else "it belongs to a room that this is not"
    if entry.person_id is None or resource.owner_id != entry.person_id:
        return "it is somebody else's"
    return "" if here or surface.kind != "group" else "it is private, and others read along here"


def _approve(principal: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    if not isinstance(resource, Question):
        return "no question was named"
    if principal.kind == "api_key":
        return "a program cannot approve"
    if surface.kind not in ("dm", "terminal"):
        return "approval is given in private only"
    named = (principal.platform, principal.native_id) in policy.approvers
    if entry.role != "owner" and not named:
        own = resource.requester_id is not None and resource.requester_id == entry.person_id
        return "nobody approves their own call" if own else "neither the owner nor named as an approver"
    if resource.approver_id is not None and resource.approver_id != entry.person_id:
        return "it was put to somebody else"
    return ""


_Rule = Callable[[Principal, Surface, Decision, Resource, Policy], str]
_RULES: Mapping[str, _Rule] = {"attach": _attach, "command": _use, "tool": _use, "read": _read, "approve": _approve}


def approvers(question: Question, policy: Policy) -> tuple[Principal, ...]:
    """Whom to ask, each in private: the owners and the named approvers who get in, owners first."""
    keys = {key for key, known in policy.people.items() if known.role == "owner" and key[0] != LOCAL}
    keys |= {(platform, "", native_id) for platform, native_id in {*policy.roles, *policy.approvers}}
    found = []
    for platform, account, native_id in sorted(keys):
        who = Principal("user", platform, native_id, account)
        answer = decide(who, Surface("dm", platform, account=account), "approve", question, policy)
        if answer.allowed:
            found.append((answer.role != "owner", who))
    return tuple(who for _, who in sorted(found))
