"""One writer of a conversation at a time, and a late one writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.support.stores import TestStores, transact

from hermes_state.errors import InvalidValue, StaleFence
from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_testing.clock import Clock

CHAT = ConversationId("c1")


def write_under(db: SessionDB, fence: int, key: str = "note") -> None:
    """A write of somebody who holds `fence`."""

    def run(conn: Connection) -> None:
        conn.run("INSERT INTO state_meta (key, value) VALUES (?, 'x')", (key,))
        db.leases.check(conn, CHAT, fence)

    db._execute_write(run)


def written(db: SessionDB, key: str = "note") -> bool:
    return bool(db.engine.read(lambda conn: conn.rows("SELECT 1 FROM state_meta WHERE key = ?", (key,))))


def test_only_one_holds_a_conversation(db: SessionDB) -> None:
    leases = db.leases
    lease = leases.acquire(CHAT, holder="a", ttl=30)
    assert lease is not None
    assert leases.acquire(CHAT, holder="b", ttl=30) is None
    assert leases.acquire(CHAT, holder="a", ttl=30) is None, "one turn at a time, of the same process too"
    assert leases.acquire(ConversationId("c2"), holder="b", ttl=30) is not None
    held = leases.get(CHAT)
    assert held is not None and (held.holder, held.fence) == ("a", lease.fence)


def test_the_fence_only_grows(db: SessionDB, clock: Clock) -> None:
    leases = db.leases
    fences = []
    for round_ in range(6):
        lease = leases.acquire(CHAT, holder=f"h{round_}", ttl=10)
        assert lease is not None
        fences.append(lease.fence)
        if round_ % 2:
            clock.advance(11)
        else:
            assert leases.release(lease)
            assert leases.get(CHAT) is None
    assert fences == sorted(set(fences))


def test_a_lease_that_ran_out_writes_nothing_and_cannot_be_renewed(db: SessionDB, clock: Clock) -> None:
    leases = db.leases
    lease = leases.acquire(CHAT, holder="a", ttl=10)
    assert lease is not None
    write_under(db, lease.fence, "in time")
    clock.advance(10)
    with pytest.raises(StaleFence) as refused:
        write_under(db, lease.fence, "late")
    assert "nothing was written" in refused.value.one_line()
    assert written(db, "in time") and not written(db, "late")
    assert transact(leases.renew_in, lease, ttl=10) is None


def test_a_holder_that_was_overtaken_writes_nothing(db: SessionDB, clock: Clock) -> None:
    leases = db.leases
    old = leases.acquire(CHAT, holder="a", ttl=10)
    clock.advance(11)
    new = leases.acquire(CHAT, holder="b", ttl=10)
    assert old is not None and new is not None and new.fence > old.fence
    with pytest.raises(StaleFence):
        write_under(db, old.fence)
    assert not written(db)
    assert not leases.release(old), "an old holder cannot free somebody else's lease"
    write_under(db, new.fence)


def test_renewing_keeps_the_fence(db: SessionDB, clock: Clock) -> None:
    leases = db.leases
    lease = leases.acquire(CHAT, holder="a", ttl=10)
    assert lease is not None
    for _ in range(5):
        clock.advance(8)
        renewed = transact(leases.renew_in, lease, ttl=10)
        assert renewed is not None and renewed.fence == lease.fence
    write_under(db, lease.fence)


def test_a_clock_set_back_does_not_freeze_the_conversation(db: SessionDB, clock: Clock) -> None:
    leases = db.leases
    lease = leases.acquire(CHAT, holder="a", ttl=30)
    assert lease is not None
    clock.advance(-3_600)
    renewed = transact(leases.renew_in, lease, ttl=30)
    assert renewed is not None and renewed.expires_at == clock() + 30, "its holder is alive and goes on"
    clock.advance(-3_600)
    taken = leases.acquire(CHAT, holder="b", ttl=30)
    assert taken is not None and taken.fence > lease.fence, "a dead one's lease is free at once"


def test_leases_survive_a_restart(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    lease = db.leases.acquire(CHAT, holder="a", ttl=30)
    db = reopen(db)
    assert lease is not None and db.leases.get(CHAT) == lease


def test_the_leases_of_a_dead_holder_are_freed_at_once(db: SessionDB) -> None:
    leases = db.leases
    for name in ("c1", "c2"):
        leases.acquire(ConversationId(name), holder="dead", ttl=60)
    leases.acquire(ConversationId("c3"), holder="alive", ttl=60)
    assert leases.release_holder("dead") == 2
    assert leases.acquire(CHAT, holder="alive", ttl=60) is not None
    assert leases.acquire(ConversationId("c3"), holder="b", ttl=60) is None


@pytest.mark.parametrize("ttl", [0, -1, 1e9])
def test_an_impossible_time_is_refused(db: SessionDB, ttl: float) -> None:
    with pytest.raises(InvalidValue):
        db.leases.acquire(CHAT, holder="a", ttl=ttl)


def test_without_a_clock_of_its_own_postgresql_counts_by_the_server(stores: TestStores) -> None:
    """A machine whose clock is wrong neither steals nor keeps a lease."""
    address = stores.postgresql()
    db = SessionDB(address)
    lease = db.leases.acquire(CHAT, holder="a", ttl=0.2)
    assert lease is not None
    server = db.engine.read(lambda conn: conn.rows("SELECT extract(epoch FROM clock_timestamp())::float8"))[0][0]
    assert 0 <= server - lease.acquired_at < 5
    time.sleep(0.25)
    assert db.leases.get(CHAT) is None
    db.close()


def test_a_takeover_waits_for_a_checked_write(stores: TestStores, clock: Clock) -> None:
    """PostgreSQL: between the check and the commit nobody else gets the lease."""
    address = stores.postgresql()
    db = SessionDB(address, clock=clock)
    lease = db.leases.acquire(CHAT, holder="a", ttl=10)
    assert lease is not None
    other = SessionDB(address, clock=lambda: clock() + 60)
    taken = threading.Event()

    def take() -> None:
        other.leases.acquire(CHAT, holder="b", ttl=10)
        taken.set()

    thread = threading.Thread(target=take)

    def run(conn: Connection) -> bool:
        db.leases.check(conn, CHAT, lease.fence)
        thread.start()
        return taken.wait(0.5)

    assert db._execute_write(run) is False
    assert taken.wait(5)
    thread.join()
    db.close()
    other.close()
