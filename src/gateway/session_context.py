"""A turn's identity, at the address and under the names of hermes-agent; the code is in `hermes_agent.context`.

`set_session_vars`, `clear_session_vars` and `reset_session_vars` are for plug-ins and tests; a turn uses `bind`.
"""

from __future__ import annotations

from typing import Any

from hermes_agent.context import Bound, CurrentSession, TurnIdentity, get_session_env, put, set_current_session_id
from hermes_state.ids import SessionId

__all__ = [
    "clear_session_vars", "get_session_env", "reset_session_vars", "set_current_session_id", "set_session_vars",
]  # fmt: skip


def set_session_vars(
    *, session_id: str = "", cwd: str = "", async_delivery: bool = True, **facts: str | None
) -> list[Any]:
    """Bind this context to an identity; facts that are missing are empty. `cwd` and `async_delivery` have no effect."""
    known = {name: str(value or "") for name, value in facts.items()}
    return [put(Bound(TurnIdentity(**known), CurrentSession(SessionId(session_id))))]  # type: ignore[arg-type]


def clear_session_vars(tokens: object = None) -> None:
    """Make every variable empty, so that none is taken from the environment of the process."""
    put(Bound(TurnIdentity(), CurrentSession(SessionId(""))))


def reset_session_vars() -> None:
    """Unbind this context: variables come from the environment of the process again."""
    put(None)
