"""Pruning by rule: what goes, what must never go, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, SessionId
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock

DAY = 86_400


def old(db: SessionDB, clock: Clock, session_id: str, *, days: float = 100, **fields: Any) -> None:
    """An ended session of so many days ago, with one message."""
    now = clock()
    clock.set(now - days * DAY)
    db.create_session(session_id, fields.pop("source", "cli"), **fields)
    db.append_message(session_id, "user", f"words of {session_id}")
    db.end_session(session_id, "cli_close")
    clock.set(now)


def ids(db: SessionDB) -> list[str]:
    return sorted(row["id"] for row in db.search_sessions(limit=1000))


def test_only_old_ended_sessions_go_with_their_files(db: SessionDB, clock: Clock, tmp_path: Path) -> None:
    old(db, clock, "old")
    old(db, clock, "recent", days=80)
    old(db, clock, "live")
    db.reopen_session("live")
    db.create_session("child", "cli", parent_session_id="old")
    for name in ("old", "recent", "live", "child"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert [row["id"] for row in db.list_prune_candidates()] == ["old"]
    assert ids(db) == ["child", "live", "old", "recent"]
    assert db.prune_sessions(older_than_days=90, sessions_dir=tmp_path) == 1
    assert ids(db) == ["child", "live", "recent"]
    child = db.get_session("child")
    assert child is not None and child["parent_session_id"] is None
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["child.json", "live.json", "recent.json"]
    assert db.prune_sessions() == 0


def test_a_conversation_is_as_old_as_its_newest_message(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "began long ago")
    db.append_message("began long ago", "user", "and spoke today")
    old(db, clock, "root")
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 'root'"))
    db.create_session("continued today", "cli", parent_session_id="root")
    db.end_session("continued today", "cli_close")
    assert db.prune_sessions() == 0


def test_what_something_leads_to_is_never_pruned(db: SessionDB, clock: Clock) -> None:
    """Compressed, then left alone for months: ended root, no activity, and still somebody's chat."""
    old(db, clock, "compressed")
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 'compressed'"))
    now = clock()
    clock.advance(-99 * DAY)
    db.create_session("open tip", "telegram", parent_session_id="compressed")
    clock.set(now)
    for name in ("routed", "leased", "parent of a worker"):
        old(db, clock, name)
    db.save_gateway_routing_entry("k", json.dumps({"session_id": "routed"}), scope="any folder")
    assert db.leases.acquire(ConversationId("leased"), holder="worker", ttl=60)
    db.create_session("worker", "cli", parent_session_id="parent of a worker", model_config={"_delegate_from": "x"})
    assert db.leases.acquire(ConversationId("worker"), holder="worker", ttl=60)
    assert db.list_prune_candidates(older_than_days=0) == []
    assert db.prune_sessions(older_than_days=0) == 0
    assert db.archive_sessions(older_than_days=0) == 0
    clock.advance(61)  # the leases run out
    assert [r["id"] for r in db.list_prune_candidates(older_than_days=0)] == ["leased", "parent of a worker"]
    assert db.prune_sessions(older_than_days=0) == 2
    assert ids(db) == ["compressed", "open tip", "routed"]


def test_delegated_work_goes_with_its_conversation_and_not_before(db: SessionDB, clock: Clock) -> None:
    db.create_session("alive", "cli")
    clock.advance(-99 * DAY)
    db.create_session("helper", "cli", parent_session_id="alive", model_config={"_delegate_from": "alive"})
    db.end_session("helper", "done")
    clock.advance(99 * DAY)
    assert db.prune_sessions(older_than_days=3) == 0 and ids(db) == ["alive", "helper"]
    db.end_session("alive", "done")
    clock.advance(9 * DAY)
    db.prune_sessions(older_than_days=3)
    assert ids(db) == []


def test_what_is_owed_or_unfinished_stays_however_old(db: SessionDB, clock: Clock) -> None:
    """A platform was away for longer than conversations are kept, and the person has begun another one."""
    old(db, clock, "owed")
    old(db, clock, "unfinished")
    new_item = NewOutboxItem(
        dedup_key="k", platform="telegram", chat_id="42", payload={"text": "hi"}, conversation_id=ConversationId("owed")
    )
    item = db.outbox.enqueue(new_item)
    lease = db.leases.acquire(ConversationId("unfinished"), holder="lost", ttl=60)
    assert lease is not None
    turn = transact(
        db.turns.begin_in, conversation_id=lease.conversation_id, session_id=SessionId("unfinished"), fence=lease.fence
    ).turn
    clock.advance(61)  # its process is lost, and nobody holds it
    assert db.prune_sessions(older_than_days=30) == 0
    assert db.outbox.get(item.id) == item and db.turns.get(turn.id) == turn
    (sending,) = transact(db.outbox.claim_due_in, sender="us", limit=5)
    transact(db.outbox.sent_in, sending, platform_ids=["7"])
    again = db.leases.acquire(lease.conversation_id, holder="us", ttl=60)
    assert again is not None
    transact(db.turns.resume_in, turn.id, fence=again.fence)
    transact(db.turns.give_up_in, turn.id, "failed", fence=again.fence, reason="given up")
    db.leases.release(again)
    assert db.prune_sessions(older_than_days=30) == 2


def test_a_conversation_stays_while_an_answer_of_it_waits_for_the_owner(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "asked")
    new_item = NewOutboxItem(
        dedup_key="k", platform="telegram", chat_id="42", payload={"text": "hi"}, held=True,
        conversation_id=ConversationId("asked"),
    )  # fmt: skip
    item = db.outbox.enqueue(new_item)
    assert item.state == "held" and db.prune_sessions(older_than_days=30) == 0
    db.held_answers.decide(item.id, "drop", by="Ada")
    assert db.prune_sessions(older_than_days=30) == 1


def test_a_whole_ended_chain_goes_together(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "a")
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 'a'"))
    old(db, clock, "b", days=99, parent_session_id="a")
    assert db.prune_sessions() == 2
    assert ids(db) == []
    assert db.engine.read(lambda conn: conn.rows("SELECT count(*) FROM conversations")) == [(0,)]


def test_more_than_one_batch_is_pruned(db: SessionDB, clock: Clock) -> None:
    for n in range(230):
        old(db, clock, f"s{n}")
    assert db.prune_sessions() == 230


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["big", "plain", "quoted"]),
    ({"source": "telegram"}, ["big"]),
    ({"source": "cli' OR '1'='1"}, []),
    ({"title_like": "100%_D"}, ["quoted"]),  # literal, and upper case or lower does not matter
    ({"title_like": "%"}, ["quoted"]),
    ({"title_like": "_"}, ["quoted"]),
    ({"title_like": "'; DROP TABLE sessions; --"}, []),
    ({"model_like": "SONNET"}, ["big"]),
    ({"branch_like": "feature/"}, ["big"]),
    ({"cwd_prefix": "/home/a_b"}, ["quoted"]),
    ({"cwd_prefix": "/home/a%"}, []),
    ({"provider": "openrouter"}, ["big"]),
    ({"end_reason": "idle"}, ["big"]),
    ({"user_id": "42", "chat_id": "-100", "chat_type": "group"}, ["big"]),
    ({"user_id": "43"}, []),
    ({"archived": True}, ["quoted"]),
    ({"archived": False}, ["big", "plain"]),
    ({"archived": None}, ["big", "plain", "quoted"]),
    ({"min_messages": 2}, ["big"]),
    ({"max_messages": 1}, ["plain", "quoted"]),
    ({"min_tokens": 110, "max_tokens": 110}, ["big"]),
    ({"max_tokens": 109}, ["plain", "quoted"]),
    ({"min_cost": 0.5}, ["big"]),
    ({"max_cost": 0.4}, ["plain", "quoted"]),
    ({"min_tool_calls": 1}, ["big"]),
    ({"max_tool_calls": 0}, ["plain", "quoted"]),
    ({"started_before": 1_790_000_000.0 - 150 * DAY}, ["plain"]),
    ({"started_after": 1_790_000_000.0 - 150 * DAY}, ["big", "quoted"]),
    ({"user_id": "\ud800\0" + "x" * 10_000}, []),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(f)[:40] for f, _ in FILTERS])
def test_filters_narrow_exactly(db: SessionDB, clock: Clock, filters: dict[str, Any], expected: list[str]) -> None:
    old(db, clock, "plain", days=200)
    old(db, clock, "quoted", cwd="/home/a_b/c")
    db.set_session_title("quoted", "100%_done")
    db.set_session_archived("quoted", True)
    old(
        db, clock, "big", source="telegram", model="claude-sonnet", user_id="42", chat_id="-100", chat_type="group",
        cwd="/home/axb",
    )  # fmt: skip
    db.append_message("big", "assistant", "x", tool_calls=[{"id": "1"}], timestamp=clock() - 100 * DAY)
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET git_branch = 'Feature/x' WHERE id = 'big'"))
    db.update_token_counts("big", 100, 10, billing_provider="openrouter", api_call_count=1, estimated_cost_usd=0.5)
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET end_reason = 'idle' WHERE id = 'big'"))
    old(db, clock, "too young", days=10)
    assert sorted(row["id"] for row in db.list_prune_candidates(**filters)) == expected
    assert db.prune_sessions(**filters) == len(expected)
    assert ids(db) == sorted({"plain", "quoted", "big", "too young"} - set(expected))


@pytest.mark.parametrize(
    "bad",
    [
        {"older_than_days": -1},
        {"older_than_days": float("nan")},
        {"older_than_days": "90"},
        {"titel_like": "x"},
        {"min_messages": -1},
        {"started_before": "yesterday"},
        {"title_like": 5},
    ],
)
def test_a_filter_that_makes_no_sense_erases_nothing(db: SessionDB, clock: Clock, bad: dict[str, Any]) -> None:
    old(db, clock, "s")
    for verb in (db.prune_sessions, db.list_prune_candidates, db.archive_sessions):
        with pytest.raises(InvalidValue) as refused:
            verb(**bad)
        assert "\n" not in refused.value.one_line()
    assert ids(db) == ["s"]


def test_archiving_hides_the_conversation_and_keeps_it(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "s")
    old(db, clock, "young", days=1)
    assert db.archive_sessions() == 1
    assert [row["id"] for row in db.list_sessions_rich()] == ["young"]
    assert [m["content"] for m in db.get_messages("s")] == ["words of s"]
    assert db.archive_sessions() == 0


def test_ghost_windows_go_even_with_a_child(db: SessionDB, clock: Clock) -> None:
    def window(name: str, *, source: str = "tui", ended: bool = True, **fields: Any) -> None:
        db.create_session(name, source, **fields)
        if ended:
            db.end_session(name, "tui_close")

    window("ghost")
    window("ghost with a child")
    window("child", parent_session_id="ghost with a child", ended=False)
    window("titled")
    db.set_session_title("titled", "T")
    window("said something", ended=False)
    db.append_message("said something", "user", "hi")
    db.end_session("said something", "tui_close")
    window("open", ended=False)
    window("terminal", source="cli")
    window("head", ended=False)
    db.end_session("head", "compression")
    window("tail", parent_session_id="head", ended=False)
    db.append_message("tail", "user", "hi")
    db.end_session("tail", "tui_close")
    clock.advance(DAY - 1)
    assert db.prune_empty_ghost_sessions() == 0
    clock.advance(2)
    window("fresh")
    assert db.prune_empty_ghost_sessions() == 2
    assert ids(db) == sorted(["child", "titled", "said something", "open", "terminal", "fresh", "head", "tail"])
    child = db.get_session("child")
    assert child is not None and child["parent_session_id"] is None


def test_empty_ended_sessions_are_counted_and_deleted(db: SessionDB, clock: Clock) -> None:
    for name in ("empty", "titled", "archived", "live", "routed"):
        db.create_session(name, "cli")
        if name != "live":
            db.end_session(name, "cli_close")
    db.set_session_title("titled", "T")
    db.set_session_archived("archived", True)
    db.save_gateway_routing_entry("k", json.dumps({"session_id": "routed"}))
    old(db, clock, "said")
    assert db.count_empty_sessions() == 2
    assert db.delete_empty_sessions() == 2
    assert db.count_empty_sessions() == 0
    assert ids(db) == ["archived", "live", "routed", "said"]


def test_auto_maintenance_runs_once_a_day(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "s1")
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert float(db.get_meta("last_auto_prune") or 0) == clock()
    old(db, clock, "s2")
    clock.advance(3600)
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": True, "pruned": 0, "vacuumed": False}
    clock.advance(23 * 3600)
    assert db.maybe_auto_prune_and_vacuum(vacuum=False) == {"skipped": False, "pruned": 1, "vacuumed": False}
    clock.advance(25 * 3600)
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 0, "vacuumed": False}
    assert float(db.get_meta("last_auto_prune") or 0) == clock()  # stamped, though nothing was pruned


@pytest.mark.parametrize("stamp", ["yesterday", "", "nan", "1e999", "9999999999"])
def test_a_stamp_that_is_no_past_time_counts_as_never(db: SessionDB, stamp: str) -> None:
    db.set_meta("last_auto_prune", stamp)
    assert db.maybe_auto_prune_and_vacuum()["skipped"] is False


def test_auto_maintenance_never_raises(db: SessionDB) -> None:
    assert "error" in db.maybe_auto_prune_and_vacuum(retention_days=-5)
    db.close()
    result = db.maybe_auto_prune_and_vacuum()
    assert result["pruned"] == 0 and "closed" in result["error"]


def test_vacuum_keeps_everything(db: SessionDB, clock: Clock) -> None:
    old(db, clock, "s")
    db.vacuum()
    assert [m["content"] for m in db.get_messages("s")] == ["words of s"]
    db.append_message("s", "user", "still works")
