"""A model that follows a script: strict, recorded, in this process or behind a real socket.

    with ScriptedModel(say("Hello"), say(calls=[call("todo")]), say("Done")) as model:
        reply = await call(model.endpoint(), body)
        assert model.requests[0].body == body

Each request takes the first unused step that fits it (`when`). A request that a provider would refuse is refused in the
provider's words and takes no step. Leaving the `with` block fails when steps are left, when a request found no step, or
when one was refused and the test did not say that it wants that (`allow_rejections`). `ScriptedServer`
(`scripted.server`) serves the same object over HTTP.

Strict means: what at least one well-known server of the wire refuses is refused here. Limits: it knows the fields our
wires may use, not every field of every provider (`extra_fields` adds some), and it counts tokens as bytes / 4.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx2

from hermes_agent.models.base import Endpoint, WireName
from hermes_testing.scripted.anthropic import AnthropicProvider
from hermes_testing.scripted.chat import ChatProvider
from hermes_testing.scripted.steps import (
    Fail,
    Hold,
    Say,
    ScriptedCall,
    ScriptedRequest,
    Step,
    always,
    call,
    disconnect,
    fail,
    garbage,
    in_system,
    overflow,
    raw,
    say,
    saying,
)
from hermes_testing.scripted.wire import Lost, Part, Pause, Reject, ScriptedAnswer, ScriptedProvider

if TYPE_CHECKING:
    from hermes_testing.scripted.server import ScriptedServer

__all__ = [
    "Hold", "ScriptedCall", "ScriptedModel", "ScriptedRequest", "Step", "always", "call", "disconnect", "fail",
    "garbage", "in_system", "overflow", "raw", "say", "saying",
]  # fmt: skip

_JSON = (("content-type", "application/json"),)
_numbers = itertools.count(1)


class ScriptedModel:
    """A scripted model: its steps, the requests it received, and its addresses."""

    def __init__(
        self,
        *steps: Step,
        wire: WireName = "chat",
        model: str = "scripted-1",
        api_key: str = "scripted-key",
        context_length: int = 128_000,
        extra_fields: Iterable[str] = (),
        allow_rejections: bool = False,
        keep: int | None = None,
        improvise: Callable[[ScriptedRequest], Step | None] | None = None,
    ) -> None:
        """`improvise` makes a step for a request that no step of the script fits, or returns None."""
        self.wire: WireName = wire
        self.model = model
        self.api_key = api_key
        self.context_length = context_length
        self.requests: list[ScriptedRequest] = []
        """Every request, in the order of arrival, accepted or not; the last `keep` of them."""
        self.received = 0
        self.calls = 0
        """The number of accepted requests."""
        self.rejections: list[ScriptedRequest] = []
        self.unexpected: list[ScriptedRequest] = []
        """Valid requests that found no step."""
        self.allow_rejections = allow_rejections
        self._keep = keep
        self._improvise = improvise
        self._steps = deque(steps)
        self._lock = threading.Lock()
        self._origin = f"http://scripted-{next(_numbers)}.invalid"
        self._unregister: Callable[[], None] | None = None
        provider = ChatProvider if wire == "chat" else AnthropicProvider
        self._provider: ScriptedProvider[Any] = provider(model, api_key, context_length, frozenset(extra_fields))

    def add(self, *steps: Step) -> None:
        """Add steps to the script."""
        with self._lock:
            self._steps.extend(steps)

    @property
    def unused(self) -> tuple[Step, ...]:
        return tuple(step for step in self._steps if not step.repeat)

    def endpoint(self, origin: str | None = None, **changes: Any) -> Endpoint:
        """Return the endpoint of the model in this process, or of a server at `origin`; `changes` are its fields."""
        root = self._origin if origin is None else origin
        # The chat wire's path lies below /v1, Anthropic's contains it.
        base_url = f"{root}/v1" if self.wire == "chat" else root
        plain = Endpoint(
            provider="custom", wire=self.wire, base_url=base_url, model=self.model, api_key=self.api_key,
            context_length=self.context_length,
        )  # fmt: skip
        return replace(plain, **changes)

    def settings(self, origin: str | None = None) -> dict[str, Any]:
        """The section `model` of a config.yaml that uses this model."""
        endpoint = self.endpoint(origin)
        return {
            "provider": "custom", "default": endpoint.model, "base_url": endpoint.base_url,
            "api_key": endpoint.api_key, "context_length": endpoint.context_length,
        }  # fmt: skip

    def transport(self) -> httpx2.AsyncBaseTransport:
        """Return a transport for your own `httpx2.AsyncClient`."""
        return _Transport(self)

    def served(self) -> ScriptedServer:
        """Return a server for this model: `with` runs it on a separate thread, `async with` in this loop."""
        from hermes_testing.scripted.server import ScriptedServer

        return ScriptedServer(self)

    def answer(self, request: ScriptedRequest) -> ScriptedAnswer:
        """Record a request and take its step."""
        with self._lock:
            self.requests.append(request)
            if self._keep is not None:
                del self.requests[: -self._keep]
            request.number = self.received
            self.received += 1
            number = self.received
            try:
                self._admit(request)
            except Reject as refused:
                request.rejected = refused.message
                self.rejections.append(request)
                return ScriptedAnswer(refused.status, _JSON, (self._provider.refusal(refused, number),))
            step = self._take(request)
            if step is None:
                self.unexpected.append(request)
                return ScriptedAnswer(500, _JSON, (b'{"error":{"message":"the script has no step for this request"}}',))
            self.calls += 1
        return self._play(step, request, number)

    def _admit(self, request: ScriptedRequest) -> None:
        if request.path != self._provider.path:
            raise Reject(f"Invalid URL ({request.method} {request.path})", status=404)
        if request.method != "POST":
            raise Reject(f"Not allowed to {request.method} on {request.path}", status=405)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Reject("Unsupported media type: the request must be application/json", status=415)
        self._provider.admit(request)
        self._provider.check(request)

    def _take(self, request: ScriptedRequest) -> Step | None:
        for index, step in enumerate(self._steps):
            if step.when is None or step.when(request):
                if not step.repeat:
                    del self._steps[index]
                return step
        return None if self._improvise is None else self._improvise(request)

    def _play(self, step: Step, request: ScriptedRequest, number: int) -> ScriptedAnswer:
        headers: tuple[tuple[str, str], ...]
        parts: list[Part]
        if isinstance(step, Say):
            content_type, parts = self._provider.answer(step, request, number)
            status, headers = 200, (("content-type", content_type), ("x-request-id", f"req_s{number}"))
        elif isinstance(step, Fail):
            status, headers, parts = step.status, (*_JSON, *step.headers), [self._provider.failure(step, number)]
        else:
            status, headers, parts = step.status, step.headers, list(step.parts)
            if step.disconnect:
                parts.append(Lost())
        if step.delay:
            parts.insert(0, Pause(step.delay))
        return ScriptedAnswer(status, headers, tuple(parts))

    def verify(self) -> None:
        """Raises `AssertionError` when the script and what happened differ."""
        trouble = self._trouble()
        if trouble:
            raise AssertionError(trouble)

    def _trouble(self) -> str:
        if self.rejections and not self.allow_rejections:
            first = self.rejections[0]
            return f"request {first.number} was refused: {first.rejected}"
        if self.unexpected:
            first = self.unexpected[0]
            return (
                f"request {first.number} found no step; the person's last words in it: {first.last_user_text[-200:]!r}"
            )
        if unused := self.unused:
            return f"{len(unused)} steps were not used, the first of them {unused[0]!r}"
        return ""

    def __enter__(self) -> Self:
        from hermes_agent.models import http

        self._unregister = http.register_transport(self._origin, self.transport)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._unregister is not None:
            self._unregister()
            self._unregister = None
        if error is None:
            self.verify()
        elif trouble := self._trouble():
            error.add_note(f"the scripted model: {trouble}")


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        path = request.url.raw_path.decode("ascii").partition("?")[0]
        answer = self._model.answer(ScriptedRequest(request.method, path, _lower(request.headers), body))
        parts = answer.parts
        while parts and isinstance(parts[0], Pause | Hold | Lost):  # nothing arrives before the first bytes do
            await _pass(parts[0])
            parts = parts[1:]
        return httpx2.Response(answer.status, headers=list(answer.headers), stream=_Stream(parts), request=request)


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
            else:
                await _pass(part)


async def _pass(part: Pause | Hold | Lost) -> None:
    if isinstance(part, Lost):
        raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
    await part.wait()


def _lower(headers: httpx2.Headers) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers.raw}
