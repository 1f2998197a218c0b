"""The callbacks through which a surface watches a turn; the surface sets them on the agent.

A callback that raises is logged and never breaks the turn; no callback can change the turn. The contract fixes their
names and arguments; the turn calls them through `tell`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

_log = logging.getLogger("hermes.agent")

Callback = Callable[..., Any]


class Callbacks:
    """The callbacks of the contract; each may be None."""

    stream_delta_callback: Callback | None = None
    """Gets a piece of the answer. None: the answer broke off and is requested again; discard the pieces so far."""
    reasoning_callback: Callback | None = None
    tool_gen_callback: Callback | None = None
    """Called when the model begins to write a call of this tool."""
    tool_start_callback: Callback | None = None
    tool_complete_callback: Callback | None = None
    tool_progress_callback: Callback | None = None
    interim_assistant_callback: Callback | None = None
    """Gets the model's text before its calls; the text was streamed already."""
    status_callback: Callback | None = None
    step_callback: Callback | None = None
    event_callback: Callback | None = None
    compressing: bool = False
    """True while compression makes a summary; new messages wait until it is done."""
    heard_at: float = 0.0
    """The monotonic time of the last event, whether or not a callback was set for it."""

    def tell_status(self, kind: Literal["lifecycle", "warn"], text: str) -> None:
        self.tell("status_callback", kind, text)

    def tell(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call the callback of this name, if somebody set it."""
        self.heard_at = time.monotonic()
        callback: Callback | None = getattr(self, name)
        if callback is None:
            return
        try:
            callback(*args, **kwargs)
        except Exception:  # noqa: BLE001 - boundary: somebody else's callback
            _log.exception("a callback failed", extra={"action": "callback_failed", "callback": name})
