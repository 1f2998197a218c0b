"""The demo model: scripted, offline, and honest about it.

It is reached like any provider — the same client, the same chat-completions bytes, streamed — over a transport that
answers inside this process. So everything on its path is real: prefix, journal, budget, approvals, tools. It knows
nothing but the request: it reads what the person said and what the tools gave back, matches a few dozen phrases
(`demo_replies`), and says what it can do when none fits. The same request is answered by the same bytes.

The one thing a transport remembers is how often a request was made to fail on demand ("fail once with 429").
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2s

import httpx2

from hermes_agent.models import demo_request, demo_stream
from hermes_agent.models.base import Endpoint
from hermes_agent.models.demo import replies

PROVIDER = "demo"
MODEL = "demo"
BASE_URL = "demo://local/v1"
TOKENS_PER_SECOND = 30.0
PACE_HEADER = "x-demo-tokens-per-second"
"""The pace travels as a header, not in the body: it must not be part of the prompt's prefix."""

_CONTEXT = 32_000
_REMEMBERED = 256
_FAULTS = {
    "400": ("invalid_request_error", None, "This request is refused because you asked for it."),
    "401": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "402": ("insufficient_quota", "insufficient_quota", "You exceeded your current quota; there is none."),
    "403": ("permission_error", None, "You may not use this model, because you said so."),
    "404": ("invalid_request_error", "model_not_found", "The model does not exist, for once."),
    "413": ("invalid_request_error", None, "The request is too large, let us say."),
    "429": ("requests", "rate_limit_exceeded", "Too many requests; please wait a second."),
    "overflow": (
        "invalid_request_error", "context_length_exceeded", f"This model's maximum context length is {_CONTEXT} tokens."
    ),
}  # fmt: skip


def endpoint(*, tokens_per_second: float = TOKENS_PER_SECOND, context_length: int = _CONTEXT) -> Endpoint:
    """The demo model's place. `tokens_per_second` 0 answers at once."""
    return Endpoint(
        provider=PROVIDER, wire="chat", base_url=BASE_URL, model=MODEL, context_length=context_length, max_tokens=4_096,
        headers=((PACE_HEADER, f"{max(0.0, tokens_per_second):g}"),),
    )  # fmt: skip


def transport() -> httpx2.AsyncBaseTransport:
    """What answers below `BASE_URL`; `client` finds it by the scheme."""
    return DemoTransport()


class DemoTransport(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self._failed: OrderedDict[bytes, int] = OrderedDict()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            return _refused(404, "The demo model answers POST /chat/completions and nothing else.")
        try:
            asked = demo_request.read(body)
        except ValueError as error:
            return _refused(400, f"The demo model cannot read this request: {error}.")
        reply = replies.reply(asked)
        if reply.wait:
            await asyncio.sleep(reply.wait)
        encoder = demo_stream.Encoder(asked, body, reply)
        if reply.fault is not None and self._fails(reply.fault, body):
            return _fault(reply.fault.how, encoder)
        if not asked.stream:
            return _answered(200, encoder.whole())
        return _streamed(_Paced(encoder.chunks(), _pace(request) * reply.pace))

    def _fails(self, fault: replies.Fault, body: bytes) -> bool:
        """Whether this attempt is one of those that were asked to fail. Attempts are the same bytes again."""
        if fault.times is None:
            return True
        key = blake2s(body).digest()
        failed = self._failed.pop(key, 0)
        if failed < fault.times:
            self._failed[key] = failed + 1
            if len(self._failed) > _REMEMBERED:
                self._failed.popitem(last=False)
        return failed < fault.times


class _Paced(httpx2.AsyncByteStream):
    """Chunks at a reading pace; a pace of 0 is no pace at all."""

    def __init__(self, chunks: Iterator[tuple[int, bytes]], per_second: float) -> None:
        self._chunks, self._per_second = chunks, per_second

    async def __aiter__(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        due = clock()
        for tokens, data in self._chunks:
            if self._per_second and tokens:
                due += tokens / self._per_second
                await asyncio.sleep(max(0.0, due - clock()))
            yield data


class _Lost(httpx2.AsyncByteStream):
    """A few words, and then the connection is gone."""

    def __init__(self, chunks: Iterator[tuple[int, bytes]]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _at, (_tokens, data) in zip(range(4), self._chunks, strict=False):
            yield data
        raise httpx2.RemoteProtocolError("the demo model dropped the connection, as it was asked to")


def _fault(how: str, encoder: demo_stream.Encoder) -> httpx2.Response:
    if how == "disconnect":
        return _streamed(_Lost(encoder.chunks()))
    if how == "garbage":
        return _streamed(httpx2.ByteStream(b'data: {"choices": [{"delta": {"con\n\ndata: \xf0\x9f\n\n'))
    if how == "empty":
        return _streamed(httpx2.ByteStream(demo_stream.DONE))
    kind, code, message = _FAULTS.get(how, ("server_error", None, "The demo model had a bad moment, as you asked."))
    status = 400 if how == "overflow" else int(how)
    return _refused(status, message, kind=kind, code=code, headers={"retry-after": "1"} if status == 429 else {})


def _streamed(stream: httpx2.AsyncByteStream) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, stream=stream)


def _refused(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    return _answered(status, demo_stream.error(message, kind=kind, code=code), headers)


def _answered(status: int, content: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    # As a stream: a response made with `content` counts as read already, which none from a network does.
    described = {"content-type": "application/json", "content-length": str(len(content)), **(headers or {})}
    return httpx2.Response(status, headers=described, stream=httpx2.ByteStream(content))


def _pace(request: httpx2.Request) -> float:
    try:
        return max(0.0, float(request.headers.get(PACE_HEADER, TOKENS_PER_SECOND)))
    except ValueError:
        return TOKENS_PER_SECOND
