"""The prompt prefix stays byte-identical between announced events, and a break is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_config.limits import Limits
from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId
from hermes_state.maintenance import retention
from hermes_state.session_db import SessionDB
from hermes_state.turns.prefixes import prefix_hash
from hermes_testing.clock import Clock

A, B = ConversationId("a"), ConversationId("b")
BYTES = bytes(range(256)) + "You are Hermes. 部署".encode()


def blobs(db: SessionDB) -> int:
    return int(db.engine.read(lambda conn: conn.rows("SELECT COUNT(*) FROM prefix_blobs"))[0][0])


def test_the_same_bytes_come_back_after_a_restart(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    epoch = db.prefixes.begin(A, BYTES, reason="first use")
    assert (epoch.epoch, epoch.hash) == (1, prefix_hash(BYTES))
    db = reopen(db)
    current = db.prefixes.current(A)
    assert current is not None and current.bytes == BYTES and current.epoch == epoch
    assert db.prefixes.bytes_of(epoch.hash) == BYTES
    assert db.prefixes.current(B) is None and db.prefixes.bytes_of("nope") is None


def test_an_epoch_begins_only_with_other_bytes(db: SessionDB, clock: Clock) -> None:
    prefixes = db.prefixes
    first = prefixes.begin(A, b"one", reason="first use")
    clock.advance(10)
    assert prefixes.begin(A, b"one", reason="restart") == first
    second = prefixes.begin(A, b"two", reason="memory changed")
    third = prefixes.begin(A, b"one", reason="compression")
    assert [(e.epoch, e.reason) for e in prefixes.epochs(A)] == [
        (1, "first use"),
        (2, "memory changed"),
        (3, "compression"),
    ]
    assert second.started_at == clock() and third.hash == first.hash


def test_bytes_are_stored_once_for_all(db: SessionDB) -> None:
    for conversation in (A, B):
        db.prefixes.begin(conversation, BYTES, reason="first use")
    assert blobs(db) == 1
    db._execute_write(lambda conn: retention.erase(conn, [A]))
    current = db.prefixes.current(B)
    assert current is not None and current.bytes == BYTES
    db._execute_write(lambda conn: retention.erase(conn, [B]))
    assert blobs(db) == 0, "a prefix holds a person's memory: it goes with the last conversation that used it"


def test_a_late_turn_begins_no_epoch(db: SessionDB, clock: Clock) -> None:
    lease = db.leases.acquire(A, holder="a", ttl=10)
    assert lease is not None
    db.prefixes.begin(A, b"one", reason="first use", fence=lease.fence)
    clock.advance(11)
    with pytest.raises(StaleFence):
        db.prefixes.begin(A, b"two", reason="late", fence=lease.fence)
    assert len(db.prefixes.epochs(A)) == 1


def breaks(db: SessionDB) -> list[tuple[Any, ...]]:
    return db.engine.read(lambda conn: conn.rows("SELECT epoch, expected, seen, reason FROM prefix_breaks ORDER BY id"))


def test_breaks_are_counted_per_conversation_and_in_all(db: SessionDB) -> None:
    prefixes = db.prefixes
    assert prefixes.break_count() == 0
    for conversation in (A, A, B):
        transact(prefixes.broke_in, conversation, epoch=1, expected="e", seen="s", reason="tool order")
    assert (prefixes.break_count(A), prefixes.break_count(B), prefixes.break_count()) == (2, 1, 3)
    assert breaks(db) == [(1, "e", "s", "tool order")] * 3
    db._execute_write(lambda conn: retention.erase(conn, [A]))
    assert (prefixes.break_count(A), prefixes.break_count()) == (0, 3), "a metric never falls"


def test_epochs_and_breaks_are_bounded(make_db: Callable[..., SessionDB]) -> None:
    db = make_db(limits=Limits(prefix_epochs=3, prefix_breaks=2))
    prefixes = db.prefixes
    for number in range(6):
        prefixes.begin(A, str(number).encode(), reason=str(number))
        transact(prefixes.broke_in, A, epoch=number, expected="e", seen="s", reason="x")
    assert [epoch.epoch for epoch in prefixes.epochs(A)] == [4, 5, 6]
    assert len(breaks(db)) == 2 and prefixes.break_count(A) == 6
    assert prefixes.prune() == 3 and blobs(db) == 3
