"""Reads the answer of Anthropic's messages, streamed or whole.

Blocks open, grow and close by index. Thinking blocks are kept exactly, with their signatures, for they must be sent
back with the next request. Usage comes in two parts: input with the start, output (cumulative) with the end; cached
input is counted apart from `input_tokens` there, and is added here so that input means all input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.models import errors
from hermes_agent.models.base import Delta, OnDelta, Reply, Usage
from hermes_agent.models.reading import Pending, Text, count, finished, section

ORDER = "block_order"
"""Our type of `reasoning_details` where a model thinks between its words: thinking, tool_use, or so many letters."""

_STOP = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "max_tokens": "length",
    "model_context_window_exceeded": "length", "tool_use": "tool_calls", "refusal": "content_filter",
}  # fmt: skip
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class MessagesReader:
    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._content = Text("text", on_delta)
        self._reasoning = Text("reasoning", on_delta)
        self._thinking: list[dict[str, Any]] = []
        self._calls: list[Pending] = []
        self._open: dict[Any, dict[str, Any] | Pending] = {}
        self._order: list[Any] = []
        self._stop = ""
        self._counts: dict[str, Any] = {}
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def take(self, payload: Mapping[str, Any]) -> None:
        kind = payload.get("type")
        if kind == "content_block_delta":
            self._grow(payload.get("index"), section(payload, "delta"))
        elif kind == "content_block_start":
            self._start(payload.get("index"), section(payload, "content_block"))
        elif kind == "message_start":
            self._frame(section(payload, "message"))
        elif kind == "message_delta":
            self._count(section(payload, "usage"))
            self._end(section(payload, "delta"))
        elif kind == "message_stop":
            self._stop = self._stop or "stop"
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
        self._end(payload)
        self._stop = self._stop or ("stop" if isinstance(blocks, list) else "")

    def reply(self) -> Reply:
        finish = self._stop or "stop"
        calls = finished(self._calls, cut=finish == "length")
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(
            content=self._content.value(),
            tool_calls=calls,
            finish_reason=finish,
            reasoning=self._reasoning.value(),
            reasoning_details=self._details(),
            usage=self._usage(),
            model=self._model,
        )

    def partial(self) -> Reply | None:
        content, reasoning = self._content.value(), self._reasoning.value()
        if content is None and reasoning is None:
            return None
        return Reply(content, (), "error", reasoning=reasoning, usage=self._usage(), model=self._model)

    def _frame(self, message: Mapping[str, Any]) -> None:
        if isinstance(message.get("model"), str):
            self._model = message["model"]
        self._count(section(message, "usage"))

    def _end(self, delta: Mapping[str, Any]) -> None:
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and reason:
            self._stop = _STOP.get(reason, reason)

    def _start(self, index: Any, block: Mapping[str, Any]) -> None:
        kind = block.get("type")
        if kind == "tool_use":
            call = Pending()
            call.id, call.name = str(block.get("id") or ""), str(block.get("name") or "")
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
        elif kind == "input_json_delta" and isinstance(block, Pending):
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

    def _details(self) -> list[dict[str, Any]] | None:
        if not self._thinking:
            return None
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
        self._counts.update({name: value for name, value in usage.items() if value is not None})

    def _usage(self) -> Usage | None:
        if not self._counts:
            return None
        read = count(self._counts.get("cache_read_input_tokens"))
        written = count(self._counts.get("cache_creation_input_tokens"))
        return Usage(
            input_tokens=count(self._counts.get("input_tokens")) + read + written,
            output_tokens=count(self._counts.get("output_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count(section(self._counts, "output_tokens_details").get("thinking_tokens")),
        )
