"""PostgreSQL through psycopg 3: one writing connection per process, and a few reading ones, opened when needed.

The connections are in autocommit mode and this module sends BEGIN and COMMIT itself, so that an append can be a single
statement and a single round trip. A connection that broke before the commit was sent is replaced and the work repeated,
also while the server restarts and refuses connections. One that broke during the commit raises `OutcomeUnknown`. Why
the readers are not psycopg_pool's: docs/decisions/postgres-readers.md.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

import psycopg
from psycopg import errors as pg

from hermes_config.limits import Limits
from hermes_state.errors import (
    IntegrityError,
    InvalidValue,
    OutcomeUnknown,
    StateError,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hermes_state.storage.base import Connection, Params, Result, Row
from hermes_state.storage.statements import Statement, to_postgresql
from hermes_state.storage.writer import QueuedWrite, WritingEngine

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_TRIES = 8
_IDLE = "5min"
_NETWORK = {"keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "30000"}
"""Half a minute of silence ends a connection. By default, a server whose machine was lost is waited for two hours."""
_GROUP_WAIT = "SELECT set_config('lock_timeout', ?, true)"
_GROUP_SHARE = 6
"""The part of a lone job's waiting time for a locked row that a job in a group may wait."""
_CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected)


class PgConnection:
    """A psycopg connection as a `Connection`."""

    dialect = "postgresql"
    __slots__ = ("cursor", "raw", "written")

    def __init__(self, raw: psycopg.Connection[Row]) -> None:
        self.raw = raw
        self.cursor = raw.cursor()
        self.written = 0

    def execute(self, sql: str | Statement, params: Params = ()) -> Result:
        cursor = self._run(sql, params)
        if cursor.description is None:
            return Result([], (), max(cursor.rowcount, 0))
        return Result(cursor.fetchall(), [c.name for c in cursor.description], max(cursor.rowcount, 0))

    def rows(self, sql: str | Statement, params: Params = ()) -> list[Row]:
        return self._run(sql, params).fetchall()

    def run(self, sql: str | Statement, params: Params = ()) -> int:
        return max(self._run(sql, params).rowcount, 0)

    def many(self, sql: str | Statement, rows: Sequence[Params]) -> None:
        self.written += len(rows)  # before sending: a batch that fails in the middle has sent the others
        self.cursor.executemany(self._text(sql), rows)

    def last_id(self) -> int:
        return int(self._run("SELECT lastval()", ()).fetchall()[0][0])

    def _run(self, sql: str | Statement, params: Params) -> psycopg.Cursor[Row]:
        cursor = self.cursor.execute(self._text(sql), params)
        if not (cursor.statusmessage or "").startswith("SELECT"):
            self.written += max(cursor.rowcount, 0)
        return cursor

    @staticmethod
    def _text(sql: str | Statement) -> Any:
        return to_postgresql(sql) if isinstance(sql, str) else sql.postgresql


class _Retry(Exception):
    """Nothing was committed, and another try may succeed. `error` is raised when none does."""

    def __init__(self, error: StateError) -> None:
        self.error = error


class PgEngine(WritingEngine):
    """One PostgreSQL database (more exactly: one schema of it), opened."""

    dialect = "postgresql"

    def __init__(self, url: str, *, read_only: bool = False, limits: Limits | None = None) -> None:
        super().__init__(describe(url), read_only=read_only, limits=limits)
        self.url = url
        self._readers: list[PgConnection] = []
        self._readers_lock = threading.Lock()
        self._conn: PgConnection | None = None
        self._give_back(self._connect())
        _engines.add(self)

    # -- connections -------------------------------------------------------------------------------------

    def _connect(self) -> PgConnection:
        try:
            given = psycopg.conninfo.conninfo_to_dict(self.url)
            more: dict[str, Any] = {name: value for name, value in _NETWORK.items() if name not in given}
            raw = psycopg.connect(self.url, autocommit=True, connect_timeout=10, application_name="hermes", **more)
            # Without it a write would wait for ever for a row that a stuck program has locked.
            raw.execute("SELECT set_config('lock_timeout', %s, false)", (str(self._limits.write_wait_ms),))
            # A process that loses the network in the middle of a transaction must not keep its rows locked.
            raw.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, false)", (_IDLE,))
        except psycopg.Error as error:
            raise StoreUnavailable(
                "the database cannot be reached",
                where=f"{self.where}: {_first_line(error)}",
                hint="Check that the server runs and that the URL, user and password are right.",
            ) from error
        return PgConnection(raw)

    def _retried(self, once: Callable[[], T]) -> T:
        for attempt in range(_TRIES):
            try:
                return once()
            except _Retry as again:
                if attempt == _TRIES - 1:
                    raise again.error from again.__cause__
                # A restarting server has six seconds to come back; other transactions end sooner.
                time.sleep((0.01 if isinstance(again.error, StoreBusy) else 0.05) * 2**attempt)
        raise AssertionError("unreachable")

    def _reconnect(self) -> PgConnection:
        """Connect again and again: a restarting server refuses connections for a while."""
        try:
            return self._connect()
        except StoreUnavailable as error:
            raise _Retry(error) from error

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        return self._retried(lambda: self._read(fn, snapshot))

    def _read(self, fn: Callable[[Connection], T], snapshot: bool) -> T:
        conn = self._borrow()
        try:
            if not snapshot:
                return fn(conn)
            conn.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return fn(conn)
            finally:
                if not conn.raw.broken:
                    conn.raw.execute("COMMIT")
        except psycopg.Error as error:
            ours = our_error(error, self.where)
            if isinstance(error, _CONFLICTS) or (isinstance(error, psycopg.OperationalError) and conn.raw.broken):
                raise _Retry(ours) from error
            raise ours from error
        finally:
            self._give_back(conn)

    def _borrow(self) -> PgConnection:
        self._check_open()
        with self._readers_lock:
            if self._readers:
                return self._readers.pop()
        return self._reconnect()

    def _give_back(self, conn: PgConnection) -> None:
        with self._readers_lock:
            keep = not self._closed and not conn.raw.broken and len(self._readers) < self._limits.reader_connections
            if keep:
                self._readers.append(conn)
                return
        conn.raw.close()

    # -- writing -----------------------------------------------------------------------------------------

    def alone(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        once = self._single if single else self._transaction
        return self._retried(lambda: once(fn, *args))

    def _is_lost(self, conn: Connection, error: Exception | None) -> bool:
        # The whole group is run again, or has lost its connection. A locked row affects only one job.
        return isinstance(error, (*_CONFLICTS, psycopg.OperationalError)) and not isinstance(error, pg.LockNotAvailable)

    def group(self, jobs: list[QueuedWrite]) -> None:
        def run(conn: Connection) -> None:
            # No other write, and no lease, may wait long for a row that one of the jobs cannot lock.
            conn.rows(_GROUP_WAIT, (str(self._limits.write_wait_ms // _GROUP_SHARE),))
            for job in jobs:
                self._run_job(conn, job)

        self.alone(run)

    def _our_error(self, error: Exception) -> Exception:
        return our_error(error, self.where) if isinstance(error, psycopg.Error) else error

    def _transaction(self, fn: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        conn = self._writing_connection()
        try:
            conn.raw.execute("BEGIN")
            result = fn(conn, *args)
        except BaseException as error:
            self._undo(conn)
            if not isinstance(error, psycopg.Error):
                raise
            ours = our_error(error, self.where)
            if isinstance(error, _CONFLICTS) or (isinstance(error, psycopg.OperationalError) and conn.raw.broken):
                raise _Retry(ours) from error
            raise ours from error
        self._commit(conn)
        return result

    def _single(self, fn: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """One statement is its own transaction: sending it also commits it."""
        conn = self._writing_connection()
        try:
            return fn(conn, *args)
        except psycopg.Error as error:
            if conn.raw.broken:
                self._conn = None
                raise OutcomeUnknown(where=self.where) from error
            ours = our_error(error, self.where)
            raise (_Retry(ours) if isinstance(error, _CONFLICTS) else ours) from error

    def _commit(self, conn: PgConnection) -> None:
        try:
            ended = conn.raw.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if conn.raw.broken:
                self._conn = None
                raise OutcomeUnknown(where=self.where) from error
            raise our_error(error, self.where) from error
        if ended != "COMMIT":  # a statement failed and its error was swallowed: only the answer to COMMIT shows it
            raise StateError("nothing was written: a statement had failed", where=self.where)

    def _undo(self, conn: PgConnection) -> None:
        if conn.raw.broken or conn.raw.closed:
            self._conn = None
            return
        try:
            conn.raw.execute("ROLLBACK")
        except psycopg.Error:  # it has just broken: the server rolls back a lost connection by itself
            self._conn = None

    def _writing_connection(self) -> PgConnection:
        if self._conn is not None:
            # A server that closed an idle connection has announced it and then ended it, so nothing is in doubt yet.
            with suppress(psycopg.OperationalError):
                for _ in range(2):
                    self._conn.raw.pgconn.consume_input()
        if self._conn is None or self._conn.raw.closed:
            self._conn = self._reconnect()
        return self._conn

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._closed:
            return
        self.writer.close()
        self._closed = True
        with self._readers_lock:
            open_ones, self._readers = [*self._readers, self._conn], []
            self._conn = None
        for conn in open_ones:
            if conn is not None:
                conn.raw.close()

    def forget_parent(self) -> None:
        self._abandon(self._conn, *self._readers)
        self._conn, self._readers = None, []
        self._readers_lock = threading.Lock()


_engines: weakref.WeakSet[PgEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.forget_parent()


os.register_at_fork(after_in_child=_after_fork)


def our_error(error: psycopg.Error, where: str) -> StateError:
    """Our error for one of the server's. A chat (`in_chat`) sees none of what the server says about itself."""
    text = _first_line(error)
    said = f"{where}: {text}"
    if isinstance(error, psycopg.IntegrityError):
        return IntegrityError(text, where=where)
    if isinstance(error, psycopg.DataError):
        return InvalidValue(text, where=where)
    if isinstance(error, (pg.LockNotAvailable, pg.QueryCanceled, *_CONFLICTS)):
        return StoreBusy(where=where, hint="Try again in a moment.")
    if isinstance(error, pg.DiskFull):
        return StoreFull(where=said, hint="Free some space on the server and try again.")
    if isinstance(error, (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege)):
        return StoreReadOnly(where=said, hint="Connect to the primary, with a user that may write.")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreUnavailable(where=said, hint="Check that the server runs; then try again.")
    return StateError(text, where=where)


def describe(url: str) -> str:
    """The address without user and password, for messages."""
    info = psycopg.conninfo.conninfo_to_dict(url)
    host, port = info.get("host") or info.get("hostaddr") or "localhost", info.get("port") or "5432"
    return f"postgresql://{host}:{port}/{info.get('dbname', '')}"


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
