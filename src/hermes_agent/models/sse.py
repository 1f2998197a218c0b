"""Server-sent events: lines in, events out.

Lines end at LF or CR LF and nowhere else: Python's `splitlines` also splits at U+2028 and its kin, which are ordinary
characters inside a JSON text. Comments (providers send them to keep a connection alive) are skipped. A server that
ignores `stream` and answers with one JSON text is understood too: its text comes as a single event named `json`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from hermes_agent.models.base import ModelError

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
