"""Rows of background processes: one end, one notice, and nothing of them after a deletion."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gateway.config import load_gateway_config
from gateway.services import services_of
from hermes_config.config import of as config_of
from hermes_state import SessionDB
from hermes_state.errors import TooManyProcesses
from hermes_state.ids import ConversationId, PersonId, SessionKey, TurnId
from hermes_state.turns.inbox import Address
from hermes_state.turns.processes import ProcessRow

ROUTE = SessionKey("agent:main:telegram:dm:42")
ADDRESS = Address(
    platform="telegram", account="", chat_id="42", route=ROUTE, person_id=PersonId("p1"), source={"chat_id": "42"}
)


def begin(db: SessionDB, name: str, **changes: Any) -> ProcessRow:
    facts: dict[str, Any] = {
        "conversation_id": ConversationId("c1"), "turn_id": TurnId("t1"), "call_id": name, "person_id": PersonId("p1"),
        "machine": "here", "command": f"make {name}", "workdir": "/w", "wall": "host", "address": ADDRESS,
        "notify": True, "seconds": 60.0,
    }  # fmt: skip
    return db.processes.begin(name, **{**facts, **changes})


def test_an_end_is_recorded_once_with_one_notice_whoever_is_first(db: SessionDB) -> None:
    row = begin(db, "proc_1")
    assert row.running and db.processes.runs_on_route(ROUTE) and db.processes.of_call(TurnId("t1"), "proc_1") == row
    with ThreadPoolExecutor(8) as pool:
        ended = list(
            pool.map(lambda n: db.processes.end("proc_1", "exited", exit_code=n, notice=f"it was {n}"), range(8))
        )
    assert ended.count(True) == 1
    row = db.processes.get("proc_1") or row
    told = db.processes.notice(row)
    assert told is not None and told.message_id == "hermes:process:proc_1" and told.route == ROUTE
    assert told.payload is not None and told.payload["text"] == f"it was {row.exit_code}"
    facts = {"kind": "process", "id": "proc_1", "state": "exited", "exit_code": row.exit_code}
    assert told.payload["own"] == {**facts, "conversation_id": "c1", "origin": "outside:a background command"}
    assert len(db.inbox.queued(ROUTE)) == 1 and not db.processes.runs_on_route(ROUTE)


def test_a_notice_that_no_turn_began_with_can_be_taken_back(db: SessionDB) -> None:
    row = begin(db, "proc_1")
    db.processes.end("proc_1", "exited", exit_code=0, notice="ended")
    db.processes.take_notice(row)
    told = db.processes.notice(row)
    assert told is not None and told.state == "silent" and not db.inbox.queued(ROUTE)


@pytest.mark.parametrize("quiet", ["notify", "address", "silenced"])
def test_some_ends_are_told_to_nobody(db: SessionDB, quiet: str) -> None:
    begin(db, "proc_1", **{"notify": {"notify": False}, "address": {"address": None}}.get(quiet, {}))
    if quiet == "silenced":
        db.processes.silence("proc_1")
    assert db.processes.end("proc_1", "killed", notice="ended") and not db.inbox.queued(ROUTE)


def test_a_person_has_only_so_many_and_an_ended_one_makes_room(db: SessionDB) -> None:
    db.limits = db.limits.changed(processes_per_person=2)
    begin(db, "proc_1")
    begin(db, "proc_2")
    with pytest.raises(TooManyProcesses):
        begin(db, "proc_3")
    begin(db, "proc_3", person_id=None)
    db.processes.end("proc_1", "lost")
    assert begin(db, "proc_4").running and db.processes.running_count() == 3


def test_a_conversation_with_a_running_process_is_not_reset_by_a_rule(db: SessionDB, home: Any) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    config = config_of(home, {})
    store = services_of(config, load_gateway_config(config), db).store
    begin(db, "proc_1")
    assert store.busy(ROUTE) and not store.busy("agent:main:telegram:dm:7")
    db.processes.end("proc_1", "exited", exit_code=0)
    assert not store.busy(ROUTE)


def test_a_deleted_conversation_takes_its_processes_along(db: SessionDB) -> None:
    handle = db.ledger.open(source="cli", owner=None)
    begin(db, "proc_1", conversation_id=ConversationId(handle.conversation_id))
    begin(db, "proc_2")
    db.delete_session(handle.session_id)
    assert db.processes.get("proc_1") is None and db.processes.get("proc_2") is not None


def test_old_rows_go_and_unheard_ones_are_lost(db: SessionDB) -> None:
    now = db.clock()
    begin(db, "proc_1")
    db.processes.end("proc_1", "exited", exit_code=0)
    begin(db, "proc_2")
    begin(db, "proc_3", seconds=30 * 86_400.0)
    db.clock = lambda: now + 8 * 86_400
    assert db.processes.prune() == 1
    assert [(row.id, row.state) for row in db.processes.newest()] == [("proc_3", "running"), ("proc_2", "lost")]
    assert len(db.inbox.queued(ROUTE)) == 1
