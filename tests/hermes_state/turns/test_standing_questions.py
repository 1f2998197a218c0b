"""What a gateway asks its store again and again costs the same, however much it has received and sent before.

Measured in steps of SQLite's machine, which depend on nothing but the rows and the plan: a question that walks a table
takes more of them with each row that was ever written, more time, and a page cache full of what nobody needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.stores import transact

from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_state.turns.outbox import NewOutboxItem

ROUTE = SessionKey("agent:main:telegram:dm:42")
QUESTIONS: dict[str, Callable[[SessionDB], Any]] = {
    "how many wait": lambda db: db.inbox.queued_count(),
    "since when": lambda db: db.inbox.oldest(),
    "where": lambda db: db.inbox.waiting(),
    "typed at a terminal": lambda db: db.inbox.without_platform(),
    "in no lane": lambda db: db.inbox.waiting_between(0.0, 1e12),
    "how many are owed": lambda db: db.outbox.owed_count(),
    "how many are dead": lambda db: db.outbox.dead_count(),
    "whose are under way": lambda db: db.outbox.senders(),
    "ours under way": lambda db: [item.id for item in db.outbox.of_sender("me")],
    "when the next is due": lambda db: db.outbox.next_due(platforms=["telegram"]),
    "claim it": lambda db: transact(db.outbox.claim_due_in, sender="nobody"),
    "breaks": lambda db: db.prefixes.break_count(),
}


@pytest.fixture
def steps() -> Iterator[list[int]]:
    """How many steps each statement took, of every connection that is opened meanwhile."""
    taken: list[int] = []

    def note(event: dict[str, Any]) -> None:
        taken.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)

    apsw.connection_hooks.append(watch)
    yield taken
    apsw.connection_hooks.remove(watch)


def settle(db: SessionDB, numbers: range) -> None:
    """Messages that were answered, and their answers sent; the store as it was, but for its past."""
    for number in numbers:
        db.inbox.accept(platform="telegram", chat_id="42", message_id=str(number), route=ROUTE, payload={})
        db.inbox.finish([row.id for row in db.inbox.queued(ROUTE)], "silent", reason="no matter")
        db.outbox.enqueue(
            NewOutboxItem(dedup_key=str(number), platform="telegram", chat_id="42", payload={}, trace_id="t")
        )
        (item,) = transact(db.outbox.claim_due_in, sender="me")
        transact(db.outbox.sent_in, item, platform_ids=[str(number)])


def test_the_past_costs_nothing(tmp_path: Path, steps: list[int]) -> None:
    def cost(ask: Callable[[SessionDB], Any]) -> tuple[Any, int]:
        steps.clear()
        return ask(db), sum(steps)

    with contextlib.closing(SessionDB(tmp_path / "state.db")) as db:
        db.outbox.enqueue(NewOutboxItem(dedup_key="ours", platform="telegram", chat_id="7", payload={}, trace_id="t"))
        transact(db.outbox.claim_due_in, sender="me")
        db.inbox.accept(platform="telegram", chat_id="7", message_id="a", route=SessionKey("other"), payload={})
        settle(db, range(5))
        young = {name: cost(ask) for name, ask in QUESTIONS.items()}
        settle(db, range(5, 60))
        old = {name: cost(ask) for name, ask in QUESTIONS.items()}
        assert cost(lambda db: db.inbox.counts())[1] > 60, "a question that walks the table is seen"
    assert young == old
    assert (young["how many wait"][0], young["how many are owed"][0], len(young["ours under way"][0])) == (1, 1, 1)
