"""The wire format of Anthropic's Messages API.

As with chat completions, the constant parts come first and the messages last. The differences: the results of one step
share one user message; the model's signed thinking is sent back exactly as received, before its calls; `max_tokens` is
required; and nothing is cached unless the request asks for it.

Cache markers. A marker on a message would have to move with every request, and the bytes before it would change: the
message that carried it is sent again without it. So the marker of the conversation is the top-level `cache_control`,
with which Anthropic itself puts a breakpoint on the last block it can, and the only marker inside the body stands on
the system text (or on the last tool, when there is no system text), where it never moves. Other hosts that speak this
format may not know the top-level field; it is sent to Anthropic's own host alone, or where `cache_control` is set in
the endpoint's options.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from hermes_agent.models import errors, normalise
from hermes_agent.models.base import AnswerLength, Delta, Endpoint, Message, OnDelta, Reply, TokenUsage, ToolSpec, Wire
from hermes_agent.models.openai_chat import apply_options, details_of, longest_answer
from hermes_agent.models.provider_table import ANTHROPIC_MAX_TOKENS
from hermes_agent.models.stream_reader import PendingCall, StreamReader, count, read_stream, section

VERSION = "2023-06-01"

ORDER = "block_order"
"""Our type of `reasoning_details` that records how a model interleaved thinking, tool_use and stretches of text."""

_STOP = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "max_tokens": "length",
    "model_context_window_exceeded": "length", "tool_use": "tool_calls", "refusal": "content_filter",
}  # fmt: skip
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_RESERVED = frozenset({"model", "messages", "tools", "system", "stream"})
_MARKER = {"type": "ephemeral"}
_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_ID = re.compile(r"[a-zA-Z0-9_-]{12,}")
"""Anthropic's form of ids. Others are replaced: Anthropic checks the form, and ids must be unique in a request, while
some servers count theirs up from zero in every turn."""


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user(blocks: list[dict[str, Any]]) -> bytes:
    return normalise.encode({"role": "user", "content": blocks})


@dataclass(frozen=True, slots=True)
class AnthropicWire(Wire):
    opening: ClassVar[bytes] = _user([_block(normalise.OPENING)])
    closing: ClassVar[bytes] = _user([_block(normalise.CLOSING)])

    @property
    def name(self) -> str:
        return "anthropic/1"

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        fields: dict[str, Any] = {"model": endpoint.model, "stream": True}
        if urlsplit(endpoint.base_url).hostname == "api.anthropic.com":
            fields["cache_control"] = _MARKER
        apply_options(fields, endpoint, reserved=_RESERVED)
        if tools:
            fields["tools"] = [
                {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
                for one in tools
            ]
        if system.strip():
            fields["system"] = [{**_block(system), "cache_control": _MARKER}]
        elif tools:
            fields["tools"][-1]["cache_control"] = _MARKER
        fields["messages"] = []
        return normalise.encode(fields)[:-2]

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        written: list[bytes] = []
        for step in normalise.steps(messages):
            if step.role == "user":
                written.append(_user(_blocks(step.pieces, otherwise=normalise.NO_TEXT)))
                continue
            written.append(normalise.encode({"role": "assistant", "content": _step_blocks(step)}))
            if step.results:
                written.append(_user([_result(step, call, pieces) for call, pieces in step.results]))
        return written

    def longest_answer(self, endpoint: Endpoint) -> AnswerLength:
        return longest_answer(endpoint, "max_tokens", endpoint.max_tokens or ANTHROPIC_MAX_TOKENS)

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


def _step_blocks(step: normalise.MessageStep) -> list[dict[str, Any]]:
    """The blocks of one model step: thinking, text, calls; or interleaved as the model wrote them."""
    details = details_of(step.message)
    text = normalise.text_of(step.pieces, otherwise="").rstrip()
    calls = [_use(step, call) for call in step.calls]
    thinking = [dict(one) for one in details if _is_thinking(one)]
    layout = next((one.get("order") for one in details if one.get("type") == ORDER), None)
    if isinstance(layout, list | tuple) and thinking:
        ordered = _in_order(layout, thinking, text, calls)
        if ordered is not None:
            return ordered
    words = [_block(text)] if text else []
    return [*thinking, *words, *calls] if words or calls else [*thinking, _block(normalise.NO_REPLY)]


def without_earlier_thinking(content: bytes) -> bytes:
    """A request without the thinking blocks before the person's last message; those of the running turn are needed."""
    body = json.loads(content)
    messages = body["messages"]
    said = [at for at, one in enumerate(messages) if one["role"] == "user" and not _holds_results(one)]
    for one in messages[: said[-1] if said else 0]:
        kept = [block for block in one["content"] if block["type"] not in ("thinking", "redacted_thinking")]
        one["content"] = kept or [_block(normalise.NO_REPLY)]
    return normalise.encode(body)


def _holds_results(message: Mapping[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in message["content"])


def _in_order(
    layout: Sequence[Any], thinking: list[dict[str, Any]], text: str, calls: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The blocks in the model's own order, if the stored row is unchanged; else None."""
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
    """Whether this is a signed thinking block, which only Anthropic can read; unsigned ones are refused."""
    kind = detail.get("type")
    return (kind == "thinking" and bool(detail.get("signature"))) or (
        kind == "redacted_thinking" and bool(detail.get("data"))
    )


def _use(step: normalise.MessageStep, call: normalise.StepCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _use_id(step, call),
        "name": call.name,
        "input": normalise.json_object(call.arguments) or {},
    }


def _use_id(step: normalise.MessageStep, call: normalise.StepCall) -> str:
    return call.id if _ID.fullmatch(call.id) else normalise.made_id(step.message, call.id)


def _result(
    step: normalise.MessageStep, call: normalise.StepCall, pieces: tuple[normalise.Piece, ...]
) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": _use_id(step, call),
        "content": _blocks(pieces, otherwise=normalise.NO_OUTPUT),
    }


def _blocks(pieces: tuple[normalise.Piece, ...], *, otherwise: str) -> list[dict[str, Any]]:
    blocks = [_image(piece) if isinstance(piece, normalise.StepImage) else _block(piece) for piece in pieces]
    return [block for block in blocks if block.get("text", "x").strip()] or [_block(otherwise)]


def _image(picture: normalise.StepImage) -> dict[str, Any]:
    if not picture.media_type:
        return {"type": "image", "source": {"type": "url", "url": picture.data}}
    if picture.media_type not in _MEDIA_TYPES:
        return _block(f"[an image of type {picture.media_type} that cannot be sent]")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": picture.media_type, "data": picture.data},
    }


class MessagesReader(StreamReader):
    """Reads the answer of a server that speaks Anthropic's format, streamed or whole."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        super().__init__(on_delta)
        self._thinking: list[dict[str, Any]] = []
        self._open: dict[Any, dict[str, Any] | PendingCall] = {}
        self._order: list[Any] = []
        self._counts: dict[str, int] = {}
        self._thought = 0
        self._garbled = False

    def take(self, payload: Mapping[str, Any]) -> None:
        kind = payload.get("type")
        if kind == "content_block_delta":
            self._grow(payload.get("index"), section(payload, "delta"))
        elif kind == "content_block_start":
            self._start(payload.get("index"), section(payload, "content_block"))
        elif kind == "message_start":
            self._frame(section(payload, "message"))
        elif kind == "message_delta":
            self._count(usage := section(payload, "usage"))
            if count(usage.get("output_tokens")):
                self._report()
            self._end(section(payload, "delta"))
        elif kind == "message_stop":
            self._finish = self._finish or "stop"
        elif kind == "error" or payload.get("error"):
            raise errors.from_event(payload)

    def take_whole(self, payload: Mapping[str, Any]) -> None:
        if payload.get("type") == "error" or payload.get("error"):
            raise errors.from_event(payload)
        self._frame(payload)
        blocks = payload.get("content")
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if isinstance(block, Mapping):
                self._start(index, block)
        self._report()
        self._end(payload)
        self._finish = self._finish or ("stop" if isinstance(blocks, list) else "")

    def _frame(self, message: Mapping[str, Any]) -> None:
        if isinstance(message.get("model"), str):
            self._model = message["model"]
        self._count(section(message, "usage"))

    def _end(self, delta: Mapping[str, Any]) -> None:
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and reason:
            self._finish = _STOP.get(reason, reason)

    def _start(self, index: Any, block: Mapping[str, Any]) -> None:
        kind = block.get("type")
        if kind == "tool_use":
            call = PendingCall(str(block.get("id") or ""), str(block.get("name") or ""))
            if block.get("input"):
                call.add_arguments(block["input"])
            self._calls.append(call)
            self._open[index] = call
            self._order.append("tool_use")
            if self._on_delta is not None and call.name:
                self._on_delta(Delta("tool_name", call.name))
        elif kind in ("thinking", "redacted_thinking"):
            kept = dict(block)
            self._thinking.append(kept)
            self._open[index] = kept
            self._order.append("thinking")
            self._reasoning.add(block.get("thinking"))
        elif kind == "text":
            self._order.append(0)
            self._add_text(block.get("text"))

    def _grow(self, index: Any, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        block = self._open.get(index)
        if kind == "text_delta":
            self._add_text(delta.get("text"))
        elif kind == "input_json_delta" and isinstance(block, PendingCall):
            block.add_arguments(delta.get("partial_json"))
        elif isinstance(block, dict) and kind in ("thinking_delta", "signature_delta"):
            name = _TEXTS[kind]
            piece = delta.get(name)
            if isinstance(piece, str):
                block[name] = (block.get(name) or "") + piece
                if kind == "thinking_delta":
                    self._reasoning.add(piece)

    def _add_text(self, piece: Any) -> None:
        if isinstance(piece, str) and piece:
            if not self._order or not isinstance(self._order[-1], int):
                self._order.append(0)
            self._order[-1] += len(piece)
            self._content.add(piece)

    def reasoning_details(self) -> list[dict[str, Any]]:
        if not self._thinking:
            return []
        usual = sorted(self._order, key=lambda entry: (entry != "thinking", entry == "tool_use"))
        if usual == self._order:
            return [*self._thinking]
        order, drop = [], self._content.leading()
        for entry in self._order:
            if isinstance(entry, int):
                entry, drop = max(0, entry - drop), max(0, drop - entry)
            order.append(entry)
        return [*self._thinking, {"type": ORDER, "order": order}]

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Keep the largest of each count: the end of an answer reports again what its start said, or zeros.

        A usage with a figure that cannot be one is no report, and one without the end's output is incomplete: the
        start counts one token or a few.
        """
        for name in _USAGE:
            if (given := usage.get(name)) is not None:
                self._counts[name] = max(self._counts.get(name, 0), count(given))
                self._garbled |= bool(given) and not count(given)
        thought = count(section(usage, "output_tokens_details").get("thinking_tokens"))
        self._thought = max(self._thought, thought)

    def _report(self) -> None:
        """The answer has ended, with these counts."""
        fed, read, written, answered = (self._counts.get(name, 0) for name in _USAGE)
        if fed + read + written and answered and not self._garbled:
            self._usage = TokenUsage(fed + read + written, answered, read, written, self._thought)
