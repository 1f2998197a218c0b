"""Watching a turn: the callbacks that surfaces set on an agent.

A callback that raises is noted and never breaks the turn; none of them can change what happens. The names and the
arguments of the callbacks are the contract's; the turn calls them by `tell`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

_log = logging.getLogger("hermes.agent")

Callback = Callable[..., Any]


class Callbacks:
    """The callbacks of the contract, by their names; each may be None."""

    stream_delta_callback: Callback | None = None
    """A piece of the answer; None: the answer broke off, and what was told of it is void, for it is asked for again."""
    reasoning_callback: Callback | None = None
    tool_gen_callback: Callback | None = None
    """The model has begun to write a call of this tool."""
    tool_start_callback: Callback | None = None
    tool_complete_callback: Callback | None = None
    tool_progress_callback: Callback | None = None
    interim_assistant_callback: Callback | None = None
    """What the model said before its calls; it was streamed already."""
    status_callback: Callback | None = None
    step_callback: Callback | None = None
    event_callback: Callback | None = None
    compressing: bool = False
    """A summary of the conversation is being made: what a person writes meanwhile waits for it."""
    heard_at: float = 0.0
    """When there was last something to tell, by the monotonic clock, whether or not anybody listened."""

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
