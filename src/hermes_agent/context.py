"""Whom the running turn is for, and where it came from, as a context variable.

A turn is bound to its identity with `bind`; everything it calls, and every task and copied context it starts, reads
the same. Nothing here writes `os.environ`: in one process many turns run at once, and a variable of the process would
be the last writer's. A child process gets its variables from `child_environment`, made from the turn's context alone.

The session id is read through a `CurrentSession`, one object for the whole turn. Compression moves it there, once, and
tools that are already running, on whatever task or thread, see the new id at their next look.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from hermes_state.ids import SessionId

SESSION_ID = "HERMES_SESSION_ID"
_VALUE_CHARS = 1_000  # Linux takes 128 KiB a variable, and names that strangers give themselves have no bound


class CurrentSession:
    """The segment that is current now. Compression moves it; everything else only reads it."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIdentity:
    """What is known of where a turn comes from. Empty means that there is none, never that it was not looked up."""

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

    def variables(self) -> dict[str, str]:
        """By the names that tools, plug-ins and child processes know. The session id is not among them: it moves."""
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
    """What a context is bound to. Without an identity only the session is known: nobody called `bind`."""

    identity: TurnIdentity | None
    session: CurrentSession


_bound: ContextVar[Bound | None] = ContextVar("hermes_turn", default=None)


@contextmanager
def bind(identity: TurnIdentity, session: CurrentSession) -> Iterator[Bound]:
    """Run the block, and all that it starts, as this identity in this session."""
    bound = Bound(identity, session)
    token = _bound.set(bound)
    try:
        yield bound
    finally:
        _bound.reset(token)


def enter(identity: TurnIdentity, session: CurrentSession) -> None:
    """Bind this context for good: for a task that serves one turn and ends with it."""
    _bound.set(Bound(identity, session))


def leave() -> None:
    """Bind this context to nobody, as for a task that was started from within a turn and serves another."""
    _bound.set(None)


def current() -> Bound | None:
    """What this context is bound to; None outside of a turn."""
    return _bound.get()


def get_session_env(name: str, default: str = "") -> str:
    """A variable of the turn, even when it is empty there; else of the environment this process was started with."""
    bound = _bound.get()
    if bound is not None:
        if name == SESSION_ID:
            return bound.session.session_id
        if bound.identity is not None and name in (known := bound.identity.variables()):
            return known[name]
    return os.environ.get(name, default)


def set_current_session_id(session_id: str) -> None:
    """The turn goes on in another segment: all of it sees the new id. Outside of a turn only this context does."""
    bound = _bound.get()
    if bound is not None and bound.identity is not None:
        bound.session.session_id = SessionId(session_id)
    else:
        # A new object: a context that was copied from this one must not be moved along with it.
        _bound.set(Bound(None, CurrentSession(SessionId(session_id))))


def child_environment() -> dict[str, str]:
    """Identity as variables for a child process, from this context alone. Empty ones are left out."""
    bound = _bound.get()
    if bound is None:
        return {}
    found = {} if bound.identity is None else bound.identity.variables()
    found[SESSION_ID] = bound.session.session_id
    return {name: storable for name, value in found.items() if (storable := _storable(value))}


def _storable(value: str) -> str:
    """A value the operating system takes: valid UTF-8, no NUL, of a bounded length."""
    return value[:_VALUE_CHARS].replace("\0", "").encode("utf-8", "replace").decode()
