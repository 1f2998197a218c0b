"""From a request to its answer: the same way as a message of any chat.

The request becomes a `MessageEvent`, the intake decides and stores it, a lane runs its turn, and the exchange is
completed with what the turn owes. With an Idempotency-Key the key is the message's id, so the inbox itself sees to it
that a request is worked on once: a repetition waits for the first one or gets its stored answer, also after a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING

from gateway.api import outcomes
from gateway.api.bodies import Asked, Picture
from gateway.api.exchange import Exchange
from gateway.api.shapes import ApiError
from gateway.looking import look
from gateway.platforms.base import Attachment, MessageEvent, MessageType, Receipt
from hermes_config.home import private_open
from hermes_state.ids import SessionKey, new_trace_id
from hermes_state.people import media_files
from hermes_state.turns.inbox import OUTCOMES

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.api.adapter import ApiAdapter
    from gateway.api.conversations import Conversations, Place
    from gateway.board import Board
    from gateway.intake import Intake
    from gateway.lanes import Lanes
    from hermes_state.turns.inbox import InboxRow

_log = logging.getLogger("hermes.gateway")
_GONE = "the client had gone"


class Asking:
    """One for all requests of a key."""

    def __init__(
        self, board: Board, intake: Intake, lanes: Lanes, adapter: ApiAdapter, conversations: Conversations
    ) -> None:
        self._board, self._intake, self._lanes = board, intake, lanes
        self._adapter, self._conversations = adapter, conversations

    # -- which conversation ----------------------------------------------------------------------------------

    async def place(self, asked: Asked, name: str | None, key: str | None) -> Place:
        """Where a request goes that names its conversation, or sends its history."""
        if name is not None:
            return await self._conversations.named(name, asked)
        found = await self._conversations.continued(asked)
        if key is None:
            return found or await self._conversations.begun(asked)
        # A repetition has to find the first one, whatever was said there since: the key has a place of its own.
        return await self._conversations.once(asked, once_name(key), found)

    # -- asking ----------------------------------------------------------------------------------------------

    async def ask(self, place: Place, asked: Asked, *, key: str | None = None, digest: str | None = None) -> Exchange:
        """Hand the request over; the exchange is answered in time. Raises `ApiError` when it is not taken."""
        if self._adapter.closing or not self._lanes.is_open:
            raise outcomes.ending()
        event = MessageEvent(
            text=asked.said.text, source=place.source, message_id=key or f"req-{new_trace_id()}",
            channel_prompt=asked.system, digest=digest, attachments=await self._kept(asked.said.pictures),
            message_type=MessageType.PHOTO if asked.said.pictures else MessageType.TEXT, surely_new=key is None,
        )  # fmt: skip
        exchange = Exchange(streams=asked.stream, keeps=key is not None)
        receipt = await self._intake.receive(event, adapter=self._adapter, watcher=exchange)
        if receipt.state == "duplicate":
            assert receipt.inbox_id is not None
            row = await look(self._board.db, self._board.db.inbox.get, receipt.inbox_id)
            return await self._joined(row, digest, streams=asked.stream)
        self._expect(exchange, place.route, receipt)
        return exchange

    def _expect(self, exchange: Exchange, route: SessionKey, receipt: Receipt) -> None:
        if receipt.state == "refused":
            full = "too many" in receipt.reason
            raise ApiError(429 if full else 403, receipt.reason, code="queue_full" if full else "not_allowed")
        if receipt.inbox_id is None or receipt.trace_id is None:
            raise ApiError(409, f"it was not answered: {receipt.reason}", code="not_taken")
        exchange.inbox_id, exchange.trace_id, exchange.route = receipt.inbox_id, receipt.trace_id, route
        self._adapter.expect(exchange)

    # -- the same request again --------------------------------------------------------------------------------

    async def repeated(self, place: Place, key: str, digest: str, *, streams: bool) -> Exchange | None:
        """The exchange of a request that was taken before; None when it is new. Raises when it was another one."""
        found = await look(
            self._board.db, self._board.db.inbox.versions, platform=place.source.platform.value,
            chat_id=place.chat_id, message_id=key,
        )  # fmt: skip
        return await self._joined(found[-1], digest, streams=streams) if found else None

    async def _joined(self, row: InboxRow | None, digest: str | None, *, streams: bool) -> Exchange:
        if row is None or (row.payload or {}).get("digest") != digest:
            raise ApiError(
                409, "this Idempotency-Key was used with another request", code="idempotency_key_reused",
                param="Idempotency-Key",
            )  # fmt: skip
        assert row.route is not None
        exchange = Exchange(
            streams=streams, keeps=True, again=True, inbox_id=row.id, trace_id=row.trace_id, route=row.route
        )  # fmt: skip
        if row.state in OUTCOMES:
            await asyncio.to_thread(outcomes.settle, self._board.db, exchange, row)
        else:
            self._adapter.expect(exchange)
        return exchange

    # -- the end -----------------------------------------------------------------------------------------------

    def done(self, exchange: Exchange) -> None:
        """The response was written, or given up."""
        exchange.written.set()
        self._adapter.forget(exchange)

    async def left(self, exchange: Exchange) -> None:
        """The client has gone: nobody wants this answer any more, unless it can come back for it."""
        if not exchange.keeps and not exchange.answered.is_set():
            await self._withdraw(exchange)
            _log.info(_GONE, extra={"action": "api_client_gone", "trace_id": exchange.trace_id})
        exchange.leave()  # last: whoever waits for this exchange ends whatever is done for it

    async def _withdraw(self, exchange: Exchange) -> None:
        turn = None if exchange.route is None else self._lanes.running(exchange.route)
        if turn is not None and any(row.id == exchange.inbox_id for row in turn.rows):
            turn.interrupt(reason=_GONE)
        else:  # it waits, and is not begun when its time comes
            await asyncio.to_thread(self._board.db.inbox.finish, [exchange.inbox_id], "dropped", reason=_GONE)

    async def outcome(self, exchange: Exchange) -> None:
        """For an answer that came without the facts of its turn: whether it is one, or words about a failure."""
        if not exchange.result and exchange.problem is None and exchange.text is not None:
            row = await look(self._board.db, self._board.db.inbox.get, exchange.inbox_id)
            if row is not None and row.state == "error":
                exchange.result = {"failed": True, "completed": False, "error": row.reason}
            else:
                exchange.result = {"completed": True}

    async def _kept(self, pictures: tuple[Picture, ...]) -> tuple[Attachment, ...]:
        """Pictures of a request, kept by hash before it is stored: after a restart they are still there."""
        if not pictures:
            return ()
        most = self._board.settings.media_bytes
        return tuple([await asyncio.to_thread(_keep, self._board.home, one, most) for one in pictures])


def once_name(key: str) -> str:
    """The conversation of a request that names none and may be repeated."""
    return f"once-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def _keep(home: Path, picture: Picture, most: int) -> Attachment:
    if len(picture.content) > most:
        raise ApiError(413, f"a picture has more than {most:,} bytes", code="picture_too_large")
    draft = media_files.draft(home)
    try:
        with private_open(draft, "xb") as file:
            file.write(picture.content)
        kept = media_files.keep(home, draft, ending=picture.ending, most=most)
    finally:
        draft.unlink(missing_ok=True)
    name = f"picture{picture.ending}"
    return Attachment(ref=kept.path.name, kind=MessageType.PHOTO, name=name, size=kept.size)
