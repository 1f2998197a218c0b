"""Reads the answer of a chat-completions server, streamed or whole.

Tolerant where servers are known to differ, and only there: reasoning as `reasoning`, `reasoning_content` or parts of
the content; tool-call pieces without an index, or all with index 0; ids missing or repeated; arguments as an object;
`stop` where `tool_calls` is meant; usage with or without choices beside it; errors inside a stream of status 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.models import errors
from hermes_agent.models.base import Delta, OnDelta, Reply, Usage
from hermes_agent.models.reading import Pending, Text, count, finished, section

EXTRA_CONTENT = "tool_call.extra_content"
"""Our type of `reasoning_details` for what a server hung on a call and wants back with it (Gemini's signatures)."""

_FINISH = {
    "function_call": "tool_calls", "tool_use": "tool_calls", "tool_call": "tool_calls", "end_turn": "stop",
    "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "complete": "stop", "max_tokens": "length",
    "model_length": "length", "safety": "content_filter", "refusal": "content_filter",
}  # fmt: skip


class ChatReader:
    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._content = Text("text", on_delta)
        self._reasoning = Text("reasoning", on_delta)
        self._refusal = Text("text", on_delta)
        self._details: list[dict[str, Any]] = []
        self._calls: list[Pending] = []
        self._by_index: dict[int, Pending] = {}
        self._extra: list[tuple[Pending, Any]] = []
        self._finish = ""
        self._usage: Usage | None = None
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._finish)

    def take(self, payload: Mapping[str, Any]) -> None:
        self._frame(payload)
        choice = _first(payload.get("choices"))
        self._message(section(choice, "delta"))
        self._end(choice)

    def take_whole(self, payload: Mapping[str, Any]) -> None:
        self._frame(payload)
        choice = _first(payload.get("choices"))
        self._message(section(choice, "message"))
        self._end(choice)
        self._finish = self._finish or ("stop" if choice else "")

    def reply(self) -> Reply:
        finish = self._finish or "stop"
        calls = finished(self._calls, cut=finish == "length")
        if calls and finish == "stop":
            finish = "tool_calls"
        content = self._content.value()
        if content is None and self._refusal.value():
            content, finish = self._refusal.value(), "content_filter"
        return Reply(
            content=content,
            tool_calls=calls,
            finish_reason=finish,
            reasoning=self._reasoning.value(),
            reasoning_details=[*self._details, *self._extras()] or None,
            usage=self._usage,
            model=self._model,
        )

    def partial(self) -> Reply | None:
        content, reasoning = self._content.value(), self._reasoning.value()
        if content is None and reasoning is None:
            return None
        return Reply(content, (), "error", reasoning=reasoning, usage=self._usage, model=self._model)

    def _frame(self, payload: Mapping[str, Any]) -> None:
        if payload.get("error") or payload.get("object") == "error":
            raise errors.from_event(payload)
        if isinstance(payload.get("model"), str):
            self._model = payload["model"]
        if payload.get("usage") or payload.get("x_groq"):  # in one piece of many
            usage = section(payload, "usage") or section(payload.get("x_groq"), "usage")
            self._usage = _usage(usage) if usage else self._usage

    def _end(self, choice: Mapping[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason.lower() == "error":
                raise errors.from_event({"error": choice.get("error") or "the provider gave no reason"})
            self._finish = _FINISH.get(reason.lower(), reason.lower())

    def _message(self, message: Mapping[str, Any]) -> None:
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                self._part(part)
        else:
            self._content.add(content)
        # Some servers send both names with the same words.
        if reasoning := message.get("reasoning") or message.get("reasoning_content"):
            self._reasoning.add(reasoning)
        if refusal := message.get("refusal"):
            self._refusal.add(refusal)
        details = message.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            self._detail(detail)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                self._call(call)

    def _part(self, part: Any) -> None:
        """A part of a content that comes as a list: text, or Mistral's thinking, which is itself a list of texts."""
        if isinstance(part, str):
            self._content.add(part)
        elif isinstance(part, Mapping) and part.get("type") == "thinking":
            thinking = part.get("thinking")
            for piece in thinking if isinstance(thinking, list) else (thinking,):
                self._reasoning.add(piece.get("text") if isinstance(piece, Mapping) else piece)
        elif isinstance(part, Mapping):
            self._content.add(part.get("text"))

    def _detail(self, detail: Any) -> None:
        """OpenRouter's reasoning blocks: pieces of one block have its type and index, and their texts are joined."""
        if not isinstance(detail, dict):
            return
        last = self._details[-1] if self._details else None
        if last is None or any(last.get(key) != detail.get(key) for key in ("type", "index")) or "data" in detail:
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary") and isinstance(value, str):
                last[key] = (last.get(key) or "") + value
            elif value is not None:
                last[key] = value

    def _call(self, piece: Mapping[str, Any]) -> None:
        call = self._pending(piece)
        given = piece.get("id")
        call.id = call.id or (given if isinstance(given, str) else "")
        function = section(piece, "function")
        name = function.get("name")
        if isinstance(name, str) and name and name != call.name and not call.arguments:
            if not call.name and self._on_delta is not None:
                self._on_delta(Delta("tool_name", name))
            call.name += name
        call.add_arguments(function.get("arguments"))
        if piece.get("extra_content"):
            self._extra.append((call, piece["extra_content"]))

    def _pending(self, piece: Mapping[str, Any]) -> Pending:
        """Whose piece it is: by index, unless the id says that this is another call; without both, the last one's."""
        index, given = piece.get("index"), piece.get("id")
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif given:
            known = next((call for call in self._calls if call.id == given), None)
        else:
            known = self._calls[-1] if self._calls else None
        if known is not None and (not given or not known.id or given == known.id):
            return known
        call = Pending()
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _extras(self) -> list[dict[str, Any]]:
        return [{"type": EXTRA_CONTENT, "call": call.id, "extra_content": extra} for call, extra in self._extra]


def _first(choices: Any) -> Mapping[str, Any]:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _usage(usage: Mapping[str, Any]) -> Usage:
    prompt, completion = section(usage, "prompt_tokens_details"), section(usage, "completion_tokens_details")
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        cache_read_tokens=count(prompt.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens")),
        cache_write_tokens=count(prompt.get("cache_write_tokens")),
        reasoning_tokens=count(completion.get("reasoning_tokens")),
    )
