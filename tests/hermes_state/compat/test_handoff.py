"""A terminal session handed over to a chat."""

from __future__ import annotations

import pytest

from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock


def test_a_handoff_is_asked_for_claimed_once_and_completed(db: SessionDB) -> None:
    db.create_session("s", "cli")
    assert db.get_handoff_state("s") is None
    assert db.request_handoff("s", "telegram")
    assert not db.request_handoff("s", "discord")  # one is under way
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "telegram", "error": None}
    assert db.claim_handoff("s")
    assert not db.claim_handoff("s")
    assert not db.request_handoff("s", "discord")
    db.complete_handoff("s")
    assert db.get_handoff_state("s") == {"state": "completed", "platform": "telegram", "error": None}
    assert not db.fail_handoff("s", "too late")
    assert db.request_handoff("s", "discord")


def test_a_failure_is_kept_short_and_can_be_tried_again(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.request_handoff("s", "telegram")
    db.claim_handoff("s")
    db.fail_handoff("s", "no\0" + "x" * 1000)
    state = db.get_handoff_state("s")
    assert state is not None and state["state"] == "failed"
    assert state["error"] == "no" + "x" * 497
    assert db.request_handoff("s", "telegram")
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "telegram", "error": None}


def test_those_who_wait_are_listed_oldest_first(db: SessionDB, clock: Clock) -> None:
    for name in ("third", "first", "second"):
        clock.set({"first": 10.0, "second": 20.0, "third": 30.0}[name])
        db.create_session(name, "cli")
        db.request_handoff(name, "telegram")
    db.claim_handoff("second")
    assert [row["id"] for row in db.list_pending_handoffs()] == ["first", "third"]


def test_unknown_and_impossible_sessions_have_no_handoff(db: SessionDB) -> None:
    for bad in ("nobody", "x" * 10_000, "a\0b", "\ud800", "' OR 1=1 --"):
        assert not db.request_handoff(bad, "telegram")
        assert not db.claim_handoff(bad)
        assert db.get_handoff_state(bad) is None
    db.create_session("s", "cli")
    with pytest.raises(InvalidValue):
        db.request_handoff("s", "")
