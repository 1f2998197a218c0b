"""What the two wires of a scripted model share: refusals, the form of an answer, and the check of requests.

A request that continues one that was accepted (the same bytes, more messages at the end) is checked from there on, so
being strict costs the same at ten messages and at ten thousand. Anything else is checked from the beginning.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from hermes_testing.scripted.steps import Fail, Hold, Say, ScriptedRequest


class Reject(Exception):
    """The provider would refuse this request."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "", param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = message, status, kind, param, code


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)


class Lost:
    """The connection ends here."""


Part = bytes | Pause | Hold | Lost


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    status: int
    headers: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]


class RequestState:
    """The state of a provider after the first messages of a request."""

    def copy(self) -> Self:
        raise NotImplementedError


State = TypeVar("State", bound=RequestState)


class ScriptedProvider(Generic[State]):
    """The server side of one wire: which requests it refuses, and the bytes of its answers."""

    path: str
    errors: Mapping[int, tuple[str, str | None, str]]
    """Status → the provider's `error.type`, `error.code` and message."""
    other_error: tuple[str, str | None, str]

    def __init__(self, model: str, api_key: str, context_length: int, known: frozenset[str]) -> None:
        """`known`: the fields that a request may have."""
        self._model, self._key, self._context, self._known = model, api_key, context_length, known
        self._accepted: deque[tuple[bytes, State, bytes]] = deque(maxlen=8)

    # -- requests ------------------------------------------------------------------------------------------------------

    def admit(self, request: ScriptedRequest) -> None:
        """Check credentials and headers. Raises `Reject`."""
        raise NotImplementedError

    def begin(self, body: Mapping[str, Any]) -> State:
        """Check everything except the messages. Raises `Reject`, as do the next two."""
        raise NotImplementedError

    def message(self, state: State, message: Any) -> None:
        """Check the next message."""
        raise NotImplementedError

    def end(self, state: State) -> None:
        """Check that the request may end here."""
        raise NotImplementedError

    def overflow(self, tokens: int) -> Reject:
        raise NotImplementedError

    def check(self, request: ScriptedRequest) -> None:
        """Check the body. Raises `Reject`."""
        body = request.body
        if (tokens := len(body) // 4) > self._context:
            raise self.overflow(tokens)
        found = _ENDING.search(body, max(0, len(body) - 64))
        ending = found[0] if found else b""
        for known, state, ended in self._accepted:
            if ended == ending and body.startswith(known) and (added := _added(body, len(known), ending)) is not None:
                self._messages(body, ending, state.copy(), added)
                return
        value = parse(body)
        if not isinstance(value, dict):
            raise Reject("the request body must be a JSON object")
        request.keep(value)
        state = self.begin(value)
        last = next((name for name in reversed(value) if name not in _LENGTH), "")
        self._messages(body, ending if last == "messages" else b"", state, value["messages"])

    def _messages(self, body: bytes, ending: bytes, state: State, messages: list[Any]) -> None:
        for message in messages:
            self.message(state, message)
        kept = state.copy()
        self.end(state)
        if ending:
            self._accepted.appendleft((body[: -len(ending)], kept, ending))

    # -- refusals ------------------------------------------------------------------------------------------------------

    def error(self, message: str, kind: str, param: str | None, code: str | None, number: int) -> bytes:
        """The body of a refusal."""
        raise NotImplementedError

    def refusal(self, refused: Reject, number: int) -> bytes:
        kind = refused.kind or "invalid_request_error"
        return self.error(refused.message, kind, refused.param, refused.code, number)

    def failure(self, step: Fail, number: int) -> bytes:
        if step.kind == "context_overflow":
            return self.refusal(self.overflow(self._context + 1), number)
        kind, code, message = self.errors.get(step.status, self.other_error)
        return self.error(step.message or message, step.kind or kind, None, step.code or code, number)

    # -- answers -------------------------------------------------------------------------------------------------------

    def whole(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        """An answer that is not streamed."""
        raise NotImplementedError

    def opening(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        """The first event of a stream."""
        raise NotImplementedError

    def events(self, step: Say, request: ScriptedRequest, number: int) -> Iterator[tuple[bool, bytes]]:
        """Yield the events of a stream's content, each with whether it contains a piece of the script."""
        raise NotImplementedError

    def ending(self, step: Say, request: ScriptedRequest, number: int) -> list[Part]:
        """The last events of a stream."""
        raise NotImplementedError

    def interruption(self) -> list[Part]:
        """Return the events with which the provider breaks off."""
        raise NotImplementedError

    def answer(self, step: Say, request: ScriptedRequest, number: int) -> tuple[str, list[Part]]:
        """Return the content type and the body of an answer."""
        # Looked up in the bytes first: parsing a long conversation for a flag would be felt.
        if b'"stream":true' not in request.body[:4096] and request.json.get("stream") is not True:
            return "application/json", [self.whole(step, request, number)]
        parts = self._stream(step, request, number)
        return "text/event-stream; charset=utf-8", chopped(parts, step.chop) if step.chop else parts

    def _stream(self, step: Say, request: ScriptedRequest, number: int) -> list[Part]:
        parts: list[Part] = [self.opening(step, request, number)]
        arrived = 0
        for is_piece, event in self.events(step, request, number):
            if step.breaks and arrived >= step.break_after:
                break
            if step.pace and is_piece:
                parts.append(Pause(step.pace))
            parts.append(event)
            arrived += is_piece
            if step.hold and is_piece and arrived == 1:
                parts.append(step.hold)
        if step.breaks is None:
            return parts + self.ending(step, request, number)
        if step.breaks == "disconnect":
            return [*parts, Lost()]
        return parts + self.interruption() if step.breaks == "error" else parts


_LENGTH = ("max_tokens", "max_completion_tokens")
_ENDING = re.compile(rb'\](?:,"max(?:_completion)?_tokens":\d+)?\}\Z')
"""What closes a body that a longer conversation will begin with."""


def _added(body: bytes, start: int, ending: bytes) -> list[Any] | None:
    """Return the messages after the first `start` bytes; None when something else follows."""
    rest = body[start : -len(ending)]
    if not rest:
        return []
    if not rest.startswith(b","):
        return None
    try:
        found = parse(b"[" + rest[1:] + b"]")
    except Reject:
        return None
    return found if isinstance(found, list) else None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> Any:
    """Parse JSON as providers do: UTF-8, no NaN, no lone surrogates."""
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse)
        if _SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Reject(
            "We could not parse the JSON body of your request. The API expects a JSON payload, but what was sent was"
            f" not valid JSON ({type(error).__name__})."
        ) from None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def sse(event: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n").encode()


def chopped(parts: list[Part], size: int) -> list[Part]:
    """Cut the bytes into pieces of `size`; pauses stay where they are."""
    cut: list[Part] = []
    for part in parts:
        if isinstance(part, bytes):
            cut.extend(part[at : at + size] for at in range(0, len(part), size))
        else:
            cut.append(part)
    return cut


def estimate(request: ScriptedRequest, step: Say) -> tuple[int, int]:
    """Estimate input and output tokens, at four bytes each."""
    said = sum(map(len, step.pieces)) + sum(map(len, step.reasoning)) + sum(len(c.arguments) for c in step.calls)
    return max(1, len(request.body) // 4), max(1, said // 4)


def finish(step: Say) -> str:
    """Why the answer ends, in the chat-completions vocabulary."""
    return step.finish or ("tool_calls" if step.calls else "stop")
