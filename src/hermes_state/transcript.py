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

# Positions in an encoded row, as `insert` lists them without session_id.
_AT = {
    "tool_call_id": 3, "tool_calls": 4, "tool_name": 5, "effect_disposition": 6, "timestamp": 7, "finish_reason": 9,
    "reasoning": 10, "reasoning_content": 11, "reasoning_details": 12, "codex_reasoning_items": 13,
    "codex_message_items": 14, "platform_message_id": 15, "api_content": 17, "escaped": 18,
}  # fmt: skip


def encode(message: Mapping[str, Any], now: float, max_bytes: int) -> list[Any]:
    """The parameters of `insert` after session_id, from a message as the agent or an archive has it."""
    get = message.get
    content, kind = values.encode_content(get("content"))
    if content is not None and len(content) > max_bytes // 4 and len(content.encode("utf-8", "replace")) > max_bytes:
        raise InvalidValue(
            f"a message of {len(content)} characters is larger than the limit of {max_bytes} bytes",
            hint="Send it as a file, or raise limits.message_bytes.",
        )
    row = [
        str(message["role"]), content, kind, get("tool_call_id"), values.encode_json(get("tool_calls")),
        get("tool_name"), get("effect_disposition"), values.to_epoch(get("timestamp"), now), get("token_count"),
        get("finish_reason"), get("reasoning"), get("reasoning_content"),
        values.encode_json(get("reasoning_details")), values.encode_json(get("codex_reasoning_items")),
        values.encode_json(get("codex_message_items")), _platform_id(message), int(bool(get("observed"))),
        get("api_content"), None, get("turn_id"), get("person_id"),
    ]  # fmt: skip
    for at, value in enumerate(row):
        if type(value) is str and not value.isascii():
            row[at] = values.scrub(value)
    if any(type(value) is str and "\0" in value for value in row):
        _escape_others(row)
    return row


def _platform_id(message: Mapping[str, Any]) -> str | None:
    found = message.get("platform_message_id")
    if found is None:
        found = message.get("message_id")  # its name in a conversation
    return None if found is None else checked_id(str(found), what="platform message id")


def _escape_others(row: list[Any]) -> None:
    """NUL outside the content: the column is escaped and named."""
    names = []
    for name, at in _AT.items():
        if isinstance(row[at], str) and "\0" in row[at]:
            row[at] = values.escape(row[at])
            names.append(name)
    row[0] = row[0].replace("\0", "")
    row[_AT["escaped"]] = ",".join(names) or None


def tool_calls_in(row: list[Any]) -> int:
    """How many tool calls an encoded row makes."""
    return calls_of(row[0], row[4])


def calls_of(role: str, calls: str | None) -> int:
    if calls is None or role == "tool":
        return 0
    parsed = values.decode_json(calls, broken="?")
    return len(parsed) if isinstance(parsed, list) else 1


def preview(row: list[Any]) -> str | None:
    if row[0] != "user" or row[1] is None:
        return None
    return values.preview_of(row[1] if row[2] == "text" else values.decode_content(row[1], row[2]))


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
