"""The facts of a decision: who asks, where, about what, and the policy. Data only; `authorisation` decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from hermes_state.ids import PersonId

if TYPE_CHECKING:
    from gateway.entries import SessionSource
    from hermes_state.people.people import Role

Kind = Literal["user", "bot", "api_key", "local"]
Place = Literal["dm", "group", "api", "terminal"]
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

    place: Place
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


class Conversation(NamedTuple):
    """What may be read. Without an owner it belongs to the room."""

    owner_id: PersonId | None
    room: Key | None = None


class Question(NamedTuple):
    """A call that waits for permission."""

    requester_id: PersonId | None
    approver_id: PersonId | None = None
    """The one person it was put to; None: anybody who may approve."""


Resource = Usable | Conversation | Question | None


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
class Rules:
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


_CLOSED = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything `decide` knows. `gateway.policy` makes it from configuration, environment and store."""

    platforms: Mapping[str, Rules] = field(default_factory=lambda: MappingProxyType({}))
    others: Rules = _CLOSED
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

    def rules(self, platform: str) -> Rules:
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
    place: Place = "api" if platform == API else "dm" if source.chat_type == "dm" else "group"
    return Surface(place, platform, str(source.chat_id), account, addressed)


TERMINAL = (Principal("local", LOCAL, "owner"), Surface("terminal", LOCAL))
"""The person at this machine, there."""


def api_client(key_id: str) -> tuple[Principal, Surface]:
    """Whoever holds the key with this id. The caller has compared the key."""
    return Principal("api_key", API, key_id), Surface("api", API)
