"""The engines: one writer, group commit, what is refused at the door."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.support.stores import TestStores

from hermes_config.limits import Limits
from hermes_state import AsyncSessionDB, IntegrityError, SessionDB, errors
from hermes_state.conversations import transcript
from hermes_state.ids import ConversationId
from hermes_state.storage import postgres, schema, sqlite_log
from hermes_state.storage import writer as writers
from hermes_state.storage.base import Connection
from hermes_state.storage.sqlite import SqliteEngine
from hermes_state.storage.writer import NeedsOwnTransaction, QueuedWrite
from hermes_state.transfer import sqlite_copy

pytestmark = pytest.mark.slow

TAKES_TWO = "INSERT INTO state_meta (key, value) VALUES (?, ?)"


def keys(db: SessionDB) -> list[str]:
    return [row[0] for row in db.engine.read(lambda conn: conn.rows("SELECT key FROM state_meta ORDER BY key"))]


def test_the_last_id_is_that_of_the_row_inserted_last(db: SessionDB) -> None:
    db.create_session("chat", "cli")
    first = db.append_message("chat", "user", "one")

    def insert(conn: Connection) -> tuple[int, int]:
        conn.run("INSERT INTO messages (session_id, role, timestamp) VALUES ('chat', 'user', 1.0)")
        return conn.last_id(), conn.rows("SELECT max(id) FROM messages")[0][0]

    last, newest = db._execute_write(insert)
    assert last == newest == first + 1


def test_a_statement_stays_prepared_while_a_group_of_turns_executes_hundreds_of_others(tmp_path: Path) -> None:
    def prepared(raw: apsw.Connection) -> int:
        return int(raw.cache_stats()["misses"])

    with closing(SessionDB(tmp_path / "state.db")) as db:
        assert isinstance(db.engine, SqliteEngine)

        def write(*keys: str) -> int:
            db._execute_write(lambda conn: [conn.run(TAKES_TWO, (key, "1")) for key in keys])
            return db.engine.with_writer(prepared)

        write("a")
        db._execute_write(lambda conn: [conn.rows("SELECT ?", (number,)) for number in range(400)])
        before = db.engine.with_writer(prepared)
        assert write("b", "c") == before


def test_a_failed_write_leaves_nothing_and_the_next_one_works(db: SessionDB) -> None:
    def half(conn: Any) -> None:
        conn.execute(TAKES_TWO, ("a", "1"))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        db._execute_write(half)
    assert keys(db) == []
    assert db._execute_write(lambda conn: conn.execute(TAKES_TWO, ("b", "2")).rowcount) == 1
    with pytest.raises(IntegrityError):
        db._execute_write(lambda conn: conn.execute(TAKES_TWO, ("b", "again")))
    assert keys(db) == ["b"]


def test_parameters_are_question_marks_on_both_engines(db: SessionDB) -> None:
    db._execute_write(lambda conn: conn.execute("INSERT INTO state_meta VALUES ('a?b', ?)", ("100%",)))
    result = db.engine.read(
        lambda conn: conn.execute("SELECT key, value FROM state_meta WHERE value LIKE '%' AND key = ?", ("a?b",))
    )
    assert result.dicts() == [{"key": "a?b", "value": "100%"}]
    assert result.fetchone() == ("a?b", "100%")
    assert result.fetchone() is None


def test_a_write_inside_a_write_is_named_not_a_deadlock(db: SessionDB) -> None:
    with pytest.raises(RuntimeError, match="a write inside a write"):
        db._execute_write(lambda conn: db._execute_write(lambda inner: None))
    db.set_meta("still", "works")
    assert keys(db) == ["still"]


def test_jobs_of_one_group_fail_alone(db: SessionDB) -> None:
    """Threads that queue up behind a slow writer share its next commit; one of them breaks."""
    entered, go = threading.Event(), threading.Event()
    outcomes: dict[str, Any] = {}

    def slow(conn: Any) -> None:
        entered.set()
        go.wait(10)
        conn.execute(TAKES_TWO, ("slow", ""))

    def write(name: str) -> None:
        def job(conn: Any) -> str:
            conn.execute(TAKES_TWO, (name, ""))
            if name == "broken":
                conn.execute(TAKES_TWO, (name, "twice"))
            return name

        try:
            outcomes[name] = db._execute_write(job)
        except IntegrityError as error:
            outcomes[name] = error

    threads = [threading.Thread(target=db._execute_write, args=(slow,))]
    threads[0].start()
    entered.wait(10)
    names = ["a", "b", "broken", "c", "d"]
    threads += [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads[1:]:
        thread.start()
    while len(db.engine.writer.queue) < len(names):  # type: ignore[attr-defined]
        pass
    go.set()
    for thread in threads:
        thread.join(30)
    assert isinstance(outcomes.pop("broken"), IntegrityError)
    assert outcomes == {"a": "a", "b": "b", "c": "c", "d": "d"}
    assert keys(db) == ["a", "b", "c", "d", "slow"]


def appended(db: SessionDB, session_id: str, text: str) -> asyncio.Future[int]:
    """A user's message, queued from an event loop as a turn's messages are."""
    row = transcript.encode({"role": "user", "content": text}, db.clock(), db.limits.message_bytes)
    return writers.queued(db.engine, transcript.append, session_id, row, no_savepoint=True)


def test_many_appends_of_an_event_loop_share_commits_and_none_is_lost(db: SessionDB) -> None:
    db.create_session("s", "cli")

    async def run() -> list[Any]:
        some = [appended(db, "s", f"m{i}") for i in range(200)]
        return await asyncio.gather(*some, appended(db, "nobody", "x"), return_exceptions=True)

    *ids, refused = asyncio.run(run())
    assert isinstance(refused, IntegrityError)
    assert len(set(ids)) == 200
    assert {m["content"] for m in db.get_messages("s")} == {f"m{i}" for i in range(200)}
    assert db.get_session("s")["message_count"] == 200


@pytest.mark.parametrize("failure", [ValueError, errors.NotQueued])
def test_a_job_that_breaks_its_word_is_undone_and_run_alone(db: SessionDB, failure: type[Exception]) -> None:
    """`no_savepoint` jobs have no savepoint: one that fails half-way must not leave its half in the group."""

    def liar(conn: Any) -> None:
        conn.execute(TAKES_TWO, ("half", ""))
        raise failure("after the first write")

    jobs = [QueuedWrite(liar, no_savepoint=True), QueuedWrite(lambda conn: conn.execute(TAKES_TWO, ("good", "")))]
    with pytest.raises(NeedsOwnTransaction):
        db.engine.group(jobs)  # type: ignore[attr-defined]
    assert keys(db) == []
    writer = db.engine.writer  # type: ignore[attr-defined]
    writer.queue.extend(jobs)
    db.set_meta("last", "")  # whoever comes next commits what is queued
    assert isinstance(jobs[0].error, failure)
    assert keys(db) == ["good", "last"]


def test_a_refusal_before_the_first_write_costs_the_others_nothing(db: SessionDB) -> None:
    def refused(conn: Any) -> None:
        conn.rows("SELECT count(*) FROM state_meta")
        conn.run("UPDATE state_meta SET value = '' WHERE key = 'nobody'")
        raise errors.NotQueued("nothing was written")

    jobs = [QueuedWrite(refused, no_savepoint=True), QueuedWrite(lambda conn: conn.execute(TAKES_TWO, ("good", "")))]
    db.engine.group(jobs)  # type: ignore[attr-defined]
    assert isinstance(jobs[0].error, errors.NotQueued)
    assert (jobs[1].error, keys(db)) == (None, ["good"])


@pytest.mark.parametrize("no_savepoint", [True, False])
def test_who_hides_a_failed_statement_lets_nobody_hear_of_a_success_that_was_none(
    db: SessionDB, no_savepoint: bool
) -> None:
    """On PostgreSQL the transaction is lost with it, and its COMMIT is no error."""

    def hides(conn: Any) -> None:
        with contextlib.suppress(Exception):
            conn.execute("INSERT INTO state_meta (key, value) VALUES ('good', '')")

    jobs = [
        QueuedWrite(lambda conn: conn.execute(TAKES_TWO, ("good", ""))),
        QueuedWrite(hides, no_savepoint=no_savepoint),
    ]
    writer = db.engine.writer  # type: ignore[attr-defined]
    writer.queue.extend(jobs)
    with contextlib.suppress(errors.StateError):
        db.set_meta("last", "")
    told = [] if jobs[0].error else ["good"]
    assert [key for key in keys(db) if key == "good"] == told


def test_an_interrupt_between_two_that_run_alone_leaves_none_without_an_outcome(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(conn: Any) -> None:
        conn.execute(TAKES_TWO, ("half", ""))
        raise ValueError

    writer = db.engine.writer  # type: ignore[attr-defined]
    alone, seen = writer._alone, list[QueuedWrite]()

    def interrupted(job: QueuedWrite) -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(job)
        alone(job)

    monkeypatch.setattr(writer, "_alone", interrupted)
    jobs = [
        QueuedWrite(lambda conn: conn.execute(TAKES_TWO, ("first", ""))), QueuedWrite(half, no_savepoint=True),
        QueuedWrite(lambda conn: conn.execute(TAKES_TWO, ("third", ""))),
    ]  # fmt: skip
    writer.queue.extend(jobs)
    with writer.lock:
        writer._commit_waiting()
    assert [job.done for job in jobs] == [True] * 3
    assert [type(job.error) for job in jobs] == [type(None), ValueError, KeyboardInterrupt]
    assert keys(db) == ["first"]


def test_cancelling_a_waiting_append_does_not_unstore_it(db: SessionDB) -> None:
    db.create_session("s", "cli")

    async def run() -> None:
        waiting = appended(db, "s", "kept")
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await appended(db, "s", "after")

    asyncio.run(run())
    assert [m["content"] for m in db.get_messages("s")] == ["kept", "after"]


def test_a_loop_that_closes_as_it_is_told_does_not_end_the_writer(db: SessionDB) -> None:
    class ClosesLate(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *args: Any, **more: Any) -> asyncio.Handle:
            self.close()
            return super().call_soon_threadsafe(*args, **more)

    go = threading.Event()

    async def leave_behind() -> None:
        writers.queued(db.engine, lambda conn: go.wait(10) and conn.run(TAKES_TWO, ("a", "1")))
        await asyncio.sleep(0)  # it is handed over at the end of a round

    async def write() -> None:
        async with asyncio.timeout(10):
            await writers.queued(db.engine, lambda conn: conn.run(TAKES_TWO, ("b", "2")))

    ClosesLate().run_until_complete(leave_behind())
    go.set()
    asyncio.run(write())
    assert keys(db) == ["a", "b"]


def test_a_statement_that_meets_others_each_time_ends_with_our_error(stores: TestStores) -> None:
    conflict = "DO $$ BEGIN RAISE serialization_failure; END $$"
    with closing(SessionDB(stores.postgresql())) as db, pytest.raises(errors.StoreBusy):
        db.engine.write(lambda conn: conn.run(conflict), single=True)


@pytest.mark.parametrize("no_savepoint", [False, True])
def test_a_row_that_others_hold_costs_one_job_of_a_group(stores: TestStores, no_savepoint: bool) -> None:
    address = stores.postgresql()
    with closing(SessionDB(address, limits=Limits(write_wait_ms=1_200))) as db, psycopg.connect(address) as other:
        db.engine.write(lambda conn: conn.run(TAKES_TWO, ("held", "1")))
        other.execute("UPDATE state_meta SET value = '2' WHERE key = 'held'")
        change = "UPDATE state_meta SET value = '3' WHERE key = ?"
        jobs = [
            QueuedWrite(lambda conn: conn.run(TAKES_TWO, ("first", "x"))),
            QueuedWrite(lambda conn: conn.run(change, ("held",)), no_savepoint=no_savepoint),
            QueuedWrite(lambda conn: conn.run(TAKES_TWO, ("last", "x"))),
        ]

        async def write() -> None:
            futures = [writers.queued(db.engine, job.fn, no_savepoint=job.no_savepoint) for job in jobs]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in outcomes] == [int, errors.StoreBusy, int]

        asyncio.run(write())
        assert keys(db) == ["first", "held", "last"]


def test_a_job_of_a_group_waits_less_for_a_row_than_a_job_alone(stores: TestStores) -> None:
    """All other jobs of the group wait with it, and so do the leases that this process has to renew."""
    with closing(SessionDB(stores.postgresql(), limits=Limits(write_wait_ms=1_200))) as db:

        def patience(conn: Any) -> Any:
            return conn.rows("SELECT current_setting('lock_timeout')")[0][0]

        async def together() -> list[Any]:
            return await asyncio.gather(*(writers.queued(db.engine, patience) for _ in range(3)))

        assert asyncio.run(together()) == ["200ms"] * 3
        assert db.engine.write(patience) == "1200ms"


def test_a_server_that_restarts_is_waited_for(stores: TestStores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections break, and for a moment it refuses new ones."""
    address = stores.postgresql()
    connect, refused = psycopg.connect, list[int]()

    def restarting(*args: Any, **more: Any) -> Any:
        if len(refused) % 3 < 2:
            refused.append(1)
            raise psycopg.OperationalError("the database system is starting up")
        refused.append(0)
        return connect(*args, **more)

    with closing(SessionDB(address)) as db:
        db.create_session("s", "cli")
        single = lambda: db.leases.acquire(ConversationId("s"), holder="me", ttl=60)  # noqa: E731
        for use in (lambda: db.get_session("s"), lambda: db.end_session("s", "cli_close"), single):
            with connect(address, autocommit=True) as other:
                others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                while other.execute(f"SELECT pg_terminate_backend(pid) {others}").fetchall():
                    time.sleep(0.01)
            with monkeypatch.context() as patch:
                patch.setattr(psycopg, "connect", restarting)
                use()
        assert refused == [1, 1, 0] * 3
        assert db.leases.get(ConversationId("s")) is not None
        assert db.get_session("s")["end_reason"] == "cli_close"


def test_a_process_that_is_stuck_in_a_transaction_loses_its_rows(
    stores: TestStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_IDLE", "200ms")
    address, limits = stores.postgresql(), Limits(write_wait_ms=8_000)
    held, go = threading.Event(), threading.Event()

    def hold(conn: Any) -> None:
        conn.run("UPDATE state_meta SET value = '1' WHERE key = 'row'")
        held.set()
        go.wait(20)

    with closing(SessionDB(address)) as stuck, closing(SessionDB(address, limits=limits)) as other:
        stuck.set_meta("row", "0")
        with ThreadPoolExecutor(1) as thread:
            write = thread.submit(stuck.engine.write, hold)
            assert held.wait(10)
            other.set_meta("row", "2")
            go.set()
            with pytest.raises(errors.OutcomeUnknown):
                write.result(10)
        assert stuck.get_meta("row") == "2"


def test_a_closed_engine_is_let_go_of(stores: TestStores) -> None:
    db = SessionDB(stores.postgresql())
    engine = weakref.ref(db.engine)
    db.close()
    del db
    gc.collect()
    assert engine() is None


def test_async_forwards_everything_else(db: SessionDB) -> None:
    async def run() -> tuple[Any, Any]:
        adb = AsyncSessionDB(db)
        await adb.create_session("s", "cli")
        return await adb.get_session("s"), adb.limits

    row, limits = asyncio.run(run())
    assert row["id"] == "s"
    assert limits is db.limits


def test_a_closed_store_says_so(db: SessionDB) -> None:
    db.close()
    with pytest.raises(errors.StoreUnavailable, match="closed"):
        db.get_session("s")
    with pytest.raises(errors.StoreUnavailable, match="closed"):
        db.create_session("s", "cli")


def test_a_reader_cannot_write(db: SessionDB, make_db: Any) -> None:
    db.create_session("s", "cli")
    reader = make_db(read_only=True)
    assert reader.get_session("s")["source"] == "cli"
    with pytest.raises(errors.StoreReadOnly):
        reader.create_session("t", "cli")


def test_a_child_process_by_fork_has_its_own_connections(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "parent")
    child = os.fork()
    if child == 0:
        try:
            db.append_message("s", "user", "child")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    db.append_message("s", "user", "parent again")
    assert [m["content"] for m in db.get_messages("s")] == ["parent", "child", "parent again"]


class TestTheFile:
    """What only SQLite has: a file, a log, a folder."""

    def test_home_and_files_are_private(self, home: Path) -> None:
        db = SessionDB()
        db.create_session("s", "cli")
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in [home, *home.iterdir()]}
        db.close()
        assert modes["home"] == "0o700"
        assert {mode for name, mode in modes.items() if name != "home"} == {"0o600"}

    def test_two_stores_on_one_file_share_one_writer(self, home: Path) -> None:
        one, two = SessionDB(), SessionDB(home / ".." / "home" / "state.db")
        assert one.engine is two.engine
        one.create_session("s", "cli")
        one.close()
        assert two.get_session("s") is not None
        two.close()

    def test_opening_a_current_file_writes_nothing(self, home: Path) -> None:
        SessionDB().close()
        file = home / "state.db"
        before = (file.read_bytes(), file.stat().st_mtime_ns)
        db = SessionDB()
        db.get_session("s")
        db.close()
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before

    def test_the_log_stays_bounded(self, home: Path) -> None:
        db = SessionDB(limits=Limits(checkpoint_pages=64))
        db.create_session("s", "cli")
        largest = 0
        for i in range(300):
            db.append_message("s", "user", f"{i} " + "x" * 5000)
            largest = max(largest, (home / "state.db-wal").stat().st_size)
        db.close()
        assert largest < 2 * 2**20

    def test_a_long_read_is_not_waited_for_by_every_commit(self, home: Path) -> None:
        wait = 1_000  # ms; were it paid by each commit, the read would give up long before the last of them
        db = SessionDB(limits=Limits(wal_bytes=2**20, checkpoint_pages=64, checkpoint_wait_ms=wait))
        db.create_session("s", "cli")
        db.append_message("s", "user", "x" * 2**20)
        reading, written = threading.Event(), threading.Event()

        def long(conn: Any) -> bool:
            conn.rows("SELECT count(*) FROM messages")
            reading.set()
            return written.wait(40 * wait / 1_000)

        with ThreadPoolExecutor(1) as thread:
            read = thread.submit(db.engine.read, long, snapshot=True)
            assert reading.wait(10)
            for i in range(60):
                db.append_message("s", "user", f"{i} " + "x" * 30_000)
            written.set()
            assert read.result(10), "the commits waited for the read again and again"
        assert (home / "state.db-wal").stat().st_size > 2**20
        db.append_message("s", "user", "the last")
        assert (home / "state.db-wal").stat().st_size < 2**20
        db.close()

    @pytest.mark.parametrize("bad", [b"this is no database at all" * 50, b"SQLite format 3\0" + b"\xff" * 4000])
    def test_what_is_no_database_is_refused_untouched(self, home: Path, bad: bytes) -> None:
        home.mkdir()
        file = home / "state.db"
        file.write_bytes(bad)
        with pytest.raises(errors.StateError) as caught:
            SessionDB()
        assert file.read_bytes() == bad
        assert "\n" not in caught.value.one_line()

    def test_another_programs_database_is_refused_untouched(self, home: Path) -> None:
        home.mkdir()
        file = home / "state.db"
        made = apsw.Connection(str(file))
        made.execute("CREATE TABLE invoices (id INTEGER)")
        made.close()
        before = file.read_bytes()
        with pytest.raises(errors.NotADatabase, match="belongs to another program"):
            SessionDB()
        assert file.read_bytes() == before
        assert [p.name for p in home.iterdir()] == ["state.db"]

    def test_a_file_from_the_future_is_refused_untouched(self, home: Path) -> None:
        SessionDB().close()
        file = home / "state.db"
        made = apsw.Connection(str(file))
        made.execute("UPDATE schema_version SET version = ?", (schema.CURRENT + 1,))
        made.close()
        before = file.read_bytes()
        with pytest.raises(errors.FutureSchema, match=f"schema {schema.CURRENT + 1}"):
            SessionDB()
        assert file.read_bytes() == before

    def test_an_unknown_address_is_explained(self) -> None:
        with pytest.raises(Exception, match="sqlite:///PATH or postgresql://"):
            SessionDB.connect("mysql://somewhere/db")

    def test_an_address_that_depends_on_the_working_folder_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Exception, match="does not name a whole path"):
            SessionDB.connect("sqlite:///hermes.db")
        assert not list(tmp_path.glob("hermes.db*"))

    def test_a_missing_log_is_saved_and_a_replaced_one_is_reported(self, home: Path) -> None:
        db = SessionDB()
        db.create_session("s", "cli")
        wal = home / "state.db-wal"
        wal.unlink()
        db.append_message("s", "user", "while the log had no name")
        assert [m["content"] for m in db.get_messages("s")] == ["while the log had no name"]
        db.append_message("s", "user", "into the new log")
        wal.rename(home / "elsewhere")
        wal.write_bytes(b"")
        with pytest.raises(errors.WriteLost):
            db.append_message("s", "user", "into nothing")
        db.close()

    @pytest.mark.parametrize("without_log", [False, True])
    def test_a_write_beside_a_restored_file_is_reported_and_the_next_one_goes_there(
        self, home: Path, without_log: bool
    ) -> None:
        db = SessionDB()
        db.create_session("s", "cli")
        db.append_message("s", "user", "in the backup")
        db.engine.with_writer(lambda raw: sqlite_copy.copy(raw, home / "older.db"))
        db.append_message("s", "user", "later")
        if without_log:
            (home / "state.db-wal").unlink()
        (home / "older.db").replace(home / "state.db")
        with pytest.raises(errors.WriteLost, match="the database file was removed or replaced"):
            db.append_message("s", "user", "into a file without a name")
        db.append_message("s", "user", "into the restored file")
        db.close()
        again = SessionDB()
        assert [m["content"] for m in again.get_messages("s")] == ["in the backup", "into the restored file"]
        assert again.engine.read(lambda conn: conn.rows("PRAGMA integrity_check")) == [("ok",)]
        (home / "state.db").unlink()
        with pytest.raises(errors.WriteLost):
            again.append_message("s", "user", "into a file without a name")
        with pytest.raises(errors.StoreUnavailable):
            again.append_message("s", "user", "there is no file")
        again.close()

    @pytest.mark.parametrize("snapshot", [False, True])
    def test_a_read_under_way_when_the_log_goes_missing_harms_neither_log_nor_later_reads(
        self, home: Path, snapshot: bool
    ) -> None:
        db = SessionDB()
        db.create_session("s", "cli")
        db.append_message("s", "user", "one")
        reading = threading.Event()

        def slow(conn: Any) -> int:
            count = len(conn.rows("SELECT id FROM messages"))
            reading.set()
            while not conn.stale:
                time.sleep(0.001)
            return count

        with ThreadPoolExecutor(1) as thread:
            read = thread.submit(db.engine.read, slow, snapshot=snapshot)
            assert reading.wait(10)
            (home / "state.db-wal").unlink()
            db.append_message("s", "user", "two")
            assert read.result(10) == 1
        db.append_message("s", "user", "three")
        for _ in range(2):
            assert [m["content"] for m in db.get_messages("s")] == ["one", "two", "three"]
        db.close()
        again = SessionDB()
        assert [m["content"] for m in again.get_messages("s")] == ["one", "two", "three"]
        again.close()

    def test_a_read_that_does_not_end_is_ended_for_the_sake_of_the_log(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_log, "_PATIENCE", 0.1)
        db = SessionDB()
        db.create_session("s", "cli")
        reading = threading.Event()

        def endless(conn: Any) -> None:
            conn.rows("SELECT id FROM messages")
            reading.set()
            conn.rows("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0")

        with ThreadPoolExecutor(1) as thread:
            read = thread.submit(db.engine.read, endless, snapshot=True)
            assert reading.wait(10)
            (home / "state.db-wal").unlink()
            db.append_message("s", "user", "one")
            with pytest.raises(errors.StateError, match="interrupted"):
                read.result(10)
        assert [m["content"] for m in db.get_messages("s")] == ["one"]
        db.close()


def test_the_writer_thread_starts_only_when_an_event_loop_needs_it(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "x.db")
    before = threading.active_count()
    engine.write(lambda conn: conn.run("CREATE TABLE t (x)"))
    assert threading.active_count() == before
    told = threading.Event()
    engine.submit([QueuedWrite(lambda conn: conn.run("INSERT INTO t VALUES (1)"), notify=lambda jobs: told.set())])
    assert told.wait(10)
    engine.close()
    assert threading.active_count() == before


def test_a_statement_is_planned_once_whatever_is_bound_to_it(tmp_path: Path) -> None:
    """On a table with an index of only some rows SQLite would look at the values, and plan it again for each."""
    looked_up: list[int] = []

    def planning(action: int, *facts: Any) -> int:
        looked_up.append(action)
        return apsw.SQLITE_OK

    def run(conn: Any) -> list[int]:
        conn.raw.authorizer = planning
        counts = []
        for state in ("running", "done", "failed"):
            conn.rows("SELECT id FROM turns WHERE state = ? AND conversation_id = ?", (state, state))
            counts.append(len(looked_up))
        conn.raw.authorizer = None
        return counts

    db = SessionDB(tmp_path / "state.db")
    try:
        first, *later = db.engine.read(run)
    finally:
        db.close()
    assert first > 0 and later == [first, first]


def test_a_database_that_cannot_be_reached_tells_a_chat_nothing_of_its_address() -> None:
    with pytest.raises(errors.StoreUnavailable) as caught:
        SessionDB.connect("postgresql://hermes:secret@127.0.0.1:1/state")
    assert "127.0.0.1:1/state: " in caught.value.one_line() and "secret" not in caught.value.one_line()
    assert caught.value.what == "the database cannot be reached" and "127.0.0.1" not in caught.value.in_chat()


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("53100", errors.StoreFull, "The disk is full; nothing was written"),
        ("53200", errors.StoreUnavailable, "The database cannot be reached"),
        ("25006", errors.StoreReadOnly, "The database cannot be written to"),
    ],
)
def test_what_a_server_says_of_itself_is_for_its_operator_and_no_chat(
    stores: TestStores, code: str, kind: type[errors.StateError], said: str
) -> None:
    words = f"RAISE EXCEPTION 'could not extend file base/17072/16637' USING ERRCODE = '{code}'"
    with closing(SessionDB(stores.postgresql())) as db, pytest.raises(kind) as caught:
        db._execute_write(lambda conn: conn.run(f"DO $$ BEGIN {words}; END $$"))
    assert "base/17072/16637" in caught.value.one_line()
    assert caught.value.what == said and "base/" not in caught.value.in_chat()
