"""The event log: bounded, followed without gaps, also while somebody's transaction stays open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.stores import TestStores, transact

from hermes_config.limits import Limits
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_state.turns.events import START

A, B = ConversationId("a"), ConversationId("b")


def test_a_follower_sees_every_event_once(db: SessionDB) -> None:
    events = db.events
    transact(events.append_in, A, "first", detail={"text": "ü\0"}, trace_id="t1")
    batch = events.since()
    assert [(e.kind, e.detail, e.trace_id) for e in batch.events] == [("first", {"text": "ü\0"}, "t1")]
    assert events.since(batch.cursor).events == ()
    transact(events.append_in, B, "second")
    transact(events.append_in, A, "third")
    assert [e.kind for e in events.since(batch.cursor).events] == ["second", "third"]
    assert [e.kind for e in events.since(batch.cursor, conversation_id=A).events] == ["third"]
    assert [e.kind for e in events.since(START, limit=2).events] == ["first", "second"]


def test_a_cursor_that_is_none_is_refused(db: SessionDB) -> None:
    for wrong in ("", "x", "1", "1:", "-1:2", "1:2; DROP TABLE events"):
        with pytest.raises(InvalidValue):
            db.events.since(wrong)


@pytest.mark.parametrize("bound", [1, 7, 40])
def test_a_conversation_keeps_its_newest_events_only(make_db: Callable[..., SessionDB], bound: int) -> None:
    db = make_db(limits=Limits(events_per_conversation=bound))
    events = db.events
    transact(events.append_in, B, "other")
    for number in range(130):
        transact(events.append_in, A, str(number))
        kept = [e.kind for e in events.since(conversation_id=A, limit=1_000).events]
        assert len(kept) <= bound
        assert kept == [str(n) for n in range(number - len(kept) + 1, number + 1)]
    assert len(kept) >= bound * 3 // 4
    assert len(events.since(conversation_id=B).events) == 1, "another conversation's events are not touched"


def test_a_lowered_bound_is_applied_by_maintenance(make_db: Callable[..., SessionDB]) -> None:
    db = make_db()
    for number in range(20):
        transact(db.events.append_in, A, str(number))
    db.close()
    db = make_db(limits=Limits(events_per_conversation=5))
    assert db.events.prune() == 15
    assert [e.kind for e in db.events.since(conversation_id=A).events] == ["15", "16", "17", "18", "19"]


def test_a_transaction_held_open_across_a_catch_up_is_not_missed(stores: TestStores) -> None:
    """PostgreSQL hands out ids before commits. A follower must not pass by a row that commits late."""
    address = stores.postgresql()
    slow, quick = SessionDB(address), SessionDB(address)
    follower = quick.events
    seen: list[str] = []
    cursor = START

    def follow() -> None:
        nonlocal cursor
        batch = follower.since(cursor)
        cursor = batch.cursor
        seen.extend(event.kind for event in batch.events)

    def hold_open(conn: Connection) -> None:
        slow.events.append_in(conn, A, "early id, late commit")
        transact(quick.events.append_in, B, "late id, early commit")
        follow()
        assert seen == [], "an older transaction still runs: what it wrote may come before"
        transact(quick.events.append_in, B, "later")
        follow()

    slow._execute_write(hold_open)
    follow()
    follow()
    assert sorted(seen) == ["early id, late commit", "late id, early commit", "later"]
    assert follower.since(cursor).events == ()
    for db in (slow, quick):
        db.close()


@pytest.mark.parametrize("whose", [None, A])
def test_transactions_are_followed_by_number_where_one_digit_more_begins(
    stores: TestStores, whose: ConversationId | None
) -> None:
    """As texts, 10 comes before 9: events around such a moment were seen twice, or never."""
    db = SessionDB(stores.postgresql())
    kinds = ["eight", "nine", "ten", "eleven"]
    for number, kind in enumerate(kinds, 8):
        transact(db.events.append_in, A, kind)
        params = (str(number), kind)
        db._execute_write(lambda conn, p=params: conn.run("UPDATE events SET xid = ?::text::xid8 WHERE kind = ?", p))
    seen, cursor = [], START
    for _ in range(5):
        batch = db.events.since(cursor, conversation_id=whose, limit=1)
        seen += [event.kind for event in batch.events]
        cursor = batch.cursor
    assert seen == kinds
    db.close()
