"""Export and import single sessions as JSON objects.

An export is a session's columns and its live messages. An import is checked first, then stored in one transaction,
completely or not at all. An existing session is skipped, never merged; a taken title is dropped. Imported conversations
belong to the person at this machine. A session's columns are taken by name; its origin (route, chat, handoff, locks)
belongs to the other store and is dropped. Archives are for whole conversations with people and routes, and for large
imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_config.limits import Limits
from hermes_state import columns
from hermes_state.columns import NO_LIMIT, clean, numbers, texts
from hermes_state.conversations import chain, origins, sessions, titles, transcript
from hermes_state.conversations.transcript import Encoded
from hermes_state.errors import InvalidValue
from hermes_state.ids import LOCAL_OWNER, checked_id, is_possible_id
from hermes_state.storage.base import Connection, Store, first, put
from hermes_state.storage.statements import Queries

Q = Queries("session_json")


class SessionJson(Store):
    """The part of `SessionDB` that exports and imports single sessions."""

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session's columns and its live messages under `messages`."""
        return self.look(session_id, lambda conn: _exported(conn, session_id), None, snapshot=True)

    def import_sessions(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Import exported sessions: all new ones, or none when one of them is wrong."""

        taken, errors = check(records, self.limits, self.clock())
        if errors:
            return _outcome([], [], 0, errors)
        ordered = _parents_first(taken)
        return self.engine.write(lambda conn: _store_sessions(conn, ordered, self.clock()))


def _exported(conn: Connection, session_id: str) -> dict[str, Any] | None:
    row = sessions.fetch(conn, session_id)
    if row is None:
        return None
    said = conn.rows(transcript.Q.of_session, (session_id, 1, NO_LIMIT, 0))
    return {**row, "messages": [transcript.decode(message) for message in said]}


def _store_sessions(conn: Connection, ordered: list[Incoming], now: float) -> dict[str, Any]:
    imported: list[str] = []
    skipped: list[str] = []
    detached = 0
    for session in ordered:
        parent = _parent(conn, session, imported)
        row = {
            **session.fields, "id": session.id, "parent_session_id": parent, "root_id": session.id,
            "last_active": session.fields["started_at"], "title": _free_title(conn, session.fields["title"]),
        }  # fmt: skip
        if not put(conn, "sessions", row):
            skipped.append(session.id)
            continue
        transcript.insert_rows(conn, session.id, session.rows, started_at=row["started_at"])
        _hide(conn, session)
        sessions.place(conn, session.id, row, now)
        imported.append(session.id)
        detached += session.named_parent and parent is None
    conn.run(Q.set_owner, (LOCAL_OWNER, texts(imported)))
    return _outcome(imported, skipped, detached, [])


def _parent(conn: Connection, session: Incoming, imported: list[str]) -> str | None:
    """The parent it may keep. A conversation that continues here gets no second continuation from outside."""
    parent = session.parent
    if parent is None or parent in imported:
        return parent
    node = first(conn.rows(chain.Q.node, (parent,)))
    if node is None:
        return None
    if sessions.relation({**session.fields, "parent_session_id": parent}) == "child":
        return None if conn.rows(chain.Q.continuations, (parent, node[1])) else parent
    return parent


def _free_title(conn: Connection, title: str | None) -> str | None:
    return None if title is None or conn.rows(titles.Q.holder, (title,)) else title


def _hide(conn: Connection, session: Incoming) -> None:
    """Hide rows that were undone or summarised in the other store."""
    if not session.hidden:
        return
    ids = [row[0] for row in conn.rows(Q.row_ids, (session.id,))]
    for compacted in (0, 1):
        chosen = [ids[at] for at, state in session.hidden.items() if state == compacted]
        conn.run(Q.hide, (compacted, numbers(chosen)))


def _outcome(imported: list[str], skipped: list[str], detached: int, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "ok": not errors,
        "imported": len(imported),
        "skipped": len(skipped),
        "detached": detached,
        "imported_ids": imported,
        "skipped_ids": skipped,
        "errors": errors,
    }


ROLES = frozenset({"user", "assistant", "tool", "system", "session_meta"})
_TEXTS = (
    "model", "system_prompt", "cwd", "git_branch", "git_repo_root", "profile_name", "end_reason", "billing_provider",
    "billing_base_url", "billing_mode", "cost_status", "cost_source", "pricing_version",
)  # fmt: skip
_COUNTS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count",
    "rewind_count",
)  # fmt: skip
_NUMBERS = ("ended_at", "estimated_cost_usd", "actual_cost_usd")
_MESSAGE_TEXTS = (
    "tool_call_id", "tool_name", "effect_disposition", "finish_reason", "reasoning", "reasoning_content", "api_content",
    "origin",
)  # fmt: skip
_MOST = 10**15


@dataclass(slots=True)
class Incoming:
    """One checked session: its columns, its encoded rows, and which rows are undone or summarised."""

    id: str
    fields: dict[str, Any]
    rows: list[Encoded]
    hidden: dict[int, int]  # position → compacted
    parent: str | None
    named_parent: bool


def check(records: object, limits: Limits, now: float) -> tuple[list[Incoming], list[dict[str, Any]]]:
    """(sessions to import, errors). With any error nothing may be imported."""
    if not isinstance(records, list):
        return [], [_error(None, None, "an import is a list of sessions")]
    if len(records) > limits.import_call_sessions:
        return [], [_error(None, None, f"{len(records)} sessions; the limit is {limits.import_call_sessions}")]
    taken: dict[str, Incoming] = {}
    errors = []
    size = messages = 0
    for index, record in enumerate(records):
        try:
            size += _size(record, limits)
            session = _session(record, limits, now)
            messages += len(session.rows)
            if size > limits.import_call_bytes:
                raise InvalidValue(f"the import is larger than {limits.import_call_bytes} bytes")
            if messages > limits.import_call_messages:
                raise InvalidValue(f"the import has more than {limits.import_call_messages} messages")
            if session.id in taken:
                raise InvalidValue("the same session is in the list twice")
            taken[session.id] = session
        except InvalidValue as error:
            shown = record.get("id") if isinstance(record, dict) else None
            errors.append(_error(index, shown if is_possible_id(shown) else None, str(error)))
    return list(taken.values()), errors


def _parents_first(sessions: list[Incoming]) -> list[Incoming]:
    by_id = {session.id: session for session in sessions}
    ordered, cut = chain.parents_first({session.id: session.parent for session in sessions})
    for session_id in cut:
        by_id[session_id].parent = None
    return [by_id[session_id] for session_id in ordered]


def _session(record: Any, limits: Limits, now: float) -> Incoming:
    if not isinstance(record, dict):
        raise InvalidValue("a session is an object with its columns and messages")
    session_id = checked_id(record.get("id"))
    messages = record.get("messages")
    if messages is None:
        messages = []
    if not isinstance(messages, list):
        raise InvalidValue("messages must be a list")
    if len(messages) > limits.import_session_messages:
        raise InvalidValue(f"{len(messages)} messages; the limit is {limits.import_session_messages} a session")
    fields: dict[str, Any] = {name: _text(name, record.get(name)) for name in _TEXTS}
    fields |= {name: _whole(name, record.get(name)) for name in _COUNTS}
    fields |= {name: _number(name, record.get(name)) for name in _NUMBERS}
    fields["source"] = _text("source", record.get("source")) or "import"
    fields["title"] = columns.sanitize_title(_text("title", record.get("title")))
    fields["model_config"] = _config(record.get("model_config"))
    fields["archived"] = int(bool(record.get("archived")))
    started = _number("started_at", record.get("started_at"))
    fields["started_at"] = now if started is None else started
    if fields["end_reason"] is not None and fields["ended_at"] is None:
        fields["ended_at"] = fields["started_at"]
    rows = [_message(at, message, limits, now) for at, message in enumerate(messages)]
    hidden = {at: int(bool(m.get("compacted"))) for at, m in enumerate(messages) if m.get("active") in (0, False)}
    named = record.get("parent_session_id")
    parent = named if is_possible_id(named) and named != session_id else None
    return Incoming(session_id, fields, rows, hidden, parent, named is not None)


def _message(at: int, message: Any, limits: Limits, now: float) -> Encoded:
    if not isinstance(message, dict):
        raise InvalidValue(f"message {at} is not an object")
    if not isinstance(message.get("role"), str) or message["role"] not in ROLES:
        known_roles = ", ".join(sorted(ROLES))
        raise InvalidValue(f"message {at} has the role {message.get('role')!r:.40}; known are {known_roles}")
    try:
        for name in _MESSAGE_TEXTS:
            _text(name, message.get(name))
        known = {name: value for name, value in message.items() if name not in ("turn_id", "person_id")}
        if not origins.source_of(known.get("origin")):
            known.pop("origin", None)  # whoever wrote the file is not the person who will rely on these words
        if known.get("token_count") is not None:
            known["token_count"] = _whole("token_count", known["token_count"])
        return transcript.encode(known, now, limits.message_bytes)
    except InvalidValue as error:
        raise InvalidValue(f"message {at}: {error}") from error


def _size(record: Any, limits: Limits) -> int:
    try:
        size = len(json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except RecursionError:
        raise InvalidValue("it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"it is not JSON: {error}") from error
    if size > limits.import_session_bytes:
        raise InvalidValue(f"it is larger than {limits.import_session_bytes} bytes")
    return size


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a text, not {value!r:.40}")
    text: str = clean(value)
    return text


def _config(value: object) -> str | None:
    if value is not None and not isinstance(value, (str, Mapping)):
        raise InvalidValue(f"model_config must be an object, not {value!r:.40}")
    text: str | None = clean(columns.encode_json(value))
    return text


def _whole(name: str, value: object) -> int:
    return int(_number(name, value) or 0)


def _number(name: str, value: object) -> float | None:
    return None if value is None else columns.number(name, value, least=-_MOST, most=_MOST)


def _error(index: int | None, session_id: str | None, text: str) -> dict[str, Any]:
    return {"index": index, "session_id": session_id, "error": text}
