"""The reading connections of one SQLite file: a few that rest, and those that somebody reads with.

When the write-ahead log is found removed or replaced, every connection that has the old one must go before a new one is
made: the connections of a process share one index of the log, and with a new log behind an old index SQLite would take
what is not there for pages of the database. So `renewing` closes those that rest and makes none meanwhile. One that is
in use then is closed when it comes back, and so is one that the disk or the file failed under.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import apsw

from hermes_state.engine.sqlite_connection import SqliteConnection

_PATIENCE = 10.0
_LAST_PATIENCE = 5.0
"""Seconds for reads under way to end by themselves, and once they are interrupted."""


class Readers:
    """Lent and given back by any thread."""

    def __init__(self, connect: Callable[[], SqliteConnection], *, most: int) -> None:
        self._connect, self._most = connect, most
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._resting: list[SqliteConnection] = []
        self._lent: set[SqliteConnection] = set()
        self._closed = False

    def take(self) -> SqliteConnection:
        with self._lock:
            if self._resting:
                conn = self._resting.pop()
                self._lent.add(conn)
                return conn
        with self._making:
            conn = self._connect()
            with self._lock:
                self._lent.add(conn)
        return conn

    def give_back(self, conn: SqliteConnection) -> None:
        with self._lock:
            if not conn.stale:
                self._lent.discard(conn)
                if not self._closed and len(self._resting) < self._most:
                    self._resting.append(conn)
                    return
        if not conn.stale:
            conn.raw.close()
            return
        discard(conn.raw)
        with self._lock:  # not sooner: whoever waits for it waits until it is closed
            self._lent.discard(conn)

    @property
    def stale(self) -> bool:
        """Whether somebody still reads with what had to go."""
        with self._lock:
            return any(conn.stale for conn in self._lent)

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """All that there are have to go; the next one is made when this is over."""
        with self._making:
            with self._lock:
                resting, self._resting = self._resting, []
                for conn in self._lent:
                    conn.stale = True
            for conn in resting:
                discard(conn.raw)
            yield

    def wait(self) -> None:
        """For those that have to go and are in use, as long as there is hope."""
        if not self._gone(_PATIENCE):
            with self._lock:
                for conn in self._lent:
                    with contextlib.suppress(apsw.ConnectionClosedError):
                        conn.raw.interrupt()
            self._gone(_LAST_PATIENCE)

    def _gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (stale := self.stale) and time.monotonic() < until:
            time.sleep(0.005)
        return not stale

    def close(self) -> None:
        """One that is in use closes when it comes back."""
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
        for conn in resting:
            conn.raw.close()

    def all(self) -> list[SqliteConnection]:
        return [*self._resting, *self._lent]


def discard(raw: apsw.Connection) -> None:
    """Close without SQLite's farewell checkpoint, which would write an orphaned log into the file."""
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    raw.close()
