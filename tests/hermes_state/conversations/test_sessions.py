"""The life of a session row, under the names other tools call (contract §2.1)."""

from __future__ import annotations

import json

import pytest

from hermes_state import IntegrityError, SessionDB
from hermes_state.errors import InvalidValue, StaleFence
from hermes_testing.clock import Clock

DAY = 86400


def test_the_first_reason_wins_until_it_is_reopened(db: SessionDB) -> None:
    db.create_session("s", "tui")
    db.end_session("s", "compression")
    db.end_session("s", "tui_close")
    assert db.get_session("s")["end_reason"] == "compression"
    db.reopen_session("s")
    assert db.get_session("s")["ended_at"] is None
    db.end_session("s", "tui_close")
    assert db.get_session("s")["end_reason"] == "tui_close"


def test_creating_again_fills_gaps_and_keeps_what_is_there(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "telegram", user_id="42", model="one")
    started = db.get_session("s")["started_at"]
    clock.advance(60)
    db.create_session("s", "cli", user_id="43", model="two", chat_id="7", model_config={"a": 1})
    row = db.get_session("s")
    assert (row["source"], row["user_id"], row["model"], row["started_at"]) == ("telegram", "42", "one", started)
    assert row["chat_id"] == "7"
    assert json.loads(row["model_config"]) == {"a": 1}


def test_an_unknown_parent_is_refused_and_nothing_is_stored(db: SessionDB) -> None:
    with pytest.raises(IntegrityError):
        db.create_session("child", "cli", parent_session_id="nobody")
    assert db.get_session("child") is None


def test_promote_corrects_accidents_only(db: SessionDB) -> None:
    for name, reason in (("live", None), ("accident", "agent_close"), ("meant", "cli_close")):
        db.create_session(name, "cli")
        if reason:
            db.end_session(name, reason)
    assert db.promote_to_session_reset("live") is True
    assert db.promote_to_session_reset("accident", "idle") is True
    assert db.promote_to_session_reset("meant") is False
    assert db.promote_to_session_reset("unknown") is False
    reasons = {name: db.get_session(name)["end_reason"] for name in ("live", "accident", "meant")}
    assert reasons == {"live": "session_reset", "accident": "idle", "meant": "cli_close"}


def test_ending_an_unknown_session_is_no_error(db: SessionDB) -> None:
    db.end_session("nobody", "cli_close")
    db.reopen_session("nobody")
    assert db.get_session("nobody") is None


@pytest.mark.parametrize("hostile", ["../../etc/passwd", "a'b\"c;--", "100%", "_", "x" * 900, "名前", "a b\tc"])
def test_any_text_is_an_opaque_id(db: SessionDB, hostile: str) -> None:
    db.create_session("other", "cli")
    db.create_session(hostile, "cli")
    db.append_message(hostile, "user", "hello")
    assert db.get_session(hostile)["message_count"] == 1
    assert db.get_session("other")["message_count"] == 0
    assert db.resolve_session_id(hostile) == hostile


@pytest.mark.parametrize("impossible", ["", "a\0b", "\ud800", "x" * 10_000, None, 7])
def test_an_impossible_id_is_refused_and_found_nowhere(db: SessionDB, impossible: str) -> None:
    with pytest.raises(InvalidValue):
        db.create_session(impossible, "cli")
    assert db.get_session(impossible) is None
    assert db.resolve_session_id(impossible) is None
    db.end_session(impossible, "cli_close")
    assert db.session_count() == 0


def test_peer_updates(db: SessionDB) -> None:
    db.create_session("s", "unknown")
    db.record_gateway_session_peer(
        "s", source="telegram", user_id="42", session_key="agent:main:telegram:dm:42", chat_id="42", chat_type="dm",
        thread_id=None, display_name="Ana",
    )  # fmt: skip
    db.record_gateway_session_peer("s", source="discord", user_id="1")
    row = db.get_session("s")
    assert (row["source"], row["session_key"], row["display_name"]) == ("telegram", "agent:main:telegram:dm:42", "Ana")


def test_a_child_made_before_its_parent_was_compressed_joins_the_conversation(db: SessionDB) -> None:
    db.create_session("parent", "cli")
    db.create_session("child", "cli", parent_session_id="parent")
    assert db.get_compression_tip("parent") == "parent"
    db.end_session("parent", "compression")
    assert db.get_compression_tip("parent") == "child"
    assert db.get_session("child")["root_id"] == "parent"
    db.reopen_session("parent")
    assert db.get_compression_tip("parent") == "parent"
    assert db.get_session("child")["root_id"] == "child"


def test_a_chat_that_was_compressed_and_left_alone_is_no_orphan(db: SessionDB, clock: Clock) -> None:
    """It meets every condition of an orphan; closing it would let prune delete a person's chat later."""
    alone = db.ledger.open(source="cli")
    db.append_message(alone.session_id, "user", "hello")
    alone = db.ledger.rotate(alone.session_id, [{"role": "user", "content": "summary"}])
    db.create_session("old", "telegram")
    db.end_session("old", "compression")
    db.create_session("routed", "telegram", parent_session_id="old")
    db.append_message("routed", "user", "hello")
    db.ledger.switch("agent:main:telegram:dm:42", "routed")
    clock.advance(8 * DAY)
    assert db.finalize_orphaned_compression_sessions() == 0
    assert db.get_session(alone.session_id)["ended_at"] is None
    assert db.get_session("routed")["ended_at"] is None


def test_a_turn_that_was_overtaken_does_not_write_its_system_text(db: SessionDB) -> None:
    here = db.ledger.open(source="cli")
    stale = db.leases.acquire(here.conversation_id, holder="first", ttl=60)
    assert stale is not None
    db.update_system_prompt(here.session_id, "of the first", fence=stale.fence)
    db.leases.release(stale)
    assert db.leases.acquire(here.conversation_id, holder="second", ttl=60) is not None
    with pytest.raises(StaleFence):
        db.update_system_prompt(here.session_id, "too late", fence=stale.fence)
    row = db.get_session(here.session_id)
    assert row is not None and row["system_prompt"] == "of the first"
