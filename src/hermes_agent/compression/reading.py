"""A stored row as compression looks at it: its text, its calls, what it weighs. Rows of old homes may hold anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hermes_agent.models.base import Message
from hermes_agent.prompt import tokens
from hermes_state import columns

_FRAME = 24
"""Bytes around a message, whatever it says."""
_IMAGE_BYTES = 5_600


class Call(NamedTuple):
    id: str
    name: str
    arguments: str


def text_of(message: Message) -> str:
    """What a person would read in it."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return columns.text_of(content)


def _part_text(part: Any) -> str:
    if is_image(part):
        return "[an image]"
    return columns.text_of(part)


def is_image(part: Any) -> bool:
    return isinstance(part, dict) and "image" in str(part.get("type", ""))


def calls_of(message: Message) -> Iterator[Call]:
    """The tool calls an assistant's row makes."""
    made = message.get("tool_calls")
    for call in made if isinstance(made, list) else ():
        if isinstance(call, dict):
            about = call.get("function")
            function = about if isinstance(about, dict) else call
            arguments = function.get("arguments")
            if arguments is not None and not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            yield Call(str(call.get("id") or ""), str(function.get("name") or ""), arguments or "")


def arguments_of(call: Call) -> dict[str, Any]:
    """A call's arguments; nothing where the model wrote broken JSON."""
    try:
        found = json.loads(call.arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def tokens_of(message: Message, model: str = "") -> int:
    """About how much of the window a row takes."""
    return tokens.estimate(_nbytes(message), model)


def _nbytes(message: Message) -> int:
    sent = message.get("api_content")
    total = _FRAME + _content_bytes(message.get("content") if sent is None else sent)
    # The texts of these are sent as they are; plain `reasoning` is for people and is not.
    for name in ("tool_calls", "reasoning_content", "reasoning_details", "tool_call_id"):
        value = message.get(name)
        if value:
            total += _content_bytes(value)
    return total


def _content_bytes(content: Any) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
    if isinstance(content, list):
        return sum(_IMAGE_BYTES if is_image(part) else _content_bytes(part) for part in content)
    return len(json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def clipped(text: str, most: int) -> str:
    """At most so many characters, the beginning and the end of a longer text."""
    if len(text) <= most:
        return text
    note = f" […{len(text) - most:,} characters left out…] "
    if most <= len(note) + 20:
        return text[: max(most, 0)]
    front = (most - len(note)) * 2 // 3
    return text[:front] + note + text[len(text) - (most - len(note) - front) :]
