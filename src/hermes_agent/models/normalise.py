"""Turns stored messages into steps that a provider accepts; both wires write their JSON from these steps.

A transcript may hold anything: a turn that was killed between a call and its result, a late result, a model's broken
JSON, rows of another program. A pure function turns the rows into steps: a message of a person, or one of the model
with its calls, each with exactly one result.

A result counts only if it directly follows its step. A result after the next message is dropped, because inserting it
would change bytes that were already sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, NamedTuple

from hermes_agent.models.base import Message

NO_RESULT = "no result was recorded"
NO_OUTPUT = "(no output)"
NO_TEXT = "(no text)"
NO_REPLY = "(no reply was given)"
OPENING = "(the conversation goes on)"
"""Precedes a conversation that would begin with a message of the model."""
CLOSING = "(go on)"
"""Follows a conversation that would end with one: providers refuse that, or take it for the answer's beginning."""

_ID_CHARS = 40
"""OpenAI accepts no longer call id; servers that create longer ids accept any."""
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_POOR_ID = re.compile(r"(?:(?:call|tool|toolu|function)[_-]?)?\d{0,4}", re.IGNORECASE)
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=\s]+)", re.IGNORECASE)


class StepCall(NamedTuple):
    """A tool call that can be sent: with a valid id, a valid name, and a JSON object as arguments."""

    id: str
    name: str
    arguments: str
    given: str
    """The id of the row, by which results refer to it."""


class StepImage(NamedTuple):
    media_type: str
    """Empty if `data` is an address."""
    data: str
    """Base64, or an http(s) address."""

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}" if self.media_type else self.data


Piece = str | StepImage


@dataclass(frozen=True, slots=True)
class MessageStep:
    """One message, with the results of its calls in stored order."""

    role: str
    """user | assistant"""
    pieces: tuple[Piece, ...]
    message: Message
    calls: tuple[StepCall, ...] = ()
    results: tuple[tuple[StepCall, tuple[Piece, ...]], ...] = ()


def steps(messages: Sequence[Message]) -> Iterator[MessageStep]:
    """The rows as steps. Rows of unknown roles are left out."""
    position, count = 0, len(messages)
    while position < count:
        message = messages[position]
        role = message.get("role")
        position += 1
        if role == "assistant":
            calls = _calls(message)
            behind = position
            while position < count and messages[position].get("role") == "tool":
                position += 1
            results = _pair(calls, messages[behind:position]) if calls else ()
            yield MessageStep("assistant", _pieces(message), message, calls, results)
        elif role in ("user", "system", "developer"):
            yield MessageStep("user", _pieces(message), message)


def text_of(pieces: Sequence[Piece], *, otherwise: str) -> str:
    """The text of the pieces; a picture becomes a line. Never blank, because most providers refuse blank text."""
    text = "\n".join(
        "[an image that cannot be shown here]" if isinstance(piece, StepImage) else piece for piece in pieces
    )
    return text if text.strip() else otherwise


def encode(value: Any) -> bytes:
    """Compact, valid JSON in UTF-8; values without a JSON form (NaN, half a surrogate pair) are replaced."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        text = _ENCODER.encode(_finite(value))
    return text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    # Configuration and tool schemas are frozen mappings, not dicts.
    return dict(value) if isinstance(value, Mapping) else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a model wrote as arguments; None if the text is not one."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def tool_name(name: Any) -> str:
    """A tool name that every provider accepts, made from the model's, which may be anything."""
    return _NAME.sub("_", name.strip())[:64] if isinstance(name, str) and name.strip() else "unknown_tool"


def is_poor_id(given: str) -> bool:
    """Whether an id looks counted up from zero in every answer, so that it would not be unique."""
    return _POOR_ID.fullmatch(given) is not None


def _calls(message: Message) -> tuple[StepCall, ...]:
    stored = message.get("tool_calls")
    if isinstance(stored, Mapping):
        stored = (stored,)
    if not isinstance(stored, list | tuple):
        return ()
    calls: list[StepCall] = []
    taken: set[str] = set()
    for index, raw in enumerate(stored):
        if not isinstance(raw, Mapping):
            continue
        function = raw.get("function")
        function = function if isinstance(function, Mapping) else raw
        arguments = function.get("arguments", function.get("input"))
        text = arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments).decode()
        given = str(raw.get("id") or "")
        call_id = given
        if is_poor_id(given) or given in taken or len(given) > _ID_CHARS:
            call_id = made_id(message, f"{index}|{given}|{text}")
        taken.add(call_id)
        calls.append(StepCall(call_id, tool_name(function.get("name")), _arguments(text), given))
    return tuple(calls)


def made_id(message: Message, what: str) -> str:
    """An id for a call of this row; it includes the row's time, so that ids of different rows differ."""
    return "call_" + blake2s(f"{message.get('timestamp')}|{what}".encode("utf-8", "replace")).hexdigest()[:20]


def _arguments(text: str) -> str:
    if not text.strip():
        return "{}"
    if json_object(text) is not None:
        return text
    return encode({"invalid_arguments": text}).decode()


def _pair(calls: tuple[StepCall, ...], rows: Sequence[Message]) -> tuple[tuple[StepCall, tuple[Piece, ...]], ...]:
    waiting = list(calls)
    paired: list[tuple[StepCall, tuple[Piece, ...]]] = []
    for row in rows:
        call = _answered(row, waiting)
        if call is not None:
            waiting.remove(call)
            paired.append((call, _pieces(row)))
    return (*paired, *((call, (NO_RESULT,)) for call in waiting))


def _answered(row: Message, waiting: list[StepCall]) -> StepCall | None:
    """The call that a result answers: by id, else by name (some programs store no id), else the next one."""
    given = row.get("tool_call_id")
    if given:
        return next((call for call in waiting if call.given == given), None)
    named = (call for call in waiting if call.name == row.get("tool_name"))
    return next(named, waiting[0] if waiting else None)


def _pieces(message: Message) -> tuple[Piece, ...]:
    content = message.get("content")
    sent = message.get("api_content")
    if not isinstance(sent, str):
        if isinstance(content, str) and message.get("role") != "tool":
            return (content.strip(),)  # as the store returns it: a row renders the same after a restart
        return tuple(_split(content))
    return (sent, *(piece for piece in _split(content) if isinstance(piece, StepImage)))


def _split(content: Any) -> Iterator[Piece]:
    if content is None:
        return
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _part(part) if isinstance(part, Mapping) else _split(part)
    elif isinstance(content, Mapping):
        yield from _part(content)
    else:
        yield str(content)


def _part(part: Mapping[str, Any]) -> Iterator[Piece]:
    kind = part.get("type")
    if isinstance(part.get("text"), str):
        yield part["text"]
    elif kind in ("image_url", "input_image", "image"):
        yield _picture(part) or "[an image that cannot be sent]"
    elif isinstance(kind, str):
        yield f"[a part of type {kind} that cannot be sent]"
    else:
        yield encode(part).decode()


def _picture(part: Mapping[str, Any]) -> StepImage | None:
    source = part.get("source")
    if isinstance(source, Mapping):
        if source.get("type") == "base64":
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        else:
            url = str(source.get("url"))
    else:
        holder = part.get("image_url")
        url = str(holder.get("url")) if isinstance(holder, Mapping) else str(holder)
    if found := _DATA_URL.fullmatch(url):
        media_type = found[1].lower().replace("image/jpg", "image/jpeg")
        return StepImage(media_type, "".join(found[2].split()))
    return StepImage("", url) if url.startswith(("https://", "http://")) else None
