"""Check that the database and its write-ahead log are still the files we write to.

If somebody removes or replaces `state.db` or `state.db-wal` under an open connection, SQLite keeps writing to a file
without a name: commits succeed and are lost. So after each commit, before it is acknowledged, this module asks the
kernel for the inodes of both paths and the log's size. `statx` answers these from memory; a full `stat` makes the file
system update times too and costs a third of the throughput.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from hermes_state.storage.sqlite import SqliteConnection


class FileGuard:
    """Remembers the inodes of a database file and its -wal file.

    `arm` is called inside the first transaction of a connection, when SQLite has both open; from then on a commit is
    good only while the paths lead to these files. Each check also stores the log's `size`, at no extra cost.
    """

    __slots__ = ("_database", "_log", "_path", "_read_database", "_read_log", "size")

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._database: int | None = None
        self._log: int | None = None
        self._read_database: Reader
        self._read_log: Reader
        self.size = 0

    def arm(self) -> None:
        if self._log is None:
            # not sooner: a command that only reads needs none
            self._read_database, self._read_log = _reader(self._path), _reader(f"{self._path}-wal")
            self._database, _ = self._read_database()
            self._log, self.size = self._read_log()

    def intact(self) -> bool:
        if self._log is None or self._database is None:
            return False
        inode, self.size = self._read_log()
        return inode == self._log and not self.database_replaced

    @property
    def database_replaced(self) -> bool:
        """Whether the path of the database no longer leads to the file that is open."""
        return self._database is None or self._read_database()[0] != self._database


Reader = Callable[[], tuple[int | None, int]]
"""Returns (inode, or None without a file; size)."""


def _reader(path: str) -> Reader:
    if sys.platform == "linux":
        try:
            return _statx_reader(path)
        except (AttributeError, OSError):  # a libc without statx
            pass

    def read() -> tuple[int | None, int]:
        try:
            status = Path(path).stat()
        except FileNotFoundError:
            return None, 0
        return status.st_ino, status.st_size

    return read


def _statx_reader(path: str) -> Reader:
    import ctypes

    at_fdcwd, at_statx_dont_sync, statx_ino, statx_size = -100, 0x4000, 0x100, 0x200
    # PyDLL keeps the interpreter lock: the kernel answers from memory, faster than the lock could be released.
    statx = ctypes.PyDLL(None).statx
    buffer = ctypes.create_string_buffer(256)  # struct statx
    # stx_ino follows mask, blksize, attributes, nlink, uid, gid, mode and padding; stx_size follows it
    inode, size = ctypes.c_uint64.from_buffer(buffer, 32), ctypes.c_uint64.from_buffer(buffer, 40)
    directory, name = ctypes.c_int(at_fdcwd), ctypes.c_char_p(os.fsencode(path))
    flags, wanted = ctypes.c_int(at_statx_dont_sync), ctypes.c_uint(statx_ino | statx_size)

    def read() -> tuple[int | None, int]:
        return (inode.value, size.value) if statx(directory, name, flags, wanted, buffer) == 0 else (None, 0)

    return read


_PATIENCE = 10.0
_LAST_PATIENCE = 5.0
"""Seconds to wait for running reads to end, and again once they are interrupted."""


class Readers:
    """A pool of reading connections for all threads."""

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
        with self._lock:  # not sooner: `wait` ends when the last one is closed
            self._lent.discard(conn)

    @property
    def stale(self) -> bool:
        """Whether a read still uses an unusable connection."""
        with self._lock:
            return any(conn.stale for conn in self._lent)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Mark every connection as unusable; new ones are opened after this block."""
        with self._making:
            with self._lock:
                resting, self._resting = self._resting, []
                for conn in self._lent:
                    conn.stale = True
            for conn in resting:
                discard(conn.raw)
            yield

    def wait(self) -> None:
        """Wait until lent unusable connections are returned; then interrupt their reads and wait again."""
        if not self._all_returned(_PATIENCE):
            with self._lock:
                for conn in self._lent:
                    with contextlib.suppress(apsw.ConnectionClosedError):
                        conn.raw.interrupt()
            self._all_returned(_LAST_PATIENCE)

    def _all_returned(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (stale := self.stale) and time.monotonic() < until:
            time.sleep(0.005)
        return not stale

    def close(self) -> None:
        """Close the pool; a connection in use closes when it is returned."""
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
        for conn in resting:
            conn.raw.close()

    def all(self) -> list[SqliteConnection]:
        return [*self._resting, *self._lent]


def discard(raw: apsw.Connection) -> None:
    """Close without SQLite's final checkpoint, which would write an orphaned log into the file."""
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    raw.close()
