"""What the two wires of a scripted model share: refusals, the parts of an answer, and checking at flat cost.

A request that continues one that was accepted (the same bytes, more messages at the end) is checked from there on, so
being strict costs the same at ten messages and at ten thousand. Anything else is checked from the beginning.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

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


class Lost:
    """The connection ends here, without a word."""


Part = bytes | Pause | Hold | Lost


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    status: int
    headers: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]


State = TypeVar("State", bound="Stateful")


class Stateful(Protocol):
    def copy(self: State) -> State: ...


class RequestRules(Protocol[State]):
    """What a provider accepts."""

    def begin(self, body: Mapping[str, Any]) -> State:
        """Everything but the messages."""

    def message(self, state: State, message: Any) -> None:
        """The next message."""

    def end(self, state: State) -> None:
        """The last message was the last."""


class ScriptedProvider(Protocol):
    """One wire, seen from the other end."""

    path: str

    def admit(self, request: ScriptedRequest) -> None:
        """Credentials and headers. Raises `Refused`."""

    def check(self, request: ScriptedRequest) -> None:
        """The body. Raises `Refused`."""

    def answer(self, step: Say, request: ScriptedRequest, number: int) -> tuple[str, list[Part]]:
        """Content type and body."""

    def refusal(self, refused: Reject, number: int) -> bytes: ...

    def failure(self, step: Fail, number: int) -> bytes: ...


class Checker(Generic[State]):
    """The rules, applied to bodies."""

    def __init__(self, rules: RequestRules[State]) -> None:
        self._rules = rules
        self._accepted: deque[tuple[bytes, State]] = deque(maxlen=8)

    def check(self, request: ScriptedRequest) -> None:
        """Raises `Refused`."""
        body = request.body
        for known, state in self._accepted:
            if body.startswith(known) and (added := _added(body, len(known))) is not None:
                self._messages(body, state.copy(), added)
                return
        value = parse(body)
        if not isinstance(value, dict):
            raise Reject("the request body must be a JSON object")
        request.keep(value)
        state = self._rules.begin(value)
        continues = next(reversed(value)) == "messages" and body.endswith(b"]}")
        self._messages(body if continues else b"", state, value["messages"])

    def _messages(self, body: bytes, state: State, messages: list[Any]) -> None:
        for message in messages:
            self._rules.message(state, message)
        kept = state.copy()
        self._rules.end(state)
        if body:
            self._accepted.appendleft((body[:-2], kept))


def _added(body: bytes, start: int) -> list[Any] | None:
    """The messages behind the first `start` bytes, None when that is not what follows."""
    rest = body[start:]
    if rest == b"]}":
        return []
    if not (rest.startswith(b",") and rest.endswith(b"]}")):
        return None
    try:
        found = parse(b"[" + rest[1:-1])
    except Reject:
        return None
    return found if isinstance(found, list) else None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> Any:
    """JSON as providers read it: UTF-8, no NaN, no half of a surrogate pair."""
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
    """The bytes cut every `size` of them; pauses stay where they are."""
    cut: list[Part] = []
    for part in parts:
        if isinstance(part, bytes):
            cut.extend(part[at : at + size] for at in range(0, len(part), size))
        else:
            cut.append(part)
    return cut


def estimate(request: ScriptedRequest, step: Say) -> tuple[int, int]:
    """Tokens in and out, at four bytes each."""
    said = sum(map(len, step.pieces)) + sum(map(len, step.reasoning)) + sum(len(c.arguments) for c in step.calls)
    return max(1, len(request.body) // 4), max(1, said // 4)
