"""What we owe a chat arrives in order, by one sender at a time, and is never sent twice on a guess."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.stores import TestStores, transact

from hermes_config.limits import Limits
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId
from hermes_state.maintenance import retention
from hermes_state.session_db import SessionDB
from hermes_state.storage.statements import Statement
from hermes_state.turns import outbox
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
from hermes_testing.clock import Clock

CHAT = ConversationId("c1")


def new_item(key: str, *, chat: str = "42", text: str = "hello") -> NewOutboxItem:
    return NewOutboxItem(
        dedup_key=key, platform="telegram", chat_id=chat, payload={"text": text}, conversation_id=CHAT, trace_id="t"
    )


def claim_one(db: SessionDB) -> OutboxItem:
    (item,) = transact(db.outbox.claim_due_in, sender="me")
    return item


def state(db: SessionDB, item: OutboxItem) -> str:
    found = db.outbox.get(item.id)
    assert found is not None
    return found.state


def test_a_key_is_owed_once(db: SessionDB) -> None:
    outbox = db.outbox
    first = outbox.enqueue(new_item("turn-1"))
    again = outbox.enqueue(new_item("turn-1", text="something else"))
    assert again == first and first.payload == {"text": "hello"}
    assert outbox.counts() == {"pending": 1}


def test_the_way_of_a_reply(db: SessionDB, clock: Clock) -> None:
    outbox = db.outbox
    outbox.enqueue(new_item("a"))
    item = claim_one(db)
    assert (item.state, item.sender, item.attempts) == ("sending", "me", 1)
    assert transact(outbox.claim_due_in, sender="other") == ()
    assert transact(outbox.sent_in, item, platform_ids=["101", "102"])
    done = outbox.get(item.id)
    assert done is not None
    assert (done.state, done.platform_ids, done.ended_at) == ("sent", ("101", "102"), clock())
    assert outbox.next_due() is None
    assert not transact(outbox.sent_in, item, platform_ids=["103"]), "one end only"


def test_a_chat_is_served_in_order(db: SessionDB) -> None:
    outbox = db.outbox
    for key, chat in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
        outbox.enqueue(new_item(key, chat=chat))
    first = transact(outbox.claim_due_in, sender="me")
    assert [item.dedup_key for item in first] == ["a1", "b1"]
    assert transact(outbox.claim_due_in, sender="me") == (), "a2 waits for a1"
    transact(outbox.put_off_in, first[0], seconds=0, error="try again")
    assert [item.dedup_key for item in transact(outbox.claim_due_in, sender="me")] == ["a1"]
    transact(outbox.sent_in, outbox.get(first[0].id) or first[0], platform_ids=["1"])
    assert [item.dedup_key for item in transact(outbox.claim_due_in, sender="me")] == ["a2"]


def test_a_platform_can_be_served_alone(db: SessionDB) -> None:
    db.outbox.enqueue(new_item("a"))
    assert transact(db.outbox.claim_due_in, sender="me", platforms=["slack"]) == ()
    assert len(transact(db.outbox.claim_due_in, sender="me", platforms=["telegram"])) == 1


def test_two_deliverers_never_get_the_same_item(make_db: Callable[..., SessionDB]) -> None:
    stores = [make_db(), make_db()]
    for number in range(60):
        stores[0].outbox.enqueue(new_item(f"k{number}", chat=f"chat{number % 20}"))
    got: list[list[str]] = [[], []]

    def deliver(which: int) -> None:
        outbox = stores[which].outbox
        while outbox.next_due() is not None:
            for item in transact(outbox.claim_due_in, sender=f"d{which}", limit=3):
                got[which].append(item.dedup_key)
                assert transact(outbox.sent_in, item, platform_ids=["1"])

    threads = [threading.Thread(target=deliver, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got[0] + got[1]) == sorted(f"k{n}" for n in range(60))


def test_a_failed_attempt_is_repeated_later_and_not_for_ever(make_db: Callable[..., SessionDB], clock: Clock) -> None:
    db = make_db(limits=Limits(delivery_attempts=3))
    outbox = db.outbox
    outbox.enqueue(new_item("a"))
    for attempt in (1, 2):
        item = claim_one(db)
        assert item.attempts == attempt
        later = transact(outbox.put_off_in, item, seconds=30, error="502")
        assert later is not None and (later.state, later.error) == ("pending", "502")
        assert transact(outbox.claim_due_in, sender="me") == ()
        assert outbox.next_due() == clock() + 30
        clock.advance(30)
    given_up = transact(outbox.put_off_in, claim_one(db), seconds=30, error="502 again")
    assert given_up is not None and given_up.state == "failed"
    clock.advance(86_400)
    assert transact(outbox.claim_due_in, sender="me") == ()
    assert [item.dedup_key for item in outbox.dead_letters()] == ["a"]


@pytest.mark.parametrize("seconds", [3_600, 3 * 86_400])
def test_a_clock_set_back_does_not_hold_up_a_delivery(db: SessionDB, clock: Clock, seconds: int) -> None:
    db.outbox.enqueue(new_item("a"))
    clock.advance(-seconds)
    assert db.outbox.next_due() <= clock()
    assert claim_one(db).dedup_key == "a"


def test_what_was_put_off_waits_no_longer_for_a_clock_that_was_set_back(db: SessionDB, clock: Clock) -> None:
    db.outbox.enqueue(new_item("a"))
    transact(db.outbox.put_off_in, claim_one(db), seconds=30, error="502")
    clock.advance(-3_600)
    assert db.outbox.clock_was_set_back(3_600) == 1
    clock.advance(29)
    assert transact(db.outbox.claim_due_in, sender="me") == ()
    clock.advance(1)
    assert claim_one(db).dedup_key == "a"


@pytest.mark.parametrize("seconds", [-1, 90_000])
def test_an_impossible_delay_is_refused(db: SessionDB, seconds: float) -> None:
    db.outbox.enqueue(new_item("a"))
    with pytest.raises(InvalidValue):
        transact(db.outbox.put_off_in, claim_one(db), seconds=seconds, error="x")


def test_what_a_dead_sender_had_is_unknown_and_not_sent_again(db: SessionDB, clock: Clock) -> None:
    outbox = db.outbox
    outbox.enqueue(new_item("a"))
    item = claim_one(db)
    transact(outbox.progress_in, item, platform_ids=["101"])
    clock.advance(119)
    assert outbox.lose_senders() == ()
    clock.advance(1)
    (lost,) = outbox.lose_senders()
    assert (lost.state, lost.platform_ids) == ("unknown", ("101",))
    clock.advance(86_400)
    assert transact(outbox.claim_due_in, sender="me") == ()
    assert outbox.retry(item.id), "a person may decide to send it again"
    second = claim_one(db)
    assert second.attempts == 2
    assert not transact(outbox.sent_in, item, platform_ids=["101"]), "the first sender's word is out of date"
    assert transact(outbox.sent_in, second, platform_ids=["102"])


def test_a_sender_that_was_given_up_may_still_report_success(db: SessionDB, clock: Clock) -> None:
    outbox = db.outbox
    outbox.enqueue(new_item("a"))
    item = claim_one(db)
    clock.advance(1_000)
    outbox.lose_senders()
    assert transact(outbox.sent_in, item, platform_ids=["101"])
    assert state(db, item) == "sent"


def test_a_sender_known_to_be_dead_loses_its_items_at_once(db: SessionDB) -> None:
    outbox = db.outbox
    for chat in ("a", "b"):
        outbox.enqueue(new_item(chat, chat=chat))
    transact(outbox.claim_due_in, sender="dead", limit=1)
    transact(outbox.claim_due_in, sender="alive", limit=1)
    assert [item.sender for item in outbox.lose_senders(dead="dead")] == ["dead"]
    assert outbox.counts() == {"unknown": 1, "sending": 1}


def test_an_unknown_outcome_lets_the_next_message_pass(db: SessionDB) -> None:
    outbox = db.outbox
    for key in ("a", "b"):
        outbox.enqueue(new_item(key))
    transact(outbox.close_in, claim_one(db), "unknown", error="the connection broke")
    assert claim_one(db).dedup_key == "b"


def test_dead_letters_are_dropped_or_retried_by_hand(db: SessionDB) -> None:
    outbox = db.outbox
    items = []
    for key in ("a", "b"):
        outbox.enqueue(new_item(key, chat=key))
        items.append(claim_one(db))
        transact(outbox.close_in, items[-1], "failed", error="403: blocked by the user")
    assert [item.error for item in outbox.dead_letters()] == ["403: blocked by the user"] * 2
    assert outbox.drop(items[0].id, reason="not wanted")
    assert outbox.retry(items[1].id)
    assert not outbox.retry(items[0].id)
    assert not outbox.drop(10**9) and not outbox.retry(10**9)
    assert outbox.counts() == {"dropped": 1, "pending": 1}


def test_dead_letters_are_bounded_and_the_log_says_what_went(make_db: Callable[..., SessionDB]) -> None:
    db = make_db(limits=Limits(dead_letters=3))
    outbox = db.outbox
    for number in range(5):
        outbox.enqueue(new_item(str(number), chat=str(number)))
        transact(outbox.close_in, claim_one(db), "failed", error="gone")
    assert [item.dedup_key for item in outbox.dead_letters()] == ["4", "3", "2"]
    assert [e.kind for e in db.events.since(conversation_id=CHAT).events] == ["outbox.dead_letter_removed"] * 2


def test_a_draft_in_another_chat_is_no_part_of_the_reply(db: SessionDB) -> None:
    draft = transact(db.outbox.draft_in, new_item("turn-1", text="", chat="another"))
    transact(db.outbox.progress_in, draft, platform_ids=["101"], draft={"live": True})
    item = db.outbox.enqueue(new_item("turn-1", text="Once upon a time."))
    assert (item.id, item.state, item.chat_id) == (draft.id, "pending", new_item("turn-1").chat_id)
    assert (item.platform_ids, item.draft) == ((), None), "there it is a new message"


def test_a_draft_becomes_the_reply(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    """What a turn showed by edits before it was committed is the message that is finished later."""
    draft = transact(db.outbox.draft_in, new_item("turn-1", text=""))
    assert transact(db.outbox.progress_in, draft, platform_ids=["101"], draft={"text": "Once upon"})
    db = reopen(db)
    outbox = db.outbox
    assert transact(outbox.claim_due_in, sender="me") == (), "not owed yet"
    same = transact(outbox.draft_in, new_item("turn-1"))
    assert (same.id, same.platform_ids, same.draft) == (draft.id, ("101",), {"text": "Once upon"})
    outbox.enqueue(new_item("turn-1", text="Once upon a time."))
    item = claim_one(db)
    assert (item.id, item.platform_ids, item.payload) == (draft.id, ("101",), {"text": "Once upon a time."})


def test_old_deliveries_go_and_dead_letters_stay(db: SessionDB, clock: Clock) -> None:
    outbox = db.outbox
    for key in ("sent", "failed", "pending"):
        outbox.enqueue(new_item(key, chat=key))
    sent, failed, _ = transact(outbox.claim_due_in, sender="me")
    transact(outbox.sent_in, sent, platform_ids=[])
    transact(outbox.close_in, failed, "failed", error="no")
    transact(outbox.draft_in, new_item("a turn that never was"))
    assert outbox.prune() == 0
    clock.advance(31 * 86_400)
    assert outbox.prune() == 2
    assert {item.dedup_key for item in outbox.list()} == {"failed", "pending"}


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (outbox.Q.of_sender, "idx_outbox_open"),
        (outbox.Q.senders, "idx_outbox_open"),
        (outbox.Q.lose_senders, "idx_outbox_open"),
        (outbox.Q.drop_drafts, "idx_outbox_draft"),
        (outbox.Q.prune_drafts, "idx_outbox_draft"),
        (retention.Q.erase_turn_items, "idx_outbox_loose"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_was_sent_long_ago_is_not_walked_for_what_is_not(
    stores: TestStores, statement: Statement, index: str
) -> None:
    """Few items are open or drafts at any moment, and of those that were sent there may be a million."""
    db = SessionDB(stores.sqlite())
    params = (None,) * statement.sqlite.count("?")
    plan = db.engine.read(lambda conn: [row[3] for row in conn.rows(f"EXPLAIN QUERY PLAN {statement.sqlite}", params)])
    assert any(f"USING INDEX {index}" in step for step in plan), plan
    assert not any(step in ("SCAN outbox", "SCAN o") for step in plan), plan
    db.close()


def test_an_item_is_found_by_any_of_its_messages(db: SessionDB) -> None:
    outbox = db.outbox
    for key, ids in (("a", ["101", "102"]), ("b", ['1"0%'])):
        outbox.enqueue(new_item(key))
        assert transact(outbox.sent_in, claim_one(db), platform_ids=ids, repeated=int(key == "b"))
    found = {shown: outbox.shown_as("telegram", "", "42", shown, first=CHAT) for shown in ("102", '1"0%', "10", "%")}
    assert {shown: item and item.dedup_key for shown, item in found.items()} == {
        "102": "a", '1"0%': "b", "10": None, "%": None,
    }  # fmt: skip
    assert found['1"0%'] is not None and found['1"0%'].draft == {"repeated": 1}
    elsewhere = outbox.shown_as("telegram", "", "42", "101", first=ConversationId("another"))
    assert elsewhere is not None and elsewhere.dedup_key == "a", "an answer of an earlier conversation of the chat"
    assert outbox.shown_as("telegram", "", "43", "101") is None
