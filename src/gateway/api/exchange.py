"""`Exchange`: an HTTP request that waits for its answer.

An exchange watches its turn (it is a `Watcher`) and gets the answer that the turn has stored, so a client never gets
text that is not stored. A client that has gone is no error: the answer stays in the conversation, and the same
Idempotency-Key finds it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.api.openai_wire import ApiError
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import Attachment, BasePlatformAdapter, CannotFetch, Health, Outgoing, SendResult
from hermes_config import redaction
from hermes_config.recent import Recent
from hermes_state.errors import StateError
from hermes_state.ids import SessionKey
from hermes_state.people import media_files
from hermes_state.turns.inbox import OUTCOMES, InboxRow
from hermes_state.turns.turns import Work

if TYPE_CHECKING:
    from gateway.api.server import ApiServer
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

_log = logging.getLogger("hermes.gateway")


@dataclass(slots=True, eq=False)
class Exchange:
    """One request. `feed` holds the events for a streaming client: pieces of text, tool facts, None at the end."""

    streams: bool = False
    keeps: bool = False
    """It has an Idempotency-Key: the turn continues when the client leaves."""
    again: bool = False
    """It repeats an earlier request."""
    feed: asyncio.Queue[str | dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    result: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    problem: ApiError | None = None
    """The error instead of an answer."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the response was written or the client has gone."""
    gone: bool = False
    inbox_id: int = 0
    trace_id: str = ""
    route: SessionKey | None = None
    since: float = field(default_factory=time.monotonic)
    shown: str = ""
    """The pieces since the last tool call, which become the answer."""
    streamed: str = ""
    """All that was streamed."""
    held: str = ""
    """Text that is held back because it may be the beginning of a secret: mostly the last word."""
    repeats: bool = False
    """The answer broke off and is written again. A stream cannot be taken back: the rest comes at the end."""
    begun: bool = False
    """Its own turn runs. A recovered turn of the conversation may come before it, and is not shown to the client."""

    # -- the watcher's side --------------------------------------------------------------------------------

    def began(self, work: Work) -> None:
        self.begun = work.turn.attempt == 1
        self.shown = self.held = ""

    def delta(self, text: str) -> None:
        if self.streams and self.begun and not self.repeats:
            self.held += text
            self._show(redaction.current().settled(self.held))

    def _show(self, length: int) -> None:
        """Send this much of the held text, with secrets redacted."""
        if not length:
            return
        text, self.held = redaction.current()(self.held[:length]), self.held[length:]
        if text:
            self.shown += text
            self.streamed += text
            self.feed.put_nowait(text)

    def broke_off(self) -> None:
        self._show(len(self.held))
        self.repeats = bool(self.shown)

    def step(self) -> None:
        self._show(len(self.held))
        self.shown, self.repeats = "", False

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        if self.streams and self.begun and event != "tool.output":
            self._show(len(self.held))
            told = {"event": event, "tool": name, "preview": preview, "duration": duration, "failed": failed}
            self.feed.put_nowait(told)

    def status(self, kind: str, text: str) -> None:
        if self.streams and self.begun:
            self.feed.put_nowait({"event": f"status.{kind}", "text": text})

    def ended(self, result: dict[str, Any]) -> None:
        """The turn is stored: its outbox item is the answer."""
        self.result = result
        item = result.get("outbox_item")
        self.complete(str(item.payload.get("text") or "") if item is not None else "")

    def left(self) -> None:
        """Do nothing: another attempt, or the row of the message, brings the outcome."""

    # -- the end -------------------------------------------------------------------------------------------

    def complete(self, text: str) -> None:
        """Set the answer; the first one counts."""
        if not self.answered.is_set():
            self._show(len(self.held))
            self.text = redaction.current()(text)
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
        """The part of the stored answer that was not streamed."""
        text = self.text or ""
        if text.startswith(self.shown):
            return text[len(self.shown) :]
        return "" if text in self.shown else f"\n\n{text}"


def settle(db: SessionDB, exchange: Exchange, row: InboxRow | None) -> None:
    """Complete an exchange whose message has ended."""
    item = None if row is None else reply_item(db, row)
    if item is not None:
        exchange.result = item.payload.get("result") or {"completed": True}
    if row is not None and row.state == "error":
        exchange.result = {**exchange.result, "failed": True, "completed": False, "error": row.reason}
    if item is not None:
        exchange.complete(str(item.payload.get("text") or ""))
    elif row is not None and row.state == "silent":
        exchange.complete("")
    else:
        exchange.refuse(unanswered(row))


def reply_item(db: SessionDB, row: InboxRow) -> OutboxItem | None:
    """The outbox item for a message; None when there is none. One or two reads by key."""
    keys = [f"command:{row.id}", f"answer:inbox:{row.id}"]
    if row.turn_id is not None:
        keys.insert(0, f"answer:{row.turn_id}")
    for key in keys:
        item = db.outbox.find(key)
        if item is not None:
            return item
    return None


def ending(*, keeps: bool = False) -> ApiError:
    """The error while the gateway stops. `keeps`: the request has an Idempotency-Key and goes on after it."""
    again = "it goes on at the next start: ask again with the same Idempotency-Key" if keeps else "ask again"
    return ApiError(503, f"the gateway is ending, so there is no answer now; {again} in a moment", code="ending")


def unanswered(row: InboxRow | None) -> ApiError:
    """The error for a message without an answer."""
    why = (row.reason if row is not None else None) or "nothing came of it"
    return ApiError(502, f"there is no answer: {why}", code="agent_incomplete")


COLLECTED, NOT_COLLECTED = "collected", "not collected: the client had gone"
_WRITTEN_SECONDS = 50.0
_SWEEP_SECONDS = 1.0


class ApiAdapter(BasePlatformAdapter):
    """The adapter that makes HTTP clients a platform like any other.

    An outgoing answer is the body of the response that waits for it; the trace id of the message finds its exchange.
    An answer without a waiting client counts as sent, with a note: it stays in the conversation. Connecting opens the
    port, so a port in use is tried again like any platform that cannot be reached, and everything else goes on.
    """

    MAX_MESSAGE_LENGTH = 1 << 30
    queues_only = True

    def __init__(self, db: SessionDB, home: Path) -> None:
        super().__init__(PlatformConfig(enabled=True), Platform.API_SERVER)
        self._db, self._home = db, home
        self._server: ApiServer | None = None
        self._waiting: dict[str, list[Exchange]] = {}
        self._collected: Recent[str, None] = Recent(db.limits.api_conversations)
        """Trace ids whose answer was written before its delivery began."""
        self._sweeper: asyncio.Task[None] | None = None
        self._last: float | None = None
        self.closing = False
        self.closed = asyncio.Event()
        """Set when the port is about to close: whoever holds responses open ends them."""

    def serve(self, server: ApiServer) -> None:
        """Set the server that `connect` opens; called once."""
        self._server = server

    # -- life ----------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        assert self._server is not None, "the server is put together before it connects"
        if not await self._server.open():
            return False
        self._sweeper = asyncio.create_task(self._sweep(), name="api exchanges")
        self._last = time.time()
        return True

    async def disconnect(self) -> None:
        """Tell clients that still wait to come back."""
        self.closing = True
        self.closed.set()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for exchange in self.waiting():
            exchange.refuse(ending(keeps=exchange.keeps))
        if self._server is not None:
            await self._server.close()

    def health(self) -> Health:
        return Health(last_contact=self._last, problem="" if self._server is None else self._server.problem)

    # -- who waits -----------------------------------------------------------------------------------------

    def expect(self, exchange: Exchange) -> None:
        self._waiting.setdefault(exchange.trace_id, []).append(exchange)
        self._last = time.time()

    def forget(self, exchange: Exchange) -> None:
        if exchange.text is not None and not exchange.gone:
            self._collected[exchange.trace_id] = None
        left = [one for one in self._waiting.get(exchange.trace_id, ()) if one is not exchange]
        if left:
            self._waiting[exchange.trace_id] = left
        else:
            self._waiting.pop(exchange.trace_id, None)

    def waiting(self) -> list[Exchange]:
        return [exchange for exchanges in self._waiting.values() for exchange in exchanges]

    async def _sweep(self) -> None:
        """Complete exchanges whose message ended without an answer, which only the row says."""
        suspects: set[int] = set()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            old = time.monotonic() - _SWEEP_SECONDS
            open_ = [one for one in self.waiting() if one.since < old and not one.answered.is_set()]
            try:
                rows = {one.inbox_id: await asyncio.to_thread(self._db.inbox.get, one.inbox_id) for one in open_}
            except StateError as error:
                _log.warning("cannot read the inbox: %s", error.one_line(), extra={"action": "api_store"})
                continue
            ended = {number: row for number, row in rows.items() if row is None or row.state in OUTCOMES}
            for one in open_:
                # An answer that is being delivered at this moment has until the next look.
                if one.inbox_id in suspects and one.inbox_id in ended:
                    settle(self._db, one, ended[one.inbox_id])
            suspects = set(ended)

    async def _settle(self, exchange: Exchange) -> None:
        """Complete a request from the store: a turn itself completes only the one that it answers. If the store
        cannot be read now, `_sweep` tries again."""
        try:
            row = await asyncio.to_thread(self._db.inbox.get, exchange.inbox_id)
            await asyncio.to_thread(settle, self._db, exchange, row)
        except StateError as error:
            _log.warning("cannot read the inbox: %s", error.one_line(), extra={"action": "api_store"})

    # -- out -----------------------------------------------------------------------------------------------

    def pieces(self, text: str) -> list[str]:
        return [text]

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        trace_id = message.trace_id
        exchanges = self._waiting.get(trace_id, ())
        for exchange in exchanges:
            if not exchange.answered.is_set():
                await self._settle(exchange)
        if writing := [exchange for exchange in exchanges if not exchange.written.is_set()]:
            try:
                async with asyncio.timeout(_WRITTEN_SECONDS):
                    for exchange in writing:
                        await exchange.written.wait()
            except TimeoutError:
                return SendResult(success=True, message_id=NOT_COLLECTED)
        collected = trace_id in self._collected or any(not exchange.gone for exchange in exchanges)
        return SendResult(success=True, message_id=COLLECTED if collected else NOT_COLLECTED)

    async def fetch(self, attachment: Attachment, target: Path, *, limit: int) -> None:
        """Copy a picture of a request, which was stored by its hash before the request."""
        if not media_files.is_kept_name(attachment.ref):
            raise CannotFetch("there is no such file")
        try:
            await asyncio.to_thread(shutil.copyfile, media_files.folder(self._home) / attachment.ref, target)
        except OSError as error:
            raise CannotFetch("it no longer exists") from error
