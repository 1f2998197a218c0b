"""Anthropic's messages, as bytes.

As with chat completions, what never changes comes first and the messages last. What is different here: the results of
one step stand together in one user message; the model's signed thinking goes back exactly as it came, in front of its
calls; `max_tokens` is not optional; and nothing is cached unless it is asked for.

Cache markers. A marker on a message would have to move with every request, and the bytes before it would change: the
message that carried it is sent again without it. So the marker of the conversation is the top-level `cache_control`,
with which Anthropic itself puts a breakpoint on the last block it can, and the only marker inside the body stands on
the system text (or on the last tool, when there is no system text), where it never moves. Other hosts that speak this
format may not know the top-level field; it is sent to Anthropic's own host alone, or where `cache_control` is set in
the endpoint's options.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.models import repair
from hermes_agent.models.anthropic_stream import ORDER, MessagesReader
from hermes_agent.models.base import Endpoint, Message, OnDelta, Reply, ToolSpec
from hermes_agent.models.chat import apply_options, details_of, join_messages
from hermes_agent.models.reading import read_stream

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 16_384

_RESERVED = frozenset({"model", "messages", "tools", "system", "stream"})
_MARKER = {"type": "ephemeral"}
_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_ID = re.compile(r"[a-zA-Z0-9_-]{12,}")
"""Anthropic's own kind of id. Others become one: the pattern is checked, and ids must be unique in a whole request,
while some servers count theirs up from zero in every turn."""


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user(blocks: list[dict[str, Any]]) -> bytes:
    return repair.encode({"role": "user", "content": blocks})


_OPENING, _CLOSING = _user([_block(repair.OPENING)]), _user([_block(repair.CLOSING)])


@dataclass(frozen=True, slots=True)
class AnthropicWire:
    name: str = "anthropic/1"

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        fields: dict[str, Any] = {
            "model": endpoint.model,
            "max_tokens": endpoint.max_tokens or DEFAULT_MAX_TOKENS,
            "stream": True,
        }
        if urlsplit(endpoint.base_url).hostname == "api.anthropic.com":
            fields["cache_control"] = _MARKER
        apply_options(fields, endpoint, reserved=_RESERVED)
        if tools:
            fields["tools"] = [_tool(spec) for spec in tools]
        if system.strip():
            fields["system"] = [{**_block(system), "cache_control": _MARKER}]
        elif tools:
            fields["tools"][-1]["cache_control"] = _MARKER
        fields["messages"] = []
        return repair.encode(fields)[:-2]

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        written: list[bytes] = []
        for step in repair.steps(messages):
            if step.role == "user":
                written.append(_user(_blocks(step.pieces, otherwise=repair.NO_TEXT)))
                continue
            written.append(repair.encode({"role": "assistant", "content": _said(step)}))
            if step.results:
                written.append(_user([_result(step, call, pieces) for call, pieces in step.results]))
        return written

    def join(self, head: bytes, fragments: Sequence[bytes]) -> bytes:
        return join_messages(head, fragments, opening=_OPENING, closing=_CLOSING)

    def path(self) -> str:
        return "/v1/messages"

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "anthropic-version": VERSION}
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        headers.update(endpoint.headers)
        return headers

    async def read(self, lines: AsyncIterator[str], on_delta: OnDelta | None) -> Reply:
        return await read_stream(lines, MessagesReader(on_delta))


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec["name"], "description": spec["description"], "input_schema": spec["parameters"]}


def _said(step: repair.Step) -> list[dict[str, Any]]:
    """The blocks of one step of the model: thinking, words, calls; or in the order in which it interleaved them."""
    details = details_of(step.message)
    text = repair.text_of(step.pieces, otherwise="").rstrip()
    calls = [_use(step, call) for call in step.calls]
    thinking = [dict(one) for one in details if _is_thinking(one)]
    layout = next((one.get("order") for one in details if one.get("type") == ORDER), None)
    if isinstance(layout, list | tuple) and thinking:
        ordered = _in_order(layout, thinking, text, calls)
        if ordered is not None:
            return ordered
    words = [_block(text)] if text else []
    return [*thinking, *words, *calls] if words or calls else [*thinking, _block(repair.NO_REPLY)]


def _in_order(
    layout: Sequence[Any], thinking: list[dict[str, Any]], text: str, calls: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The blocks as the model wrote them, when the stored row still is what it wrote; else None."""
    thoughts, uses, at = iter(thinking), iter(calls), 0
    blocks: list[dict[str, Any] | None] = []
    for entry in layout:
        if entry == "thinking":
            blocks.append(next(thoughts, None))
        elif entry == "tool_use":
            blocks.append(next(uses, None))
        elif isinstance(entry, int):
            words = text[at : at + entry].rstrip()
            at += entry
            if words:
                blocks.append(_block(words))
    whole = [block for block in blocks if block is not None]
    complete = len(whole) == len(blocks) and next(thoughts, None) is None and next(uses, None) is None
    return whole if complete and at >= len(text) and (text or calls) else None


def _is_thinking(detail: Mapping[str, Any]) -> bool:
    """A block only Anthropic can read back; without its signature it is refused."""
    kind = detail.get("type")
    return (kind == "thinking" and bool(detail.get("signature"))) or (
        kind == "redacted_thinking" and bool(detail.get("data"))
    )


def _use(step: repair.Step, call: repair.Call) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _use_id(step, call),
        "name": call.name,
        "input": repair.json_object(call.arguments) or {},
    }


def _use_id(step: repair.Step, call: repair.Call) -> str:
    return call.id if _ID.fullmatch(call.id) else repair.made_id(step.message, call.id)


def _result(step: repair.Step, call: repair.Call, pieces: tuple[repair.Piece, ...]) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": _use_id(step, call),
        "content": _blocks(pieces, otherwise=repair.NO_OUTPUT),
    }


def _blocks(pieces: tuple[repair.Piece, ...], *, otherwise: str) -> list[dict[str, Any]]:
    blocks = [_image(piece) if isinstance(piece, repair.Picture) else _block(piece) for piece in pieces]
    return [block for block in blocks if block.get("text", "x").strip()] or [_block(otherwise)]


def _image(picture: repair.Picture) -> dict[str, Any]:
    if not picture.media_type:
        return {"type": "image", "source": {"type": "url", "url": picture.data}}
    if picture.media_type not in _MEDIA_TYPES:
        return _block(f"[an image of type {picture.media_type} that cannot be sent]")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": picture.media_type, "data": picture.data},
    }
