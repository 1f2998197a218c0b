"""`decide`: one pure function that says who may do what, from facts and a policy in memory.

The gateway calls `decide` before any side effect. It answers every input, does no I/O, denies by default and reads
stable ids only, never display names. Ids are compared character by character; nothing is trimmed, folded or read as a
number, so ids that only look alike differ.

First `admit` decides whether the sender has access here, and with which role. Then each action has one small rule. A
tool or command itself names the roles that may use it (`roles`) and is passed in as the resource: there is no second
table.

A sender has access, strongest first: named in `gateway.owners` or `gateway.admins`; paired by hand; on a list of users;
in a chat that is on a list; on a platform that is open to everybody. Pairing and lists make a member unless a role was
given; an open platform makes a guest. A revoked person (`hermes pairing revoke`) stays out, whatever a list says. A bot
is never more than a guest, and has access only where bots are allowed; a client key of the API is never more than a
member. The operators' page on authorisation shows all of this as tables, made by this function.
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
Action = Literal["speak", "command", "tool", "read", "approve"]
Key = tuple[str, str, str]
"""(platform, our account there, their id)."""

LOCAL = "local"
API = "api_server"


class Principal(NamedTuple):
    """The sender, as the platform identifies them."""

    kind: Kind
    platform: str
    native_id: str
    account: str = ""

    @property
    def key(self) -> Key:
        return (self.platform, self.account, self.native_id)


class Surface(NamedTuple):
    """The chat, terminal or API of a request. A chat that is not certainly private is a group."""

    kind: SurfaceKind
    platform: str
    chat_id: str = ""
    account: str = ""
    addressed: bool = False
    """The message mentions the bot or replies to it."""

    @property
    def chat(self) -> Key:
        return (self.platform, self.account, self.chat_id)


class Usable(NamedTuple):
    """A tool or a command, with the roles that may use it."""

    name: str
    roles: frozenset[str]
    private: bool = False
    """Its answer is for one person only."""


class ReadableConversation(NamedTuple):
    """A conversation to read. Without an owner it belongs to its chat."""

    owner_id: PersonId | None
    chat: Key | None = None


class Question(NamedTuple):
    """A call that waits for permission."""

    requester_id: PersonId | None
    approver_id: PersonId | None = None
    """The person who was asked; None: anybody who may approve."""


Resource = Usable | ReadableConversation | Question | None


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """Why, for the operator."""
    role: Role = "guest"
    reply: Literal["", "pair"] = ""
    """The reply to a sender without access; mostly none."""
    person_id: PersonId | None = None
    """None: a person without a row."""


class Known(NamedTuple):
    """A person's identity in the store."""

    person_id: PersonId | None
    role: Role
    standing: Literal["paired", "revoked", "seen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRules:
    """The access rules of one platform."""

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
    """All facts that `decide` uses. `gateway.access.policy` makes it from configuration, environment and store."""

    platforms: Mapping[str, PlatformRules] = field(default_factory=lambda: MappingProxyType({}))
    others: PlatformRules = _CLOSED
    """The rules of a platform without settings."""
    everyone: bool = False
    """`GATEWAY_ALLOW_ALL_USERS`: applies where there is no list."""
    users: frozenset[str] = frozenset()
    """`GATEWAY_ALLOWED_USERS`."""
    roles: Mapping[tuple[str, str], Role] = field(default_factory=lambda: MappingProxyType({}))
    """(platform, id) → owner or admin, from the configuration."""
    approvers: frozenset[tuple[str, str]] = frozenset()
    people: Mapping[Key, Known] = field(default_factory=lambda: MappingProxyType({}))
    imported: frozenset[tuple[str, str]] = frozenset()
    """Paired by hermes-agent in an existing home."""

    def rules(self, platform: str) -> PlatformRules:
        return self.platforms.get(platform, self.others)

    def known(self, who: Principal) -> Known | None:
        """The sender's identity in the store. A pairing or revocation without an account holds for all our accounts."""
        exact = self.people.get(who.key)
        if exact is None or exact.standing == "seen":
            general = self.people.get((who.platform, "", who.native_id))
            if exact is None or (general is not None and general.standing != "seen"):
                return general
        return exact


# -- the facts of a message --------------------------------------------------------------------------------------


def principal_of(source: SessionSource, *, account: str = "") -> Principal:
    """The author of a message. Only our API server makes sources of its platform; there `user_id` is the key's id."""
    platform = source.platform.value
    kind: Kind = "api_key" if platform == API else "bot" if source.is_bot else "user"
    return Principal(kind, platform, "" if source.user_id is None else str(source.user_id), account)


def surface_of(source: SessionSource, *, account: str = "", addressed: bool = False) -> Surface:
    platform = source.platform.value
    kind: SurfaceKind = "api" if platform == API else "dm" if source.chat_type == "dm" else "group"
    return Surface(kind, platform, str(source.chat_id), account, addressed)


TERMINAL = (Principal("local", LOCAL, "owner"), Surface("terminal", LOCAL))
"""The owner at a terminal of this machine."""


def api_client(key_id: str) -> tuple[Principal, Surface]:
    """The holder of the key with this id. The caller has checked the key."""
    return Principal("api_key", API, key_id), Surface("api", API)


_LONGEST_ID = 512


def decide(principal: Principal, surface: Surface, action: Action, resource: Resource, policy: Policy) -> Decision:
    """Whether this sender may do this here. An action that no rule allows is denied."""
    entry = admit(principal, surface, policy)
    if not entry.allowed or action == "speak":
        return entry
    if principal.kind == "bot" and action != "tool":
        return entry._replace(allowed=False, reason="a bot may only send messages")
    rule = _RULES.get(action)
    refusal = "no such action" if rule is None else rule(principal, surface, entry, resource, policy)
    return entry._replace(allowed=False, reason=refusal) if refusal else entry


def admit(principal: Principal, surface: Surface, policy: Policy) -> Decision:
    """Whether this sender has access here, and with which role."""
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
        return _no("shut out by hand")  # and no code: the owner revoked the access and can restore it
    if kind == "api_key":
        if surface.kind != "api" or surface.platform != API:
            return _no("a key is valid for the API only")
        return _admit_key(known)
    if kind not in ("user", "bot") or surface.kind not in ("dm", "group") or surface.platform in (LOCAL, API, ""):
        return _no("messages cannot come from there")
    return _admit_bot(surface, policy) if kind == "bot" else _admit_user(principal, surface, known, policy)


def role_of(source: SessionSource, policy: Policy, *, account: str = "") -> Role:
    """The role in force for the author; guest for an author who lost access."""
    entry = admit(principal_of(source, account=account), surface_of(source, account=account), policy)
    return entry.role if entry.allowed else "guest"


def is_shut_out(source: SessionSource, policy: Policy, *, account: str = "") -> bool:
    """Whether the author of a message that was accepted has lost access since."""
    who = principal_of(source, account=account)
    return who.kind == "user" and not admit(who, surface_of(source, account=account), policy).allowed


def is_stable(native_id: str) -> bool:
    """Whether this can be an id: visible characters, no spaces, control characters or direction marks."""
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
        return _yes("paired in the home that was imported", known, "member")
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
    """Access, with the role that was given by hand, or else with `role`."""
    if known is None:
        return Decision(True, reason, role)
    return Decision(True, reason, known.role, person_id=known.person_id)


def _no(reason: str) -> Decision:
    return Decision(False, reason)


def _stranger(principal: Principal, surface: Surface, policy: Policy, reason: str) -> Decision:
    """No access. In private a person may be told how to get it; in a group never."""
    private = principal.kind == "user" and surface.kind == "dm" and surface.platform not in (LOCAL, API, "")
    may_ask = private and policy.rules(surface.platform).unknown_dm == "pair"
    return Decision(False, reason, reply="pair" if may_ask else "")


# -- one rule an action: why not, or nothing ---------------------------------------------------------------------


def _use(_: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    if not isinstance(resource, Usable):
        return "no tool or command was named"
    if entry.role not in resource.roles:
        return f"not for a {entry.role}"
    return "answered in private only" if resource.private and surface.kind == "group" else ""


def _read(principal: Principal, surface: Surface, entry: Decision, resource: Resource, policy: Policy) -> str:
    if not isinstance(resource, ReadableConversation):
        return "no conversation was named"
    if principal.kind == "local":
        return ""  # the person at this machine can read its files
    here = surface.kind == "group" and resource.chat == surface.chat
    if resource.owner_id is None:
        return "" if here else "it belongs to another chat"
    if entry.person_id is None or resource.owner_id != entry.person_id:
        return "it is somebody else's"
    return "" if here or surface.kind != "group" else "it is private, and others read this chat"


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
        return "somebody else was asked"
    return ""


_Rule = Callable[[Principal, Surface, Decision, Resource, Policy], str]
_RULES: Mapping[str, _Rule] = {"command": _use, "tool": _use, "read": _read, "approve": _approve}


def approvers(question: Question, policy: Policy, *, near: str = "") -> tuple[Principal, ...]:
    """The people to ask, each in private: the owners and named approvers who have access, owners first.

    `near`: the platform or account that asks; whoever can be asked there comes before those of others.
    """
    keys = {key for key, known in policy.people.items() if known.role == "owner" and key[0] != LOCAL}
    keys |= {(platform, "", native_id) for platform, native_id in {*policy.roles, *policy.approvers}}
    found = []
    for platform, account, native_id in sorted(keys):
        who = Principal("user", platform, native_id, account)
        answer = decide(who, Surface("dm", platform, account=account), "approve", question, policy)
        if answer.allowed:
            found.append((answer.role != "owner", platform != near, who))
    return tuple(who for *_, who in sorted(found))
