"""A request that waits for its answer, and the adapter that brings it.

An `Exchange` looks on while its turn runs (a `Watcher`) and is completed by the delivery of what the turn owes: the
text of the outbox item is the answer, so a client never gets what is not stored. Exchanges are found by the trace id of
their message. A client that has gone is not an error of the delivery: its answer stays in the conversation, and the
same Idempotency-Key finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, SendResult
from hermes_state.turns import Work

_WRITTEN_SECONDS = 60.0
COLLECTED, NOT_COLLECTED = "collected", "not collected: the client had gone"


@dataclass(slots=True, eq=False)
class Exchange:
    """One request. `feed` carries what a streaming client sees: pieces of text, and (event, facts) of tools."""

    feed: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    streams: bool = False
    result: dict[str, Any] = field(default_factory=dict)
    text: str | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """The answer is here: `text` is what was stored."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """The response was written, or there is nobody to write it to."""
    gone: bool = False
    shown: str = ""

    # -- the watcher's side --------------------------------------------------------------------------------

    @property
    def showing(self) -> bool:
        return False  # a stream is no draft that would have to be finished

    def began(self, work: Work) -> None:
        self.shown = ""

    def delta(self, text: str) -> None:
        self.shown += text
        if self.streams:
            self.feed.put_nowait(text)

    def step(self) -> None:
        return None

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        if self.streams and event != "tool.output":
            told = {"event": event, "tool": name, "preview": preview, "duration": duration, "failed": failed}
            self.feed.put_nowait(told)

    def status(self, kind: str, text: str) -> None:
        if self.streams:
            self.feed.put_nowait({"event": f"status.{kind}", "text": text})

    def ended(self, result: dict[str, Any]) -> None:
        """The turn is over. What is owed comes by delivery; without anything owed this is the end."""
        self.result = result
        if result.get("outbox_item") is None:
            self.complete(result.get("final_response") or "")

    def complete(self, text: str) -> None:
        if self.text is None:
            self.text = text
            self.answered.set()
            self.feed.put_nowait(None)


class ApiAdapter(BasePlatformAdapter):
    """The platform of API clients: what goes out is the body of a response that waits for it."""

    MAX_MESSAGE_LENGTH = 1 << 30
    queues_only = True

    def __init__(self) -> None:
        super().__init__(PlatformConfig(enabled=True), Platform.API_SERVER)
        self._waiting: dict[str, Exchange] = {}

    def expect(self, trace_id: str, exchange: Exchange) -> None:
        self._waiting[trace_id] = exchange

    def forget(self, trace_id: str) -> None:
        self._waiting.pop(trace_id, None)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return True

    async def disconnect(self) -> None:
        return None

    def pieces(self, text: str) -> list[str]:
        return [text]

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> SendResult:
        exchange = self._waiting.get(str((metadata or {}).get("trace_id")))
        if exchange is None:
            return SendResult(success=True, message_id=NOT_COLLECTED)
        exchange.complete(content)
        try:
            async with asyncio.timeout(_WRITTEN_SECONDS):
                await exchange.written.wait()
        except TimeoutError:
            exchange.gone = True
        return SendResult(success=True, message_id=NOT_COLLECTED if exchange.gone else COLLECTED)
