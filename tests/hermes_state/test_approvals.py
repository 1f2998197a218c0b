"""Leave for one exact call: whatever is not an unexpired grant is a denial."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hermes_state.approvals import Approval
from hermes_state.errors import InvalidValue, StaleFence
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

CHAT, OTHER_CHAT = ConversationId("c1"), ConversationId("c2")
ANA, OWNER = PersonId("ana"), PersonId("owner")
CALL = "hash-of-rm-rf-old"


def ask(db: SessionDB, turn: str = "t1", *, call: str = CALL, approver: PersonId | None = OWNER) -> Approval:
    return db.approvals.ask(
        conversation_id=CHAT,
        turn_id=TurnId(turn),
        call_hash=call,
        call={"tool": "terminal", "command": "rm -rf old"},
        requester_id=ANA,
        approver_id=approver,
        seconds=300,
    )


def spend(
    db: SessionDB,
    turn: str = "t1",
    *,
    call: str = CALL,
    person: PersonId | None = ANA,
    chat: ConversationId = CHAT,
) -> bool:
    granted = db.approvals.spend(conversation_id=chat, turn_id=TurnId(turn), call_hash=call, person_id=person)
    return granted is not None


def test_once_is_once_for_this_turn_and_this_call(db: SessionDB) -> None:
    asked = ask(db)
    assert not spend(db), "asking is not leave"
    assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is not None
    assert not spend(db, call="another call")
    assert not spend(db, "t2")
    assert not spend(db, chat=OTHER_CHAT)
    assert spend(db)
    assert not spend(db)
    used = db.approvals.get(asked.id)
    assert used is not None and (used.state, used.approver_id) == ("used", OWNER)


def test_the_same_call_again_in_the_turn_is_asked_about_again(db: SessionDB) -> None:
    first = ask(db)
    db.approvals.decide(first.id, "once", approver_id=OWNER)
    assert spend(db)
    second = ask(db)
    assert (second.state, second.id != first.id) == ("pending", True)
    assert not spend(db), "the used leave does not answer for the second"
    db.approvals.decide(second.id, "deny", approver_id=OWNER)
    assert ask(db).state == "denied", "a denial holds for the rest of the turn"
    used = db.approvals.get(first.id)
    assert used is not None and used.state == "used", "what was done stays on record"


def test_two_processes_cannot_use_one_leave_twice(make_db: Callable[..., SessionDB]) -> None:
    stores = [make_db(), make_db()]
    asked = ask(stores[0])
    stores[0].approvals.decide(asked.id, "once", approver_id=OWNER)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda db=db: results.append(spend(db))) for db in stores * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


def test_a_question_survives_a_restart_and_is_asked_once(
    db: SessionDB, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    asked = ask(db)
    db = reopen(db)
    assert db.approvals.pending() == (asked,)
    assert asked.call == {"tool": "terminal", "command": "rm -rf old"}
    assert ask(db) == asked, "the resumed turn finds its question"


def test_only_the_named_approver_decides(db: SessionDB) -> None:
    asked = ask(db)
    assert db.approvals.decide(asked.id, "always", approver_id=ANA) is None, "not the requester"
    assert db.approvals.decide(asked.id, "always", approver_id=None) is None
    assert not spend(db)
    assert db.approvals.decide(asked.id, "deny", approver_id=OWNER, reason="no") is not None
    assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is None, "decided is decided"
    assert not spend(db)


def test_silence_is_a_denial(db: SessionDB, clock: Clock) -> None:
    asked = ask(db)
    clock.advance(300)
    assert db.approvals.pending() == ()
    assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is None
    assert not spend(db)
    assert [a.state for a in db.approvals.lapse()] == ["lapsed"]
    assert db.approvals.lapse() == ()


def test_an_overtaken_turn_does_not_use_up_the_leave_of_its_successor(db: SessionDB, clock: Clock) -> None:
    old = db.leases.acquire(CHAT, holder="a", ttl=10)
    db.approvals.decide(ask(db).id, "once", approver_id=OWNER)
    clock.advance(11)
    new = db.leases.acquire(CHAT, holder="b", ttl=10)
    assert old is not None and new is not None
    call = {"conversation_id": CHAT, "turn_id": TurnId("t1"), "call_hash": CALL, "person_id": ANA}
    with pytest.raises(StaleFence):
        db.approvals.spend(**call, fence=old.fence)
    assert db.approvals.spend(**call, fence=new.fence) is not None


def test_an_unknown_question_or_answer(db: SessionDB) -> None:
    assert db.approvals.decide("ask_nope", "once", approver_id=OWNER) is None
    asked = ask(db)
    with pytest.raises(InvalidValue):
        db.approvals.decide(asked.id, "sure", approver_id=OWNER)
    assert not spend(db)


def test_a_rule_for_the_session_holds_in_this_conversation(db: SessionDB) -> None:
    db.approvals.decide(ask(db).id, "session", approver_id=OWNER)
    assert spend(db) and spend(db, "t2") and spend(db, "t3")
    assert not spend(db, "t2", chat=OTHER_CHAT)
    assert not spend(db, "t2", person=PersonId("ben"))
    assert not spend(db, "t2", person=None)
    assert not spend(db, "t2", call="another call")


def test_a_rule_for_always_holds_everywhere_for_this_person_until_revoked(db: SessionDB, clock: Clock) -> None:
    approvals = db.approvals
    asked = ask(db)
    approvals.decide(asked.id, "always", approver_id=OWNER)
    assert spend(db, "t9", chat=OTHER_CHAT)
    assert not spend(db, "t9", chat=OTHER_CHAT, person=PersonId("ben"))
    clock.advance(400 * 86_400)
    assert approvals.prune() == 0
    assert [rule.id for rule in approvals.rules(ANA)] == [asked.id]
    assert approvals.revoke(asked.id)
    assert approvals.rules(ANA) == ()
    assert not spend(db, "t9", chat=OTHER_CHAT)
    assert not approvals.revoke(asked.id)


def test_a_rule_may_run_out(db: SessionDB, clock: Clock) -> None:
    db.approvals.decide(ask(db).id, "always", approver_id=OWNER, rule_seconds=3_600)
    assert db.approvals.standing(conversation_id=CHAT, call_hash=CALL, person_id=ANA) is not None
    clock.advance(3_600)
    assert db.approvals.standing(conversation_id=CHAT, call_hash=CALL, person_id=ANA) is None
    assert not spend(db, "t2")


def test_settled_questions_go_after_their_time(db: SessionDB, clock: Clock) -> None:
    db.approvals.decide(ask(db).id, "deny", approver_id=OWNER)
    ask(db, "t2")
    clock.advance(91 * 86_400)
    assert db.approvals.prune() == 1, "the denial; the other has only just lapsed"
    clock.advance(91 * 86_400)
    assert db.approvals.prune() == 1
