"""Renders transcripts from stored rows: for the terminal, with each tool call on one line, and as Markdown.

This module makes every stored text harmless. Only tool calls are shortened, and `full` shows them uncut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hermes_cli.framework import output, text
from hermes_cli.sessions.lookup import title_of

_INDENT = "  "
_COLOURS = {"user": "cyan", "assistant": "green"}


def transcript(messages: Iterable[dict[str, Any]], *, full: bool, columns: int) -> str:
    """All messages, separated by blank lines."""
    rows = list(messages)
    results = {row["tool_call_id"]: row for row in rows if row["role"] == "tool" and row["tool_call_id"]}
    called = {call_id for row in rows for call_id in map(_call_id, _calls(row)) if call_id in results}
    blocks = []
    for row in rows:
        if row["role"] == "tool" and row["tool_call_id"] in called:
            continue  # shown with its call
        blocks.append("\n".join([_heading(row), *_body(row, results, full=full, columns=columns)]))
    return "\n\n".join(blocks)


def content_text(content: Any) -> str:
    """Return the text of a content value, with the names of its other parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(content_text, content)))
    if isinstance(content, dict):
        if isinstance(content.get("text"), str):
            return str(content["text"])
        if "content" in content:
            return content_text(content["content"])
        return f"[{str(content.get('type') or 'part').removesuffix('_url')}]"
    return str(content)


def _heading(row: dict[str, Any]) -> str:
    role = text.harmless(row["role"])
    state = {"interrupted": " (interrupted)", "error": " (cut off by an error)"}.get(row["finish_reason"] or "", "")
    if not row["active"]:
        state = " (summarised)" if row["compacted"] else " (taken back)"
    name = output.style(role, _COLOURS[role]) if role in _COLOURS else output.style(role, "dim")
    return name + output.style(f" · {text.moment(row['timestamp'])}{state}", "dim")


def _body(row: dict[str, Any], results: dict[str, dict[str, Any]], *, full: bool, columns: int) -> list[str]:
    lines: list[str] = []
    if full and row["reasoning"]:
        lines += _block(f"(reasoning) {row['reasoning']}")
    said = content_text(row["content"])
    if row["role"] == "tool":
        name = row["tool_name"] or "tool"
        return [*_fold(name, "", said, full=full, columns=columns), *lines]
    if said:
        lines += _block(said)
    for call in _calls(row):
        name, arguments = tool_call(call)
        result = results.get(_call_id(call) or "")
        outcome = None if result is None else content_text(result["content"])
        lines += _fold(name, arguments, outcome, full=full, columns=columns)
    return lines


def _fold(name: str, arguments: str, outcome: str | None, *, full: bool, columns: int) -> list[str]:
    """Draw a tool call as `⚙ name  arguments → outcome`, on one line unless `full`."""
    head = f"{_INDENT}⚙ {text.harmless(name)}"
    if full:
        said = "(no result)" if outcome is None else outcome
        return [head, *_block(arguments, depth=2), *_block(f"→ {said}", depth=2)]
    arrow = "" if outcome is None else f" → {' '.join(outcome.split())}"
    room = max(columns - text.width(head) - 2, 20)
    given = text.harmless(" ".join(arguments.split()))
    if arrow and text.width(given) > room // 2:
        given = text.shorten(given, room // 2)
    line = text.shorten(f"{given}{text.harmless(arrow)}".strip(), room)
    return [f"{head}{output.style(f'  {line}', 'dim')}".rstrip()]


def _block(content: str, *, depth: int = 1) -> list[str]:
    return [f"{_INDENT * depth}{line}".rstrip() for line in text.harmless_block(content).split("\n") if content]


def _calls(row: dict[str, Any]) -> list[Any]:
    calls = row["tool_calls"]
    return calls if isinstance(calls, list) and row["role"] != "tool" else []


def _call_id(call: Any) -> str | None:
    found = call.get("id") if isinstance(call, dict) else None
    return found if isinstance(found, str) else None


def tool_call(call: Any) -> tuple[str, str]:
    """The name of a tool call and its arguments as `key=value …`."""
    if not isinstance(call, dict):
        return "tool", str(call)
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    name, arguments = str(function.get("name") or "tool"), function.get("arguments", function.get("args", ""))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return name, str(arguments)
    if name == "use_tool" and isinstance(arguments, dict):
        name, arguments = str(arguments.get("name") or name), arguments.get("arguments") or {}
    if isinstance(arguments, dict):
        given = " ".join(f"{key}={_value(value)}" for key, value in arguments.items())
    else:
        given = _value(arguments)
    return name, given


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)


_FENCES = re.compile(r"`{3,}")


def conversation(segments: Sequence[dict[str, Any]]) -> str:
    """Draw a conversation as one document: a heading and every message of every segment (rows with `messages`)."""
    newest = segments[-1]
    lines = [f"# {text.harmless(title_of(newest))}", ""]
    lines.append(f"`{text.harmless(newest['root_id'])}` · {text.harmless(newest['source'])}")
    for number, segment in enumerate(segments, 1):
        if len(segments) > 1:
            lines += ["", f"## Segment {number} of {len(segments)} · `{text.harmless(segment['id'])}`"]
        for message in segment["messages"]:
            lines += ["", *_message(message)]
    return "\n".join(lines) + "\n"


def _message(message: dict[str, Any]) -> list[str]:
    state = ""
    if not message["active"]:
        state = " (summarised)" if message["compacted"] else " (taken back)"
    who = message["tool_name"] if message["role"] == "tool" and message["tool_name"] else message["role"]
    lines = [f"### {text.harmless(who)} · {text.moment(message['timestamp'])}{state}"]
    said = text.harmless_block(content_text(message["content"]))
    if said and message["role"] == "tool":
        lines += ["", *_fenced(said)]
    elif said:
        lines += ["", said]
    calls = message["tool_calls"] if isinstance(message["tool_calls"], list) else []
    for call in calls:
        name, arguments = tool_call(call)
        lines += ["", *_fenced(text.harmless_block(f"{name} {arguments}".rstrip()))]
    return lines


def _fenced(content: str) -> list[str]:
    """Put content into a code fence longer than any fence in it."""
    longest = max((len(fence) for fence in _FENCES.findall(content)), default=2)
    return ["`" * (longest + 1), content, "`" * (longest + 1)]
