"""How a row becomes a message and back: pure functions, no database.

A message comes in as the agent, an archive or a third-party tool has it, and goes out in two forms: the full row
that tools know, and the provider's message that the model is shown, whose keys are there only when they say something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes_state import values
from hermes_state.engine.base import Row
from hermes_state.errors import InvalidValue
from hermes_state.ids import checked_id

COLUMNS = (
    "id", "session_id", "role", "content", "content_kind", "tool_call_id", "tool_calls", "tool_name",
    "effect_disposition", "timestamp", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
    "active", "compacted", "api_content", "escaped", "turn_id", "person_id",
)  # fmt: skip
_LEAKED = re.compile(r"<memory-context\b[^>]*>.*?</memory-context>", re.DOTALL | re.IGNORECASE)

# The columns between `timestamp`/`token_count` and the state, as `insert` lists them.
_NOTHING = (None,) * 12
_OTHERS = (
    "tool_call_id", "tool_calls", "tool_name", "effect_disposition", "finish_reason", "reasoning",
    "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id",
    "api_content",
)  # fmt: skip
# Where `insert` has the columns that `as_conversation` takes, in its order.
_AS_SHOWN = (0, 1, 2, 4, 7, 3, 5, 6, 17, 15, 16, 9, 10, 11, 12, 13, 14, 18)
_ROLES = frozenset({"user", "assistant", "system", "tool"})
_STRUCTURED = frozenset({"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"})


class Encoded(list[Any]):
    """A message as the parameters of `insert` after session_id, with what its session's counters need to know."""

    __slots__ = ("calls", "preview")
    calls: int
    preview: str | None

    @property
    def timestamp(self) -> float:
        at: float = self[7]
        return at


def is_text(role: Any, content: Any, max_bytes: int) -> bool:
    """Whether a message with this role and content, and nothing else, is stored as it stands. See `text_row`."""
    return (
        type(content) is str
        and content.isascii()
        and "\0" not in content
        and len(content) <= max_bytes
        and type(role) is str
        and role in _ROLES
    )


def text_row(role: str, content: str, at: float) -> Encoded:
    """`pack` for what `is_text`."""
    row = Encoded((role, content, "text", *_NOTHING[:4], at, None, *_NOTHING[:7], 0, None, None, None, None))
    row.calls = 0
    row.preview = values.preview_of(content) if role == "user" else None
    return row


def encode(message: Mapping[str, Any], now: float, max_bytes: int) -> Encoded:
    """A message as the agent, an archive or a third-party tool has it, ready to be stored."""
    get = message.get
    platform_id = get("platform_message_id")
    return pack(
        message["role"], get("content"), get("tool_name"), get("tool_calls"), get("tool_call_id"), get("token_count"),
        get("finish_reason"), get("reasoning"), get("reasoning_content"), get("reasoning_details"),
        get("codex_reasoning_items"), get("codex_message_items"),
        get("message_id") if platform_id is None else platform_id,  # its name in a conversation
        get("observed"), get("effect_disposition"), get("timestamp"), get("api_content"), get("turn_id"),
        get("person_id"), now, max_bytes,
    )  # fmt: skip


def pack(
    role: str,
    content: Any,
    tool_name: str | None,
    tool_calls: Any,
    tool_call_id: str | None,
    token_count: int | None,
    finish_reason: str | None,
    reasoning: str | None,
    reasoning_content: str | None,
    reasoning_details: Any,
    codex_reasoning_items: Any,
    codex_message_items: Any,
    platform_message_id: Any,
    observed: Any,
    effect_disposition: str | None,
    timestamp: Any,
    api_content: str | None,
    turn_id: str | None,
    person_id: str | None,
    now: float,
    max_bytes: int,
) -> Encoded:
    """`encode` by position: the hot path, where most columns are empty."""
    kind = "text"
    if type(content) is str:
        if not content.isascii():
            content = values.scrub(content)
        preview = values.preview_of(content) if role == "user" else None
        if "\0" in content:
            content, kind = values.escape(content), "escaped"
    else:
        preview = values.preview_of(content) if role == "user" else None
        content, kind = values.encode_content(content)
    if content is not None and len(content) * 4 > max_bytes:
        _check_size(content, max_bytes)
    others: Any = (
        tool_call_id, tool_calls, tool_name, effect_disposition, finish_reason, reasoning, reasoning_content,
        reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, api_content,
    )  # fmt: skip
    escaped = None
    if others != _NOTHING:
        others, escaped = _pack_others(others)
    row = Encoded((
        _column(str(role)), content, kind, *others[:4], now if timestamp is None else values.to_epoch(timestamp, now),
        token_count, *others[4:11], 1 if observed else 0, others[11], escaped, turn_id, person_id,
    ))  # fmt: skip
    row.calls = 0 if tool_calls is None else calls_of(role, tool_calls)
    row.preview = preview
    return row


def _pack_others(given: tuple[Any, ...]) -> tuple[list[str | None], str | None]:
    """(column values, names of the columns in which NUL had to be escaped)."""
    packed: list[str | None] = list(given)
    escaped = []
    for at, value in enumerate(given):
        if value is None:  # most of them
            continue
        name = _OTHERS[at]
        if name in _STRUCTURED:
            value = values.encode_json(value)
        elif name == "platform_message_id":
            value = checked_id(str(value), what="platform message id")
        value = values.scrub(str(value))
        if "\0" in value:
            value = values.escape(value)
            escaped.append(name)
        packed[at] = value
    return packed, ",".join(escaped) or None


def _column(text: str) -> str:
    """A short text that is no content: what no engine can hold is left out."""
    return text if text.isascii() and "\0" not in text else values.scrub(text).replace("\0", "")


def _check_size(content: str, max_bytes: int) -> None:
    if len(content.encode()) > max_bytes:
        raise InvalidValue(
            f"a message of {len(content)} characters is larger than the limit of {max_bytes} bytes",
            hint="Send it as a file, or raise limits.message_bytes.",
        )


def calls_of(role: str, calls: Any) -> int:
    """How many tool calls a row makes; the answer of a tool makes none."""
    if calls is None or role == "tool":
        return 0
    if isinstance(calls, str):
        calls = values.decode_json(calls, broken=calls)
    return len(calls) if isinstance(calls, list) else 1


def decode(row: Row) -> dict[str, Any]:
    """A full row as other tools know it: content decoded, tool calls parsed."""
    message = dict(zip(COLUMNS, row, strict=True))
    for name in (message.pop("escaped") or "").split(","):
        if name:
            message[name] = values.unescape(message[name])
    message["content"] = values.decode_content(message["content"], message.pop("content_kind"))
    if message["tool_calls"] is not None:
        message["tool_calls"] = values.decode_json(message["tool_calls"], broken=[])
    return message


def as_conversation(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows of `conversation` as provider messages; keys are there only when they say something."""
    turns = []
    for (
        role, content, kind, calls, timestamp, call_id, tool_name, effect, api_content, platform_id, observed,
        finish, reasoning, reasoning_content, details, codex_items, codex_messages, escaped,
    ) in rows:  # fmt: skip
        if kind != "text":
            content = values.decode_content(content, kind)
        if (role == "user" or role == "assistant") and type(content) is str:
            content = _cleaned(content)
        turn = {"role": role, "content": content}
        if timestamp is not None:
            turn["timestamp"] = timestamp
        if calls is not None:
            turn["tool_calls"] = values.decode_json(calls, broken=[])
        if call_id is not None:
            turn["tool_call_id"] = call_id
        if tool_name is not None:
            turn["tool_name"] = tool_name
        if effect is not None:
            turn["effect_disposition"] = effect
        if api_content is not None:
            turn["api_content"] = api_content
        if platform_id is not None:
            turn["message_id"] = platform_id
        if observed:
            turn["observed"] = True
        if role == "assistant":
            if finish is not None:
                turn["finish_reason"] = finish
            if reasoning is not None:
                turn["reasoning"] = reasoning
            if reasoning_content is not None:
                turn["reasoning_content"] = reasoning_content
            if details is not None:
                turn["reasoning_details"] = values.decode_json(details)
            if codex_items is not None:
                turn["codex_reasoning_items"] = values.decode_json(codex_items)
            if codex_messages is not None:
                turn["codex_message_items"] = values.decode_json(codex_messages)
        if escaped is not None:
            _unescape_turn(turn, escaped)
        turns.append(turn)
    return turns


def as_stored(message: Mapping[str, Any], now: float, max_bytes: int) -> dict[str, Any]:
    """What `as_conversation` will give for a message once it is stored: encoded and read back, without a database."""
    row = encode(message, now, max_bytes)
    return as_conversation([tuple([row[place] for place in _AS_SHOWN])])[0]


def _unescape_turn(turn: dict[str, Any], escaped: str) -> None:
    for name in escaped.split(","):
        shown = "message_id" if name == "platform_message_id" else name
        if isinstance(turn.get(shown), str):
            turn[shown] = values.unescape(turn[shown])


def _cleaned(text: str) -> str:
    """Without memory blocks that leaked into the transcript."""
    if "<memory-context" in text:
        text = _LEAKED.sub("", text)
    return text.strip()


def without_repeats(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop a user text that repeats the one before it with no answer between: a compression carried it over."""
    kept: list[dict[str, Any]] = []
    last_user: Any = None
    for turn in turns:
        if turn["role"] == "assistant":
            last_user = None
        elif turn["role"] == "user":
            if last_user is not None and turn["content"] == last_user:
                continue
            last_user = turn["content"]
        kept.append(turn)
    return kept


def repaired(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The list with roles alternating: neighbours of one role merged, tool results without a call dropped."""
    fixed: list[dict[str, Any]] = []
    open_calls: set[Any] = set()
    for turn in turns:
        role, before = turn["role"], fixed[-1] if fixed else None
        if role == "tool":
            if turn.get("tool_call_id") in open_calls:
                open_calls.discard(turn["tool_call_id"])
                fixed.append(turn)
            continue
        if before is not None and before["role"] == role and role in ("user", "assistant") and _plain(before, turn):
            merged = "\n\n".join(t for t in (before["content"], turn["content"]) if t)
            fixed[-1] = {**before, "content": merged}
            continue
        if role == "assistant":
            open_calls = {call.get("id") for call in turn.get("tool_calls") or () if isinstance(call, dict)}
        fixed.append(turn)
    return fixed


def _plain(*turns: dict[str, Any]) -> bool:
    return all(isinstance(t["content"], str) and not t.get("tool_calls") for t in turns)
