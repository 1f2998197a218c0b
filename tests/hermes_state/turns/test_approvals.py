"""Permission for one call: anything that is not a grant in force is a denial."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.sample_store import grants_of
from tests.support.stores import transact

from hermes_state.errors import InvalidValue, StaleFence
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.session_db import SessionDB
from hermes_state.turns.approvals import Approval, Exit, Grant, Wanted
from hermes_testing.clock import Clock

CHAT, OTHER_CHAT = ConversationId("c1"), ConversationId("c2")
ANA, BEN, OWNER = PersonId("ana"), PersonId("ben"), PersonId("owner")
CALL = "hash-of-rm-rf-old"
NETWORK = Wanted("network")
LEFT = Exit("command", "curl https://a.example", "/w", "network", "d1")


def ask(
    db: SessionDB, turn: str = "t1", *, call: str = CALL, approver: PersonId | None = OWNER,
    person: PersonId | None = ANA, **shown: Any,
) -> Approval:  # fmt: skip
    return db.approvals.ask(
        conversation_id=CHAT,
        turn_id=TurnId(turn),
        call_hash=call,
        call={"text": "rm -rf old", **shown},
        requester_id=person,
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
    needs: tuple[Wanted, ...] = (),
    leaves: Exit | None = None,
    task: str | None = None,
) -> tuple[Grant, ...]:
    return db.approvals.spend(
        conversation_id=chat, turn_id=TurnId(turn), call_hash=call, person_id=person, needs=needs, leaves=leaves,
        task_id=TurnId(task) if task else None,
    )  # fmt: skip


class TestOnce:
    def test_once_is_once_for_this_turn_and_this_call(self, db: SessionDB) -> None:
        asked = ask(db)
        assert not spend(db), "asking is no permission"
        assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is not None
        assert not spend(db, call="another call")
        assert not spend(db, "t2")
        assert not spend(db, person=BEN)
        assert spend(db)
        assert not spend(db)
        used = db.approvals.get(asked.id)
        assert used is not None and (used.state, used.approver_id) == ("used", OWNER)

    def test_the_same_call_again_in_the_turn_is_asked_about_again(self, db: SessionDB) -> None:
        first = ask(db)
        db.approvals.decide(first.id, "once", approver_id=OWNER)
        assert spend(db)
        second = ask(db)
        assert (second.state, second.id != first.id) == ("pending", True)
        assert not spend(db), "the used permission does not answer for the second"
        db.approvals.decide(second.id, "deny", approver_id=OWNER)
        assert ask(db).state == "denied", "a denial holds for the rest of the turn"
        used = db.approvals.get(first.id)
        assert used is not None and used.state == "used", "what was done stays on record"

    def test_two_processes_cannot_use_one_permission_twice(self, make_db: Callable[..., SessionDB]) -> None:
        stores = [make_db(), make_db()]
        asked = ask(stores[0])
        stores[0].approvals.decide(asked.id, "once", approver_id=OWNER)
        results: list[bool] = []
        threads = [threading.Thread(target=lambda db=db: results.append(bool(spend(db)))) for db in stores * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [False] * 7 + [True]

    def test_somebody_nobody_knows_gets_one_use(self, db: SessionDB) -> None:
        asked = ask(db, person=None)
        decided = db.approvals.decide(asked.id, "always", approver_id=OWNER)
        assert decided is not None and decided.scope == "once"
        assert not spend(db, person=ANA), "not somebody else's"
        assert not spend(db, "t2", person=None)
        assert spend(db, person=None) and not spend(db, person=None)


class TestQuestions:
    def test_a_question_survives_a_restart_and_is_asked_once(
        self, db: SessionDB, reopen: Callable[[SessionDB], SessionDB]
    ) -> None:
        asked = ask(db)
        db = reopen(db)
        assert db.approvals.pending() == (asked,)
        assert asked.call == {"text": "rm -rf old"}
        assert ask(db) == asked, "the resumed turn finds its question"

    def test_only_the_named_approver_decides(self, db: SessionDB) -> None:
        asked = ask(db)
        assert db.approvals.decide(asked.id, "always", approver_id=ANA) is None, "not the requester"
        assert db.approvals.decide(asked.id, "always", approver_id=None) is None
        assert not spend(db)
        assert db.approvals.decide(asked.id, "deny", approver_id=OWNER, reason="no") is not None
        assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is None, "decided is decided"
        assert not spend(db)

    def test_silence_is_a_denial(self, db: SessionDB, clock: Clock) -> None:
        asked = ask(db)
        clock.advance(300)
        assert db.approvals.pending() == ()
        assert db.approvals.decide(asked.id, "once", approver_id=OWNER) is None
        assert not spend(db)
        assert [a.state for a in db.approvals.lapse()] == ["lapsed"]
        assert db.approvals.lapse() == ()

    def test_an_unknown_question_or_answer(self, db: SessionDB) -> None:
        assert db.approvals.decide("ask_nope", "once", approver_id=OWNER) is None
        asked = ask(db)
        with pytest.raises(InvalidValue):
            db.approvals.decide(asked.id, "sure", approver_id=OWNER)
        with pytest.raises(InvalidValue):
            db.approvals.decide(asked.id, "session", approver_id=OWNER, uses=0)
        assert not spend(db)

    def test_a_yes_that_was_not_offered_is_for_once(self, db: SessionDB) -> None:
        asked = ask(db, choices=["once", "task", "deny"], needs=[["folder", "/etc"]])
        decided = db.approvals.decide(asked.id, "always", approver_id=OWNER)
        assert decided is not None and decided.scope == "once"
        assert not spend(db, call="other", needs=(Wanted("folder", "/etc"),))


class TestWhatAYesGrants:
    def test_the_network_for_the_task(self, db: SessionDB) -> None:
        asked = ask(db, needs=[["network", "curl"]])
        db.approvals.decide(asked.id, "task", approver_id=OWNER)
        assert spend(db, call="the first curl", needs=(NETWORK,))
        assert spend(db, call="another curl", needs=(NETWORK,)), "no second question"
        assert not spend(db, call="more", needs=(NETWORK, Wanted("host"))), "only the network"
        assert not spend(db, call="more", needs=(NETWORK, Wanted("folder", "/etc")))
        assert not spend(db, "t2", call="curl", needs=(NETWORK,)), "it ends with the turn"
        assert spend(db, "child", task="t1", call="curl", needs=(NETWORK,)), "and holds for its children"
        assert not spend(db, call="curl", person=BEN, needs=(NETWORK,))

    def test_a_task_that_has_ended_permits_nothing(self, db: SessionDB) -> None:
        handle = db.ledger.open(source="cli")
        lease = db.leases.acquire(handle.conversation_id, holder="a", ttl=60)
        assert lease is not None
        work = transact(
            db.turns.begin_in, conversation_id=handle.conversation_id, session_id=handle.session_id, fence=lease.fence
        )
        asked = ask(db, work.turn.id, needs=[["network", "curl"]])
        db.approvals.decide(asked.id, "task", approver_id=OWNER)
        assert [grant.kind for grant in db.approvals.grants()] == ["network"]
        assert spend(db, work.turn.id, call="curl", needs=(NETWORK,))
        db.turns.cancel(work.turn.id, fence=lease.fence, reason="stopped")
        assert not spend(db, "child", task=work.turn.id, call="curl", needs=(NETWORK,))
        assert db.approvals.grants() == (), "and it is not listed"

    def test_a_folder_and_what_lies_in_it(self, db: SessionDB) -> None:
        db.approvals.decide(ask(db, needs=[["folder", "/srv/x"]]).id, "session", approver_id=OWNER)
        for path, covered in (("/srv/x", 1), ("/srv/x/y/z", 1), ("/srv", 0), ("/srv/xy", 0), ("/srv/x/../y", 0)):
            assert len(spend(db, "t2", call="c", needs=(Wanted("folder", path),))) == covered, path

    def test_several_needs_are_several_grants(self, db: SessionDB) -> None:
        asked = ask(db, needs=[["network", "curl"], ["folder", "/srv/x"], ["network", "git"]])
        db.approvals.decide(asked.id, "session", approver_id=OWNER)
        assert {(one.kind, one.value) for one in grants_of(db, asked.id)} == {
            ("network", ""), ("folder", "/srv/x"),
        }  # fmt: skip
        assert len(spend(db, "t2", call="c", needs=(NETWORK, Wanted("folder", "/srv/x")))) == 2

    def test_what_no_size_covers_is_the_exact_call(self, db: SessionDB) -> None:
        asked = ask(db, needs=[["network", "curl"], ["host", "systemctl"]])
        db.approvals.decide(asked.id, "always", approver_id=OWNER)
        assert {one.kind for one in grants_of(db, asked.id)} == {"network", "exact"}
        assert spend(db, "t2", needs=(NETWORK, Wanted("host"))), "exactly this"
        assert not spend(db, "t2", call="like it", needs=(Wanted("host"),))

    def test_a_tool_by_its_name(self, db: SessionDB) -> None:
        db.approvals.decide(ask(db, needs=[["tool", "deploy"]]).id, "always", approver_id=OWNER)
        assert spend(db, "t2", call="c", chat=OTHER_CHAT, needs=(Wanted("tool", "deploy", {"to": "prod"}),))
        assert not spend(db, "t2", call="c", needs=(Wanted("tool", "delete"),))

    def test_a_tool_with_patterns_of_its_arguments(self, db: SessionDB) -> None:
        grant = db.approvals.add(
            person_id=ANA, kind="tool", value="deploy", patterns={"to": "test-*"}, granted_by=OWNER, shown="deploy"
        )
        assert db.approvals.grants(person_id=ANA) == (grant,)
        for arguments, covered in (({"to": "test-1"}, 1), ({"to": "prod"}, 0), ({}, 0), (None, 0)):
            assert len(spend(db, call="c", needs=(Wanted("tool", "deploy", arguments),))) == covered, arguments

    def test_a_number_of_uses(self, db: SessionDB) -> None:
        asked = ask(db, needs=[["network", "curl"]])
        db.approvals.decide(asked.id, "session", approver_id=OWNER, uses=3)
        used = [bool(spend(db, f"t{turn}", call="c", needs=(NETWORK,))) for turn in range(5)]
        assert used == [True, True, True, False, False]
        (grant,) = grants_of(db, asked.id)
        assert (grant.state, grant.uses_left) == ("used", 0)

    def test_until_a_time(self, db: SessionDB, clock: Clock) -> None:
        db.approvals.decide(ask(db).id, "session", approver_id=OWNER, until=clock() + 3_600)
        assert spend(db, "t2") and len(db.approvals.grants()) == 1
        clock.advance(3_600)
        assert not spend(db, "t2") and db.approvals.grants() == ()

    def test_counted_grants_are_used_before_others(self, db: SessionDB) -> None:
        db.approvals.decide(ask(db, "t1").id, "always", approver_id=OWNER)
        db.approvals.decide(ask(db, "t2").id, "once", approver_id=OWNER)
        assert [grant.uses_left for grant in spend(db, "t2")] == [1]
        assert [grant.uses_left for grant in spend(db, "t2")] == [None]


class TestHowLong:
    def test_for_the_session_it_holds_in_this_conversation(self, db: SessionDB) -> None:
        db.approvals.decide(ask(db).id, "session", approver_id=OWNER)
        assert spend(db) and spend(db, "t2") and spend(db, "t3")
        assert not spend(db, "t2", chat=OTHER_CHAT)
        assert not spend(db, "t2", person=BEN)
        assert not spend(db, "t2", person=None)
        assert not spend(db, "t2", call="another call")
        assert db.approvals.leave_conversation(CHAT, person_id=BEN) == 0
        assert db.approvals.leave_conversation(CHAT, person_id=ANA) == 1
        assert not spend(db, "t4")

    def test_always_holds_everywhere_for_this_person_until_revoked(self, db: SessionDB, clock: Clock) -> None:
        approvals = db.approvals
        asked = ask(db)
        approvals.decide(asked.id, "always", approver_id=OWNER)
        assert spend(db, "t9", chat=OTHER_CHAT)
        assert not spend(db, "t9", chat=OTHER_CHAT, person=BEN)
        clock.advance(400 * 86_400)
        assert approvals.prune() == 1, "the question; not what it granted"
        (grant,) = approvals.grants(person_id=ANA)
        assert (grant.approval_id, grant.granted_by, grant.span) == (asked.id, OWNER, "always")
        assert approvals.revoke(grant.id)
        assert approvals.grants() == ()
        assert not spend(db, "t9", chat=OTHER_CHAT)
        assert not approvals.revoke(grant.id)

    def test_revoking_before_it_served_denies_the_question(self, db: SessionDB) -> None:
        asked = ask(db)
        db.approvals.decide(asked.id, "once", approver_id=OWNER)
        (grant,) = grants_of(db, asked.id)
        assert db.approvals.revoke(grant.id) and not spend(db)
        assert ask(db).state == "revoked"

    def test_revoking_a_question_takes_back_what_it_granted(self, db: SessionDB) -> None:
        asked = ask(db)
        db.approvals.decide(asked.id, "always", approver_id=OWNER)
        assert spend(db)
        assert db.approvals.revoke(asked.id) and not spend(db)

    def test_an_overtaken_turn_does_not_use_up_the_permission_of_its_successor(
        self, db: SessionDB, clock: Clock
    ) -> None:
        old = db.leases.acquire(CHAT, holder="a", ttl=10)
        db.approvals.decide(ask(db).id, "once", approver_id=OWNER)
        clock.advance(11)
        new = db.leases.acquire(CHAT, holder="b", ttl=10)
        assert old is not None and new is not None
        call = {"conversation_id": CHAT, "turn_id": TurnId("t1"), "call_hash": CALL, "person_id": ANA}
        with pytest.raises(StaleFence):
            db.approvals.spend(**call, leaves=LEFT, fence=old.fence)
        assert db.approvals.exits() == ()
        assert db.approvals.spend(**call, fence=new.fence)

    def test_what_ended_goes_after_its_time(self, db: SessionDB, clock: Clock) -> None:
        db.approvals.decide(ask(db).id, "deny", approver_id=OWNER)
        ask(db, "t2")
        db.approvals.decide(ask(db, "t3").id, "once", approver_id=OWNER)
        assert spend(db, "t3", leaves=LEFT)
        db.approvals.decide(ask(db, "t4").id, "task", approver_id=OWNER)
        clock.advance(91 * 86_400)
        assert db.approvals.prune() == 6, "a denial, two answers and their grants, one exit; t2 has only just lapsed"
        assert db.approvals.exits() == ()
        clock.advance(91 * 86_400)
        assert db.approvals.prune() == 1


class TestTheLog:
    def test_it_names_the_grants_that_a_call_used(self, db: SessionDB, clock: Clock) -> None:
        asked = ask(db, needs=[["network", "curl"]])
        db.approvals.decide(asked.id, "task", approver_id=OWNER)
        assert not spend(db, call="c", needs=(Wanted("host"),), leaves=LEFT), "nothing left"
        (grant,) = spend(db, call="c", needs=(NETWORK,), leaves=LEFT)
        spend(db, call="c", needs=(NETWORK,))  # ran confined after all
        (left,) = db.approvals.exits()
        assert (left.text, left.workdir, left.opening, left.digest) == (LEFT.text, "/w", "network", "d1")
        assert (left.person_id, left.turn_id, left.at) == (ANA, "t1", clock())
        assert (left.allowed_by, left.grants, left.rule) == ("grant", (grant.id,), None)
        assert db.approvals.named(left.grants)[grant.id].granted_by == OWNER

    def test_what_the_configuration_lets_out_is_there_too(self, db: SessionDB) -> None:
        db.approvals.log_exit(LEFT, person_id=ANA, conversation_id=CHAT, turn_id=TurnId("t1"), rule="executor: host")
        (left,) = db.approvals.exits()
        assert (left.allowed_by, left.grants, left.rule) == ("config", (), "executor: host")

    def test_newest_first_and_bounded(self, db: SessionDB) -> None:
        for number in range(5):
            db.approvals.log_exit(
                Exit("command", f"c{number}", "/w", "network", "d"),
                person_id=None, conversation_id=CHAT, turn_id=TurnId("t1"), rule="r",
            )  # fmt: skip
        assert [left.text for left in db.approvals.exits(limit=2)] == ["c4", "c3"]
