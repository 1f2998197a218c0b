"""Reading a streamed answer, whatever the wire: what both readers share.

A reader is fed one JSON object after the other and says when it has all of an answer. When the stream breaks off, the
error carries the text and the reasoning that had arrived; a tool call that did not arrive whole is never used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from hermes_agent.models import repair, sse
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
        async for event in sse.Events(lines):
            if event.data == sse.DONE:
                break
            empty = False
            payload = sse.parse(event)
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
            self.arguments.append(repair.encode(piece).decode())


def finished(pending: list[Pending], *, cut: bool) -> tuple[ToolCall, ...]:
    """The calls of an answer, each with an id of its own (a pending one learns its new id, too).

    `cut`: the answer hit its length limit, so a call whose arguments are no JSON object is half a call.
    """
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for one in pending:
        arguments = "".join(one.arguments)
        if not one.name or (cut and repair.json_object(arguments) is None):
            continue
        call_id = one.id
        if repair.is_poor_id(call_id) or call_id in taken:
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
