"""`ApiAdapter`: HTTP clients as a platform like any other.

What goes out is the body of a response that waits for it; exchanges are found by the trace id of their message. What
nobody waits for is taken all the same and noted so: it stays in the conversation. Connecting is opening the port, so a
port that is taken is tried again like any platform that is away, and everything else goes on.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gateway.api import outcomes
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import Attachment, BasePlatformAdapter, CannotFetch, Health, SendResult
from hermes_state.errors import StateError
from hermes_state.people import media_files
from hermes_state.turns.inbox import OUTCOMES

if TYPE_CHECKING:
    from gateway.api.exchange import Exchange
    from hermes_state import SessionDB

_log = logging.getLogger("hermes.gateway")

COLLECTED, NOT_COLLECTED = "collected", "not collected: the client had gone"
_WRITTEN_SECONDS = 50.0
_SWEEP_SECONDS = 1.0


class Door(Protocol):
    """The listening server (`gateway.api.server`)."""

    problem: str

    async def open(self) -> bool: ...

    async def close(self) -> None: ...


class ApiAdapter(BasePlatformAdapter):
    MAX_MESSAGE_LENGTH = 1 << 30
    queues_only = True

    def __init__(self, db: SessionDB, home: Path) -> None:
        super().__init__(PlatformConfig(enabled=True), Platform.API_SERVER)
        self._db, self._home = db, home
        self._door: Door | None = None
        self._waiting: dict[str, list[Exchange]] = {}
        self._collected: OrderedDict[str, None] = OrderedDict()
        """Traces whose answer was written before its delivery began."""
        self._sweeper: asyncio.Task[None] | None = None
        self._last: float | None = None
        self.closing = False

    def serve(self, door: Door) -> None:
        """Told once, before it connects, what it opens."""
        self._door = door

    # -- life ----------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        assert self._door is not None, "the server is put together before it connects"
        if not await self._door.open():
            return False
        self._sweeper = asyncio.create_task(self._sweep(), name="api exchanges")
        self._last = time.time()
        return True

    async def disconnect(self) -> None:
        """Whoever still waits is told to come back."""
        self.closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for exchange in self.waiting():
            exchange.refuse(outcomes.ending(keeps=exchange.keeps))
        if self._door is not None:
            await self._door.close()

    def health(self) -> Health:
        return Health(last_contact=self._last, problem="" if self._door is None else self._door.problem)

    # -- who waits -----------------------------------------------------------------------------------------

    def expect(self, exchange: Exchange) -> None:
        self._waiting.setdefault(exchange.trace_id, []).append(exchange)
        self._last = time.time()

    def forget(self, exchange: Exchange) -> None:
        if exchange.text is not None and not exchange.gone:
            self._collected[exchange.trace_id] = None
            while len(self._collected) > self._db.limits.api_conversations:
                self._collected.popitem(last=False)
        left = [one for one in self._waiting.get(exchange.trace_id, ()) if one is not exchange]
        if left:
            self._waiting[exchange.trace_id] = left
        else:
            self._waiting.pop(exchange.trace_id, None)

    def waiting(self) -> list[Exchange]:
        return [exchange for exchanges in self._waiting.values() for exchange in exchanges]

    async def _sweep(self) -> None:
        """Messages that came to an end without an answer: nobody tells the exchange, but the row knows."""
        suspects: set[int] = set()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            old = time.monotonic() - _SWEEP_SECONDS
            open_ = [one for one in self.waiting() if one.since < old and not one.answered.is_set()]
            try:
                rows = {one.inbox_id: await asyncio.to_thread(self._db.inbox.get, one.inbox_id) for one in open_}
            except StateError as error:
                _log.warning("the inbox cannot be read: %s", error.one_line(), extra={"action": "api_store"})
                continue
            ended = {number: row for number, row in rows.items() if row is None or row.state in OUTCOMES}
            for one in open_:
                # An answer that is being delivered at this moment has until the next look.
                if one.inbox_id in suspects and one.inbox_id in ended:
                    outcomes.settle(self._db, one, ended[one.inbox_id])
            suspects = set(ended)

    async def _settle(self, exchange: Exchange) -> None:
        """The turn has told its end to the first request alone; what it used is in the store."""
        try:
            row = await asyncio.to_thread(self._db.inbox.get, exchange.inbox_id)
            await asyncio.to_thread(outcomes.settle, self._db, exchange, row)
        except StateError as error:
            _log.warning("the inbox cannot be read: %s", error.one_line(), extra={"action": "api_store"})

    # -- out -----------------------------------------------------------------------------------------------

    def pieces(self, text: str) -> list[str]:
        return [text]

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> SendResult:
        trace_id = str((metadata or {}).get("trace_id"))
        exchanges = self._waiting.get(trace_id, ())
        for exchange in exchanges:
            if exchange.again:
                await self._settle(exchange)
            exchange.complete(content)
        try:
            async with asyncio.timeout(_WRITTEN_SECONDS):
                for exchange in list(exchanges):
                    await exchange.written.wait()
        except TimeoutError:
            return SendResult(success=True, message_id=NOT_COLLECTED)
        collected = trace_id in self._collected or any(not exchange.gone for exchange in exchanges)
        return SendResult(success=True, message_id=COLLECTED if collected else NOT_COLLECTED)

    async def fetch(self, attachment: Attachment, target: Path, *, limit: int) -> None:
        """A picture of a request was kept by its hash before the request was taken."""
        if not media_files.is_kept_name(attachment.ref):
            raise CannotFetch("there is no such file")
        try:
            await asyncio.to_thread(shutil.copyfile, media_files.folder(self._home) / attachment.ref, target)
        except OSError as error:
            raise CannotFetch("it is not there any more") from error
