"""Convert rows of hermes-agent to ours: pure functions.

Their columns hold values of any type, so every value is converted to its column's kind here: text, a number, a flag.
Structures marked by a NUL prefix become content of the kind `json`; JSON with escapes is rewritten in real characters,
so that the search finds it; a text with a NUL is escaped (`columns`).

Also: which rows form one conversation, and which of them is its tip (`arrange`). The rules are those of `chain`, for a
whole home at once: a child of a row that ended by compression continues it, unless it is a branch, a delegation or a
tool's; of several continuations, one that was itself continued is preferred, then a live one, then the newest. In files
from before those marks the times tell the kind of a child.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain, sessions, transcript
from hermes_state.ids import is_possible_id
from hermes_state.storage.base import Row
from hermes_state.transfer import tables

ADDED = ("root_id", "last_active", "preview", "listed")
"""Columns of our sessions that hermes-agent does not have."""
SESSION = {column.name: column.kind for column in tables.named("sessions").columns if column.name not in ADDED}
USAGE = {column.name: column.kind for column in tables.named("session_model_usage").columns}
MESSAGE = tuple(
    name
    for name in tables.named("messages").names
    if name not in ("content_kind", "escaped", "replaced", "turn_id", "person_id", "origin")
)
INSERTED = ("id", "session_id", "active", "compacted", *(column.name for column in columns.SAID))
"""The columns of `message`."""
_COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_STRUCTURED = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_PREFIX = "\0json:"
_NO_LIMIT = 2**62


def session(row: Row) -> dict[str, Any]:
    """Values in their columns' kinds; `message_count` and `tool_call_count` are None where the file did not count."""
    found = {name: _VALUE[kind](value) for (name, kind), value in zip(SESSION.items(), row, strict=True)}
    uncounted = {name: found[name] for name in ("message_count", "tool_call_count")}
    found |= {name: 0 for name, kind in SESSION.items() if kind == "INTEGER" and found[name] is None} | uncounted
    found["source"] = found["source"] or "unknown"
    return found


def content(stored: object) -> Any:
    """The content of a message: a text, or the structure behind their prefix."""
    text = _text(stored)
    if text is None or not text.startswith(_PREFIX):
        return text
    try:
        return json.loads(text[len(_PREFIX) :])
    except ValueError:
        return text


def message(row: Row, offset: int, now: float) -> tuple[Any, ...]:
    """The values of `INSERTED`."""
    said: dict[str, Any] = dict(zip(MESSAGE, row, strict=True))
    for name, value in said.items():
        if isinstance(value, bytes) or (isinstance(value, int | float) and name not in _NUMERIC):
            said[name] = _text(value)
    said["content"] = content(said["content"])
    said["role"] = said["role"] or "unknown"
    for name in _STRUCTURED:
        said[name] = readable_json(said[name])
    if said["platform_message_id"] is not None and not is_possible_id(said["platform_message_id"]):
        said["platform_message_id"] = None  # longer than any platform's id; nothing could ever look it up
    said["token_count"] = _count(said["token_count"])
    said["timestamp"] = _real(said["timestamp"])
    active = 1 if said["active"] is None else int(bool(said["active"]))
    encoded = transcript.encode(said, now if said["timestamp"] is None else said["timestamp"], _NO_LIMIT)
    return (row[0] + offset, said["session_id"], active, int(bool(said["compacted"])), *encoded)


_NUMERIC = {"id", "timestamp", "token_count", "observed", "active", "compacted"}


def readable_json(stored: Any) -> Any:
    """JSON with escapes, rewritten in real characters; anything else unchanged."""
    if not isinstance(stored, str) or "\\u" not in stored:
        return stored
    try:
        written = columns.encode_json(json.loads(stored))
    except ValueError:
        return stored
    return stored if written is None else columns.scrub(written)


def usage(row: Row) -> tuple[Any, ...]:
    """A row of `session_model_usage`, in the order of `USAGE`."""
    found = {name: _VALUE[kind](value) for (name, kind), value in zip(USAGE.items(), row, strict=True)}
    for name in ("model", "billing_provider", "billing_base_url", "billing_mode", "task"):
        found[name] = found[name] or ""
    for name, kind in USAGE.items():
        if kind == "INTEGER" or name.endswith("_usd"):
            found[name] = found[name] or 0
    return tuple(found.values())


def usage_of_totals(row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """For a file from before usage by model: one row from the session's totals, None without any."""
    if not any(row[name] for name in _COUNTED):
        return None
    found = {name: row.get(name) for name in USAGE}
    found |= {"session_id": row["id"], "task": "", "first_seen": row["started_at"], "last_seen": row["last_active"]}
    return usage(tuple(found.values()))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _real(value: object) -> float | None:
    if not isinstance(value, int | float | str | bytes):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < 1e300 else None


def _count(value: object) -> int | None:
    number = _real(value)
    return None if number is None or abs(number) >= 2**63 else int(number)


_VALUE = {"TEXT": lambda value: columns.clean(_text(value)), "REAL": _real, "INTEGER": _count}


LISTED = ("new", "branch", "reset")
_MARKS_SINCE = 16


@dataclass(frozen=True, slots=True)
class ParentHere:
    """A row of our store that may be a parent."""

    root: str
    end_reason: str | None


@dataclass(slots=True)
class Lineage:
    """Every session's conversation, every conversation's tip; the sessions with parents first."""

    kinds: dict[str, str] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    tips: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)
    """Session → why its link to a parent was cut."""


def mark_old_children(rows: Iterable[dict[str, Any]], version: int) -> int:
    """In a file from before the marks: mark branches and delegations among the children, by their times.

    Their own upgrade also hides parentless short rows with tool calls, which may have been delegations; we do not,
    because a wrong guess would hide somebody's conversation.
    """
    if version >= _MARKS_SINCE:
        return 0
    by_id = {row["id"]: row for row in rows}
    marked = 0
    for row in by_id.values():
        parent = by_id.get(row["parent_session_id"])
        if parent is None or sessions.kind_by_marks(row["model_config"]):
            continue
        after_its_end = parent["ended_at"] is not None and row["started_at"] >= parent["ended_at"]
        if after_its_end and parent["end_reason"] == "compression":
            continue
        mark = "_branched_from" if after_its_end and parent["end_reason"] == "branched" else "_delegate_from"
        row["model_config"] = columns.encode_json(columns.decode_object(row["model_config"]) | {mark: parent["id"]})
        marked += 1
    return marked


def kind_of(row: Mapping[str, Any]) -> str:
    """How a row relates to its parent. The marks count even if the parent is missing."""
    marked = sessions.kind_by_marks(row["model_config"])
    return marked or ("new" if row["parent_session_id"] is None else "child")


def arrange(rows: Mapping[str, dict[str, Any]], outside: Mapping[str, ParentHere]) -> Lineage:
    """`rows` by id, with `last_active` set. A link to a missing parent is cut, in the row too."""
    found = Lineage()
    for session_id, row in rows.items():
        parent = row["parent_session_id"]
        if parent is not None and parent not in rows and parent not in outside:
            found.cut[session_id] = f"its parent {parent[:60]} is missing"
            row["parent_session_id"] = None
        found.kinds[session_id] = kind_of(row)
    found.order, cycles = chain.parents_first({one: row["parent_session_id"] for one, row in rows.items()})
    for session_id in cycles:
        found.cut[session_id] = "its parents form a cycle"
        rows[session_id]["parent_session_id"] = None
        found.kinds[session_id] = kind_of(rows[session_id])
    for session_id in found.order:
        found.roots[session_id] = _root(rows[session_id], rows, outside, found)
    _find_tips(rows, found)
    return found


def _root(
    row: dict[str, Any], rows: Mapping[str, dict[str, Any]], outside: Mapping[str, ParentHere], found: Lineage
) -> str:
    """The parent's conversation when the row continues it, else its own. Parents are handled first."""
    parent = row["parent_session_id"]
    own = str(row["id"])
    if parent is None or found.kinds[own] != "child" or row["source"] == "tool":
        return own
    if parent in rows:
        return found.roots[parent] if rows[parent]["end_reason"] == "compression" else own
    return outside[parent].root if outside[parent].end_reason == "compression" else own


def _find_tips(rows: Mapping[str, dict[str, Any]], found: Lineage) -> None:
    following: dict[str, list[str]] = {}
    for session_id, root in found.roots.items():
        parent = rows[session_id]["parent_session_id"]
        if root != session_id and parent is not None:
            following.setdefault(parent, []).append(session_id)
    for session_id, root in found.roots.items():
        if root == session_id:
            here = session_id
            while rows[here]["end_reason"] == "compression" and here in following:
                here = max(following[here], key=lambda one: _preference(rows[one]))
            found.tips[root] = here


def _preference(row: Mapping[str, Any]) -> tuple[int, float, float, str]:
    state = 2 if row["end_reason"] == "compression" else 1 if row["ended_at"] is None else 0
    return state, row["last_active"], row["started_at"], row["id"]
