"""What the deliverer asks of the outbox: waiting that costs nothing, going on after a loss, being sent once more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.stores import transact

from hermes_config.limits import Limits
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
from hermes_state.turns.turns import Turns
from hermes_testing.clock import Clock


def _new_item(key: str, *, platform: str = "telegram", chat: str = "42", sender: str | None = None) -> NewOutboxItem:
    return NewOutboxItem(dedup_key=key, platform=platform, chat_id=chat, payload={"text": key}, sender=sender)


def _state(db: SessionDB, item: OutboxItem) -> str:
    found = db.outbox.get(item.id)
    assert found is not None
    return found.state


def test_waiting_for_a_platform_uses_up_no_attempt(db: SessionDB) -> None:
    item = db.outbox.enqueue(_new_item("a", sender="me"))
    for _ in range(3 * Limits().delivery_attempts):
        put = db.engine.write(
            lambda conn, item=item: db.outbox.put_off_in(conn, item, seconds=0, error="not connected", free=True)
        )
        assert put is not None and put.state == "pending"
        (item,) = transact(db.outbox.claim_due_in, sender="me")
    for _ in range(Limits().delivery_attempts - 1):
        put = transact(db.outbox.put_off_in, item, seconds=0, error="502")
        assert put is not None and put.state == "pending"
        (item,) = transact(db.outbox.claim_due_in, sender="me")
    assert (last := transact(db.outbox.put_off_in, item, seconds=0, error="502")) is not None and last.state == "failed"


def test_only_platforms_that_are_there_are_claimed_for(db: SessionDB, clock: Clock) -> None:
    telegram, slack = db.outbox.enqueue(_new_item("a")), db.outbox.enqueue(_new_item("b", platform="slack"))
    assert db.outbox.next_due(platforms=["discord"]) is None
    assert db.outbox.next_due(platforms=["slack", "discord"]) == slack.next_attempt_at
    claimed = db.engine.write(lambda conn: db.outbox.claim_due_in(conn, sender="me", limit=9, platforms=["slack"]))
    assert [item.id for item in claimed] == [slack.id] and _state(db, telegram) == "pending"


def test_what_stands_behind_an_item_that_is_being_sent_is_not_due(db: SessionDB) -> None:
    first = db.outbox.enqueue(_new_item("a", sender="me"))
    db.outbox.enqueue(_new_item("b"))
    assert db.outbox.next_due() is not None
    assert db.outbox.next_due(platforms=["telegram"]) is None
    transact(db.outbox.sent_in, first, platform_ids=["1"])
    assert db.outbox.next_due(platforms=["telegram"]) is not None


def test_what_a_lost_sender_had_is_pending_again_with_a_note_or_told_of(db: SessionDB) -> None:
    good = db.outbox.enqueue(_new_item("good", chat="1", sender="dead"))
    bad = db.outbox.enqueue(_new_item("bad", chat="2", sender="dead"))
    other = db.outbox.enqueue(_new_item("other", chat="3", sender="alive"))
    assert set(db.outbox.senders()) == {"dead", "alive"}
    assert [item.id for item in db.outbox.of_sender("dead")] == [good.id, bad.id]
    lost = db.outbox.lose_senders(dead="dead", go_on=lambda item: {"repeat": True})
    assert [(item.id, item.state, item.draft) for item in lost] == [
        (one.id, "pending", {"repeat": True}) for one in (good, bad)
    ]
    assert _state(db, other) == "sending"
    assert len(transact(db.outbox.claim_due_in, sender="dead")) == 2
    transact(db.outbox.sent_in, replace(good, attempts=2), platform_ids=["1"])
    (lost_again,) = db.outbox.lose_senders(
        dead="dead", notice=lambda item: replace(_new_item(f"notice:{item.id}"), chat_id=item.chat_id)
    )
    assert (lost_again.id, lost_again.state) == (bad.id, "unknown")
    claimed = transact(db.outbox.claim_due_in, sender="me")
    assert {item.dedup_key for item in claimed} == {f"notice:{bad.id}"}
    assert not transact(db.outbox.sent_in, bad, platform_ids=["1"]), "the dead attempt has no say any more"


def test_going_on_is_bounded_like_every_attempt(db: SessionDB) -> None:
    db.outbox.enqueue(_new_item("a", sender="dead"))
    for _ in range(4 * Limits().delivery_attempts):
        (lost,) = db.outbox.lose_senders(dead="dead", go_on=lambda item: {})
        if lost.state == "unknown":
            break
        assert len(transact(db.outbox.claim_due_in, sender="dead")) == 1
    assert lost.state == "unknown", "an item that kills its sender every time is set aside"
    assert lost.attempts > 2 * Limits().delivery_attempts, "after more losses than attempts that were answered"


@pytest.mark.parametrize("state", ["failed", "unknown"])
def test_what_may_have_arrived_is_marked_when_it_is_sent_again(db: SessionDB, state: str) -> None:
    item = db.outbox.enqueue(_new_item("a", sender="me"))
    transact(db.outbox.progress_in, item, platform_ids=["1"], draft={"under_way": 1})
    transact(db.outbox.close_in, item, state, error="x")
    assert db.outbox.retry(item.id) and not db.outbox.retry(item.id)
    found = db.outbox.get(item.id)
    assert found is not None and found.platform_ids == ("1",)
    assert found.draft == (
        {"under_way": 1, "repeat": True, "allowed": True} if state == "unknown" else {"under_way": 1}
    )


def test_turns_are_listed_in_pages(db: SessionDB, clock: Clock) -> None:
    turns: Turns = db.turns
    ids = []
    for name in "abc":
        db.create_session(name, source="telegram")
        lease = db.leases.acquire(name, holder="me", ttl=60)  # type: ignore[arg-type]
        assert lease is not None
        work = transact(turns.begin_in, conversation_id=name, session_id=name, fence=lease.fence)  # type: ignore[arg-type]
        assert work is not None
        ids.append(work.turn.id)
        clock.advance(1)
    assert [turn.id for turn in turns.list(limit=2)] == ids[:0:-1]
    assert [turn.id for turn in turns.list(offset=2)] == ids[:1]
    assert turns.ask_to_stop(ids[0], reason="please") and [turn.id for turn in turns.asked_to_stop()] == ids[:1]
