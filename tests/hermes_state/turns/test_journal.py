"""A running turn writes under its fence, and keeps writing through a compression."""

from __future__ import annotations

import asyncio

import pytest

from hermes_state import SessionDB, StaleFence
from hermes_state.turns.journal import Journal
from hermes_testing.clock import Clock


def writer(db: SessionDB, session_id: str, holder: str = "me") -> Journal:
    journal = asyncio.run(Journal.open(db, session_id, holder=holder, ttl=60))
    assert journal is not None
    return journal


def say(turn: Journal, *texts: str) -> None:
    asyncio.run(turn.append(*({"role": "user", "content": text} for text in texts)))


def test_rows_go_to_the_segment_that_is_current(db: SessionDB) -> None:
    chat = db.ledger.open(source="cli")
    turn = writer(db, chat.session_id)
    say(turn, "question")
    child = turn.rotate([{"role": "user", "content": "summary"}])
    say(turn, "a", "b")
    assert [m["content"] for m in db.get_messages(chat.session_id)] == ["question"]
    assert [m["content"] for m in db.get_messages(child.session_id)] == ["summary", "a", "b"]


def test_a_holder_that_lost_its_lease_writes_nothing(db: SessionDB, clock: Clock) -> None:
    chat = db.ledger.open(source="cli")
    old = writer(db, chat.session_id, "old")
    clock.advance(61)
    with pytest.raises(StaleFence):
        say(old, "too late, though nobody else came")
    new = writer(db, chat.session_id, "new")
    with pytest.raises(StaleFence):
        say(old, "too late")
    with pytest.raises(StaleFence):
        old.rotate([{"role": "user", "content": "x"}])
    say(new, "mine")
    assert [m["content"] for m in db.get_messages(chat.session_id)] == ["mine"]


def test_an_event_loop_appends_without_a_thread_of_its_own(db: SessionDB) -> None:
    chat = db.ledger.open(source="cli")
    turn = writer(db, chat.session_id)

    async def run() -> list[list[int]]:
        return await asyncio.gather(*(turn.append({"role": "user", "content": str(i)}) for i in range(20)))

    ids = asyncio.run(run())
    assert [m["id"] for m in db.get_messages(chat.session_id)] == [i for (i,) in ids]
