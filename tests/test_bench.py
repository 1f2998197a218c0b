"""The floors of the benchmarks read and run what the product has: a floor that breaks is noticed here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
from bench import _floor
from bench._gateway_floors import Wire, durable_turn, host_and_port

from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, say


def test_the_floor_of_a_history_reads_every_message_of_a_store(tmp_path: Path) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}]
    said = [
        {"role": "user", "content": [{"type": "text", "text": "a list"}]},
        {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_details": [{"type": "text"}]},
        {"role": "tool", "content": "done", "tool_call_id": "c", "tool_name": "terminal"},
    ]
    db = SessionDB(tmp_path / "state.db")
    db.create_session("one", "cli")
    db.append_messages("one", said)
    conn = apsw.Connection(str(tmp_path / "state.db"))
    assert _floor.read_history(conn, "one") == len(said)
    conn.close()
    db.close()


def test_the_floor_of_a_turn_stores_before_and_after_the_model_answers(tmp_path: Path) -> None:
    store = _floor.raw_store(tmp_path / "raw.db")

    async def go() -> str:
        async with ScriptedModel(say("Hello, Ada")).served() as server:
            wire = Wire(*host_and_port(server.origin))
            try:
                return await durable_turn(store, wire)
            finally:
                wire.close()

    assert asyncio.run(go()) == "Hello, Ada"
    assert store.execute("SELECT count(*) FROM messages").fetchall() == [(2,)]
    store.close()
