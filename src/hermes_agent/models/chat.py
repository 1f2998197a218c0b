"""Chat completions: the format of OpenAI and of nearly everybody else, as bytes.

The body is written so that the next request begins with this one: what never changes comes first (model, options,
tools, system text), the messages last, and nothing is written behind them but the closing `]}`. A message's fragment
depends on its own row alone.

Servers differ in small things, and each difference stands in `Dialect` with its reason. Which words go into which
field was checked against the documentation named in docs/contributors/wire-formats.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Literal

from hermes_agent.models import repair
from hermes_agent.models.base import Endpoint, Message, OnDelta, Reply, ToolSpec
from hermes_agent.models.chat_stream import EXTRA_CONTENT, ChatReader
from hermes_agent.models.reading import read_stream

_RESERVED = frozenset({"model", "messages", "tools", "stream"})
_USER, _ASSISTANT = b'{"role":"user"', b'{"role":"assistant"'
_OPENING = repair.encode({"role": "user", "content": repair.OPENING})
_CLOSING = repair.encode({"role": "user", "content": repair.CLOSING})


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where a server departs from the common form."""

    name: str = ""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """OpenAI's newer models take only the second."""
    include_usage: bool = True
    """Mistral always tells the usage and refuses fields it does not know."""
    reasoning_back: Literal["", "details", "content", "extra"] = ""
    """What of the model's reasoning goes back with its message. OpenRouter: `reasoning_details`. DeepSeek and Kimi:
    `reasoning_content`, without which a step with tool calls is refused. Gemini: the signature on each call."""
    nine_letter_ids: bool = False
    """Mistral takes call ids of exactly nine letters and digits."""
    cache_marker: bool = False
    """OpenRouter hands a top-level `cache_control` on to Anthropic's models."""


@dataclass(frozen=True, slots=True)
class ChatWire:
    dialect: Dialect = Dialect()
    name: str = "chat/1"

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        fields: dict[str, Any] = {"model": endpoint.model, "stream": True}
        if self.dialect.include_usage:
            fields["stream_options"] = {"include_usage": True}
        if endpoint.max_tokens is not None:
            fields[self.dialect.max_tokens] = endpoint.max_tokens
        if self.dialect.cache_marker and endpoint.model.startswith("anthropic/"):
            fields["cache_control"] = {"type": "ephemeral"}
        apply_options(fields, endpoint, reserved=_RESERVED)
        if tools:
            fields["tools"] = [_tool(spec) for spec in tools]
        fields["messages"] = [{"role": "system", "content": system}] if system.strip() else []
        return repair.encode(fields)[:-2]

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        written: list[bytes] = []
        for step in repair.steps(messages):
            if step.role == "user":
                written.append(repair.encode({"role": "user", "content": _content(step.pieces)}))
                continue
            written.append(repair.encode(self._assistant(step)))
            for call, pieces in step.results:
                content = repair.text_of(pieces, otherwise=repair.NO_OUTPUT)
                written.append(
                    repair.encode({"role": "tool", "tool_call_id": self._call_id(call.id), "content": content})
                )
        return written

    def join(self, head: bytes, fragments: Sequence[bytes]) -> bytes:
        return join_messages(head, fragments, opening=_OPENING, closing=_CLOSING)

    def path(self) -> str:
        return "/chat/completions"

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        headers.update(endpoint.headers)
        return headers

    async def read(self, lines: AsyncIterator[str], on_delta: OnDelta | None) -> Reply:
        return await read_stream(lines, ChatReader(on_delta))

    def _assistant(self, step: repair.Step) -> dict[str, Any]:
        message = step.message
        text = repair.text_of(step.pieces, otherwise="")
        fields: dict[str, Any] = {"role": "assistant", "content": text or (None if step.calls else repair.NO_REPLY)}
        if self.dialect.reasoning_back == "content":
            reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
            if reasoning or step.calls:
                fields["reasoning_content"] = str(reasoning)
        elif self.dialect.reasoning_back == "details":
            details = [detail for detail in details_of(message) if _is_type(detail, "reasoning.")]
            if details:
                fields["reasoning_details"] = details
        if step.calls:
            extra = _extra_content(message) if self.dialect.reasoning_back == "extra" else {}
            fields["tool_calls"] = [self._call(call, extra) for call in step.calls]
        return fields

    def _call(self, call: repair.Call, extra: Mapping[str, Any]) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        fields: dict[str, Any] = {"id": self._call_id(call.id), "type": "function", "function": function}
        if call.given in extra:
            fields["extra_content"] = extra[call.given]
        return fields

    def _call_id(self, call_id: str) -> str:
        if not self.dialect.nine_letter_ids or (len(call_id) == 9 and call_id.isascii() and call_id.isalnum()):
            return call_id
        return blake2s(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def apply_options(fields: dict[str, Any], endpoint: Endpoint, *, reserved: frozenset[str]) -> None:
    """The endpoint's own keys: they win over ours, and an empty one takes ours away."""
    for key, value in endpoint.options:
        if key in reserved:
            continue
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = value


def join_messages(head: bytes, fragments: Sequence[bytes], *, opening: bytes, closing: bytes) -> bytes:
    """Head, messages, `]}`. A conversation begins and ends with somebody other than the model."""
    parts = list(fragments)
    if not parts or not parts[0].startswith(_USER):
        parts.insert(0, opening)
    if parts[-1].startswith(_ASSISTANT):
        parts.append(closing)
    pieces = [head] if head.endswith(b"[") else [head, b","]
    for part in parts:
        pieces += (part, b",")
    pieces[-1] = b"]}"
    return b"".join(pieces)  # the one copy of a body that may be long


def details_of(message: Message) -> list[Mapping[str, Any]]:
    """The stored `reasoning_details`, whoever wrote them."""
    details = message.get("reasoning_details")
    return [one for one in details if isinstance(one, Mapping)] if isinstance(details, list | tuple) else []


def _is_type(detail: Mapping[str, Any], prefix: str) -> bool:
    kind = detail.get("type")
    return isinstance(kind, str) and kind.startswith(prefix)


def _extra_content(message: Message) -> dict[str, Any]:
    return {
        str(detail.get("call")): detail.get("extra_content")
        for detail in details_of(message)
        if detail.get("type") == EXTRA_CONTENT
    }


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec["name"], "description": spec["description"], "parameters": spec["parameters"]}
    return {"type": "function", "function": function}


def _content(pieces: tuple[repair.Piece, ...]) -> str | list[dict[str, Any]]:
    if not any(isinstance(piece, repair.Picture) for piece in pieces):
        return repair.text_of(pieces, otherwise=repair.NO_TEXT)
    parts: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, repair.Picture):
            parts.append({"type": "image_url", "image_url": {"url": piece.url}})
        elif piece.strip():
            parts.append({"type": "text", "text": piece})
    return parts
