"""The wire format of chat completions: OpenAI's, which nearly all other providers use too.

The body is written so that the next request begins with this one: the constant parts come first (model, options, tools,
system text), then the messages, and last only the answer's limit, which a spending limit may change from call to call.
A message's fragment depends on its own row alone.

Servers differ in small things; `provider_table.Dialect` lists each difference with its reason. The fields were checked
against the documentation named in docs/contributors/wire-formats.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from typing import Any, ClassVar

from hermes_agent.models import errors, normalise
from hermes_agent.models.base import AnswerLength, Delta, Endpoint, Message, OnDelta, Reply, TokenUsage, ToolSpec, Wire
from hermes_agent.models.provider_table import COMMON, Dialect
from hermes_agent.models.stream_reader import PendingCall, StreamReader, Text, count, read_stream, section

_RESERVED = frozenset({"model", "messages", "tools", "stream"})
_LENGTH_FIELDS = frozenset({"max_tokens", "max_completion_tokens"})
EXTRA_CONTENT = "tool_call.extra_content"
"""Our type of `reasoning_details` for extra data of a call that the server wants back (Gemini's signatures)."""

_FINISH = {
    "function_call": "tool_calls", "tool_use": "tool_calls", "tool_call": "tool_calls", "end_turn": "stop",
    "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "complete": "stop", "max_tokens": "length",
    "model_length": "length", "safety": "content_filter", "refusal": "content_filter",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChatWire(Wire):
    dialect: Dialect = COMMON
    opening: ClassVar[bytes] = normalise.encode({"role": "user", "content": normalise.OPENING})
    closing: ClassVar[bytes] = normalise.encode({"role": "user", "content": normalise.CLOSING})

    @property
    def name(self) -> str:
        return f"chat/1+{self.dialect.name}" if self.dialect.name else "chat/1"

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        fields: dict[str, Any] = {"model": endpoint.model, "stream": True}
        if self.dialect.include_usage:
            fields["stream_options"] = {"include_usage": True}
        if self.dialect.cache_marker and endpoint.model.startswith("anthropic/"):
            fields["cache_control"] = {"type": "ephemeral"}
        apply_options(fields, endpoint, reserved=_RESERVED)
        if tools:
            fields["tools"] = [_tool(spec) for spec in tools]
        fields["messages"] = [{"role": "system", "content": system}] if system.strip() else []
        return normalise.encode(fields)[:-2]

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        written: list[bytes] = []
        for step in normalise.steps(messages):
            if step.role == "user":
                written.append(normalise.encode({"role": "user", "content": _content(step.pieces)}))
                continue
            written.append(normalise.encode(self._assistant(step)))
            images: list[normalise.Piece] = []
            for call, pieces in step.results:
                seen = [piece for piece in pieces if isinstance(piece, normalise.StepImage)]
                words = pieces if not seen else tuple(piece for piece in pieces if isinstance(piece, str))
                content = normalise.text_of(words, otherwise=normalise.NO_OUTPUT)
                images += [f"[images that {call.name} returned:]", *seen] if seen else []
                written.append(
                    normalise.encode({"role": "tool", "tool_call_id": self._call_id(call.id), "content": content})
                )
            if images:  # a tool message can hold only text in this format
                written.append(normalise.encode({"role": "user", "content": _content(tuple(images))}))
        return written

    def longest_answer(self, endpoint: Endpoint) -> AnswerLength:
        return longest_answer(endpoint, self.dialect.max_tokens, endpoint.max_tokens)

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

    def _assistant(self, step: normalise.MessageStep) -> dict[str, Any]:
        message = step.message
        text = normalise.text_of(step.pieces, otherwise="")
        fields: dict[str, Any] = {"role": "assistant", "content": text or (None if step.calls else normalise.NO_REPLY)}
        if self.dialect.reasoning_back == "content":
            reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
            if reasoning or step.calls:
                fields["reasoning_content"] = str(reasoning)
        elif self.dialect.reasoning_back == "details":
            details = [one for one in details_of(message) if str(one.get("type")).startswith("reasoning.")]
            if details:
                fields["reasoning_details"] = details
        if step.calls:
            extra = _extra_content(message) if self.dialect.reasoning_back == "extra" else {}
            fields["tool_calls"] = [self._call(call, extra) for call in step.calls]
        return fields

    def _call(self, call: normalise.StepCall, extra: Mapping[str, Any]) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        fields: dict[str, Any] = {"id": self._call_id(call.id), "type": "function", "function": function}
        if call.given in extra:
            fields["extra_content"] = extra[call.given]
        return fields

    def _call_id(self, call_id: str) -> str:
        if not self.dialect.nine_letter_ids or (len(call_id) == 9 and call_id.isascii() and call_id.isalnum()):
            return call_id
        return blake2s(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def longest_answer(endpoint: Endpoint, field: str, tokens: int | None) -> AnswerLength:
    """The answer's limit and its field. The endpoint's own keys win, and an empty one removes the field."""
    for key, value in endpoint.options:
        if key in _LENGTH_FIELDS and isinstance(value, int) and value > 0:
            return AnswerLength(key, value)
        if key == field and value is None:
            field = ""
    return AnswerLength(field, tokens)


def apply_options(fields: dict[str, Any], endpoint: Endpoint, *, reserved: frozenset[str]) -> None:
    """Apply the endpoint's own keys, which override ours; an empty one removes the field."""
    for key, value in endpoint.options:
        if key in reserved or key in _LENGTH_FIELDS:
            continue
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = value


def details_of(message: Message) -> list[Mapping[str, Any]]:
    """The stored `reasoning_details`, whoever wrote them."""
    details = message.get("reasoning_details")
    return [one for one in details if isinstance(one, Mapping)] if isinstance(details, list | tuple) else []


def _extra_content(message: Message) -> dict[str, Any]:
    return {
        str(detail.get("call")): detail.get("extra_content")
        for detail in details_of(message)
        if detail.get("type") == EXTRA_CONTENT
    }


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec["name"], "description": spec["description"], "parameters": spec["parameters"]}
    return {"type": "function", "function": function}


def _content(pieces: tuple[normalise.Piece, ...]) -> str | list[dict[str, Any]]:
    if not any(isinstance(piece, normalise.StepImage) for piece in pieces):
        return normalise.text_of(pieces, otherwise=normalise.NO_TEXT)
    parts: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, normalise.StepImage):
            parts.append({"type": "image_url", "image_url": {"url": piece.url}})
        elif piece.strip():
            parts.append({"type": "text", "text": piece})
    return parts


class ChatReader(StreamReader):
    """Reads the answer of a chat-completions server, streamed or whole.

    It tolerates only the known differences of servers: reasoning as `reasoning`, `reasoning_content` or parts
    of the content; tool-call pieces without an index, or all with index 0; ids missing or repeated; arguments as an
    object; `stop` where `tool_calls` is meant; usage with or without choices beside it; errors inside a stream of
    status 200.
    """

    def __init__(self, on_delta: OnDelta | None) -> None:
        super().__init__(on_delta)
        self._refusal = Text("text", on_delta)
        self._details: list[dict[str, Any]] = []
        self._by_index: dict[int, PendingCall] = {}
        self._extra: list[tuple[PendingCall, Any]] = []
        self._uncounted = False
        """Whether the answer has grown since the usage was reported."""

    def take(self, payload: Mapping[str, Any]) -> None:
        choice = _first(payload.get("choices"))
        self._uncounted |= any(value for name, value in section(choice, "delta").items() if name != "role")
        self._frame(payload)
        self._message(section(choice, "delta"))
        self._end(choice)

    def take_whole(self, payload: Mapping[str, Any]) -> None:
        self._frame(payload)
        choice = _first(payload.get("choices"))
        self._message(section(choice, "message"))
        self._end(choice)
        self._finish = self._finish or ("stop" if choice else "")

    def reply(self) -> Reply:
        reply = super().reply()
        if self._uncounted:
            reply = replace(reply, usage=None)
        if reply.content is None and (refusal := self._refusal.value()):
            return replace(reply, content=refusal, finish_reason="content_filter")
        return reply

    def reasoning_details(self) -> list[dict[str, Any]]:
        extra = [{"type": EXTRA_CONTENT, "call": call.id, "extra_content": extra} for call, extra in self._extra]
        return [*self._details, *extra]

    def _frame(self, payload: Mapping[str, Any]) -> None:
        if payload.get("error") or payload.get("object") == "error":
            raise errors.from_event(payload)
        if isinstance(payload.get("model"), str):
            self._model = payload["model"]
        if said := section(payload, "usage") or section(payload.get("x_groq"), "usage"):  # in one piece of many
            usage = _usage(said)
            broken = self._uncounted and not (usage.input_tokens and usage.output_tokens)
            self._usage, self._uncounted = usage.largest(None if broken else self._usage), False

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
        # Some servers send the same text under both names.
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

    def _pending(self, piece: Mapping[str, Any]) -> PendingCall:
        """The call that a piece belongs to: by index, unless its id is a new one; without both, the last call."""
        index, given = piece.get("index"), piece.get("id")
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif given:
            known = next((call for call in self._calls if call.id == given), None)
        else:
            known = self._calls[-1] if self._calls else None
        if known is not None and (not given or not known.id or given == known.id):
            return known
        call = PendingCall()
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call


def _first(choices: Any) -> Mapping[str, Any]:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    prompt, completion = section(usage, "prompt_tokens_details"), section(usage, "completion_tokens_details")
    fed, answered = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    read = count(prompt.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
    written = count(prompt.get("cache_write_tokens"))
    if fed and read + written > fed:  # some servers count only what is not cached
        fed += read + written
    if fed and answered:  # xAI and Gemini bill reasoning as output, but report it in the total alone
        answered = max(answered, count(usage.get("total_tokens")) - fed)
    return TokenUsage(fed, answered, read, written, count(completion.get("reasoning_tokens")))
