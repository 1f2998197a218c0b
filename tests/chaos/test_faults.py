"""Faults around the store: each is reported in one line, nothing acknowledged is lost, and the next write works."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.processes import Worker
from tests.support.store_faults import NEEDS_MOUNT, SmallDisk, may_mount

from hermes_config.limits import Limits
from hermes_state.errors import StateError, StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

WORKERS = Path(__file__).parent / "workers"
MIB = 1 << 20


def _texts(db: SessionDB) -> list[str]:
    return [row["content"] for row in db.get_messages("s")]


def _one_line(error: StateError) -> None:
    line = error.one_line()
    assert "\n" not in line
    assert "Traceback" not in line


# -- locked ----------------------------------------------------------------------------------------------------


def test_locked_by_another_process(make_db: Callable[..., SessionDB], address: str | Path) -> None:
    db = make_db(limits=Limits(write_wait_ms=300))
    db.create_session("s", "cli")
    db.append_message("s", "user", "before")
    with Worker(WORKERS / "lock_holder.py", address) as holder:
        assert holder.line() == "locked"
        assert _texts(db) == ["before"], "a reader must not wait for a writer"
        started = time.monotonic()
        with pytest.raises(StoreBusy) as refused:
            db.append_message("s", "user", "while locked")
        assert 0.25 < time.monotonic() - started < 5
        _one_line(refused.value)
        holder.go()
        assert holder.line() == "free"
    db.append_message("s", "user", "after")
    assert _texts(db) == ["before", "after"]


def test_a_lock_that_goes_away_in_time_is_only_a_delay(make_db: Callable[..., SessionDB], address: str | Path) -> None:
    db = make_db(limits=Limits(write_wait_ms=20_000))
    db.create_session("s", "cli")
    with Worker(WORKERS / "lock_holder.py", address) as holder:
        assert holder.line() == "locked"
        holder.go()
        db.append_message("s", "user", "waited")
    assert _texts(db) == ["waited"]


# -- no room ---------------------------------------------------------------------------------------------------


needs_mount = pytest.mark.skipif(not may_mount(), reason=NEEDS_MOUNT)


def _fill(db: SessionDB) -> tuple[list[str], StateError]:
    kept: list[str] = []
    for number in range(10_000):
        text = f"{number} " + "x" * 20_000
        try:
            db.append_message("s", "user", text)
        except StateError as error:
            return kept, error
        kept.append(text)
    raise AssertionError("the disk never became full")


@needs_mount
def test_disk_full() -> None:
    with SmallDisk("3m") as disk:
        ballast = disk.folder / "ballast"
        ballast.write_bytes(b"x" * MIB)
        db = SessionDB(disk.folder / "state.db")
        db.create_session("s", "cli")
        kept, error = _fill(db)
        assert isinstance(error, StoreFull)
        _one_line(error)
        assert _texts(db) == kept
        ballast.unlink()
        db.append_message("s", "user", "there is room again")
        db.close()
        again = SessionDB(disk.folder / "state.db")
        assert _texts(again) == [*kept, "there is room again"]
        assert again.engine.read(lambda conn: conn.rows("PRAGMA integrity_check")) == [("ok",)]
        again.close()


def test_files_may_not_grow(tmp_path: Path) -> None:
    """The same for everybody: a limit on the size of files, which the kernel reports in another way."""
    db = SessionDB(tmp_path / "state.db")
    db.create_session("s", "cli")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        kept, error = _fill(db)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(error, (StoreFull, StoreUnavailable))
    _one_line(error)
    db.append_message("s", "user", "there is room again")
    db.close()
    again = SessionDB(tmp_path / "state.db")
    assert _texts(again) == [*kept, "there is room again"]
    again.close()


# -- not writable ----------------------------------------------------------------------------------------------


@needs_mount
def test_the_disk_turns_read_only_and_back() -> None:
    with SmallDisk("16m") as small:
        disk = small.folder
        db = SessionDB(disk / "state.db")
        db.create_session("s", "cli")
        db.append_message("s", "user", "before")
        db.close()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        try:
            with closing(SessionDB(disk / "state.db")) as db:
                db.append_message("s", "user", "while read-only")
            raise AssertionError("a read-only disk took a row")
        except (StoreReadOnly, StoreUnavailable) as refused:  # not kept: its traceback would keep the file open
            _one_line(refused)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        db = SessionDB(disk / "state.db")
        db.append_message("s", "user", "after")
        assert _texts(db) == ["before", "after"]
        db.close()


def test_the_folder_cannot_be_written(tmp_path: Path) -> None:
    """A folder that is a file, and for those who are not root a folder without the right to write."""
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StateError) as refused:
        SessionDB(tmp_path / "file" / "state.db")
    _one_line(refused.value)
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o555)
        with pytest.raises(StateError) as refused:
            SessionDB(closed / "state.db")
        _one_line(refused.value)


# -- the index -------------------------------------------------------------------------------------------------


def _finds(db: SessionDB, word: str) -> list[str]:
    return [hit["session_id"] for hit in db.search_messages(word)]


@pytest.mark.parametrize("fate", ["deleted", "garbage", "a folder"])
def test_the_index_file_is_taken_away_while_open(tmp_path: Path, fate: str) -> None:
    """The index is derived: losing it costs time, never an answer or a write."""
    with closing(SessionDB(tmp_path / "state.db")) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "kumquat")
        assert _finds(db, "kumquat") == ["s"]
        (index,) = tmp_path.glob("*.search.db")
        for file in tmp_path.glob("*.search.db*"):
            file.unlink()
        if fate == "garbage":
            index.write_bytes(b"not a database" * 1_000)
        elif fate == "a folder":
            index.mkdir()
        db.append_message("s", "user", "persimmon")
        assert _finds(db, "persimmon") == ["s"]
        assert _finds(db, "kumquat") == ["s"]
    with closing(SessionDB(tmp_path / "state.db")) as again:
        assert _finds(again, "kumquat") == ["s"]
        assert _finds(again, "persimmon") == ["s"]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_the_index_schema_is_dropped_while_open(db: SessionDB, address: str) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "kumquat")
    assert _finds(db, "kumquat") == ["s"]
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute("DROP SCHEMA public_search CASCADE")
    db.append_message("s", "user", "persimmon")
    assert _finds(db, "persimmon") == ["s"]
    assert _finds(db, "kumquat") == ["s"]


# -- the clock -------------------------------------------------------------------------------------------------


def test_the_clock_moves_back(db: SessionDB, clock: Clock) -> None:
    db.ledger.open(source="cli", session_id="s", route="r")
    db.append_message("s", "user", "one")
    lease = db.leases.acquire("s", holder="before", ttl=60)
    assert lease is not None
    clock.advance(-86_400)
    db.append_message("s", "user", "two")
    child = db.ledger.rotate("s", [{"role": "user", "content": "summary"}]).session_id
    db.append_message(child, "user", "three")
    assert _texts(db) == ["one", "two"], "the order is the order of writing, not of the clock"
    assert db.engine.write(db.ledger.resolving("r")).handle.session_id == child
    assert [row["id"] for row in db.list_sessions_rich()] == [child]
    taken = db.leases.acquire("s", holder="after", ttl=60)
    assert taken is not None, "a lease from the future would freeze the conversation for a day"
    assert taken.fence > lease.fence


# -- the server ------------------------------------------------------------------------------------------------


def _drop_every_connection(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("engine", ["postgresql"])
def test_the_server_drops_every_connection(db: SessionDB, address: str) -> None:
    """Reads and transactions go on by themselves; a lone append may have to say that it cannot know."""
    db.ledger.open(source="cli", session_id="s", route="r")
    db.append_message("s", "user", "before")
    _drop_every_connection(address)
    assert _texts(db) == ["before"]
    _drop_every_connection(address)
    child = db.ledger.rotate("s", [{"role": "user", "content": "summary"}]).session_id
    _drop_every_connection(address)
    try:
        db.append_message(child, "user", "after")
    except StateError as error:
        _one_line(error)
        db.append_message(child, "user", "after")
    found = [row["content"] for row in db.get_messages(child)]
    assert found == ["summary", "after"]
