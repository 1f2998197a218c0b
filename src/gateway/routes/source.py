"""`SessionSource`: the chat and author of a message; `SessionEntry`: the stored facts of a route.

Both are plain data with the names and written forms of hermes-agent. Times of an entry are naive and local, as in
the files of existing homes; `instant` and `local_time` are the one place where they become instants and back. The
store's column for the last activity is an instant, so a change of the clock's zone moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from gateway.config import Platform
from hermes_state.transfer.import_home import route_entry as written

Written = dict[str, Any]

_TEXTS = frozenset(
    {
        "chat_name", "user_id", "user_name", "thread_id", "chat_topic", "user_id_alt", "chat_id_alt", "parent_chat_id",
        "message_id", "profile", "auto_thread_initial_name",
    }
)  # fmt: skip
"""Fields of a source that are stored as text, or not at all."""
_ALWAYS = ("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_WHEN_SET = (
    "user_id_alt", "chat_id_alt", "scope_id", "parent_chat_id", "message_id", "profile", "auto_thread_created",
    "auto_thread_initial_name",
)  # fmt: skip


@dataclass
class SessionSource:
    """Where a message came from and who wrote it, as the platform says. Nothing in here gives rights.

    `role_authorized` and `delivered_via_upstream_relay` have no effect: code written for hermes-agent sets them.
    """

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    delivered_via_upstream_relay: bool = False

    def __post_init__(self) -> None:
        self.scope_id = self.guild_id = self.scope_id or self.guild_id

    @property
    def participant(self) -> str | None:
        """The stable id of the person who wrote."""
        return self.user_id_alt or self.user_id or None

    @property
    def description(self) -> str:
        if self.platform is Platform.LOCAL:
            return "CLI terminal"
        if self.chat_type == "dm":
            who = self.user_name or self.user_id or self.chat_name or self.chat_id
            text = f"DM with {who or 'somebody'}"
        else:
            text = f"{self.chat_type}: {self.chat_name or self.chat_id}"
        return f"{text}, thread: {self.thread_id}" if self.thread_id else text

    def to_dict(self) -> Written:
        always = {"platform": self.platform.value} | {name: getattr(self, name) for name in _ALWAYS}
        when_set = {"guild_id": self.scope_id} | {name: getattr(self, name) for name in _WHEN_SET}
        return always | {name: value for name, value in when_set.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionSource:
        """Needs `platform` and `chat_id`; an unknown platform is a ValueError. Rights are not restored."""
        get = data.get
        texts: Written = {name: str(value) for name, value in data.items() if value is not None and name in _TEXTS}
        return cls(
            platform=Platform(data["platform"]),
            chat_id=str(data["chat_id"]),
            chat_type=_text(get("chat_type")) or "dm",
            scope_id=_text(get("scope_id") if "scope_id" in data else get("guild_id")),
            auto_thread_created=bool(get("auto_thread_created")),
            **texts,
        )


@dataclass
class SessionEntry:
    """A route: its session and its stored facts."""

    session_key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | None = None
    chat_type: str = "dm"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    last_prompt_tokens: int = 0
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    is_fresh_reset: bool = False
    expiry_finalized: bool = False
    suspended: bool = False
    resume_pending: bool = False
    resume_reason: str | None = None
    last_resume_marked_at: datetime | None = None
    model_override: dict[str, str] | None = None
    stored: Written | None = field(default=None, repr=False, compare=False)
    """The stored form when this was last read or saved; None for an entry that is not stored."""
    conversation: str | None = field(default=None, repr=False, compare=False)
    """The conversation of the row that this was read from."""

    def to_dict(self) -> Written:
        """The stored form. A model override never contains a key."""
        entry: Written = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        entry["created_at"], entry["updated_at"] = self.created_at.isoformat(), self.updated_at.isoformat()
        entry["platform"] = None if self.platform is None else self.platform.value
        entry["last_resume_marked_at"] = _written_time(self.last_resume_marked_at)
        if self.origin is not None:
            entry["origin"] = self.origin.to_dict()
        override = written.model_override(self.model_override)
        return {**entry, "model_override": override} if override else entry

    @classmethod
    def from_dict(cls, data: object) -> SessionEntry:
        """Read the stored form. Raises ValueError with the reason when it is invalid."""
        return cls(**_fields(data))


_PLAIN_FIELDS = tuple(
    one.name for one in fields(SessionEntry) if one.name not in ("origin", "model_override", "stored", "conversation")
)


def instant(time: datetime) -> float:
    """Epoch seconds of an entry's naive local time (an aware one means itself)."""
    try:
        return time.timestamp()
    except (OverflowError, OSError, ValueError):  # before 1970 or after 9999 on some systems
        return 0.0


def local_time(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch)


def _fields(data: object) -> Written:
    given: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    # The source is read here and not by `parse`, which does not know the platforms that plug-ins bring.
    entry = written.parse({**given, "origin": None} if given else data)
    return {
        **entry,
        "created_at": datetime.fromisoformat(entry["created_at"]),
        "updated_at": datetime.fromisoformat(entry["updated_at"]),
        "last_resume_marked_at": _read_time(entry["last_resume_marked_at"]),
        "platform": Platform.find(given.get("platform")),
        "origin": _origin(given.get("origin")),
        "model_override": entry.get("model_override"),
    }


def _origin(data: object) -> SessionSource | None:
    """The stored source; None for one that is no longer valid: the route is worth keeping without it."""
    if not isinstance(data, Mapping) or data.get("chat_id") is None or Platform.find(data.get("platform")) is None:
        return None
    return SessionSource.from_dict(data)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _written_time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _read_time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
