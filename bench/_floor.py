"""The raw floors: the same engine doing the least that could be called the same job, nothing of ours in between."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import apsw

from hermes_state.columns import SHOWN, SHOWN_FIELDS
from hermes_state.storage import statements

SESSION = "20260701_000000_00000000"
TEXT = "The maples in Kyoto peak in late November, so book the small inn near the river early. " * 3
_SAID = (
    "role, content, content_kind, tool_call_id, tool_calls, tool_name, effect_disposition, timestamp, token_count, "
    "finish_reason, reasoning, reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, "
    "platform_message_id, observed, api_content, escaped, turn_id, person_id"
)
_COLUMNS = ", ".join(f"{name.strip()} TEXT" for name in _SAID.split(",") if name.strip() not in ("timestamp",))
INSERT = f"INSERT INTO messages (session_id, {_SAID}) VALUES ({', '.join('?' * 22)})"
COUNT = "UPDATE sessions SET message_count = message_count + 1 WHERE id = ?"


def row(i: int = 0) -> tuple[Any, ...]:
    return (
        SESSION, "user", f"{i} {TEXT}", "text", None, None, None, None, time.time(), None, None, None, None, None, None,
        None, None, 0, None, None, None, None,
    )  # fmt: skip


def raw_store(path: Path) -> apsw.Connection:
    """Floor (a)'s table: all our columns, the (session_id, id) index, one counter to update; SQLite's own defaults."""
    conn = apsw.Connection(str(path))
    conn.set_busy_timeout(10_000)  # four processes open it at once
    conn.pragma("journal_mode", "wal")
    conn.pragma("synchronous", "FULL")
    conn.execute(
        "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, session_id TEXT, timestamp REAL, "
        f"active INTEGER DEFAULT 1, compacted INTEGER DEFAULT 0, replaced INTEGER DEFAULT 0, {_COLUMNS})"
    )
    conn.execute("CREATE INDEX IF NOT EXISTS by_session ON messages(session_id, id)")
    conn.execute("CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, message_count INTEGER)")
    conn.execute("INSERT OR IGNORE INTO sessions VALUES (?, 0)", (SESSION,))
    conn.set_busy_timeout(0)
    return conn


def append_each(conn: apsw.Connection, count: int) -> None:
    for i in range(count):
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(INSERT, row(i))
        conn.execute(COUNT, (SESSION,))
        conn.execute("COMMIT")


def append_groups(conn: apsw.Connection, groups: int, size: int) -> None:
    for _ in range(groups):
        conn.execute("BEGIN IMMEDIATE")
        for i in range(size):
            conn.execute(INSERT, row(i))
            conn.execute(COUNT, (SESSION,))
        conn.execute("COMMIT")


def read_history(conn: apsw.Connection, session_id: str) -> int:
    """Floor (b): the columns of a conversation into tuples, JSON columns parsed."""
    sql = statements.Queries("transcript").conversation.sqlite
    rows = conn.execute(sql, (session_id, 1)).fetchall()
    parsed = [SHOWN.index(column.name) for column in SHOWN_FIELDS if column.kind == "json"]
    for r in rows:
        if r[2] == "json":
            json.loads(r[1])
        for at in parsed:
            if r[at] is not None:
                json.loads(r[at])
    return len(rows)
