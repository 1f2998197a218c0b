"""A request that waits for its answer.

An `Exchange` looks on while its turn runs (a `Watcher`) and is completed with what the turn has stored for its chat, so
a client never gets what is not stored. A client that has gone is no error: the answer stays in the conversation, and
the same Idempotency-Key finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.api.shapes import ApiError
from hermes_config import secrets
from hermes_state.ids import SessionKey
from hermes_state.turns.turns import Work


@dataclass(slots=True, eq=False)
class Exchange:
    """One request. `feed` carries what a streaming client sees: pieces of text, facts of tools, None at the end."""

    streams: bool = False
    keeps: bool = False
    """It came with an Idempotency-Key: the turn goes on when the client leaves."""
    again: bool = False
    """A repetition of a request that was taken before."""
    feed: asyncio.Queue[str | dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    result: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    problem: ApiError | None = None
    """Why there will be no answer."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """The response was written, or there is nobody to write it to."""
    gone: bool = False
    inbox_id: int = 0
    trace_id: str = ""
    route: SessionKey | None = None
    since: float = field(default_factory=time.monotonic)
    shown: str = ""
    """Of the answer proper: what was streamed since the last tool call."""
    streamed: str = ""
    """All that was streamed."""
    held: str = ""
    """What is not streamed yet, for it may be the beginning of a secret: mostly the last word."""
    begun: bool = False
    """Its own turn runs. One that was left behind in the conversation comes before it, and is not its client's."""

    # -- the watcher's side --------------------------------------------------------------------------------

    def began(self, work: Work) -> None:
        self.begun = work.turn.attempt == 1
        self.shown = self.held = ""

    def delta(self, text: str) -> None:
        if self.streams and self.begun:
            self.held += text
            self._show(secrets.current().settled(self.held))

    def _show(self, length: int) -> None:
        """So much of what is held back goes out, its secrets covered."""
        text, self.held = secrets.current()(self.held[:length]), self.held[length:]
        if text:
            self.shown += text
            self.streamed += text
            self.feed.put_nowait(text)

    def step(self) -> None:
        self._show(len(self.held))
        self.shown = ""

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        if self.streams and self.begun and event != "tool.output":
            self._show(len(self.held))
            told = {"event": event, "tool": name, "preview": preview, "duration": duration, "failed": failed}
            self.feed.put_nowait(told)

    def status(self, kind: str, text: str) -> None:
        if self.streams and self.begun:
            self.feed.put_nowait({"event": f"status.{kind}", "text": text})

    def ended(self, result: dict[str, Any]) -> None:
        """The turn is committed: what it owes is the answer, and is only handed over here."""
        self.result = result
        item = result.get("outbox_item")
        self.complete(str(item.payload.get("text") or "") if item is not None else "")

    # -- the end -------------------------------------------------------------------------------------------

    def complete(self, text: str) -> None:
        """The answer; the first one counts."""
        if not self.answered.is_set():
            self._show(len(self.held))
            self.text = secrets.current()(text)
            self._end()

    def refuse(self, problem: ApiError) -> None:
        if not self.answered.is_set():
            self.problem = problem
            self._end()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self.written.set()
        if not self.keeps and not self.answered.is_set():
            self._end()

    def _end(self) -> None:
        self.answered.set()
        self.feed.put_nowait(None)

    def rest(self) -> str:
        """What a client that has read the stream still lacks of the stored answer."""
        text = self.text or ""
        if text.startswith(self.shown):
            return text[len(self.shown) :]
        return "" if text in self.shown else f"\n\n{text}"
