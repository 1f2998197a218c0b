"""Named values of the store, and who may do what is done every so many hours."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hermes_state.session_db import SessionDB
from hermes_state.storage import meta
from hermes_state.storage.base import Connection


def claim(conn: Connection) -> bool:
    return meta.claim_run(conn, "cleaned", now=1_000_000.0, hours=1)


def test_of_two_processes_at_the_same_moment_one_claims_the_run(make_db: Callable[..., SessionDB]) -> None:
    here, there = make_db(), make_db()
    claimed: list[bool] = []
    other = threading.Thread(target=lambda: claimed.append(there.engine.write(claim)))

    def run(conn: Connection) -> bool:
        mine = claim(conn)
        other.start()
        other.join(0.5)  # it has read by then that nobody claimed, and waits for this transaction to write
        return mine

    assert here.engine.write(run)
    other.join()
    assert claimed == [False]


def test_a_run_is_due_again_after_its_hours(db: SessionDB) -> None:
    for now, due in ((0.0, True), (3_599.0, False), (3_600.0, True), (100.0, True)):  # the last: a clock set back
        assert db.engine.write(lambda conn, now=now: meta.claim_run(conn, "cleaned", now=now, hours=1)) is due
    db.set_meta("cleaned", "no time")
    assert db.engine.write(claim)
