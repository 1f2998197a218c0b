"""Watching a turn: the callbacks that surfaces set on an agent.

A callback that raises is noted and never breaks the turn; none of them can change what happens. The names and the
arguments of the callbacks are the contract's; the turn calls the methods below.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

_log = logging.getLogger("hermes.agent")

Callback = Callable[..., Any]


class Callbacks:
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
    heard_at: float = 0.0
    """When there was last something to tell, by the monotonic clock, whether or not anybody listened."""

    def tell_text(self, text: str) -> None:
        self._tell("stream_delta_callback", self.stream_delta_callback, text)

    def tell_reasoning(self, text: str) -> None:
        self._tell("reasoning_callback", self.reasoning_callback, text)

    def tell_tool_named(self, name: str) -> None:
        """The model has begun to write a call of this tool."""
        self._tell("tool_gen_callback", self.tool_gen_callback, name)

    def tell_tool_started(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        self._tell("tool_start_callback", self.tool_start_callback, call_id, name, arguments)

    def tell_tool_completed(self, call_id: str, name: str, arguments: Mapping[str, Any], content: str) -> None:
        self._tell("tool_complete_callback", self.tool_complete_callback, call_id, name, arguments, content)

    def tell_tool_progress(
        self, what: str, name: str, shown: str, arguments: Mapping[str, Any] | None, **facts: Any
    ) -> None:
        self._tell("tool_progress_callback", self.tool_progress_callback, what, name, shown, arguments, **facts)

    def tell_interim(self, text: str) -> None:
        """What the model said before its calls; it was streamed already."""
        self._tell("interim_assistant_callback", self.interim_assistant_callback, text, already_streamed=True)

    def tell_status(self, kind: Literal["lifecycle", "warn"], text: str) -> None:
        self._tell("status_callback", self.status_callback, kind, text)

    def tell_step(self, number: int, tools: Sequence[str]) -> None:
        self._tell("step_callback", self.step_callback, number, tools)

    def tell_event(self, name: str, facts: Mapping[str, Any]) -> None:
        self._tell("event_callback", self.event_callback, name, facts)

    def _tell(self, name: str, callback: Callback | None, *args: Any, **kwargs: Any) -> None:
        self.heard_at = time.monotonic()
        if callback is None:
            return
        try:
            callback(*args, **kwargs)
        except Exception:  # noqa: BLE001 - boundary: somebody else's callback
            _log.exception("a callback failed", extra={"action": "callback_failed", "callback": name})
