"""A running turn writes under its fence, and keeps writing through a compression."""

from __future__ import annotations

import asyncio

import pytest

from hermes_state import SessionDB, StaleFence
from hermes_state.ids import ConversationId
from hermes_state.turns.journal import TurnWriter
from hermes_testing.clock import Clock


def writer(db: SessionDB, session_id: str, holder: str = "me") -> TurnWriter:
    handle = db.ledger.handle(session_id)
    lease = db.leases.acquire(ConversationId(handle.conversation_id), holder=holder, ttl=60)
    assert lease is not None
    return TurnWriter(db, lease, handle.session_id)


def test_rows_go_to_the_segment_that_is_current(db: SessionDB) -> None:
    chat = db.ledger.open(source="cli")
    turn = writer(db, chat.session_id)
    turn.append("user", "question")
    child = turn.rotate([{"role": "user", "content": "summary"}])
    turn.append_all([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert [m["content"] for m in db.get_messages(chat.session_id)] == ["question"]
    assert [m["content"] for m in db.get_messages(child.session_id)] == ["summary", "a", "b"]


def test_a_holder_that_lost_its_lease_writes_nothing(db: SessionDB, clock: Clock) -> None:
    chat = db.ledger.open(source="cli")
    old = writer(db, chat.session_id, "old")
    clock.advance(61)
    with pytest.raises(StaleFence):
        old.append("user", "too late, though nobody else came")
    new = writer(db, chat.session_id, "new")
    with pytest.raises(StaleFence):
        old.append("user", "too late")
    with pytest.raises(StaleFence):
        old.rotate([{"role": "user", "content": "x"}])
    with pytest.raises(StaleFence):
        asyncio.run(old.aappend_all([{"role": "user", "content": "too late"}]))
    new.append("user", "mine")
    assert [m["content"] for m in db.get_messages(chat.session_id)] == ["mine"]


def test_an_event_loop_appends_without_a_thread_of_its_own(db: SessionDB) -> None:
    chat = db.ledger.open(source="cli")
    turn = writer(db, chat.session_id)

    async def run() -> list[list[int]]:
        return await asyncio.gather(*(turn.aappend_all([{"role": "user", "content": str(i)}]) for i in range(20)))

    ids = asyncio.run(run())
    assert [m["id"] for m in db.get_messages(chat.session_id)] == [i for (i,) in ids]
