"""The file of a SQLite index: opening, making and replacing it.

It is opened by several processes at once and may be deleted, damaged or locked at any moment. Before each use the path
must still lead to the file that was opened (its inode: beside a new file lies another log than ours); if not, it is
opened again, or made. A damaged file is replaced by an empty one. To make or replace the file, a process holds a lock
on the folder, so that two of them never remove each other's fresh one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state.errors import StateError
from hermes_state.search.hits import IndexUnusable
from hermes_state.search.index import FORMAT
from hermes_state.storage import sqlite, statements
from hermes_state.storage.base import Row

T = TypeVar("T")
I = statements.Queries("search_index")  # noqa: E741 - I for the index, beside Q for the store

_KEPT_OPEN = 4
_LOCK_WAIT = 1.0
_CACHE_KIB = 8 * 1024
_LOG_BYTES = 4 * 1024 * 1024


class Broken(Exception):
    """The file is no index of this store; a fresh one is."""


class ViewFailed(Exception):
    """The index failed inside a read of the store, which would take an apsw error for its own."""

    def __init__(self, cause: apsw.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


class IndexFile:
    """`state.search.db` and its connections."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._idle: list[_Handle] = []  # used from any thread: append and pop are atomic
        self._foreign: list[_Handle] = []

    def use(self, fn: Callable[[apsw.Connection], T]) -> T:
        """`fn` with a connection to a sound index. Raises `IndexUnusable`; may run `fn` again on a fresh index."""
        for last in (False, True):
            handle = None
            try:
                handle = self._borrow()
                result = fn(handle.raw)
            except (Broken, ViewFailed, apsw.Error) as error:
                cause = error.cause if isinstance(error, ViewFailed) else error
                if last or self.read_only or not _is_damage(cause):
                    _close(handle)
                    raise IndexUnusable(str(cause)) from error
                self.replace(handle)
            except BaseException:  # the store's own trouble, not the index's
                _close(handle)
                raise
            else:
                self._give_back(handle)
                return result
        raise AssertionError("unreachable")

    def replace(self, broken: _Handle | None = None, *, only_missing: bool = False) -> None:
        """An empty index in the place of what is there, unless another process was quicker."""
        try:
            with _folder_lock(self.path.parent):
                now = self.inode()
                if now and (only_missing or (broken is not None and broken.inode != now)):
                    return
                for path in self.all_files():
                    path.unlink(missing_ok=True)
                sqlite.prepare(self.path)
                _Handle(self.path, read_only=False, empty=True).raw.close()
        except (OSError, StateError, apsw.Error) as error:
            raise IndexUnusable(str(error)) from error
        finally:
            _close(broken)  # not before: its open file keeps the inode from being given out again

    def inode(self) -> int:
        """Which file the path leads to; 0 for none."""
        return _inode(self.path)

    def all_files(self) -> list[Path]:
        return [self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm", "-journal"))]

    def close(self) -> None:
        while (handle := self._take_idle()) is not None:
            _close(handle)

    def _borrow(self) -> _Handle:
        now = self.inode()
        while (idle := self._take_idle()) is not None:
            if idle.inode == now:
                return idle
            _close(idle)
        if now == 0:
            if self.read_only:
                raise IndexUnusable("there is no index yet")
            self.replace(only_missing=True)
        try:
            return _Handle(self.path, read_only=self.read_only)
        except (Broken, apsw.Error) as error:
            if self.read_only or not _is_damage(error):
                raise
        self._replace_unopened(now)
        return _Handle(self.path, read_only=False)

    def _replace_unopened(self, inode: int) -> None:
        """A file that cannot even be opened; another process may be just about to finish making it."""
        with contextlib.suppress(Broken, apsw.Error), _folder_lock(self.path.parent):
            _Handle(self.path, read_only=False).raw.close()
            return
        if self.inode() == inode:
            self.replace()

    def _take_idle(self) -> _Handle | None:
        while self._idle:
            try:
                handle = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            if handle.pid == os.getpid():
                return handle
            self._foreign.append(handle)  # of the process we were forked from: not ours to use or to close
        return None

    def _give_back(self, handle: _Handle) -> None:
        if len(self._idle) < _KEPT_OPEN:
            self._idle.append(handle)
        else:
            _close(handle)


class _Handle:
    """A connection to the index, and which file it is connected to."""

    __slots__ = ("inode", "pid", "raw")

    def __init__(self, path: Path, *, read_only: bool, empty: bool = False) -> None:
        self.pid = os.getpid()
        self.inode = _inode(path)
        mode = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        self.raw = apsw.Connection(str(path), mode)
        try:
            self.raw.set_busy_timeout(50)
            # A log that is no longer where we wrote it must not be moved into the file at the end.
            self.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if empty:
                _create(self.raw)
            elif position(self.raw)[0] != FORMAT:
                raise Broken("made by another version")
            self.raw.pragma("synchronous", "NORMAL")
            self.raw.pragma("cache_size", -_CACHE_KIB)
            self.raw.pragma("journal_size_limit", _LOG_BYTES)
        except BaseException:
            self.raw.close()
            raise


def position(raw: apsw.Connection) -> Row:
    """(format, generation, position, mark)."""
    rows: list[Row] = raw.execute(I.position.sqlite).fetchall()
    if not rows:
        raise Broken("it has no position")
    return rows[0]


def _create(raw: apsw.Connection) -> None:
    raw.pragma("journal_mode", "wal")
    raw.execute("BEGIN IMMEDIATE")
    for statement in statements.split(statements.script("sqlite/search_schema.sql")):
        raw.execute(statement).fetchall()
    raw.execute(I.found.sqlite, (FORMAT,)).fetchall()
    raw.execute("COMMIT")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _close(handle: _Handle | None) -> None:
    if handle is not None:
        handle.raw.close()


def _is_damage(error: Exception) -> bool:
    """Whether a fresh index would help; a locked or full one, or a query SQLite refuses, is not damaged."""
    if isinstance(error, apsw.SQLError):
        return any(sign in str(error) for sign in ("no such", "vtable constructor", "malformed"))
    return isinstance(error, (Broken, apsw.CorruptError, apsw.NotADBError, apsw.IOError))


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    if sys.platform == "win32":  # a file in use cannot be deleted there in the first place
        yield
        return
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise IndexUnusable(str(error)) from error
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                    raise IndexUnusable(f"the folder cannot be locked: {error.strerror}") from error
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)
