"""The rows of delegated work, on both engines: made once, ended once, returned once, erased with their parent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.errors import StaleFence
from hermes_state.ids import LOCAL_OWNER, ConversationId, SessionId
from hermes_state.maintenance import retention
from hermes_state.turns.children import Child, NewChild
from hermes_state.turns.inbox import LOCAL, local_route
from hermes_state.turns.leases import Lease
from hermes_state.turns.turns import Turn
from hermes_testing.clock import Clock

CHAT = ConversationId("chat")
ADDRESS = {
    "platform": LOCAL, "account": "", "chat_id": CHAT, "route": local_route(CHAT), "person_id": LOCAL_OWNER,
    "source": None,
}  # fmt: skip


def begun(db: SessionDB, conversation: str, claim: Any = ()) -> tuple[Turn, Lease]:
    lease = db.leases.acquire(ConversationId(conversation), holder="h", ttl=60)
    assert lease is not None
    work = db.engine.write(
        lambda conn: db.turns.begin_in(
            conn,
            conversation_id=ConversationId(conversation),
            session_id=SessionId(conversation),
            fence=lease.fence,
            lane=local_route(conversation),
            claim=claim,
        )
    )
    assert work is not None
    return work.turn, lease


def delegated(db: SessionDB, *goals: str, **more: Any) -> tuple[Turn, Lease, tuple[Child, ...]]:
    db.ledger.open(source="cli", owner=LOCAL_OWNER, session_id=CHAT)
    turn, lease = begun(db, CHAT)
    made = [NewChild(goal=goal, text=goal, spec={"address": ADDRESS, **more}) for goal in goals]
    about: Any = {
        "parent": SessionId(CHAT), "conversation_id": CHAT, "turn_id": turn.id, "call_id": "7:0", "source": "cli",
        "person_id": LOCAL_OWNER,
    }  # fmt: skip
    children = db.children.create(made, fence=lease.fence, **about)
    assert db.children.create(made, fence=lease.fence, **about) == children, "a repeated call finds the same"
    with pytest.raises(StaleFence):
        db.children.create(made, fence=lease.fence - 1, **about)
    return turn, lease, children


def end(db: SessionDB, child: Child, text: str) -> None:
    turn, lease = begun(db, child.id, (child.inbox_id,))
    row = {"role": "assistant", "content": text}
    db.engine.write(lambda conn: db.turns.commit_in(conn, turn.id, fence=lease.fence, final=[row], answered=True))


def rows(db: SessionDB) -> list[str]:
    return [str((row.payload or {})["text"]) for row in db.inbox.queued(local_route(CHAT))]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_of_many_that_end_at_the_same_time_one_returns_the_results_of_all(db: SessionDB) -> None:
    turn, lease, children = delegated(db, *"abcdefgh")
    db.engine.write(lambda conn: db.turns.give_up_in(conn, turn.id, "failed", fence=lease.fence, reason="lost"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda child: end(db, child, f"report {child.goal}"), children))
    (text,) = rows(db)
    assert [text.index(f"report {child.goal}") for child in children] == sorted(
        text.index(f"report {child.goal}") for child in children
    )
    assert {child.returned for child in db.children.of_turn(turn.id)} == {"row"} and db.children.open() == ()


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_the_results_wait_for_the_call_and_come_as_a_row_if_it_never_takes_them(db: SessionDB) -> None:
    turn, lease, children = delegated(db, "a", "b")
    for child in children:
        end(db, child, "report")
    assert rows(db) == [] and db.children.settle() == 0, "the call takes them"
    db.engine.write(lambda conn: db.turns.give_up_in(conn, turn.id, "failed", fence=lease.fence, reason="lost"))
    assert db.children.settle() == 1 and len(rows(db)) == 1 and db.children.settle() == 0


def test_work_that_the_person_stopped_returns_nothing_later(db: SessionDB) -> None:
    turn, lease, (child,) = delegated(db, "a")
    db.turns.cancel(turn.id, fence=lease.fence, reason="stopped")
    assert db.children.stop(child, reason="stopped")
    assert not db.children.stop(child, reason="stopped")
    (ended,) = db.children.of_turn(turn.id)
    assert (ended.state, ended.returned, rows(db)) == ("cancelled", "dropped", [])
    assert db.inbox.get(child.inbox_id).state == "dropped"  # type: ignore[union-attr]


def test_children_are_erased_with_their_parent_and_forgotten_after_a_time(db: SessionDB, clock: Clock) -> None:
    turn, _, (first, second) = delegated(db, "a", "b")
    end(db, first, "report")
    end(db, second, "report")
    db.engine.write(lambda conn: db.children.return_in(conn, turn.id, "7:0", later=False))
    clock.advance(db.limits.turns_days * 86_400 + 1)
    assert db.children.prune() == 2 and db.get_session(first.id) is not None
    db.engine.write(lambda conn: retention.erase(conn, [CHAT]))
    assert db.children.of_parent(CHAT) == ()


def test_deleting_the_parent_deletes_its_children(db: SessionDB) -> None:
    turn, lease, (child,) = delegated(db, "a")
    end(db, child, "report")
    db.turns.cancel(turn.id, fence=lease.fence, reason="x")
    db.leases.release_holder("h")
    db.ledger.delete(CHAT)
    assert db.get_session(child.id) is None and db.children.get(child.id) is None
