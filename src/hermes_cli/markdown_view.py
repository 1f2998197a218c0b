"""A conversation as Markdown, for reading elsewhere. Control characters are shown as pictures, never as themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hermes_cli import text
from hermes_cli.finding import title_of
from hermes_cli.transcript_view import content_text, moment, tool_call

_FENCES = re.compile(r"`{3,}")


def conversation(segments: Sequence[dict[str, Any]]) -> str:
    """One document: a heading, and every message of every segment (each a row with its `messages`)."""
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
    lines = [f"### {text.harmless(who)} · {moment(message['timestamp'])}{state}"]
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
    """In a fence longer than any the content has."""
    longest = max((len(fence) for fence in _FENCES.findall(content)), default=2)
    return ["`" * (longest + 1), content, "`" * (longest + 1)]
