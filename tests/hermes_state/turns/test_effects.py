"""An effect is started once; what did not finish is known to be unknown."""

from __future__ import annotations

import pytest
from tests.support.stores import transact

from hermes_state.errors import InvalidValue, StaleFence, StateError
from hermes_state.ids import ConversationId, SessionId, TurnId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

CHAT = ConversationId("c1")


@pytest.fixture
def turn(db: SessionDB) -> tuple[TurnId, int]:
    lease = db.leases.acquire(CHAT, holder="a", ttl=60)
    assert lease is not None
    begun = transact(db.turns.begin_in, conversation_id=CHAT, session_id=SessionId("s1"), fence=lease.fence)
    assert begun is not None
    return begun.turn.id, lease.fence


def test_a_call_starts_once_and_finishes_once(db: SessionDB, turn: tuple[TurnId, int]) -> None:
    turn_id, fence = turn
    effects = db.effects
    first = transact(effects.start_in, turn_id, "call_1", tool="terminal", fence=fence)
    assert first.new and first.effect.outcome_unknown
    second = transact(effects.start_in, turn_id, "call_1", tool="terminal", fence=fence)
    assert not second.new and second.effect == first.effect
    assert transact(effects.finish_in, turn_id, "call_1", fence=fence, result="message 17")
    assert not transact(effects.finish_in, turn_id, "call_1", fence=fence, result="something else")
    third = transact(effects.start_in, turn_id, "call_1", tool="terminal", fence=fence)
    assert (third.new, third.effect.result, third.effect.outcome_unknown) == (False, "message 17", False)


def test_after_a_crash_an_open_call_is_reported_and_not_repeated(
    db: SessionDB, turn: tuple[TurnId, int], clock: Clock
) -> None:
    turn_id, fence = turn
    effects = db.effects
    transact(effects.start_in, turn_id, "done", tool="read_file", fence=fence)
    transact(effects.finish_in, turn_id, "done", fence=fence)
    clock.advance(1)
    transact(effects.start_in, turn_id, "open", tool="terminal", fence=fence)
    clock.advance(61)
    new = db.leases.acquire(CHAT, holder="b", ttl=60)
    assert new is not None
    transact(db.turns.resume_in, turn_id, fence=new.fence)
    assert [effect.call_id for effect in effects.open_effects(turn_id)] == ["open"]
    again = transact(effects.start_in, turn_id, "open", tool="terminal", fence=new.fence)
    assert not again.new and again.effect.attempt == 1
    fresh = transact(effects.start_in, turn_id, "next", tool="terminal", fence=new.fence)
    assert fresh.new and fresh.effect.attempt == 2


def test_a_late_turn_starts_and_finishes_nothing(db: SessionDB, turn: tuple[TurnId, int], clock: Clock) -> None:
    turn_id, fence = turn
    transact(db.effects.start_in, turn_id, "a", tool="terminal", fence=fence)
    clock.advance(61)
    with pytest.raises(StaleFence):
        transact(db.effects.start_in, turn_id, "b", tool="terminal", fence=fence)
    with pytest.raises(StaleFence):
        transact(db.effects.finish_in, turn_id, "a", fence=fence)
    assert [effect.call_id for effect in db.effects.open_effects(turn_id)] == ["a"]


def test_what_was_never_started_cannot_finish(db: SessionDB, turn: tuple[TurnId, int]) -> None:
    turn_id, fence = turn
    with pytest.raises(StateError, match="never started"):
        transact(db.effects.finish_in, turn_id, "ghost", fence=fence)
    with pytest.raises(InvalidValue):
        transact(db.effects.start_in, turn_id, "x" * 5_000, tool="terminal", fence=fence)


def test_marks_of_a_running_turn_are_kept_however_old(db: SessionDB, turn: tuple[TurnId, int], clock: Clock) -> None:
    turn_id, fence = turn
    transact(db.effects.start_in, turn_id, "a", tool="terminal", fence=fence)
    clock.advance(40 * 86_400)
    assert db.effects.prune() == 0
    new = db.leases.acquire(CHAT, holder="b", ttl=60)
    assert new is not None
    transact(db.turns.give_up_in, turn_id, "given_up", fence=new.fence, reason="old")
    assert db.effects.prune() == 1
