"""The six kinds of identifier, and how new ones are made.

Each kind has its own type, so the type checker finds an id of the wrong kind. Ids from outside are opaque: any text up
to a maximum length is valid, and no id is used as a path or as SQL.
"""

from __future__ import annotations

import os
import time
from typing import NewType

from hermes_state.errors import InvalidValue

ConversationId = NewType("ConversationId", str)
SessionId = NewType("SessionId", str)
SessionKey = NewType("SessionKey", str)
TurnId = NewType("TurnId", str)
LiveId = NewType("LiveId", str)
PersonId = NewType("PersonId", str)

PLATFORMS = (
    "local", "telegram", "discord", "whatsapp", "whatsapp_cloud", "slack", "signal", "mattermost", "matrix",
    "homeassistant", "email", "sms", "dingtalk", "api_server", "webhook", "msgraph_webhook", "feishu", "wecom",
    "wecom_callback", "weixin", "bluebubbles", "qqbot", "yuanbao", "relay", "google_chat", "irc", "line", "ntfy",
    "photon", "raft", "simplex", "teams",
)  # fmt: skip
"""Platforms that homes of hermes-agent name, whether or not an adapter exists."""

# PostgreSQL refuses index entries above about 2,700 bytes, and two ids may share one.
MAX_ID_BYTES = 1024


def new_session_id(now: float | None = None, *, digits: int = 8) -> SessionId:
    """A new id such as `20260701_153320_6513270e`: it sorts by time; the insert checks that it is unique."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(now))
    return SessionId(f"{stamp}_{os.urandom(digits // 2).hex()}")


_CHILD = "child_"


def new_child_ids(now: float, count: int) -> list[SessionId]:
    """Ids of conversations that a call delegates work to, in order. They tell children's turns from all others."""
    stem = new_session_id(now, digits=12)
    return [SessionId(f"{_CHILD}{stem}_{number:02}") for number in range(1, count + 1)]


def is_child(conversation_id: str) -> bool:
    return conversation_id.startswith(_CHILD)


def new_turn_id() -> TurnId:
    return TurnId(f"turn_{os.urandom(8).hex()}")


def new_person_id() -> PersonId:
    return PersonId(f"person_{os.urandom(6).hex()}")


def new_trace_id() -> str:
    return os.urandom(8).hex()


def checked_id(value: object, *, what: str = "session id") -> str:
    """`value` when both engines can store it as an identifier; else raise `InvalidValue`."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{what} must be a non-empty text, not {value!r:.60}")
    if "\0" in value:
        raise InvalidValue(f"{what} contains a NUL character: {value!r:.60}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidValue(f"{what} is not valid Unicode: {value!r:.60}") from None
    if size > MAX_ID_BYTES:
        raise InvalidValue(f"{what} is too long ({size} bytes, max {MAX_ID_BYTES}): {value[:40]!r}…")
    return value


def is_possible_id(value: object) -> bool:
    """False for a value that no row can have as its id, so that a lookup finds nothing instead of failing."""
    try:
        checked_id(value)
    except InvalidValue:
        return False
    return True


# The person at this machine's terminal; there is exactly one.
LOCAL_OWNER = PersonId("owner")
# The holder of the HTTP API's client key, even after the key changes.
API_CLIENT = PersonId("api_client")
LOCAL_SOURCES = frozenset({"cli", "tui", "acp", "cron", "import"})
