"""Stores with something in them, for tests that copy, check or clean whole stores.

`tell_story` uses the public verbs and gives the variety a real home has; `fill_every_table` reads the schema and puts
rows into every table there is, so that a test notices a table that somebody forgot; `stored` reads back what was said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_state.ids import PersonId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_state.transfer import tables
from hermes_state.turns.approvals import Grant


def tell_story(db: SessionDB, *, prefix: str = "") -> dict[str, str]:
    """A few conversations of different kinds; their first sessions' ids by a short name."""
    ada = db.people.ensure(platform="telegram", native_id="42", display_name="Ada", role="admin").id
    trip = db.ledger.open(
        source="telegram", route="agent:main:telegram:dm:42", owner=PersonId(ada), session_id=f"{prefix}trip",
        fields={"user_id": "42", "model": "demo", "model_config": '{"api_key": "sk-hidden", "temperature": 1}'},
    )  # fmt: skip
    entry = {"platform": "telegram", "model_override": {"model": "demo", "api_key": "sk-hidden"}}
    db.ledger.switch(SessionKey("agent:main:telegram:dm:42"), trip.session_id, entry=entry)
    db.set_session_title(trip.session_id, f"{prefix}Trip to Kyoto")
    db.append_message(trip.session_id, "user", "Wo liegt 京都? 🚆", person_id=ada, platform_message_id="m1")
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "\\u4eac\\u90fd"}'}}
    db.append_message(trip.session_id, "assistant", None, tool_calls=[call])
    db.append_message(trip.session_id, "tool", "in Japan\0 with a NUL \\ and a backslash", tool_call_id="c1")
    rotated = db.ledger.rotate(
        trip.session_id, [{"role": "user", "content": "Summary: Kyoto lies in Japan."}], new_id=f"{prefix}trip-2"
    )
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    db.append_message(rotated.session_id, "user", parts)
    taken_back = db.append_message(rotated.session_id, "user", "never mind")
    db.rewind_to_message(rotated.session_id, taken_back)
    db.update_token_counts(rotated.session_id, input_tokens=10, output_tokens=5, model="demo")
    side = db.ledger.branch(rotated.session_id, new_id=f"{prefix}a-branch", title=f"{prefix}Osaka instead")
    desk = db.ledger.open(source="cli", session_id=f"{prefix}desk")
    db.append_message(desk.session_id, "user", "hello")
    db.replace_messages(desk.session_id, [{"role": "user", "content": "hello again"}])
    db.end_session(desk.session_id, "user_exit")
    return {"trip": trip.session_id, "tip": rotated.session_id, "branch": side.session_id, "desk": desk.session_id}


def fill_every_table(db: SessionDB, *, rows: int = 3) -> None:
    """Rows of made-up values in every table of the schema, with gaps in what the database numbers."""

    def run(conn: Connection) -> None:
        for table in tables.every():
            made = [_made_up(table, number) for number in range(rows)]
            tables.fill(conn, table, made)
            tables.link(conn, table, made)
            if table.numbered:
                tables.set_last_number(conn, table, 1_000 + rows)

    db.engine.write(run)


def _made_up(table: tables.Table, number: int) -> tuple[Any, ...]:
    links = dict(table.links)
    row: list[Any] = []
    for column in table.columns:
        if column.name in links and links[column.name] == table.name:
            row.append(f"key-{number - 1}-é" if number else None)
        elif column.name in links or (column.kind == "TEXT" and column.name in table.key):
            row.append(f"key-{number}-é")
        elif column.kind == "INTEGER":
            row.append(10 * number + 1)
        elif column.kind == "REAL":
            row.append(1_700_000_000.125 + number)
        elif column.kind == "BLOB":
            row.append(bytes((0, number, 255)))
        else:
            row.append(None if not column.required and number == 1 else f"{column.name} {number} 京都")
    return tuple(row)


def grants_of(db: SessionDB, approval_id: str) -> list[Grant]:
    """What the answer to a question granted, in force or not."""
    made = "SELECT id FROM grants WHERE approval_id = ? ORDER BY created_at, id"
    ids = [row[0] for row in db.engine.read(lambda conn: conn.rows(made, (approval_id,)))]
    named = db.approvals.named(ids)
    return [named[one] for one in ids]


def stored(home: Path) -> list[tuple[str, str]]:
    """(role, words) of the newest conversation."""
    db = SessionDB(home / "state.db")
    try:
        session = db.list_sessions_rich(order_by_last_active=True, limit=1)[0]["id"]
        return [(row["role"], row["content"]) for row in db.get_messages_as_conversation(session)]
    finally:
        db.close()
