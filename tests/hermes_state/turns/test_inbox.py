"""What was accepted is there once, in order, and ends once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.support.stores import transact

from hermes_config.limits import Limits
from hermes_state.errors import InvalidValue, StaleFence
from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.inbox import OUTCOMES, Accepted
from hermes_state.turns.journal import Journal
from hermes_state.turns.leases import Lease
from hermes_state.turns.turns import Turn, Work
from hermes_testing.clock import Clock

ROUTE = SessionKey("agent:main:telegram:dm:42")
CHAT = ConversationId("c1")


def receive(db: SessionDB, number: int | str, *, route: SessionKey = ROUTE, version: int = 0) -> Accepted:
    return db.inbox.accept(
        platform="telegram",
        chat_id="42",
        message_id=str(number),
        version=version,
        route=route,
        payload={"text": f"message {number}"},
    )


def begin(db: SessionDB, *, claim: int = 0, conversation: ConversationId = CHAT) -> tuple[Lease, Turn]:
    lease = db.leases.acquire(conversation, holder="test", ttl=60)
    assert lease is not None
    work = transact(
        db.turns.begin_in,
        conversation_id=conversation,
        session_id=SessionId("s1"),
        fence=lease.fence,
        route=ROUTE,
        claim=claim,
    )
    assert work is not None
    return lease, work.turn


def test_a_redelivery_changes_nothing(db: SessionDB) -> None:
    first = receive(db, 1)
    again = db.inbox.accept(
        platform="telegram", chat_id="42", message_id="1", route=SessionKey("other"), payload={"text": "changed"}
    )
    assert first.new and not again.new
    assert again.row == first.row
    assert db.inbox.list() == (first.row,)


def test_the_whole_message_comes_back_after_a_restart(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    payload = {"text": "a\0b \ud83d 部署 'x' %s ?", "parts": [{"n": 1.5, "none": None}]}
    row = db.inbox.accept(platform="p", chat_id="c", message_id="m", route=ROUTE, payload=payload).row
    db = reopen(db)
    stored = db.inbox.get(row.id)
    assert stored is not None and stored.payload is not None
    assert stored.payload["text"] == "a\0b \N{REPLACEMENT CHARACTER} 部署 'x' %s ?"
    assert stored.payload["parts"] == payload["parts"]


@pytest.mark.parametrize("part", ["platform", "chat_id", "message_id", "route"])
def test_hostile_ids_are_opaque(db: SessionDB, part: str) -> None:
    for number, value in enumerate(("../../x", "a'b\"; DROP TABLE inbox", "%", "🦊" * 50)):
        ids = {"platform": "p", "chat_id": "c", "message_id": f"m{number}", "route": "r", part: value}
        row = db.inbox.accept(**ids, payload={}).row
        assert getattr(db.inbox.get(row.id), part) == value
    for value in ("x\0y", "x" * 10_000, "\ud800"):
        ids = {"platform": "p", "chat_id": "c", "message_id": "m", "route": "r", part: value}
        with pytest.raises(InvalidValue):
            db.inbox.accept(**ids, payload={})


def test_too_large_a_message_is_refused_in_one_line(make_db: Callable[..., SessionDB]) -> None:
    db = make_db(limits=Limits(message_bytes=65_536))
    with pytest.raises(InvalidValue, match="larger than 65536 bytes"):
        db.inbox.accept(platform="p", chat_id="c", message_id="m", route=ROUTE, payload={"text": "ü" * 40_000})
    assert db.inbox.counts() == {}


def test_an_edit_takes_the_place_of_what_still_waits(db: SessionDB) -> None:
    first, edit = receive(db, 1), receive(db, 1, version=7)
    assert edit.new and edit.before is not None and edit.before.id == first.row.id
    assert [row.state for row in db.inbox.versions(platform="telegram", chat_id="42", message_id="1")] == [
        "superseded",
        "queued",
    ]


def test_an_edit_of_what_was_refused_is_a_message_like_any_other(db: SessionDB) -> None:
    """Somebody who was let in since edits what they wrote before: it is read for the first time."""
    assert db.inbox.refuse(platform="telegram", chat_id="42", message_id="1", reason="not on any list")
    edit = receive(db, 1, version=7)
    assert (edit.new, edit.before, edit.row.state) == (True, None, "queued")


@pytest.mark.parametrize("late", [0, 5])
def test_an_older_version_that_comes_late_changes_nothing(db: SessionDB, late: int) -> None:
    """Platforms deliver out of order after a gap. What the person wrote last is what is read."""
    newest = receive(db, 1, version=7)
    old = receive(db, 1, version=late)
    assert (old.new, old.row.state, old.row.version) == (False, "superseded", late)
    assert [row.id for row in db.inbox.queued(ROUTE)] == [newest.row.id]
    assert receive(db, 1, version=late).row == old.row, "and a redelivery of it is one"


def test_a_route_is_worked_off_in_order(db: SessionDB) -> None:
    for number in range(5):
        receive(db, number)
    receive(db, 99, route=SessionKey("another"))
    _lease, turn = begin(db)
    inbox = db.inbox
    claimed = transact(inbox.claim_in, route=ROUTE, turn_id=turn.id, limit=2)
    assert [row.message_id for row in claimed] == ["0", "1"]
    assert {(row.state, row.turn_id) for row in claimed} == {("claimed", turn.id)}
    third = inbox.list(state="queued", route=ROUTE)[-1]
    merged = transact(inbox.claim_ids_in, route=ROUTE, turn_id=turn.id, ids=[third.id, claimed[0].id])
    assert [row.message_id for row in merged] == ["2"], "a row is claimed once"
    assert [row.message_id for row in inbox.of_turn(turn.id)] == ["0", "1", "2"]
    assert inbox.waiting() == {ROUTE: 2, SessionKey("another"): 1}


def test_two_claimers_never_share_a_row(make_db: Callable[..., SessionDB]) -> None:
    stores = [make_db(), make_db()]
    for number in range(40):
        receive(stores[0], number)
    got: list[list[str]] = [[], []]

    def work(which: int) -> None:
        db = stores[which]
        _lease, turn = begin(db, conversation=ConversationId(f"c{which}"))
        while rows := transact(db.inbox.claim_in, route=ROUTE, turn_id=turn.id, limit=3):
            got[which] += [row.message_id for row in rows]

    threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got[0] + got[1], key=int) == [str(n) for n in range(40)]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_terminal_state_never_changes(db: SessionDB, clock: Clock, outcome: str) -> None:
    row = receive(db, 1).row
    inbox = db.inbox
    assert inbox.finish([row.id], outcome, reason="because") == 1
    ended = inbox.get(row.id)
    assert ended is not None and (ended.state, ended.reason, ended.ended_at) == (outcome, "because", clock())
    clock.advance(5)
    for other in OUTCOMES:
        assert inbox.finish([row.id], other, reason="again") == 0
    _lease, turn = begin(db)
    assert transact(inbox.claim_in, route=ROUTE, turn_id=turn.id, limit=10) == ()
    assert inbox.get(row.id) == ended


def test_a_turn_that_lost_its_lease_claims_nothing(db: SessionDB, clock: Clock) -> None:
    rows = [receive(db, number).row for number in range(2)]
    lease, turn = begin(db, claim=1)
    clock.advance(61)
    journal = Journal(db, lease, Work(turn, ()), turn.session_id)
    with pytest.raises(StaleFence):
        asyncio.run(journal.append_with([rows[1].id], lambda taken: {"role": "user", "content": "more"}))
    assert [row.state for row in db.inbox.list()] == ["queued", "claimed"]
    assert db.inbox.finish([rows[0].id], "dropped") == 0, "what a turn has is the turn's to end"


def test_of_a_refused_message_only_the_key_and_the_reason_stay(db: SessionDB) -> None:
    inbox = db.inbox
    assert inbox.refuse(platform="telegram", chat_id="666", message_id="1", reason="not on the list")
    assert not inbox.refuse(platform="telegram", chat_id="666", message_id="1", reason="not on the list")
    (row,) = inbox.list()
    assert (row.state, row.reason, row.payload, row.person_id, row.route) == (
        "refused",
        "not on the list",
        None,
        None,
        None,
    )
    again = inbox.accept(platform="telegram", chat_id="666", message_id="1", route=ROUTE, payload={"text": "hi"})
    assert not again.new and again.row == row, "allowed later, it is still not run"
    assert inbox.waiting() == {}


def test_refusals_are_limited_in_rate_and_number(make_db: Callable[..., SessionDB], clock: Clock) -> None:
    db = make_db(limits=Limits(refused_inbox_rows=10, refused_per_minute=4))
    inbox = db.inbox
    receive(db, "kept")
    noted = 0
    for number in range(60):
        noted += inbox.refuse(platform="x", chat_id="c", message_id=str(number), reason="no")
        assert inbox.counts().get("refused", 0) <= 10
        clock.advance(5)
    assert 16 <= noted <= 24, "about four a minute for five minutes"
    assert [row.message_id for row in inbox.list(state="queued")] == ["kept"]


def test_old_rows_go_and_open_ones_stay(db: SessionDB, clock: Clock) -> None:
    done, waiting = receive(db, 1).row, receive(db, 2).row
    db.inbox.finish([done.id], "answered")
    clock.advance(29 * 86_400)
    assert db.inbox.prune() == 0
    clock.advance(2 * 86_400)
    assert db.inbox.prune() == 1
    assert [row.id for row in db.inbox.list()] == [waiting.id]


def test_lists_can_be_paged(db: SessionDB) -> None:
    for number in range(5):
        receive(db, number)
    page = db.inbox.list(limit=3)
    assert [row.message_id for row in page] == ["4", "3", "2"]
    assert [row.message_id for row in db.inbox.list(before=page[-1].id)] == ["1", "0"]
    assert db.inbox.counts() == {"queued": 5}
