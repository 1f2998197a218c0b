"""`/v1/chat/completions` and `/v1/models`, as OpenAI's clients know them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from gateway.api import bodies, handling, shapes
from gateway.api.asking import once_name
from gateway.api.bodies import Asked
from gateway.api.exchange import Exchange
from gateway.api.guard import App, Receive, Scope, Send
from gateway.api.shapes import ApiError

if TYPE_CHECKING:
    from gateway.api.asking import Asking
    from gateway.api.conversations import Conversations, Place

_GONE_SECONDS = 0.05
"""After so long it is watched whether the client is still there."""


class Chat:
    def __init__(self, asking: Asking, conversations: Conversations, *, model: str, keep_alive: float) -> None:
        self.asking, self.conversations = asking, conversations
        self.model, self.keep_alive = model, keep_alive

    # -- handlers --------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> App:
        return handling.reply({"object": "list", "data": [self._about_model()]})

    async def one_model(self, request: Request) -> App:
        if request.path_params["model"] != self.model:
            raise ApiError(404, f"there is one model here: {self.model}", code="model_not_found", param="model")
        return handling.reply(self._about_model())

    async def completions(self, request: Request) -> App:
        raw = await bodies.raw_body(request)
        asked = bodies.asked(bodies.parsed(raw))
        name, key = bodies.session_name(request), bodies.idempotency_key(request)
        place, exchange = await self._asked(asked, name, key, raw)
        return await self.answer(request, place, asked, exchange)

    async def _asked(self, asked: Asked, name: str | None, key: str | None, raw: bytes) -> tuple[Place, Exchange]:
        if key is None:
            place = await self.asking.place(asked, name, None)
            return place, await self.asking.ask(place, asked)
        digest = hashlib.sha256(raw).hexdigest()
        place = self.conversations.place(name or once_name(key))
        known = await self.asking.repeated(place, key, digest, streams=asked.stream)
        if known is not None:
            return place, known
        place = await self.asking.place(asked, name, key)
        return place, await self.asking.ask(place, asked, key=key, digest=digest)

    def _about_model(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "hermes"}

    # -- the answer ------------------------------------------------------------------------------------------

    async def answer(self, request: Request, place: Place, asked: Asked, exchange: Exchange) -> App:
        """A response for an exchange that is under way."""
        waits = _Waits(self, place, asked, exchange, lambda: self._until_gone(request.receive, exchange))
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
            await self.asking.left(exchange)


class _Waits:
    """A response while it is made, and whether there is somebody to read it.

    `until_gone`: reads on until the client has gone. Most answers to quick questions are out before it would begin.
    """

    def __init__(
        self,
        chat: Chat,
        place: Place,
        asked: Asked,
        exchange: Exchange,
        until_gone: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._chat, self._place, self._asked, self._exchange = chat, place, asked, exchange
        self._until_gone = until_gone
        self._reading: asyncio.Task[None] | None = None
        self._beginning = asyncio.get_running_loop().call_later(_GONE_SECONDS, self._read)
        self._id = f"chatcmpl-{exchange.trace_id}"

    def _read(self) -> None:
        self._reading = asyncio.ensure_future(self._until_gone())

    def over(self) -> None:
        self._beginning.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._chat.asking.done(self._exchange)

    # -- whole -----------------------------------------------------------------------------------------------

    async def whole(self) -> App:
        exchange = self._exchange
        await exchange.answered.wait()
        await self._settled()
        body = shapes.completion(self._id, self._chat.model, exchange.result, exchange.text or "")
        response = handling.reply(body, headers={**self._headers(), **shapes.headers(exchange.result)})

        async def written(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await response(scope, receive, send)
            finally:
                self.over()

        return written

    async def _settled(self) -> None:
        """An answer, or the error there is instead."""
        exchange = self._exchange
        if exchange.problem is not None:
            raise exchange.problem
        if exchange.text is None:
            raise ApiError(499, "the client had gone", code="client_gone")
        await self._chat.asking.outcome(exchange)
        if shapes.is_incomplete(exchange.result, exchange.text):
            raise shapes.incomplete(exchange.result, exchange.text)
        if not exchange.again:  # the conversation may have gone on since
            read = (exchange.text, exchange.streamed or exchange.text)
            self._chat.conversations.answered(self._place.name, self._asked, *read)

    def _headers(self) -> dict[str, str]:
        return {"x-hermes-session-id": self._place.name, "x-hermes-trace-id": self._exchange.trace_id}

    # -- streamed --------------------------------------------------------------------------------------------

    async def streamed(self) -> App:
        """The status waits for the first word: a turn that fails before it is an error like any other."""
        first = await self._next()
        if first is None:
            await self._settled()

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {**self._headers(), "content-type": "text/event-stream; charset=utf-8"}
            headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            try:
                await self._send(send, shapes.event(self._chunk({"role": "assistant", "content": ""})))
                piece = first
                while piece is not None:
                    await self._send(send, self._event(piece))
                    piece = await self._next()
                await self._send(send, await self._last(), more=False)
            finally:
                self.over()

        return stream

    async def _next(self) -> str | dict[str, Any] | None:
        """What comes next: a piece, facts, an empty piece after a while without any, None at the end."""
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
            return shapes.KEEP_ALIVE
        if isinstance(piece, str):
            return shapes.event(self._chunk({"content": piece}))
        return shapes.event(piece, name="hermes.tool.progress" if "tool" in piece else "hermes.status")

    async def _last(self) -> bytes:
        exchange = self._exchange
        try:
            await self._settled()
        except ApiError as error:
            return shapes.event({**error.body(), **error.more}) + shapes.DONE
        parts = []
        if rest := exchange.rest():
            parts.append(shapes.event(self._chunk({"content": rest})))
        result = exchange.result
        end = {**self._chunk({}, finish=shapes.finish_reason(result)), "hermes": shapes.about(result)}
        parts.append(shapes.event(end))
        if self._asked.with_usage:
            parts.append(shapes.event({**self._chunk({}), "choices": [], "usage": shapes.usage(result)}))
        return b"".join((*parts, shapes.DONE))

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
        return shapes.chunk(self._id, self._chat.model, delta, finish=finish)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})
