"""Reads a streamed answer of any wire: bytes to lines, lines to events, events to a reply.

`Lines` bounds the answer in bytes and its silences in time. A wire's reader, a `StreamReader`, is fed one JSON object
after the other and says when the answer is complete. When the stream breaks off, the error carries the text and the
reasoning that had arrived; a tool call that did not arrive whole is never used.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.models import errors, normalise
from hermes_agent.models.base import Delta, Endpoint, ModelError, OnDelta, Reply, TokenUsage, ToolCall

if TYPE_CHECKING:
    from hermes_agent.models.http import HttpAnswer
    from hermes_config.limits import Limits

DONE = "[DONE]"
_ERROR_BYTES = 64 * 1024
_DRAIN_SECONDS = 0.25
"""How long to wait for the end of the response after the model finished; then the connection is dropped."""
_MOST_TOKENS = 10**9
"""More than any call has. A server that reports more reports nonsense, which counts like no report."""
_LONGER = 1.25
"""How much longer than `limits.model_idle_ms` a silence may last; this saves resetting the timer for every piece."""


class Lines:
    """The lines of an answer as they arrive.

    They end at LF or CR LF and nowhere else: Python's `splitlines` also splits at U+2028 and its kin, which are
    ordinary characters inside a JSON text. `timer` ended the wait for the answer's head, and ends the wait for the next
    piece from now on: a timer for every piece would cost more than reading it.
    """

    def __init__(self, endpoint: Endpoint, answer: HttpAnswer, bounds: Limits, timer: asyncio.Timeout) -> None:
        self._endpoint = endpoint
        self._bounds, self._idle = bounds, bounds.model_idle_ms / 1000
        self._timer, self._now = timer, asyncio.get_running_loop().time
        self._timer.reschedule(self._now() + self._idle * _LONGER)
        task = asyncio.current_task()
        assert task is not None, "a timer needs a task"
        self._task, self._cancelling = task, task.cancelling()
        self._chunks = answer.decoded()
        self._ready: deque[str] = deque()
        self._open_line: list[bytes] = []
        self._open_size = 0
        self._bytes = 0
        self._ended = False

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._fill()
        return self._ready.popleft()

    async def chunk(self) -> bytes | None:
        """The next bytes; None at the end."""
        soonest, due = self._now() + self._idle, self._timer.when()
        if due is not None and due < soonest:
            self._timer.reschedule(soonest + self._idle * (_LONGER - 1))
        return await self._next()

    async def _next(self) -> bytes | None:
        import httpx2

        try:
            chunk: bytes | None = await anext(self._chunks, None)
        except asyncio.CancelledError:
            if not self._timer.expired() or self._task.cancelling() > self._cancelling + 1:
                raise  # somebody else cancelled the task
            name = self._endpoint.provider
            raise ModelError("timeout", f"{name} fell silent in the middle of its answer") from None
        except (httpx2.HTTPError, OSError) as error:
            raise errors.from_network(self._endpoint, error) from error
        if chunk is None:
            self._ended = True
        return chunk

    async def drain(self) -> None:
        """Read the rest of the response after the answer, so that the connection can be used again."""
        if self._ended:
            return
        self._timer.reschedule(self._now() + _DRAIN_SECONDS)
        try:
            while await self._next() is not None:
                pass
        except ModelError:
            return  # the answer is complete; closing the response drops the connection

    async def _fill(self) -> None:
        chunk = await self.chunk()
        if chunk is None:
            if self._open_line:
                self._close_line(b"")
            return
        self._bytes += len(chunk)
        if self._bytes > self._bounds.model_reply_bytes:
            raise self._too_long("an answer", self._bounds.model_reply_bytes, "model_reply_bytes")
        first, *rest = chunk.split(b"\n")
        if rest:
            self._close_line(first)
            first = rest.pop()
            self._ready.extend(line.rstrip(b"\r").decode("utf-8", "replace") for line in rest)
        if first:
            self._open_line.append(first)
            self._open_size += len(first)
            if self._open_size > self._bounds.model_line_bytes:
                raise self._too_long("a line", self._bounds.model_line_bytes, "model_line_bytes")

    def _close_line(self, last: bytes) -> None:
        line = b"".join((*self._open_line, last)) if self._open_line else last
        self._open_line.clear()
        self._open_size = 0
        self._ready.append(line.rstrip(b"\r").decode("utf-8", "replace"))

    def _too_long(self, what: str, limit: int, name: str) -> ModelError:
        message = f"{self._endpoint.provider} sent {what} longer than {limit:,} bytes"
        return ModelError("protocol", message, hint=f"Raise limits.{name} if that is right.")


async def error_of(lines: Lines, endpoint: Endpoint, answer: HttpAnswer) -> ModelError:
    """The error of an unsuccessful response; only the beginning of its text is read."""
    import httpx2

    kept = bytearray()
    try:
        while len(kept) < _ERROR_BYTES and (chunk := await lines.chunk()) is not None:
            kept += chunk
    except ModelError:
        pass  # the answer broke off; its status says enough
    return errors.from_response(
        endpoint, answer.status_code, httpx2.Headers(list(answer.head)), bytes(kept[:_ERROR_BYTES])
    )


async def events(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[str, bool]]:
    """The texts of server-sent events, and whether one is the whole answer.

    Comments, which providers send to keep a connection alive, are skipped. An event that was not closed by a blank line
    counts when the stream ends. A server that ignores `stream` and answers with one JSON text is understood, too.
    """
    data: list[str] = []
    started = False
    async for line in lines:
        if line.startswith("data:"):
            started = True
            data.append(line[6:] if line.startswith("data: ") else line[5:])
        elif not line:
            if data:
                yield data[0] if len(data) == 1 else "\n".join(data), False
                data.clear()
        elif line.startswith("event:"):
            started = True
        elif not started and not line.startswith((":", "id:", "retry:")):
            text = line.lstrip("\ufeff \t")
            if text.startswith(("{", "[")):
                yield "\n".join([text, *[more async for more in lines]]), True
                return
            if text.startswith("<"):
                hint = "Check model.base_url; it usually ends in /v1."
                raise ModelError(
                    "protocol", "the address answered with a web page, not with a model's answer", hint=hint
                )
    if data:
        yield "\n".join(data), False


def parse(text: str) -> dict[str, Any]:
    """The JSON object of an event."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value and isinstance(value[0], dict):  # Google wraps errors in a list
        value = value[0]
    if not isinstance(value, dict):
        raise ModelError("protocol", "the model's answer is not valid JSON")
    return value


async def read_stream(lines: AsyncIterator[str], reader: StreamReader) -> Reply:
    """Feed a stream to a reader and return the reply."""
    empty = True
    try:
        async with aclosing(events(lines)) as stream:
            async for text, whole in stream:
                if text == DONE:
                    return reader.reply()
                empty = False
                (reader.take_whole if whole else reader.take)(parse(text))
        if empty:
            raise ModelError("protocol", "the model answered with nothing at all")
        if not reader.complete:
            raise ModelError("network", "the answer broke off before its end", hint="Try again.")
    except ModelError as error:
        error.partial = reader.partial()
        raise
    return reader.reply()


class StreamReader:
    """The common part of both wires' readers: collects the parts of a reply."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._content = Text("text", on_delta)
        self._reasoning = Text("reasoning", on_delta)
        self._calls: list[PendingCall] = []
        self._finish = ""
        self._usage: TokenUsage | None = None
        self._model = ""

    def take(self, payload: Mapping[str, Any]) -> None:
        """One object of the stream."""
        raise NotImplementedError

    def take_whole(self, payload: Mapping[str, Any]) -> None:
        """The answer of a server that does not stream."""
        raise NotImplementedError

    def reasoning_details(self) -> list[dict[str, Any]]:
        """Blocks that the next request must send back verbatim."""
        raise NotImplementedError

    @property
    def complete(self) -> bool:
        """Whether the model said that it was done."""
        return bool(self._finish)

    def reply(self) -> Reply:
        finish = self._finish or "stop"
        calls = finished(self._calls, cut=finish == "length")
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(
            self._content.value(), calls, finish, reasoning=self._reasoning.value(),
            reasoning_details=self.reasoning_details() or None, usage=self._usage, model=self._model,
        )  # fmt: skip

    def partial(self) -> Reply | None:
        """The part of an incomplete answer that arrived; None if there is none."""
        content, reasoning = self._content.value(), self._reasoning.value()
        if content is None and reasoning is None:
            return None
        return Reply(content, (), "error", reasoning=reasoning, usage=self._usage, model=self._model)


class Text:
    """Text that arrives in pieces and is passed on at once."""

    __slots__ = ("_kind", "_on_delta", "_pieces")

    def __init__(self, kind: Any, on_delta: OnDelta | None) -> None:
        self._kind = kind
        self._on_delta = on_delta
        self._pieces: list[str] = []

    def add(self, piece: Any) -> None:
        if isinstance(piece, str) and piece:
            self._pieces.append(piece)
            if self._on_delta is not None:
                self._on_delta(Delta(self._kind, piece))

    def value(self) -> str | None:
        """The whole text without surrounding white space, as the store keeps it; None if nothing is left."""
        return "".join(self._pieces).strip() or None

    def leading(self) -> int:
        """The amount of white space before the first word."""
        text = "".join(self._pieces)
        return len(text) - len(text.lstrip())


@dataclass(slots=True, eq=False)
class PendingCall:
    """A tool call that arrives in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add_arguments(self, piece: Any) -> None:
        if isinstance(piece, str):
            self.arguments.append(piece)
        elif piece is not None:  # some local servers send the object itself
            self.arguments.append(normalise.encode(piece).decode())


def finished(pending: list[PendingCall], *, cut: bool) -> tuple[ToolCall, ...]:
    """The calls of an answer, each with an id of its own (a pending one learns its new id, too).

    `cut`: the answer hit its length limit, so a call whose arguments are not a JSON object is incomplete.
    """
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for one in pending:
        arguments = "".join(one.arguments)
        if not one.name or (cut and normalise.json_object(arguments) is None):
            continue
        call_id = one.id
        if normalise.is_poor_id(call_id) or call_id in taken:
            call_id = one.id = f"call_{os.urandom(12).hex()}"
        taken.add(call_id)
        calls.append(ToolCall(call_id, one.name, arguments if arguments.strip() else "{}"))
    return tuple(calls)


def count(value: Any) -> int:
    """A number of tokens as a provider wrote it; 0 for anything that cannot be one."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS
    return int(value) if number else 0


def section(value: Any, name: str) -> Mapping[str, Any]:
    """A nested object of a JSON text that may be absent or null."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
