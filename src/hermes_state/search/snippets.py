"""The searchable text of a message, and snippets of it: pure functions, no database.

Searchable is the text that a person or the model wrote: the content (of a structure, its text parts), the tool's name,
and of tool calls the function names and the decoded arguments, so that `東京` is found however the JSON was escaped.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hermes_state import columns
from hermes_state.search import words
from hermes_state.search.query import Phrase

SNIPPET_WORDS = 40
_SNIPPET_CHARS = 1_000  # forty words can have pages of dashes between them
CONTEXT_CHARS = 200
START, END, MORE = ">>>", "<<<", "..."


def message_text(
    content: str | None, kind: str, tool_name: str | None, tool_calls: str | None, escaped: str | None
) -> str:
    """The whole searchable text of a message, from its columns."""
    if escaped is not None:
        names = escaped.split(",")
        tool_name = columns.unescape(tool_name) if tool_name and "tool_name" in names else tool_name
        tool_calls = columns.unescape(tool_calls) if tool_calls and "tool_calls" in names else tool_calls
    text = (content or "") if kind == "text" else columns.text_of(columns.decode_content(content, kind))
    if tool_name == "session_search":  # an earlier search: its marks are not part of what was found
        text = text.replace(START, "").replace(END, "")
    if tool_calls:
        text = f"{text}\n{tool_calls_text(tool_calls)}" if text else tool_calls_text(tool_calls)
    if tool_name:
        text = f"{text}\n{tool_name}" if text else tool_name
    return text


def tool_calls_text(stored: str) -> str:
    """`read_file path: src/parser.py`, one line per call."""
    try:
        calls = json.loads(stored)
    except ValueError:
        return stored
    return "\n".join(" ".join(_call(call)) for call in (calls if isinstance(calls, list) else [calls]))


def _call(call: Any) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        yield from _flat(call)
        return
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(name, str):
        yield name
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # some models write invalid JSON: search its text unchanged
            arguments = json.loads(arguments)
    yield from _flat(arguments)


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{key}:"
            yield from _flat(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(inner)
    elif value is not None:
        yield str(value)


def context_text(content: str | None, kind: str) -> str:
    """A neighbouring message as one short line of text."""
    decoded = columns.decode_content(content, kind)
    if decoded is None or isinstance(decoded, str):
        return (decoded or "")[:CONTEXT_CHARS]
    return (columns.text_of(decoded) or "[multimodal content]")[:CONTEXT_CHARS]


def snippet(text: str, found: Sequence[str], phrases: Sequence[Phrase]) -> str:
    """About forty words of a composed `text`, whose words are `found`, where most `phrases` occur, which are marked."""
    marks = sorted((at, at + len(phrase.words)) for phrase in phrases for at in phrase.positions(found))
    first, last = _window(marks, len(found))
    positions = words.positions(text, last)
    begin = positions[first][0] if first > 0 else 0
    end = positions[last - 1][1] if last < len(found) else len(text)
    marked = _merged([(positions[a][0], positions[b - 1][1]) for a, b in marks if a >= first and b <= last])
    if end - begin > _SNIPPET_CHARS:
        middle = marked[0][0] if marked else begin
        begin = max(begin, middle - _SNIPPET_CHARS // 2)
        end = min(end, begin + _SNIPPET_CHARS)
    parts, at = [MORE if begin > 0 else ""], begin
    for start, stop in marked:
        if start >= at and stop <= end:
            parts += [text[at:start], START, text[start:stop], END]
            at = stop
    return "".join([*parts, text[at:end], MORE if end < len(text) else ""])


def _window(marks: Sequence[tuple[int, int]], total: int) -> tuple[int, int]:
    """The range of words to show: the earliest with most marks in it, the marks in its middle."""
    if total <= SNIPPET_WORDS or not marks:
        return 0, min(total, SNIPPET_WORDS)
    best, covered, ahead = 0, (0, 0), 0
    for i, (start, _) in enumerate(marks):
        while ahead < len(marks) and marks[ahead][1] <= start + SNIPPET_WORDS:
            ahead += 1
        if ahead - i > best:
            best, covered = ahead - i, (start, marks[ahead - 1][1])
    first = (covered[0] + covered[1] - SNIPPET_WORDS) // 2
    first = max(0, min(first, covered[0], total - SNIPPET_WORDS))
    return first, first + SNIPPET_WORDS


def _merged(positions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges with overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in positions:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
