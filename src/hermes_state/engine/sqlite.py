"""SQLite through apsw: one writing connection, a few reading ones, and nothing else touches the file.

Rules this module holds (DESIGN §5 says why each of them exists):
- `BEGIN IMMEDIATE` with our own jittered retry; SQLite's busy handler makes four processes wait eight times longer.
- Checkpoints are made by the writer right after a commit, in small steps, so the log stays bounded.
- After each commit, before it is acknowledged, the log must still be the file we wrote to (`walguard`).
- The file is opened by this one copy of SQLite only; no plain `open()`, copy or hash of it while we have it open,
  because closing any descriptor of the file drops the locks of all of them.
- Engines are shared: two stores on one file in one process have one writer. A forked child starts afresh.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar, TypeVarTuple

import apsw

from hermes_config.limits import Limits
from hermes_state.engine import files, walguard
from hermes_state.engine.base import Connection, Params, Result, Row
from hermes_state.engine.writer import Job, NotWhole, Writer
from hermes_state.errors import (
    IntegrityError,
    NotADatabase,
    StateError,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    WriteLost,
)
from hermes_state.statements import Statement

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteConnection:
    """A connection in our terms; `raw` is apsw's, for the statements where every microsecond counts."""

    dialect = "sqlite"
    __slots__ = ("raw",)

    def __init__(self, raw: apsw.Connection) -> None:
        self.raw = raw

    def execute(self, sql: str | Statement, params: Params = ()) -> Result:
        text = sql if isinstance(sql, str) else sql.sqlite
        before = self.raw.total_changes()
        cursor = self.raw.execute(text, params)
        try:
            columns = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:  # no rows: apsw no longer knows the columns
            columns = []
        return Result(cursor.fetchall(), columns, self.raw.total_changes() - before)

    def rows(self, sql: str | Statement, params: Params = ()) -> list[Row]:
        return self.raw.execute(sql if isinstance(sql, str) else sql.sqlite, params).fetchall()

    def run(self, sql: str | Statement, params: Params = ()) -> int:
        self.raw.execute(sql if isinstance(sql, str) else sql.sqlite, params).fetchall()
        return self.raw.changes()

    def many(self, sql: str | Statement, rows: Sequence[Params]) -> None:
        self.raw.executemany(sql if isinstance(sql, str) else sql.sqlite, rows).fetchall()


class SqliteEngine:
    """One SQLite file, opened."""

    dialect = "sqlite"

    def __init__(
        self, path: Path, *, read_only: bool = False, synchronous: str = "FULL", limits: Limits | None = None
    ) -> None:
        self.path = path
        self._limits = limits or Limits()
        self.where = str(path)
        self.read_only = read_only
        self._synchronous = synchronous
        self._readers: list[SqliteConnection] = []
        self._readers_lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._conn: SqliteConnection | None = None
        self._guard = walguard.WalGuard(f"{path}-wal")
        self._wal_bound = self._limits.wal_bytes * 3 // 4
        self._abandoned: list[object] = []
        self.writer = Writer(self, max_group=self._limits.group_commit)
        with translated(self.where):
            self._conn = self._connect_reader() if read_only else self._connect_writer()

    # -- connections -------------------------------------------------------------------------------------

    def _connect_writer(self) -> SqliteConnection:
        raw = apsw.Connection(str(self.path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            self._prepare_writer(raw)
        except BaseException:
            raw.close()
            raise
        return SqliteConnection(raw)

    def _prepare_writer(self, raw: apsw.Connection) -> None:
        # Until we write, SQLite may wait for us: somebody who opens or closes the file may hold it for a moment.
        raw.set_busy_timeout(self._limits.write_wait_ms)
        # The header knows whether the file is in WAL mode; setting it again would cost a lock.
        if raw.pragma("journal_mode") != "wal" and files.is_ours(raw):
            self._enter_wal(raw)
        raw.pragma("synchronous", self._synchronous)
        raw.pragma("foreign_keys", True)
        raw.pragma("secure_delete", True)  # erased words leave the file too; an append costs the same (measured)
        raw.pragma("journal_size_limit", self._wal_bound)
        raw.pragma("cache_size", -self._limits.writer_cache_kib)
        raw.wal_autocheckpoint(self._limits.checkpoint_pages)  # right after a commit, blocking nobody
        raw.set_busy_timeout(0)  # from here on the waiting is ours: see _begin_again

    def _enter_wal(self, raw: apsw.Connection) -> None:
        """Two processes may meet at a fresh file; the loser of that race waits its turn."""
        deadline = time.monotonic() + 10
        while True:
            try:
                if raw.pragma("journal_mode", "wal") == "wal":
                    return
            except apsw.BusyError:
                pass
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    "the file system refuses SQLite's write-ahead log",
                    where=self.where,
                    hint="Put the Hermes home on a local disk, or use PostgreSQL.",
                )
            time.sleep(_jitter(0.02))

    def _connect_reader(self) -> SqliteConnection:
        if self.read_only:
            raw = apsw.Connection(str(self.path), apsw.SQLITE_OPEN_READONLY)
        else:
            raw = apsw.Connection(str(self.path), apsw.SQLITE_OPEN_READWRITE)
            raw.pragma("query_only", True)
        raw.set_busy_timeout(self._limits.write_wait_ms)
        return SqliteConnection(raw)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        conn = self._borrow()
        try:
            with translated(self.where):
                if not snapshot:
                    return fn(conn)
                conn.raw.execute("BEGIN")
                try:
                    return fn(conn)
                finally:
                    conn.raw.execute("COMMIT")
        finally:
            self._give_back(conn)

    def _borrow(self) -> SqliteConnection:
        self._check_open()
        with self._readers_lock:
            if self._readers:
                return self._readers.pop()
        with translated(self.where):
            return self._connect_reader()

    def _give_back(self, conn: SqliteConnection) -> None:
        with self._readers_lock:
            if not self._closed and len(self._readers) < self._limits.reader_connections:
                self._readers.append(conn)
                return
        conn.raw.close()

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        # The way of every message: nobody else writes, so this thread does, with nothing in between. (After a wait for
        # the disk everything is cold: passing `blocking` by its place alone saves two microseconds of some 160.)
        writer = self.writer
        if self._closed or self.read_only or writer.queue or not writer.lock.acquire(False):
            self._check_writable()
            return writer.run(fn, *args, single=single)
        try:
            writer.owner = get_ident()
            return self.alone(fn, *args)
        finally:
            writer.owner = 0
            writer.lock.release()

    def submit(self, jobs: Iterable[Job]) -> None:
        self._check_writable()
        self.writer.submit(jobs)

    def alone(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        conn = self._conn or self._writing_connection()
        raw = conn.raw
        guard = self._guard
        try:
            raw.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._begin_again(raw, error)
        if guard.expected is None:
            guard.arm()
        try:
            result = fn(conn, *args)
            raw.execute("COMMIT")
        except BaseException as error:
            self._undo(raw)
            if isinstance(error, apsw.Error):
                raise our_error(error, self.where) from error
            raise
        if guard.inode() != guard.expected or guard.size.value > self._wal_bound:
            self._after_commit(raw)
        return result

    def group(self, jobs: list[Job]) -> None:
        conn = self._writing_connection()
        raw = conn.raw
        self._begin(raw)
        try:
            for job in jobs:
                self._run_job(conn, job)
            raw.execute("COMMIT")
        except BaseException as error:
            self._undo(raw)
            if isinstance(error, apsw.Error):
                raise our_error(error, self.where) from error
            raise
        self._after_commit(raw)

    def _run_job(self, conn: SqliteConnection, job: Job) -> None:
        raw = conn.raw
        if job.whole:
            before = raw.total_changes()
        else:
            raw.execute("SAVEPOINT job")
        try:
            job.result = job.fn(conn, *job.args)
        except Exception as error:  # boundary: one job's failure is its own
            if not raw.in_transaction:
                raise  # a full disk or a broken file has undone the whole group
            job.error = our_error(error, self.where) if isinstance(error, apsw.Error) else error
            if not job.whole:
                raw.execute("ROLLBACK TO job")
            elif raw.total_changes() != before:
                raise NotWhole from error
        if not job.whole:
            raw.execute("RELEASE job")

    def _writing_connection(self) -> SqliteConnection:
        if self._conn is None:
            with translated(self.where):
                self._conn = self._connect_writer()
        return self._conn

    def _begin(self, raw: apsw.Connection) -> None:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._begin_again(raw, error)
        self._guard.arm()

    def _begin_again(self, raw: apsw.Connection, error: apsw.Error) -> None:
        """Another process writes. Random pauses of a few commits' length; shorter ones only take its time away."""
        deadline = time.monotonic() + self._limits.write_wait_ms / 1000
        while isinstance(error, apsw.BusyError) and time.monotonic() < deadline:
            time.sleep(_jitter(0.001))
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except apsw.Error as again:
                error = again
        if not isinstance(error, apsw.BusyError):
            raise our_error(error, self.where) from error
        raise StoreBusy(
            f"another process held the database for {self._limits.write_wait_ms // 1000} s; nothing was written",
            where=self.where,
            hint="Try again; if it stays so, find the process with `fuser` and stop it.",
        )

    def _undo(self, raw: apsw.Connection) -> None:
        if raw.in_transaction:
            raw.execute("ROLLBACK")

    def _after_commit(self, raw: apsw.Connection) -> None:
        if not self._guard.intact():
            self._recover_log(raw)
        elif self._guard.size.value > self._wal_bound:
            self._shrink_log(raw)

    def _shrink_log(self, raw: apsw.Connection) -> None:
        """The checkpoints after commits did not keep up: others wrote meanwhile. Finish one while nobody can."""
        try:
            raw.set_busy_timeout(self._limits.checkpoint_wait_ms)
            raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            pass  # a reader still needs old pages; the next commit tries again
        except (apsw.FullError, apsw.IOError):
            pass  # the rows are safe in the log; the next commit meets the same disk and reports it
        finally:
            raw.set_busy_timeout(0)

    def _recover_log(self, raw: apsw.Connection) -> None:
        """The log lost its name. Ours is still whole: if no other stands in its place, move it into the file."""
        saved = False
        if not Path(f"{self.path}-wal").exists():
            try:
                pages, moved = raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                saved = pages == moved
            except apsw.Error:
                saved = False
        self._drop_connections()
        if not saved:
            raise WriteLost(
                "the write-ahead log was removed or replaced under us; the last write was not stored",
                where=f"{self.path}-wal",
                hint="Nothing else may delete or restore that file while Hermes runs; run `hermes state check`.",
            )

    def _drop_connections(self) -> None:
        """Close everything without SQLite's farewell checkpoint, which would write an orphaned log into the file."""
        with self._readers_lock:
            stale, self._readers = [*self._readers, self._conn], []
            self._conn = None
        for conn in stale:
            if conn is not None:
                conn.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                conn.raw.close()
        self._guard = walguard.WalGuard(f"{self.path}-wal")

    # -- maintenance -------------------------------------------------------------------------------------

    def with_writer(self, fn: Callable[[apsw.Connection], T]) -> T:
        """The bare writing connection, outside a transaction, while nobody writes: VACUUM, checkpoint, backup."""
        self._check_writable()

        def run() -> T:
            with translated(self.where):
                return fn(self._writing_connection().raw)

        return self.writer.exclusive(run)

    def close(self) -> None:
        if self._closed:
            return
        self.writer.close()
        self._closed = True
        with self._readers_lock:
            readers, self._readers = self._readers, []
        for conn in readers:
            conn.raw.close()
        if self._conn is not None:
            self._conn.raw.close()  # the last one out moves the log into the file
            self._conn = None

    def forget_parent(self) -> None:
        """After a fork: the parent's connections are not ours to use or to close."""
        self._abandoned += [self._conn, *self._readers]
        self._conn, self._readers = None, []
        self._readers_lock = threading.Lock()
        self._guard = walguard.WalGuard(f"{self.path}-wal")
        self.writer = Writer(self, max_group=self._limits.group_commit)
        self._pid = os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", where=self.where)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise StoreReadOnly("the store was opened for reading only", where=self.where)


class translated:  # noqa: N801 - reads as a verb at its call sites
    """`with translated(where)`: apsw's errors leave as ours."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, apsw.Error):
            raise our_error(error, self._where) from error


def our_error(error: apsw.Error, where: str) -> StateError:
    text = str(error)
    if isinstance(error, apsw.ConstraintError):
        return IntegrityError(text, where=where)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(where=where, hint="Try again in a moment.")
    if isinstance(error, apsw.FullError):
        return StoreFull(where=where, hint="Free some space and try again.")
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(where=where, hint="Move it away, or point HERMES_HOME elsewhere.")
    if isinstance(error, apsw.CorruptError):
        return StoreDamaged(text, where=where, hint="Run `hermes state check`, then `hermes backup restore`.")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreReadOnly(where=where, hint="Check the owner and mode of the file and its folder.")
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(
            "the database file cannot be opened", where=where, hint="Check that its folder exists and can be written."
        )
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(f"reading or writing failed: {text}", where=where, hint="Check the disk.")
    return StateError(text, where=where)


def _jitter(scale: float) -> float:
    """Around `scale`, a fifth to twice of it; the clock's last digits are random enough to part two waiters."""
    return scale * (0.2 + (time.perf_counter_ns() // 100 % 1800) / 1000)


class _Shared:
    """The process's one engine for each file, with how many stores use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: dict[tuple[str, str], tuple[SqliteEngine, int]] = {}

    def after_fork(self) -> None:
        self.lock = threading.Lock()
        for engine, _users in self.engines.values():
            engine.forget_parent()


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.after_fork)


def open_shared(path: Path, *, synchronous: str, limits: Limits | None = None) -> SqliteEngine:
    """The process's one engine for this file; give it back with `release`."""
    key = (os.path.realpath(path), synchronous)
    with _shared.lock:
        engine, users = _shared.engines.get(key, (None, 0))
        if engine is None or not path.exists():
            engine, users = SqliteEngine(path, synchronous=synchronous, limits=limits), 0
        _shared.engines[key] = (engine, users + 1)
        return engine


def open_in_this_process(path: Path) -> bool:
    """Whether a store here has the file open. Then nothing else here may: closing it would drop the store's locks."""
    real = os.path.realpath(path)
    with _shared.lock:
        return any(file == real for file, _synchronous in _shared.engines)


def release(engine: SqliteEngine) -> None:
    with _shared.lock:
        for key, (shared, users) in list(_shared.engines.items()):
            if shared is engine:
                if users > 1:
                    _shared.engines[key] = (engine, users - 1)
                    return
                del _shared.engines[key]
    engine.close()
