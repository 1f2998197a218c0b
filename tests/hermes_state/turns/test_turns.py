"""A turn ends once, all of it at one moment, and never under a fence that is out of date."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.stores import transact

from hermes_state.errors import SessionEnded, StaleFence, StateError, TurnOver
from hermes_state.ids import ConversationId, SessionId, SessionKey, TurnId
from hermes_state.maintenance import retention
from hermes_state.people.usage import Used
from hermes_state.session_db import SessionDB
from hermes_state.turns.leases import Lease
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import Work
from hermes_testing.clock import Clock

ROUTE = SessionKey("agent:main:telegram:dm:42")
CHAT, SESSION = ConversationId("s1"), SessionId("s1")


def receive(db: SessionDB, number: int) -> None:
    db.inbox.accept(
        platform="telegram", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": f"q{number}"}
    )


def reply(key: str = "reply-1", text: str = "an answer") -> NewOutboxItem:
    return NewOutboxItem(dedup_key=key, platform="telegram", chat_id="42", payload={"text": text})


def start(db: SessionDB, *, messages: int = 1, holder: str = "a") -> tuple[Lease, Work]:
    """A conversation, a lease, and a turn on the messages that came in."""
    if db.get_session(SESSION) is None:
        db.create_session(SESSION, "telegram")
    for number in range(messages):
        receive(db, number)
    lease = db.leases.acquire(CHAT, holder=holder, ttl=60)
    assert lease is not None
    begun = transact(
        db.turns.begin_in, conversation_id=CHAT, session_id=SESSION, fence=lease.fence, route=ROUTE, claim=10
    )
    assert begun is not None
    return lease, begun


def outcomes(db: SessionDB) -> list[tuple[str, str | None]]:
    return [(row.state, row.reason) for row in reversed(db.inbox.list())]


def test_a_good_turn_ends_in_one_step(db: SessionDB, clock: Clock) -> None:
    lease, begun = start(db, messages=2)
    turn = begun.turn
    assert [row.payload for row in begun.inbox] == [{"text": "q0"}, {"text": "q1"}]
    assert turn.trace_id == begun.inbox[0].trace_id
    ended = transact(
        db.turns.commit_in,
        turn.id,
        fence=lease.fence,
        final=[{"role": "assistant", "content": "an answer", "turn_id": turn.id}],
        reply=reply(),
        used=(Used(input_tokens=10, output_tokens=3, api_call_count=1),),
    )
    assert [m["content"] for m in db.get_messages(SESSION)] == ["an answer"]
    session = db.get_session(SESSION)
    assert session is not None
    assert (session["message_count"], session["input_tokens"], session["api_call_count"]) == (1, 10, 1)
    assert outcomes(db) == [("answered", None)] * 2
    assert ended.reply is not None
    assert (ended.reply.turn_id, ended.reply.conversation_id, ended.reply.trace_id) == (turn.id, CHAT, turn.trace_id)
    done = db.turns.get(turn.id)
    assert done is not None and (done.state, done.ended_at) == ("done", clock())
    assert [event.kind for event in db.events.since(conversation_id=CHAT).events] == ["turn.begun", "turn.done"]


def test_a_turn_without_a_reply_is_a_silence_with_a_reason(db: SessionDB) -> None:
    lease, begun = start(db)
    ended = transact(db.turns.commit_in, begun.turn.id, fence=lease.fence, reason="the model chose not to answer")
    assert ended.reply is None
    assert outcomes(db) == [("silent", "the model chose not to answer")]
    assert db.outbox.counts() == {}


def test_nothing_to_claim_begins_no_turn(db: SessionDB) -> None:
    lease = db.leases.acquire(CHAT, holder="a", ttl=60)
    assert lease is not None
    begun = transact(
        db.turns.begin_in, conversation_id=CHAT, session_id=SESSION, fence=lease.fence, route=ROUTE, claim=1
    )
    assert begun is None
    assert db.turns.list() == ()
    direct = transact(db.turns.begin_in, conversation_id=CHAT, session_id=SESSION, fence=lease.fence)
    assert direct is not None, "a turn from the terminal has no inbox row"


def test_a_late_turn_writes_nothing_at_all(db: SessionDB, clock: Clock) -> None:
    lease, begun = start(db)
    turns = db.turns
    clock.advance(61)
    new = db.leases.acquire(CHAT, holder="b", ttl=60)
    assert new is not None
    late = (
        lambda: transact(
            turns.commit_in,
            begun.turn.id,
            fence=lease.fence,
            final=[{"role": "assistant", "content": "late"}],
            reply=reply(),
            used=(Used(input_tokens=1),),
        ),
        lambda: transact(turns.note_in, begun.turn.id, {"step": 1}, fence=lease.fence),
        lambda: transact(turns.give_up_in, begun.turn.id, "failed", fence=lease.fence, reason="x", reply=reply()),
        lambda: turns.cancel(begun.turn.id, fence=lease.fence, reason="x"),
        lambda: transact(turns.resume_in, begun.turn.id, fence=lease.fence),
    )
    events = len(db.events.since(conversation_id=CHAT).events)
    for attempt in late:
        with pytest.raises(StaleFence):
            attempt()
    assert db.get_messages(SESSION) == []
    assert outcomes(db) == [("claimed", None)]
    assert db.outbox.counts() == {}
    assert turns.get(begun.turn.id) == begun.turn
    assert len(db.events.since(conversation_id=CHAT).events) == events


def test_a_new_holder_cannot_commit_an_attempt_it_did_not_take_over(db: SessionDB) -> None:
    lease, begun = start(db)
    db.leases.release(lease)
    new = db.leases.acquire(CHAT, holder="b", ttl=60)
    assert new is not None
    with pytest.raises(StaleFence):
        transact(db.turns.commit_in, begun.turn.id, fence=new.fence, reply=reply())


def test_if_one_part_of_the_end_fails_none_of_it_happens(db: SessionDB) -> None:
    lease, begun = start(db)
    db.create_session("s2", "telegram", parent_session_id=SESSION)
    db.end_session(SESSION, "compression")
    with pytest.raises(SessionEnded):
        transact(
            db.turns.commit_in,
            begun.turn.id,
            fence=lease.fence,
            final=[{"role": "assistant", "content": "x"}],
            reply=reply(),
        )
    assert outcomes(db) == [("claimed", None)] and db.outbox.counts() == {}
    ended = transact(
        db.turns.commit_in,
        begun.turn.id,
        fence=lease.fence,
        session_id=SessionId("s2"),
        final=[{"role": "assistant", "content": "x"}],
        reply=reply(),
    )
    assert len(ended.message_ids) == 1
    moved = db.turns.get(begun.turn.id)
    assert moved is not None and moved.session_id == "s2"


@pytest.mark.parametrize(("state", "outcome"), [("failed", "error"), ("cancelled", "dropped"), ("given_up", "error")])
def test_each_bad_end(db: SessionDB, state: str, outcome: str) -> None:
    lease, begun = start(db, messages=2)
    transact(db.outbox.draft_in, reply("reply-1", text="Once up"))
    why = "the model is down"
    ended = transact(db.turns.give_up_in, begun.turn.id, state, fence=lease.fence, reason=why, reply=reply())
    assert ended.reply.state == "pending"
    turn = db.turns.get(begun.turn.id)
    assert turn is not None and (turn.state, turn.reason) == (state, "the model is down")
    assert outcomes(db) == [(outcome, "the model is down")] * 2


def test_a_turn_has_one_end(db: SessionDB) -> None:
    lease, begun = start(db)
    turns = db.turns
    transact(turns.commit_in, begun.turn.id, fence=lease.fence, reply=reply())
    for again in (
        lambda: transact(turns.commit_in, begun.turn.id, fence=lease.fence, reply=reply("another")),
        lambda: transact(turns.give_up_in, begun.turn.id, "failed", fence=lease.fence, reason="x"),
        lambda: transact(turns.give_up_in, begun.turn.id, "given_up", fence=lease.fence, reason="x"),
        lambda: transact(turns.resume_in, begun.turn.id, fence=lease.fence),
        lambda: transact(turns.note_in, begun.turn.id, {}, fence=lease.fence),
    ):
        with pytest.raises(TurnOver) as over:
            again()
        assert over.value.state == "done"
    assert db.outbox.counts() == {"pending": 1}


def test_a_draft_without_a_reply_is_not_owed(db: SessionDB) -> None:
    lease, begun = start(db)
    draft = transact(
        db.outbox.draft_in,
        NewOutboxItem(dedup_key="d", platform="telegram", chat_id="42", payload={}, turn_id=begun.turn.id),
    )
    db.turns.cancel(begun.turn.id, fence=lease.fence, reason="/stop")
    dropped = db.outbox.get(draft.id)
    assert dropped is not None and (dropped.state, dropped.error) == ("dropped", "/stop")


def test_recovery_finds_resumes_and_ends_a_dead_turn(
    db: SessionDB, clock: Clock, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    _lease, begun = start(db, messages=2)
    turns = db.turns
    db = reopen(db)
    turns = db.turns
    clock.advance(61)
    (dead,) = turns.running()
    assert dead.id == begun.turn.id
    new = db.leases.acquire(CHAT, holder="b", ttl=60)
    assert new is not None
    again = transact(turns.resume_in, dead.id, fence=new.fence)
    assert (again.turn.attempt, again.turn.fence) == (2, new.fence)
    assert [row.message_id for row in again.inbox] == ["0", "1"]
    transact(turns.commit_in, dead.id, fence=new.fence, reply=reply())
    assert outcomes(db) == [("answered", None)] * 2


def test_a_turn_that_keeps_dying_is_given_up(db: SessionDB) -> None:
    lease, begun = start(db)
    turns = db.turns
    attempt = 1
    while attempt < db.limits.turn_attempts:
        db.leases.release(lease)
        lease = db.leases.acquire(CHAT, holder="again", ttl=60) or lease
        attempt = transact(turns.resume_in, begun.turn.id, fence=lease.fence).turn.attempt
    db.leases.release(lease)
    last = db.leases.acquire(CHAT, holder="last", ttl=60)
    assert last is not None
    transact(
        turns.give_up_in,
        begun.turn.id,
        "given_up",
        fence=last.fence,
        reason="died three times",
        reply=reply(text="I could not do this."),
    )
    assert outcomes(db) == [("error", "died three times")]
    assert [turn.attempt for turn in turns.list(state="given_up")] == [3]


def test_progress_is_shown(db: SessionDB) -> None:
    lease, begun = start(db)
    transact(db.turns.note_in, begun.turn.id, {"step": 2, "tool": "terminal"}, fence=lease.fence)
    (turn,) = db.turns.list(state="running", conversation_id=CHAT)
    assert turn.progress == {"step": 2, "tool": "terminal"}
    assert db.turns.counts() == {"running": 1}


def test_an_unknown_turn(db: SessionDB) -> None:
    assert db.turns.get(TurnId("nope")) is None
    with pytest.raises(StateError, match="no turn 'nope'"):
        db.turns.cancel(TurnId("nope"), fence=1, reason="x")
    with pytest.raises(StaleFence):
        transact(db.turns.commit_in, TurnId("nope"), fence=1)


def test_old_turns_go_after_what_names_them(db: SessionDB, clock: Clock) -> None:
    lease, begun = start(db)
    transact(db.turns.commit_in, begun.turn.id, fence=lease.fence, reply=reply())
    clock.advance(31 * 86_400)
    assert db.turns.prune() == 0, "its inbox row is still there"
    removed = retention.prune(db)
    assert (removed["inbox"], removed["turns"]) == (1, 1)
    assert db.turns.list() == ()
