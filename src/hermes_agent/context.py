"""The identity of the running turn (person, chat, session), as a context variable.

`bind` binds a turn to its identity; every function, task and copied context that the turn starts reads the same one.
Nothing here writes `os.environ`: many turns run in one process, and they would overwrite each other's values. A child
process gets its variables from `child_environment`, built from the turn's context alone.

The session id is read through a `CurrentSession`, one object for the whole turn. Compression changes the id there, and
tools that already run, on any task or thread, see the new id at their next read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass

from hermes_state.ids import SessionId

SESSION_ID = "HERMES_SESSION_ID"
_VALUE_CHARS = 1_000  # Linux allows 128 KiB a variable, and strangers can choose names of any length


class CurrentSession:
    """The id of the current segment. Only compression changes it."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIdentity:
    """The origin of a turn: chat, thread, user. An empty field means that there is none, never "not looked up"."""

    platform: str = ""
    source: str = ""
    chat_id: str = ""
    chat_name: str = ""
    thread_id: str = ""
    user_id: str = ""
    user_name: str = ""
    session_key: str = ""
    message_id: str = ""
    profile: str = ""
    ui_session_id: str = ""
    deliver_platform: str = ""
    deliver_chat_id: str = ""
    deliver_thread_id: str = ""
    held: bool = False
    """Whether what the turn sends to its chat waits for the owner."""

    def variables(self) -> dict[str, str]:
        """The fields by the names that tools, plug-ins and child processes use; no session id, because it changes."""
        return {
            "HERMES_SESSION_PLATFORM": self.platform,
            "HERMES_SESSION_SOURCE": self.source,
            "HERMES_SESSION_CHAT_ID": self.chat_id,
            "HERMES_SESSION_CHAT_NAME": self.chat_name,
            "HERMES_SESSION_THREAD_ID": self.thread_id,
            "HERMES_SESSION_USER_ID": self.user_id,
            "HERMES_SESSION_USER_NAME": self.user_name,
            "HERMES_SESSION_KEY": self.session_key,
            "HERMES_SESSION_MESSAGE_ID": self.message_id,
            "HERMES_SESSION_PROFILE": self.profile,
            "HERMES_UI_SESSION_ID": self.ui_session_id,
            "HERMES_CRON_AUTO_DELIVER_PLATFORM": self.deliver_platform,
            "HERMES_CRON_AUTO_DELIVER_CHAT_ID": self.deliver_chat_id,
            "HERMES_CRON_AUTO_DELIVER_THREAD_ID": self.deliver_thread_id,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The identity and session of a context. Without `bind` there is no identity, only a session."""

    identity: TurnIdentity | None
    session: CurrentSession


_bound: ContextVar[Bound | None] = ContextVar("hermes_turn", default=None)


@contextmanager
def bind(identity: TurnIdentity, session: CurrentSession) -> Iterator[Bound]:
    """Run the block, and all tasks it starts, with this identity and session."""
    bound = Bound(identity, session)
    token = put(bound)
    try:
        yield bound
    finally:
        _bound.reset(token)


def put(bound: Bound | None) -> Token[Bound | None]:
    """Replace the binding of this context until it ends; None unbinds it."""
    return _bound.set(bound)


def current() -> Bound | None:
    """The binding of this context; None outside a turn."""
    return _bound.get()


def get_session_env(name: str, default: str = "") -> str:
    """A variable of the turn, even if empty; outside a turn, of the process environment."""
    bound = _bound.get()
    if bound is not None:
        if name == SESSION_ID:
            return bound.session.session_id
        if bound.identity is not None and name in (known := bound.identity.variables()):
            return known[name]
    return os.environ.get(name, default)


def set_current_session_id(session_id: str) -> None:
    """Set the session id for the whole turn, which continues in a new segment; outside a turn, for this context."""
    bound = _bound.get()
    if bound is not None and bound.identity is not None:
        bound.session.session_id = SessionId(session_id)
    else:
        # A new object, because contexts copied from this one must keep their session id.
        _bound.set(Bound(None, CurrentSession(SessionId(session_id))))


def child_environment() -> dict[str, str]:
    """The identity as variables for a child process, from this context alone, without empty ones."""
    bound = _bound.get()
    if bound is None:
        return {}
    found = {} if bound.identity is None else bound.identity.variables()
    found[SESSION_ID] = bound.session.session_id
    return {name: storable for name, value in found.items() if (storable := _safe_value(value))}


def _safe_value(value: str) -> str:
    """Make a value that the operating system accepts: valid UTF-8, no NUL, bounded length."""
    return value[:_VALUE_CHARS].replace("\0", "").encode("utf-8", "replace").decode()
