"""SQLite through apsw: one writing connection and a few reading ones; nothing else opens the file.

Rules of this module:
- `BEGIN IMMEDIATE` with our own jittered retry; SQLite's busy handler makes four processes wait eight times longer.
- The writer makes checkpoints right after a commit, in small steps, so the log stays bounded.
- After each commit, before it is acknowledged, the log must still be the file we wrote to (`sqlite_log`).
- The file is opened by this one copy of SQLite only; no plain `open()`, copy or hash of it while we have it open,
  because closing any descriptor of the file drops the locks of all of them.
- Engines are shared (`open_shared`): two stores on one file in one process have one writer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import apsw

from hermes_config.home import advice
from hermes_config.limits import Limits
from hermes_state.errors import (
    NetworkFilesystem,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
    WriteLost,
)
from hermes_state.storage import sqlite_log
from hermes_state.storage.base import Connection, Params, Result, Row
from hermes_state.storage.sqlite_errors import our_error, translated
from hermes_state.storage.sqlite_log import Readers, discard
from hermes_state.storage.statements import Statement
from hermes_state.storage.writer import WritingEngine

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_LONG = 2.0
"""Seconds; other Hermes processes delay a write by some milliseconds."""
_PREPARED = 512
"""After how many executions the writer forgets a prepared statement that was not among them, as many as apsw allows. A
group of turns that end together has hundreds; preparing a statement anew takes as long as executing five."""


class SqliteEngine(WritingEngine):
    """One open SQLite file."""

    dialect = "sqlite"

    def __init__(
        self, path: Path, *, read_only: bool = False, synchronous: str = "FULL", limits: Limits | None = None
    ) -> None:
        super().__init__(str(path), read_only=read_only, limits=limits)
        self.path = path
        self._synchronous = synchronous
        self._readers = self._no_readers()
        self._log_lost = False
        """The log that our connections have open is no longer the file's log, and could not be checkpointed."""
        self._conn: SqliteConnection | None = None
        self._guard = sqlite_log.FileGuard(path)
        self._wal_bound = self._limits.wal_bytes * 3 // 4
        self._stuck_at: int | None = None
        """How many pages of the log had moved when the last wait for its readers failed."""
        self._opened = False
        with translated(self.where):
            self._conn = self._connect_reader() if read_only else self._connect_writer()
        self._opened = True

    def _no_readers(self) -> Readers:
        return Readers(self._connect_reader, most=self._limits.reader_connections)

    def _connect_writer(self) -> SqliteConnection:
        self._check_renewed()
        return writing(
            self.path, synchronous=self._synchronous, wal_bound=self._wal_bound, limits=self._limits,
            create=not self._opened,
        )  # fmt: skip

    def _connect_reader(self) -> SqliteConnection:
        self._check_renewed()
        with translated(self.where):
            return reading(self.path, read_only=self.read_only, limits=self._limits)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        self._check_open()
        conn = self._readers.take()
        try:
            with translated(self.where):
                if not snapshot:
                    return fn(conn)
                conn.raw.execute("BEGIN")
                try:
                    return fn(conn)
                finally:
                    conn.raw.execute("COMMIT")
        except (StoreUnavailable, StoreDamaged):
            conn.stale = True  # if only this connection failed, the next read gets another one
            raise
        finally:
            self._readers.give_back(conn)

    # -- writing -----------------------------------------------------------------------------------------

    def alone(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        conn = self._conn or self._writing_connection()
        self._begin(conn.raw)
        try:
            result = fn(conn, *args)
            conn.raw.execute("COMMIT")
        except BaseException as error:
            self._undo(conn.raw)
            if isinstance(error, apsw.Error):
                raise our_error(error, self.where) from error
            raise
        self._after_commit(conn.raw)
        return result

    def _is_lost(self, conn: Connection, error: Exception | None) -> bool:
        assert isinstance(conn, SqliteConnection), "every one of ours is"
        return not conn.raw.in_transaction  # a full disk or a damaged file has undone the whole group

    def _our_error(self, error: Exception) -> Exception:
        return our_error(error, self.where) if isinstance(error, apsw.Error) else error

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
        """Wait while another process writes, with random pauses of a few commits' length; shorter ones slow it down."""
        now = time.monotonic()
        deadline, told = now + self._limits.write_wait_ms / 1000, self.on_long_wait
        long_at = now + _LONG
        while isinstance(error, apsw.BusyError) and now < deadline:
            if told is not None and now >= long_at:
                told(self._limits.write_wait_ms // 1000)
                told = None
            time.sleep(jitter(0.001))
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except apsw.Error as again:
                error = again
            now = time.monotonic()
        if not isinstance(error, apsw.BusyError):
            raise our_error(error, self.where) from error
        raise StoreBusy(
            f"another process held the database for {self._limits.write_wait_ms // 1000} s; nothing was written",
            where=self.where,
            hint="Try again; if this repeats, find the process with `fuser` and stop it.",
        )

    def _undo(self, raw: apsw.Connection) -> None:
        if raw.in_transaction:
            raw.execute("ROLLBACK")

    def _after_commit(self, raw: apsw.Connection) -> None:
        if not self._guard.intact():
            self._recover_log(raw)
        elif self._guard.size > self._wal_bound:
            self._shrink_log(raw)

    def _shrink_log(self, raw: apsw.Connection) -> None:
        """Checkpoint the whole log, because the checkpoints after commits did not keep up with other writers.

        It waits for short reads. A long read (a backup, an export) stops the checkpoint at the page where the read
        began; commits do not wait again until that changes.
        """
        # The rows are safe in the log; the next commit meets the same disk and reports it. Busy: others checkpoint.
        with contextlib.suppress(apsw.FullError, apsw.IOError, apsw.BusyError):
            _, moved = raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if moved != self._stuck_at:
                waited = truncate_log(raw, self._limits.checkpoint_wait_ms)
                self._stuck_at = None if waited else raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]

    def _recover_log(self, raw: apsw.Connection) -> None:
        """A file was removed or replaced. A missing log is no loss: ours is complete, and is checkpointed into the
        database, unless that is another file now. Its old log would damage it, so that is emptied first."""
        with self._readers.replaced():
            replaced = self._guard.database_replaced
            saved = not replaced and self._save_log(raw)
            if not saved:
                self._readers.wait()  # a read may prevent the checkpoint
            if replaced:
                with contextlib.suppress(apsw.Error):
                    truncate_log(raw, 0)
            elif not saved:
                saved = self._save_log(raw)
            self._log_lost = not saved
            self._conn = None
            discard(raw)
            self._guard = sqlite_log.FileGuard(self.path)
        if not saved:
            what = "the database file" if replaced else "the write-ahead log"
            raise WriteLost(
                f"{what} was removed or replaced while Hermes ran; the last write was not stored",
                where=str(self.path) if replaced else f"{self.path}-wal",
                hint="Nothing else may delete or restore that file while Hermes runs; run `hermes state check`.",
            )

    def _save_log(self, raw: apsw.Connection) -> bool:
        if Path(f"{self.path}-wal").exists():
            return False
        try:
            pages, moved = raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error:
            return False
        return pages == moved

    def _check_renewed(self) -> None:
        """Check that no reader still has the lost log open (`sqlite_log.Readers`)."""
        if self._log_lost and self._readers.stale:
            raise StoreUnavailable(
                "the write-ahead log was replaced, and a running read still uses the old one",
                where=f"{self.path}-wal",
                hint="Try again in a moment; if this repeats, restart Hermes.",
            )
        self._log_lost = False

    # -- maintenance -------------------------------------------------------------------------------------

    def with_writer(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Call `fn` with the raw writing connection, outside a transaction, while nobody writes (VACUUM, backup)."""
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
        self._readers.close()
        if self._conn is not None:
            self._conn.raw.close()  # the last connection to close checkpoints the log
            self._conn = None

    def forget_parent(self) -> None:
        self._abandon(self._conn, *self._readers.all())
        self._conn, self._readers = None, self._no_readers()
        self._guard = sqlite_log.FileGuard(self.path)


class SqliteConnection:
    """An apsw connection as a `Connection`; `raw` is apsw's, for statements where every microsecond counts."""

    dialect = "sqlite"
    __slots__ = ("raw", "stale")

    def __init__(self, raw: apsw.Connection) -> None:
        self.raw = raw
        self.stale = False
        """The files behind it were replaced: nobody may read with it again."""

    @property
    def written(self) -> int:
        return self.raw.total_changes()

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

    def last_id(self) -> int:
        return self.raw.last_insert_rowid()


def writing(path: Path, *, synchronous: str, wal_bound: int, limits: Limits, create: bool) -> SqliteConnection:
    """The connection of a process's one writer. `create`: create the file if it does not exist."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    raw = apsw.Connection(str(path), flags, statementcachesize=_PREPARED)
    try:
        # SQLite itself may wait until our first write: another process may lock the file while it opens or closes it.
        raw.set_busy_timeout(limits.write_wait_ms)
        # The header says whether the file is in WAL mode; setting it again would need a lock.
        if raw.pragma("journal_mode") != "wal" and is_ours(raw):
            _enter_wal(raw, str(path))
        _keep_plans(raw)
        raw.pragma("synchronous", synchronous)
        raw.pragma("foreign_keys", True)
        raw.pragma("secure_delete", True)  # overwrites erased text; an append costs the same (measured)
        raw.pragma("journal_size_limit", wal_bound)
        raw.pragma("cache_size", -limits.writer_cache_kib)
        raw.wal_autocheckpoint(limits.checkpoint_pages)  # right after a commit, so that nobody waits
        raw.set_busy_timeout(0)  # from here on the engine waits by itself
    except BaseException:
        raw.close()
        raise
    return SqliteConnection(raw)


def reading(path: Path, *, read_only: bool, limits: Limits) -> SqliteConnection:
    """A connection that cannot write. `read_only`: for a file that nobody here may be able to write."""
    if read_only:
        raw = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    else:
        raw = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
        raw.pragma("query_only", True)
    raw.set_busy_timeout(limits.write_wait_ms)
    _keep_plans(raw)
    return SqliteConnection(raw)


def truncate_log(raw: apsw.Connection, wait_ms: int) -> bool:
    """Checkpoint the log and truncate it; False while a reader still needs old pages."""
    raw.set_busy_timeout(wait_ms)
    try:
        raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False  # the next commit continues the checkpoint in small steps
    finally:
        raw.set_busy_timeout(0)
    return True


def _keep_plans(raw: apsw.Connection) -> None:
    """Use one plan per statement. Otherwise SQLite prepares a statement on a partially indexed table again whenever its
    parameters differ, at two to five times the cost."""
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _enter_wal(raw: apsw.Connection, where: str) -> None:
    """Switch to WAL mode. Two processes may do so on a fresh file at once; the second one waits."""
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
                where=where,
                hint="Put the Hermes home on a local disk, or use PostgreSQL.",
            )
        time.sleep(jitter(0.02))


def jitter(scale: float) -> float:
    """A random time between a fifth and twice of `scale`, from the clock's last digits."""
    return scale * (0.2 + (time.perf_counter_ns() // 100 % 1800) / 1000)


class _Shared:
    """The process's one engine for each file, with its number of stores."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: dict[tuple[str, str], tuple[SqliteEngine, int]] = {}

    def after_fork(self) -> None:
        self.lock = threading.Lock()
        for engine, _users in self.engines.values():
            engine.forget_parent()


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.after_fork)


def open_shared(path: Path, *, synchronous: str, limits: Limits | None = None) -> SqliteEngine:
    """The process's one engine for this file; `release` returns it."""
    key = (os.path.realpath(path), synchronous)
    with _shared.lock:
        engine, users = _shared.engines.get(key, (None, 0))
        if engine is None or not path.exists():
            engine, users = SqliteEngine(path, synchronous=synchronous, limits=limits), 0
        _shared.engines[key] = (engine, users + 1)
        return engine


def open_in_this_process(path: Path) -> bool:
    """Whether a store of this process has the file open. Nothing else may then open it: closing drops locks."""
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


_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "davfs", "lustre"}

_ELSEWHERE = "Set HERMES_HOME to a folder you can write."


def prepare(path: Path) -> None:
    """Create the folder (0700) and a private, empty file if they do not exist; refuse a network file system."""
    folder = path.parent
    if not folder.is_dir():
        try:
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(
                f"the folder of the database cannot be created: {error.strerror}",
                where=str(folder),
                hint=advice(error) or _ELSEWHERE,
            ) from error
    refuse_network(folder)
    try:
        # Only where no file exists: closing a descriptor of an open database would drop SQLite's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailable(
            f"the database file cannot be created: {error.strerror}",
            where=str(path),
            hint=advice(error) or _ELSEWHERE,
        ) from error


def refuse_network(folder: Path) -> None:
    """Refuse a network file system: SQLite's locks and shared memory do not work across machines."""
    kind = filesystem(folder)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"the database would lie on a network file system ({kind}), where SQLite loses data",
            where=str(folder),
            hint="Put the home on a local disk, or set HERMES_DATABASE_URL to a PostgreSQL server.",
        )


def filesystem(folder: Path) -> str:
    """The file system's name; "" when it has its own disk or is not known."""
    device = folder.stat().st_dev
    if os.major(device) != 0:  # a block device of this machine
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""


def sqlite_version() -> str:
    """The version of the SQLite inside apsw, not of Python's own."""
    return apsw.sqlite_lib_version()


def is_ours(raw: apsw.Connection) -> bool:
    """False for another program's database: opening it must not change it."""
    tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return not tables or "conversations" in tables
