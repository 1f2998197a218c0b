"""`/v1/chat/completions` and `/v1/models`, as OpenAI's clients know them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from gateway.api import bodies, error_boundary, openai_wire
from gateway.api.auth import App, Receive, Scope, Send, key_of
from gateway.api.bodies import Asked, RequestPicture
from gateway.api.conversations import ApiConversation, Conversations, once_name
from gateway.api.exchange import ApiAdapter, Exchange, ending, settle
from gateway.api.openai_wire import ApiError
from gateway.platforms.base import Attachment, MessageEvent, MessageType, Receipt
from hermes_state.ids import SessionKey, new_trace_id
from hermes_state.people import media_files
from hermes_state.storage.writer import look
from hermes_state.turns.inbox import OUTCOMES, InboxRow

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.services import Parts

_log = logging.getLogger("hermes.gateway")
_GONE = "the client had gone"
DEFAULT_MODEL = "hermes-agent"


class ChatHandlers:
    """Answers requests in the same way as messages of any chat. One object serves all keys.

    The request becomes a `MessageEvent`, the intake decides and stores it, a lane runs its turn, and the exchange gets
    the turn's answer. An Idempotency-Key is the message's id, so the inbox accepts the request once: a repetition waits
    for the first one or gets its stored answer, also after a restart.
    """

    def __init__(self, parts: Parts, adapter: ApiAdapter) -> None:
        self._services, self._intake, self._lanes, self._adapter = parts.services, parts.intake, parts.lanes, adapter
        self.model = parts.services.settings.api_server.model_name or DEFAULT_MODEL
        self.keep_alive = parts.services.db.limits.api_keep_alive_seconds

    # -- handlers --------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> App:
        return error_boundary.reply({"object": "list", "data": [self._about_model()]})

    async def one_model(self, request: Request) -> App:
        if request.path_params["model"] != self.model:
            raise ApiError(404, f"there is one model here: {self.model}", code="model_not_found", param="model")
        return error_boundary.reply(self._about_model())

    async def completions(self, request: Request) -> App:
        raw = await bodies.raw_body(request)
        asked = await bodies.read(raw, bodies.asked)
        name, key = bodies.session_name(request), bodies.idempotency_key(request)
        conversations = key_of(request).conversations
        digest = None if key is None else hashlib.sha256(raw).hexdigest()
        if key is not None and digest is not None:
            conversation = conversations.of_name(name or once_name(key))
            known = await self.repeated(conversation, key, digest, streams=asked.stream)
            if known is not None:
                return await self.answer(request, conversation, asked, known)
        conversation = await conversations.of_request(asked, name, key)
        exchange = await self.ask(conversation, asked, key=key, digest=digest)
        return await self.answer(request, conversation, asked, exchange)

    def _about_model(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "hermes"}

    # -- the answer ------------------------------------------------------------------------------------------

    async def answer(self, request: Request, conversation: ApiConversation, asked: Asked, exchange: Exchange) -> App:
        """The response for a running exchange."""
        request.state.taken = not exchange.keeps
        waits = _Waits(self, key_of(request).conversations, conversation, asked, exchange)
        waits.reading = asyncio.ensure_future(self._until_gone(request.receive, exchange))
        try:
            if asked.stream:
                return await waits.streamed()
            return await waits.whole()
        except BaseException:
            waits.over()
            raise

    async def _until_gone(self, receive: Receive, exchange: Exchange) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not exchange.written.is_set():
            await self.left(exchange)

    # -- asking ----------------------------------------------------------------------------------------------

    async def ask(
        self, conversation: ApiConversation, asked: Asked, *, key: str | None = None, digest: str | None = None
    ) -> Exchange:
        """Give the request to the intake; its answer completes the exchange. Raises `ApiError` when it is refused."""
        if self._adapter.closing or not self._lanes.is_open:
            raise ending()
        event = MessageEvent(
            text=asked.said.text, source=conversation.source, message_id=key or f"req-{new_trace_id()}",
            channel_prompt=asked.system, digest=digest, attachments=await self._kept(asked.said.pictures),
            message_type=MessageType.PHOTO if asked.said.pictures else MessageType.TEXT,
        )  # fmt: skip
        exchange = Exchange(streams=asked.stream, keeps=key is not None)
        receipt = await self._intake.receive(event, adapter=self._adapter, watcher=exchange)
        if receipt.state == "duplicate":
            assert receipt.inbox_id is not None
            row = await look(self._services.db, self._services.db.inbox.get, receipt.inbox_id)
            return await self._joined(row, digest, streams=asked.stream)
        self._expect(exchange, conversation.route, receipt)
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

    async def repeated(self, conversation: ApiConversation, key: str, digest: str, *, streams: bool) -> Exchange | None:
        """The exchange of a repeated request; None when it is new. Raises when the earlier request differs."""
        found = await look(
            self._services.db, self._services.db.inbox.versions, platform=conversation.source.platform.value,
            chat_id=conversation.chat_id, message_id=key,
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
            await asyncio.to_thread(settle, self._services.db, exchange, row)
        else:
            self._adapter.expect(exchange)
        return exchange

    # -- the end -----------------------------------------------------------------------------------------------

    def done(self, exchange: Exchange) -> None:
        """Forget an exchange whose response was written or given up."""
        exchange.written.set()
        self._adapter.forget(exchange)

    async def left(self, exchange: Exchange) -> None:
        """Stop the turn of a client that has gone, unless the client can come back for the answer."""
        if not exchange.keeps and not exchange.answered.is_set():
            await self._withdraw(exchange)
            _log.info(_GONE, extra={"action": "api_client_gone", "trace_id": exchange.trace_id})
        exchange.leave()  # last, because this ends the work for the exchange

    async def _withdraw(self, exchange: Exchange) -> None:
        turn = None if exchange.route is None else self._lanes.running(exchange.route)
        if turn is not None and any(row.id == exchange.inbox_id for row in turn.rows):
            turn.interrupt(reason=_GONE)
        else:  # the message still waits, and will not be answered
            await asyncio.to_thread(self._services.db.inbox.finish, [exchange.inbox_id], "dropped", reason=_GONE)

    async def _kept(self, pictures: tuple[RequestPicture, ...]) -> tuple[Attachment, ...]:
        """Store the pictures of a request by hash before the request, so that they survive a restart."""
        if not pictures:
            return ()
        most = self._services.settings.media_bytes
        return tuple([await asyncio.to_thread(_keep, self._services.home, one, most) for one in pictures])


class _Waits:
    """Writes the response of one exchange."""

    reading: asyncio.Task[None] | None = None
    """A task that ends when the client has gone."""

    def __init__(
        self,
        chat: ChatHandlers,
        conversations: Conversations,
        conversation: ApiConversation,
        asked: Asked,
        exchange: Exchange,
    ) -> None:
        self._chat, self._conversations, self._conversation = chat, conversations, conversation
        self._asked, self._exchange = asked, exchange
        self._id = f"chatcmpl-{exchange.trace_id}"

    def over(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
        self._chat.done(self._exchange)

    # -- whole -----------------------------------------------------------------------------------------------

    async def whole(self) -> App:
        exchange = self._exchange
        await exchange.answered.wait()
        self._settled()
        body = openai_wire.completion(self._id, self._chat.model, exchange.result, exchange.text or "")
        response = error_boundary.reply(body, headers={**self._headers(), **openai_wire.headers(exchange.result)})

        async def written(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await response(scope, receive, send)
            finally:
                self.over()

        return written

    def _settled(self) -> None:
        """Check that there is an answer, and record it. Raises the error instead of one."""
        exchange = self._exchange
        if exchange.problem is not None:
            raise exchange.problem
        if exchange.text is None:
            raise ApiError(499, "the client had gone", code="client_gone")
        if openai_wire.is_incomplete(exchange.result, exchange.text):
            raise openai_wire.incomplete(exchange.result, exchange.text)
        if not exchange.again:  # the conversation may have gone on since
            read = (exchange.text, exchange.streamed or exchange.text)
            self._conversations.answered(self._conversation.name, self._asked, *read)

    def _headers(self) -> dict[str, str]:
        known = {"x-hermes-session-id": self._conversation.name, "x-hermes-trace-id": self._exchange.trace_id}
        return {**known, "x-hermes-ignored": ", ".join(self._asked.ignored)} if self._asked.ignored else known

    # -- streamed --------------------------------------------------------------------------------------------

    async def streamed(self) -> App:
        """Stream the answer. The status waits for the first word: a turn that fails before it is a plain error."""
        first = await self._next()
        if first is None:
            self._settled()

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {**self._headers(), "content-type": "text/event-stream; charset=utf-8"}
            headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            try:
                await self._send(send, openai_wire.event(self._chunk({"role": "assistant", "content": ""})))
                piece = first
                while piece is not None:
                    await self._send(send, self._event(piece))
                    piece = await self._next()
                await self._send(send, self._last(), more=False)
            finally:
                self.over()

        return stream

    async def _next(self) -> str | dict[str, Any] | None:
        """The next event: a piece of text, facts, an empty piece after a silence, None at the end."""
        feed = self._exchange.feed
        if not feed.empty():
            return feed.get_nowait()
        try:
            async with asyncio.timeout(self._chat.keep_alive):
                return await feed.get()
        except TimeoutError:
            return ""

    def _event(self, piece: str | dict[str, Any]) -> bytes:
        if not piece:
            return openai_wire.KEEP_ALIVE
        if isinstance(piece, str):
            return openai_wire.event(self._chunk({"content": piece}))
        # Clients read every event as a chunk, whatever its name: this is one, without words.
        name = "hermes.tool.progress" if "tool" in piece else "hermes.status"
        return openai_wire.event({**self._chunk({}), **piece}, name=name)

    def _last(self) -> bytes:
        exchange = self._exchange
        try:
            self._settled()
        except ApiError as error:
            return openai_wire.event({**error.body(), **error.more}) + openai_wire.DONE
        parts = []
        if rest := exchange.rest():
            parts.append(openai_wire.event(self._chunk({"content": rest})))
        result = exchange.result
        end = {**self._chunk({}, finish=openai_wire.finish_reason(result)), "hermes": openai_wire.about(result)}
        parts.append(openai_wire.event(end))
        if self._asked.with_usage:
            parts.append(openai_wire.event({**self._chunk({}), "choices": [], "usage": openai_wire.usage(result)}))
        return b"".join((*parts, openai_wire.DONE))

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
        return openai_wire.chunk(self._id, self._chat.model, delta, finish=finish)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _keep(home: Path, picture: RequestPicture, most: int) -> Attachment:
    if len(picture.content) > most:
        raise ApiError(413, f"a picture has more than {most:,} bytes", code="picture_too_large")
    kept = media_files.keep_bytes(home, picture.content, ending=picture.ending)
    name = f"picture{picture.ending}"
    return Attachment(ref=kept.path.name, kind=MessageType.PHOTO, name=name, size=kept.size)
