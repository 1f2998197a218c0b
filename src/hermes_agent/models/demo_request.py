"""A chat-completions request as the demo model reads it: who said what, which tools there are, what they gave back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.turn import control

_COMPACTION = "[CONTEXT COMPACTION"
"""How a summary begins that stands for what was left out: in the person's place, but not their words."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back, beside the call that asked for it."""

    name: str
    arguments: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class DemoRequest:
    system: str
    said: tuple[str, ...]
    """The person's messages, oldest first; the last one is to be answered, unless there are results."""
    count: int
    """How many messages there are in all."""
    tools: Mapping[str, frozenset[str]]
    """The offered tools and the parameters each takes."""
    results: tuple[Result, ...]
    """What came back since the person spoke last, when that is what the request ends with."""
    added: str
    """What the person put in behind them, while the tools ran."""
    steps: int
    """How many times tools were called since the person spoke last."""
    stream: bool
    with_usage: bool
    max_tokens: int | None

    @property
    def last(self) -> str:
        return self.said[-1] if self.said else ""


def read(body: bytes) -> DemoRequest:
    """Raises `ValueError`, in words for the one who sent it."""
    try:
        value = json.loads(body)
    except ValueError:
        raise ValueError("the body is not JSON") from None
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise ValueError("the body needs messages, a list of objects")
    added = _added(messages)
    options = value.get("stream_options")
    limit = value.get("max_tokens", value.get("max_completion_tokens"))
    return DemoRequest(
        system="\n".join(_text(one) for one in messages if one.get("role") in ("system", "developer")),
        said=tuple(
            text
            for one in messages
            if one.get("role") == "user" and not (text := _text(one)).startswith((_COMPACTION, control.ADDED))
        ),
        count=len(messages),
        tools=dict(_tool(one) for one in value.get("tools") or ()),
        results=_results(messages[: len(messages) - len(added)]),
        added="\n".join(_text(one).removeprefix(control.ADDED).strip() for one in added),
        steps=_steps(messages),
        stream=value.get("stream") is True,
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=limit if isinstance(limit, int) else None,
    )


def _tool(tool: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    function = tool.get("function") or {}
    parameters = function.get("parameters") or {}
    return str(function.get("name")), frozenset(parameters.get("properties") or ())


def _steps(messages: list[dict[str, Any]]) -> int:
    steps = 0
    for message in reversed(messages):
        if message.get("role") == "user" and not _is_added(message):
            break
        steps += bool(message.get("tool_calls"))
    return steps


def _is_added(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user" and _text(message).startswith(control.ADDED)


def _added(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the person put in at the end of the conversation, while the tools ran."""
    first = len(messages)
    while first and _is_added(messages[first - 1]):
        first -= 1
    return messages[first:]


def _results(messages: list[dict[str, Any]]) -> tuple[Result, ...]:
    """The results at the end of the conversation, in order, each with its call."""
    behind: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message.get("role") != "tool":
            calls = {call.get("id"): call.get("function") or {} for call in message.get("tool_calls") or ()}
            return tuple(_result(one, calls.get(one.get("tool_call_id"), {})) for one in reversed(behind))
        behind.append(message)
    return ()


def _result(message: Mapping[str, Any], function: Mapping[str, Any]) -> Result:
    return Result(str(function.get("name", "")), _object(function.get("arguments")), _text(message))


def _object(arguments: Any) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(part.get("text", "[a picture]")) for part in parts if isinstance(part, dict))
