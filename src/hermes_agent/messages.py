"""Reading a stored message: its text, its tool calls, its estimated tokens. Rows of old homes may hold anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_agent.models.base import Message, Reply, ToolCall
from hermes_agent.prompt import tokens
from hermes_state import columns

FIND_TOOL, USE_TOOL = "find_tool", "use_tool"
"""The tools that find and call tools which the prompt does not list."""
_FRAME = 24
"""Bytes of JSON around every message."""


def text_of(content: Any, *, image: str = "") -> str:
    """The readable text of a message content, one line a part; `image` replaces a picture."""
    if not isinstance(content, list):
        return columns.text_of(content)
    return "\n".join(filter(None, (image if is_image(part) else columns.text_of(part) for part in content)))


def is_image(part: Any) -> bool:
    return isinstance(part, dict) and "image" in str(part.get("type", ""))


def calls_of(message: Message) -> Iterator[ToolCall]:
    """The tool calls in an assistant's row; one made through `use_tool` is a call of the tool it names."""
    made = message.get("tool_calls")
    for call in made if isinstance(made, list) else ():
        if isinstance(call, dict):
            about = call.get("function")
            function = about if isinstance(about, dict) else call
            arguments = function.get("arguments")
            if arguments is not None and not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            yield inner_call(ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments or ""))


def inner_call(call: ToolCall) -> ToolCall:
    """The call that counts: of `use_tool` the call of the tool it names. What cannot be read so stays as it is."""
    if call.name != USE_TOOL:
        return call
    try:
        made = json.loads(call.arguments, strict=False)
        name, given = made.get("name"), made.get("arguments")
        given = json.loads(given or "{}", strict=False) if isinstance(given, str) else {} if given is None else given
    except (ValueError, AttributeError, RecursionError):
        return call
    if not isinstance(name, str) or not name.strip() or not isinstance(given, dict):
        return call
    return ToolCall(call.id, name.strip(), json.dumps(given, ensure_ascii=False))


def arguments_of(call: ToolCall) -> Any:
    """The parsed arguments of a call; the text as it is if it is not JSON."""
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


def step_row(reply: Reply, now: float) -> dict[str, Any]:
    """The row of a model's step with tool calls."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.tool_calls
    ]
    return {
        "role": "assistant", "content": reply.content or "", "timestamp": now, "finish_reason": reply.finish_reason,
        "reasoning": reply.reasoning, "reasoning_details": reply.reasoning_details, "tool_calls": calls,
    }  # fmt: skip


def tokens_of(message: Message, model: str = "") -> int:
    """The estimated tokens of a row."""
    sent = message.get("api_content")
    total = _FRAME + _content_bytes(message.get("content") if sent is None else sent)
    # The texts of these columns are sent as stored; plain `reasoning` is only for people and is not sent.
    for name in ("tool_calls", "reasoning_content", "reasoning_details", "tool_call_id"):
        total += _content_bytes(message.get(name) or None)
    return tokens.estimate(total, model)


def _content_bytes(content: Any) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
    if isinstance(content, list):
        return sum(tokens.IMAGE_WEIGHT if is_image(part) else _content_bytes(part) for part in content)
    return len(json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace"))
