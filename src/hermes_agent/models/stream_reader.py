"""Reading a streamed answer, whatever the wire: what both readers share.

A reader is fed one JSON object after the other and says when it has all of an answer. When the stream breaks off, the
error carries the text and the reasoning that had arrived; a tool call that did not arrive whole is never used.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, Protocol

from hermes_agent.models import normalise
from hermes_agent.models.base import Delta, ModelError, OnDelta, Reply, ToolCall


class Reader(Protocol):
    def take(self, payload: Mapping[str, Any]) -> None:
        """One object of the stream."""

    def take_whole(self, payload: Mapping[str, Any]) -> None:
        """The answer of a server that does not stream."""

    @property
    def complete(self) -> bool:
        """Whether the model said that it was done."""

    def reply(self) -> Reply: ...

    def partial(self) -> Reply | None:
        """What there is of an answer that broke off; None when there is nothing."""


async def read_stream(lines: AsyncIterator[str], reader: Reader) -> Reply:
    """Feed a stream to a reader and give back what it made of it."""
    empty = True
    try:
        async for event in Events(lines):
            if event.data == DONE:
                break
            empty = False
            payload = parse(event)
            if event.name == "json":
                reader.take_whole(payload)
            else:
                reader.take(payload)
        else:
            if empty:
                raise ModelError("protocol", "the model answered with nothing at all")
            if not reader.complete:
                raise ModelError("network", "the answer broke off before its end", hint="Try again.")
    except ModelError as error:
        error.partial = reader.partial()
        raise
    return reader.reply()


class Text:
    """Text that arrives in pieces, and is passed on as it does."""

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
        """All of it, without the white space around it (the store keeps none either); None when that is all."""
        return "".join(self._pieces).strip() or None

    def leading(self) -> int:
        """How much white space stood before the first word."""
        text = "".join(self._pieces)
        return len(text) - len(text.lstrip())


class Pending:
    """A tool call that arrives in pieces."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def add_arguments(self, piece: Any) -> None:
        if isinstance(piece, str):
            self.arguments.append(piece)
        elif piece is not None:  # some local servers send the object itself
            self.arguments.append(normalise.encode(piece).decode())


def finished(pending: list[Pending], *, cut: bool) -> tuple[ToolCall, ...]:
    """The calls of an answer, each with an id of its own (a pending one learns its new id, too).

    `cut`: the answer hit its length limit, so a call whose arguments are no JSON object is half a call.
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
    """A number of tokens as a provider wrote it."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0


def section(value: Any, name: str) -> Mapping[str, Any]:
    """A nested object of a JSON text that may be absent or null."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


DONE = "[DONE]"


class Event(NamedTuple):
    name: str
    """Empty when the server gave none; `json` for an answer that was no stream."""
    data: str


class Events:
    """The events of a stream. An event that was not closed by a blank line counts when the stream ends."""

    __slots__ = ("_data", "_lines", "_name", "_started")

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self._name = ""
        self._data: list[str] = []
        self._started = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        async for line in self._lines:
            if line.startswith("data:"):
                self._started = True
                self._data.append(line[6:] if line.startswith("data: ") else line[5:])
            elif not line:
                if self._data:
                    return self._event()
                self._name = ""
            elif line.startswith("event:"):
                self._started = True
                self._name = line[6:].strip()
            elif not self._started and not line.startswith((":", "id:", "retry:")):
                if line.lstrip("\ufeff \t").startswith(("{", "[")):
                    return await self._whole(line)
                _refuse_page(line)
        if self._data:
            return self._event()
        raise StopAsyncIteration

    def _event(self) -> Event:
        event = Event(self._name, self._data[0] if len(self._data) == 1 else "\n".join(self._data))
        self._name = ""
        self._data.clear()
        return event

    async def _whole(self, first: str) -> Event:
        lines = [first.lstrip("\ufeff")]
        async for line in self._lines:
            lines.append(line)
        return Event("json", "\n".join(lines))


def _refuse_page(line: str) -> None:
    if line.lstrip("\ufeff \t").startswith("<"):
        raise ModelError(
            "protocol",
            "the address answered with a web page, not with a model's answer",
            hint="Check model.base_url; it usually ends in /v1.",
        )


def parse(event: Event) -> dict[str, Any]:
    """The JSON object of an event."""
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value and isinstance(value[0], dict):  # Google wraps errors in a list
        value = value[0]
    if not isinstance(value, dict):
        raise ModelError("protocol", "the model's answer is not valid JSON")
    return value
