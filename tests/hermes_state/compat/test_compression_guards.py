"""Compression locks and guards."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock


def test_one_of_two_threads_wins(db: SessionDB) -> None:
    start = threading.Barrier(8)
    won: list[str] = []

    def take(holder: str) -> None:
        start.wait()
        if db.try_acquire_compression_lock("s", holder):
            won.append(holder)

    threads = [threading.Thread(target=take, args=(f"holder-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert db.get_compression_lock_holder("s") == won[0]


def _take(address: str | Path, holder: str, go: object, said: object) -> None:
    db = SessionDB(address)
    go.wait()  # type: ignore[attr-defined]
    said.put(db.try_acquire_compression_lock("s", holder))  # type: ignore[attr-defined]
    db.close()


def test_one_of_two_processes_wins(address: str | Path) -> None:
    SessionDB(address).close()
    spawn = multiprocessing.get_context("spawn")
    go, said = spawn.Barrier(2), spawn.Queue()
    children = [spawn.Process(target=_take, args=(address, f"p{n}", go, said)) for n in range(2)]
    for child in children:
        child.start()
    outcomes = sorted(said.get(timeout=60) for _ in children)
    for child in children:
        child.join()
    assert outcomes == [False, True]


def test_it_runs_out_and_can_then_be_taken(db: SessionDB, clock: Clock) -> None:
    assert db.try_acquire_compression_lock("s", "a", ttl_seconds=300)
    clock.advance(299)
    assert not db.try_acquire_compression_lock("s", "b")
    clock.advance(1)
    assert db.get_compression_lock_holder("s") is None
    assert not db.refresh_compression_lock("s", "a")  # lost, though nobody took it
    assert db.try_acquire_compression_lock("s", "b")
    assert db.get_compression_lock_holder("s") == "b"


def test_the_holder_may_ask_again_and_refresh_others_may_not_release(db: SessionDB, clock: Clock) -> None:
    assert db.try_acquire_compression_lock("s", "a", 100)
    assert db.try_acquire_compression_lock("s", "a", 100)
    clock.advance(60)
    assert db.refresh_compression_lock("s", "a", 100)
    clock.advance(60)
    assert db.get_compression_lock_holder("s") == "a"
    db.release_compression_lock("s", "b")
    assert not db.refresh_compression_lock("s", "b")
    assert db.get_compression_lock_holder("s") == "a"
    db.release_compression_lock("s", "a")
    assert db.get_compression_lock_holder("s") is None
    assert db.try_acquire_compression_lock("s", "b")


def test_a_clock_set_back_does_not_freeze_a_lock(db: SessionDB, clock: Clock) -> None:
    assert db.try_acquire_compression_lock("s", "a", 300)
    clock.advance(-86_400)
    assert db.get_compression_lock_holder("s") is None
    assert db.try_acquire_compression_lock("s", "b", 300)


def test_other_sessions_are_not_affected_and_bad_ids_have_no_lock(db: SessionDB) -> None:
    assert db.try_acquire_compression_lock("s", "a")
    assert db.try_acquire_compression_lock("t", "b")
    for bad in ("", "x" * 10_000, "a\0b", "\ud800", None):
        assert not db.try_acquire_compression_lock(bad, "a")  # type: ignore[arg-type]
        assert db.get_compression_lock_holder(bad) is None  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        db.try_acquire_compression_lock("u", "a", ttl_seconds=float("nan"))


def test_without_a_database_nobody_compresses(db: SessionDB) -> None:
    db.close()
    assert db.try_acquire_compression_lock("s", "a") is False


def test_a_cooldown_lasts_until_its_time(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "cli")
    assert db.get_compression_failure_cooldown("s") is None
    db.record_compression_failure_cooldown("s", clock() + 60, "the model\0 said no")
    clock.advance(20)
    assert db.get_compression_failure_cooldown("s") == {
        "cooldown_until": clock() + 40,
        "remaining_seconds": 40,
        "error": "the model said no",
    }
    clock.advance(40)
    assert db.get_compression_failure_cooldown("s") is None
    db.record_compression_failure_cooldown("s", clock() + 60)
    db.clear_compression_failure_cooldown("s")
    assert db.get_compression_failure_cooldown("s") is None


def test_the_fallback_streak_is_kept(db: SessionDB) -> None:
    db.create_session("s", "cli")
    assert db.get_compression_fallback_streak("s") == 0
    db.set_compression_fallback_streak("s", 2)
    assert db.get_compression_fallback_streak("s") == 2
    db.set_compression_fallback_streak("s", -5)
    assert db.get_compression_fallback_streak("s") == 0
    db.set_compression_fallback_streak("nobody", 3)
    assert db.get_compression_fallback_streak("nobody") == 0
