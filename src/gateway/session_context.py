"""The seeds' address for a turn's identity, which lives in `hermes_agent.context`.

`set_session_vars` binds this context (a task, a thread's copied context) to an identity; nothing writes `os.environ`.
The current segment is read through the turn, so everything that the turn started sees a compression. An identity of the
gateway has no session until `set_current_session_id` or the turn sets one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from hermes_agent import context
from hermes_agent.context import get_session_env, set_current_session_id
from hermes_state.ids import SessionId

__all__ = [
    "async_delivery_supported",
    "clear_session_vars",
    "declare_stateless_channel",
    "get_session_env",
    "reset_session_vars",
    "session_context_engaged",
    "set_current_session_id",
    "set_session_vars",
]

_async_delivery: ContextVar[bool | None] = ContextVar("hermes_async_delivery", default=None)


def set_session_vars(
    platform: str = "",
    source: str = "",
    chat_id: str = "",
    chat_name: str = "",
    thread_id: str = "",
    user_id: str = "",
    user_name: str = "",
    session_key: str = "",
    session_id: str = "",
    message_id: str = "",
    profile: str = "",
    *,
    async_delivery: bool = True,
    ui_session_id: str = "",
) -> list[Any]:
    """Bind this context to an identity. The result is for `clear_session_vars`."""
    identity = context.TurnIdentity(
        platform=platform or "", source=source or "", chat_id=str(chat_id or ""), chat_name=chat_name or "",
        thread_id=str(thread_id or ""), user_id=str(user_id or ""), user_name=user_name or "",
        session_key=session_key or "", message_id=str(message_id or ""), profile=profile or "",
        ui_session_id=ui_session_id or "",
    )  # fmt: skip
    context.enter(identity, context.CurrentSession(SessionId(session_id or "")))
    return [_async_delivery.set(async_delivery)]


def clear_session_vars(tokens: list[Any] | None = None) -> None:
    """Bind this context to an empty identity; the earlier one does not come back."""
    context.enter(context.TurnIdentity(), context.CurrentSession(SessionId("")))
    _async_delivery.set(None)


def reset_session_vars() -> None:
    """Unbind this context: variables are those of the process's environment."""
    context.leave()
    _async_delivery.set(None)


def session_context_engaged() -> bool:
    """Whether this context is bound to a turn, whose identity child processes then get."""
    return context.current() is not None


def declare_stateless_channel() -> None:
    """Declare that nothing can be sent after the answer, as for a plain HTTP request."""
    _async_delivery.set(False)


def async_delivery_supported() -> bool:
    found = _async_delivery.get()
    return True if found is None else found
