"""Who looks on while a turn runs: the callbacks surfaces set on an agent.

A callback that raises is noted once and never breaks the turn; none of them can change what happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger("hermes.agent")

Callback = Callable[..., Any]


@dataclass(slots=True)
class Listeners:
    """The callbacks of the contract, by their names; each may be None."""

    stream_delta_callback: Callback | None = None
    reasoning_callback: Callback | None = None
    tool_gen_callback: Callback | None = None
    tool_start_callback: Callback | None = None
    tool_complete_callback: Callback | None = None
    tool_progress_callback: Callback | None = None
    interim_assistant_callback: Callback | None = None
    status_callback: Callback | None = None
    step_callback: Callback | None = None
    event_callback: Callback | None = None

    def tell(self, name: str, *args: Any, **kwargs: Any) -> None:
        callback: Callback | None = getattr(self, name)
        if callback is None:
            return
        try:
            callback(*args, **kwargs)
        except Exception:  # noqa: BLE001 - boundary: somebody else's callback
            _log.exception("a callback failed", extra={"action": "callback_failed", "callback": name})
