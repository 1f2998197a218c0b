"""A connection to a SQLite file: what it can do, and how one for writing or for reading is made ready.

The waiting for others is the engine's once a writer is ready; until then, and for readers, it is SQLite's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from hermes_config.limits import Limits
from hermes_state.engine import files
from hermes_state.engine.base import Params, Result, Row
from hermes_state.errors import StoreUnavailable
from hermes_state.statements import Statement


class SqliteConnection:
    """A connection in our terms; `raw` is apsw's, for the statements where every microsecond counts."""

    dialect = "sqlite"
    __slots__ = ("raw", "stale")

    def __init__(self, raw: apsw.Connection) -> None:
        self.raw = raw
        self.stale = False
        """Its files are no more what they were: nobody may read with it again."""

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


def writing(path: Path, *, synchronous: str, wal_bound: int, limits: Limits) -> SqliteConnection:
    """The connection of a process's one writer; the file is made where there is none."""
    raw = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        # Until we write, SQLite may wait for us: somebody who opens or closes the file may hold it for a moment.
        raw.set_busy_timeout(limits.write_wait_ms)
        # The header knows whether the file is in WAL mode; setting it again would cost a lock.
        if raw.pragma("journal_mode") != "wal" and files.is_ours(raw):
            _enter_wal(raw, str(path))
        _keep_plans(raw)
        raw.pragma("synchronous", synchronous)
        raw.pragma("foreign_keys", True)
        raw.pragma("secure_delete", True)  # erased words leave the file too; an append costs the same (measured)
        raw.pragma("journal_size_limit", wal_bound)
        raw.pragma("cache_size", -limits.writer_cache_kib)
        raw.wal_autocheckpoint(limits.checkpoint_pages)  # right after a commit, blocking nobody
        raw.set_busy_timeout(0)  # from here on the waiting is the engine's
    except BaseException:
        raw.close()
        raise
    return SqliteConnection(raw)


def reading(path: Path, *, read_only: bool, limits: Limits) -> SqliteConnection:
    """One that cannot write. `read_only`: the file may be one that nobody here can write to either."""
    if read_only:
        raw = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    else:
        raw = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
        raw.pragma("query_only", True)
    raw.set_busy_timeout(limits.write_wait_ms)
    _keep_plans(raw)
    return SqliteConnection(raw)


def _keep_plans(raw: apsw.Connection) -> None:
    """One plan a statement. Else SQLite looks at the values bound to it, and prepares it anew whenever they differ: on
    every use, for each statement on a table with an index of only some rows, and at twice to five times its price."""
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _enter_wal(raw: apsw.Connection, where: str) -> None:
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
                where=where,
                hint="Put the Hermes home on a local disk, or use PostgreSQL.",
            )
        time.sleep(jitter(0.02))


def jitter(scale: float) -> float:
    """Around `scale`, a fifth to twice of it; the clock's last digits are random enough to part two waiters."""
    return scale * (0.2 + (time.perf_counter_ns() // 100 % 1800) / 1000)
