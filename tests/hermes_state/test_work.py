"""A message can be followed from its arrival to its delivery, and all of it goes with its conversation."""

from __future__ import annotations

import pytest
from tests.support.stores import TestStores, transact

from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey, TurnId
from hermes_state.maintenance import retention
from hermes_state.session_db import SessionDB
from hermes_state.turns import events
from hermes_state.turns.approvals import Exit
from hermes_state.turns.leases import Lease
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock

TABLES = (
    "inbox", "outbox", "turns", "leases", "approvals", "grants", "wall_exits", "effects", "events",
    "prefix_epochs", "prefix_blobs", "prefix_breaks",
)  # fmt: skip


def live(db: SessionDB, clock: Clock, name: str) -> Lease:
    """A whole life of one message in the conversation `name`."""
    chat, route = ConversationId(name), SessionKey(f"route:{name}")
    db.create_session(name, "telegram")
    db.inbox.accept(
        platform="telegram", chat_id=name, message_id="1", route=route, payload={"text": "hi"}, trace_id=f"trace-{name}"
    )
    lease = db.leases.acquire(chat, holder="h", ttl=600)
    assert lease is not None
    clock.advance(1)
    begun = transact(
        db.turns.begin_in, conversation_id=chat, session_id=SessionId(name), fence=lease.fence, route=route, claim=1
    )
    assert begun is not None
    turn = begun.turn.id
    db.prefixes.begin(chat, f"prefix of {name}".encode(), reason="first use")
    transact(db.prefixes.broke_in, chat, epoch=1, expected="e", seen="s", reason="r")
    clock.advance(1)
    asked = db.approvals.ask(
        conversation_id=chat, turn_id=turn, call_hash="h", call={}, requester_id=PersonId("p"), approver_id=None,
        seconds=60,
    )  # fmt: skip
    clock.advance(1)
    db.approvals.decide(asked.id, "once", approver_id=PersonId("o"))
    db.approvals.log_exit(
        Exit("command", "curl", "/w", "network", "d"), person_id=None, conversation_id=chat, turn_id=turn, rule="r"
    )
    clock.advance(1)
    transact(db.effects.start_in, turn, "call_1", tool="terminal", fence=lease.fence)
    clock.advance(1)
    transact(db.effects.finish_in, turn, "call_1", fence=lease.fence)
    clock.advance(1)
    reply = NewOutboxItem(dedup_key=f"reply-{name}", platform="telegram", chat_id=name, payload={"text": "hello"})
    transact(
        db.turns.commit_in, turn, fence=lease.fence, final=[{"role": "assistant", "content": "hello"}], reply=reply
    )
    clock.advance(1)
    (item,) = transact(db.outbox.claim_due_in, sender="d")
    transact(db.outbox.sent_in, item, platform_ids=["9"])
    return lease


def counts(db: SessionDB) -> dict[str, int]:
    return db.engine.read(lambda conn: {t: conn.rows(f"SELECT COUNT(*) FROM {t}")[0][0] for t in TABLES})


def test_a_trace_tells_the_life_of_a_message_in_order(db: SessionDB, clock: Clock) -> None:
    live(db, clock, "a")
    live(db, clock, "b")
    assert db.traces.last() == "trace-b"
    story = db.traces.get("trace-a")
    assert [moment.at for moment in story] == sorted(moment.at for moment in story)
    told = [(moment.where, moment.what) for moment in story if moment.where != "event"]
    assert told[:6] == [
        ("inbox", "received"),
        ("turn", "begun"),
        ("approval", "asked"),
        ("approval", "granted"),
        ("effect", "started"),
        ("effect", "finished"),
    ]
    assert set(told[6:-1]) == {("inbox", "answered"), ("turn", "done"), ("outbox", "stored")}
    assert told[-1] == ("outbox", "sent")
    assert [m.what for m in story if m.where == "event"] == ["turn.begun", "turn.done"]
    assert all("b" not in m.detail.get("chat_id", "") for m in story)
    assert db.traces.get("nope") == ()


def test_an_unanswered_message_shows_where_it_stands(db: SessionDB, clock: Clock) -> None:
    db.inbox.accept(platform="p", chat_id="c", message_id="1", route=SessionKey("r"), payload={}, trace_id="t")
    assert [(m.where, m.what) for m in db.traces.get("t")] == [("inbox", "received")]


def told(db: SessionDB, trace_id: str) -> list[str]:
    return [m.what for m in db.traces.get(trace_id) if m.where == "event"]


def test_a_trace_tells_what_the_log_has_of_a_turn_that_runs_or_was_taken_up(db: SessionDB, clock: Clock) -> None:
    chat = ConversationId("a")
    lease = db.leases.acquire(chat, holder="lost", ttl=60)
    assert lease is not None
    begun = transact(db.turns.begin_in, conversation_id=chat, session_id=SessionId("a"), fence=lease.fence)
    assert begun is not None
    trace = begun.turn.trace_id
    assert told(db, trace) == ["turn.begun"]
    clock.advance(61)
    lease = db.leases.acquire(chat, holder="next", ttl=60)
    assert lease is not None
    transact(db.turns.resume_in, begun.turn.id, fence=lease.fence)
    assert told(db, trace) == ["turn.begun", "turn.resumed"]
    transact(db.turns.give_up_in, begun.turn.id, "failed", fence=lease.fence, reason="broken")
    other = transact(db.turns.begin_in, conversation_id=chat, session_id=SessionId("a"), fence=lease.fence)
    assert other is not None
    assert told(db, trace) == ["turn.begun", "turn.resumed", "turn.failed"], "and nothing of another turn"
    assert told(db, other.turn.trace_id) == ["turn.begun"]


def test_a_trace_tells_what_the_log_has_of_a_turn_that_retention_removed(db: SessionDB, clock: Clock) -> None:
    live(db, clock, "a")
    live(db, clock, "b")
    before = told(db, "trace-a")
    clock.advance(400 * 86_400)
    retention.prune(db)
    assert db.turns.list() == () and told(db, "trace-a") == before == ["turn.begun", "turn.done"]


def test_a_trace_tells_of_events_that_are_no_turns(db: SessionDB) -> None:
    transact(db.events.append_in, ConversationId("a"), "outbox.dead_letter_removed", trace_id="t")
    transact(
        db.events.append_in, ConversationId("a"), "outbox.dead_letter_removed", trace_id="t", turn_id=TurnId("gone")
    )
    assert told(db, "t") == ["outbox.dead_letter_removed"] * 2


@pytest.mark.parametrize("name", ["inbox", "turns", "effects", "approvals", "outbox", "events", "begun"])
def test_a_trace_walks_no_table(stores: TestStores, name: str) -> None:
    db = SessionDB(stores.sqlite())
    statement = getattr(events.Q, name)
    params = (None,) * statement.sqlite.count("?")
    plan = db.engine.read(lambda conn: [row[3] for row in conn.rows(f"EXPLAIN QUERY PLAN {statement.sqlite}", params)])
    assert plan and not any(step.startswith("SCAN") for step in plan), plan
    db.close()


def test_everything_goes_with_its_conversation_and_nothing_else(db: SessionDB, clock: Clock) -> None:
    live(db, clock, "a")
    one = counts(db)
    assert all(one.values()), "the life above touches every table"
    live(db, clock, "b")
    db._execute_write(lambda conn: retention.erase(conn, [ConversationId("a")]))
    assert counts(db) == one
    assert db.traces.get("trace-a") == () and db.traces.get("trace-b")
    db._execute_write(lambda conn: retention.erase(conn, [ConversationId("b")]))
    assert set(counts(db).values()) == {0}
    db._execute_write(lambda conn: retention.erase(conn, []))


def test_what_a_turn_owes_goes_with_its_conversation_named_or_not(db: SessionDB, clock: Clock) -> None:
    """Something that is owed may name its turn alone, or its conversation alone, or both."""
    for name, lease in {name: live(db, clock, name) for name in ("a", "b")}.items():
        chat = lease.conversation_id
        begun = transact(db.turns.begin_in, conversation_id=chat, session_id=SessionId(name), fence=lease.fence)
        assert begun is not None
        for key, names in (
            ("turn", {"turn_id": begun.turn.id}),
            ("conversation", {"conversation_id": chat}),
            ("both", {"turn_id": begun.turn.id, "conversation_id": chat}),
        ):
            new_item = NewOutboxItem(dedup_key=f"{key}-{name}", platform="telegram", chat_id=name, payload={}, **names)
            db.outbox.enqueue(new_item)
    db.outbox.enqueue(NewOutboxItem(dedup_key="neither", platform="telegram", chat_id="a", payload={}))
    db._execute_write(lambda conn: retention.erase(conn, [ConversationId("a")]))
    left = {item.dedup_key for item in db.outbox.list()}
    assert left == {"reply-b", "turn-b", "conversation-b", "both-b", "neither"}


def test_a_conversation_id_used_again_does_not_revive_an_old_fence(db: SessionDB, clock: Clock) -> None:
    old = live(db, clock, "a")
    db._execute_write(lambda conn: retention.erase(conn, [old.conversation_id]))
    new = db.leases.acquire(old.conversation_id, holder="h", ttl=60)
    assert new is not None and new.fence > old.fence


def test_retention_keeps_what_is_young(db: SessionDB, clock: Clock) -> None:
    live(db, clock, "a")
    before = counts(db)
    retention.prune(db)
    assert counts(db) == before
    clock.advance(100 * 86_400)
    removed = retention.prune(db)
    assert (removed["inbox"], removed["outbox"], removed["turns"], removed["effects"]) == (1, 1, 1, 1)
    assert db.events.since(conversation_id=ConversationId("a")).events, "events are bounded by number, not by age"
