"""The index of a SQLite store: an FTS5 table in its own file beside the database.

New messages are indexed by id, in short transactions; the position is read inside them, so several processes may feed
at once. `synchronous=NORMAL`: after a power cut the index may be a little behind, which is its normal state; only the
removal of deleted messages is made durable, before the store records it. If the file cannot be used, the search
reads the transcript instead. No error here can fail a write to the store.

The file is opened by several processes at once and may be deleted, damaged or locked at any moment. Before each use the
path must still lead to the file that was opened (its inode: a new file has another log than ours); if not, it
is opened again, or created. A damaged file is replaced by an empty one. To create or replace it, a process holds a
lock on the folder, so that two processes never remove each other's new file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from hermes_state.errors import StateError
from hermes_state.search import words
from hermes_state.search.finder import FORMAT, Index, IndexView, Ranked, lateness
from hermes_state.search.query import Query
from hermes_state.search.search import IndexUnusable, Q
from hermes_state.search.snippets import message_text
from hermes_state.storage import sqlite, statements
from hermes_state.storage.base import Connection, Row, scalar
from hermes_state.storage.sqlite import SqliteEngine
from hermes_state.storage.statements import Statement

T = TypeVar("T")
I = statements.Queries("search_index")  # noqa: E741 - I for the index, beside Q for the store

_KEPT_OPEN = 4
_LOCK_WAIT = 1.0
_CACHE_KIB = 8 * 1024
_LOG_BYTES = 4 * 1024 * 1024


class BrokenIndex(Exception):
    """The file is not a valid index of this store; a new one helps."""


class ViewFailed(Exception):
    """The index failed inside a read of the store, which would mistake an apsw error for its own."""

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
        """Call `fn` with a connection to a sound index. Raises `IndexUnusable`; may call `fn` again on a new index."""
        for last in (False, True):
            handle = None
            try:
                handle = self._borrow()
                result = fn(handle.raw)
            except (BrokenIndex, ViewFailed, apsw.Error) as error:
                cause = error.cause if isinstance(error, ViewFailed) else error
                if last or self.read_only or not _is_damage(cause):
                    _close(handle)
                    raise IndexUnusable(str(cause)) from error
                self.replace(handle)
            except BaseException:  # the error is the store's, not the index's
                _close(handle)
                raise
            else:
                self._give_back(handle)
                return result
        raise AssertionError("unreachable")

    def replace(self, broken: _Handle | None = None, *, only_missing: bool = False) -> None:
        """Replace the present file with an empty index, unless another process was faster."""
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
            _close(broken)  # not before: its open file keeps the inode from being reused

    def inode(self) -> int:
        """The inode behind the path; 0 without a file."""
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
        except (BrokenIndex, apsw.Error) as error:
            if self.read_only or not _is_damage(error):
                raise
        self._replace_unopened(now)
        return _Handle(self.path, read_only=False)

    def _replace_unopened(self, inode: int) -> None:
        """Replace a file that cannot even be opened; another process may be just about to finish it."""
        with contextlib.suppress(BrokenIndex, apsw.Error), _folder_lock(self.path.parent):
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
            self._foreign.append(handle)  # from the process that forked us: do not use or close it
        return None

    def _give_back(self, handle: _Handle) -> None:
        if len(self._idle) < _KEPT_OPEN:
            self._idle.append(handle)
        else:
            _close(handle)


class _Handle:
    """A connection to the index, and the inode of its file."""

    __slots__ = ("inode", "pid", "raw")

    def __init__(self, path: Path, *, read_only: bool, empty: bool = False) -> None:
        self.pid = os.getpid()
        self.inode = _inode(path)
        mode = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        self.raw = apsw.Connection(str(path), mode)
        try:
            self.raw.set_busy_timeout(50)
            # SQLite must not checkpoint a log whose file was replaced when the connection closes.
            self.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if empty:
                _create(self.raw)
            elif position(self.raw)[0] != FORMAT:
                raise BrokenIndex("made by another version")
            self.raw.pragma("synchronous", "NORMAL")
            self.raw.pragma("cache_size", -_CACHE_KIB)
            self.raw.pragma("journal_size_limit", _LOG_BYTES)
        except BaseException:
            self.raw.close()
            raise


def position(raw: apsw.Connection) -> Row:
    """(format, position, mark, newest time, lateness)."""
    rows: list[Row] = raw.execute(I.position.sqlite).fetchall()
    if not rows:
        raise BrokenIndex("it has no position")
    return rows[0]


def _create(raw: apsw.Connection) -> None:
    raw.pragma("journal_mode", "wal")
    raw.execute("BEGIN IMMEDIATE")
    for statement in statements.split(I.make.sqlite):
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
    """Whether a new index would help; a locked or full one, or a query that SQLite refuses, is not damaged."""
    if isinstance(error, apsw.SQLError):
        return any(sign in str(error) for sign in ("no such", "vtable constructor", "malformed"))
    return isinstance(error, (BrokenIndex, apsw.CorruptError, apsw.NotADBError, apsw.IOError))


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
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


_MERGE_PAGES = 500


class Fts5Index(Index):
    batch = 512  # a few milliseconds
    bulk_batch = 20_000

    def __init__(self, engine: SqliteEngine) -> None:
        super().__init__(engine, read_only=engine.read_only)
        path = engine.path.with_name(f"{engine.path.stem}.search.db")
        self._file = IndexFile(path, read_only=engine.read_only)

    def look(self, fn: Callable[[IndexView], T]) -> T:
        def view(raw: apsw.Connection) -> T:
            raw.execute("BEGIN")
            try:
                _, at, _, _, late = position(raw)
                # The index first, then the store: messages committed in between are still in the tail.
                return self._engine.read(lambda main: fn(Fts5View(main, raw, at, late)), snapshot=True)
            finally:
                if raw.in_transaction:
                    raw.execute("COMMIT")

        return self._file.use(view)

    def status(self) -> dict[str, Any]:
        version, at, *_ = self._file.use(position)
        behind = scalar(self._engine.read(lambda main: main.rows(Q.behind, (at,))))
        # stat only: opening a database file beside SQLite would drop its locks.
        size = sum(path.stat().st_size for path in self._file.all_files() if path.exists())
        return {"where": str(self._file.path), "behind": behind, "bytes": size, "format": version}

    def close(self) -> None:
        self._file.close()

    def _clear(self) -> None:
        self._file.replace()

    def _take_in(self, size: int, deadline: float) -> int:
        return self._file.use(lambda raw: self._feed_batch(raw, size, deadline))

    def _feed_batch(self, raw: apsw.Connection, size: int, deadline: float) -> int:
        _, at, mark, *_ = position(raw)
        head, found = self._engine.read(lambda main: main.rows(Q.head, (at,)))[0]
        if head < at or (found is not None and mark is not None and found != mark):
            raise BrokenIndex("the store was restored to an older state than its index")
        if head == at:
            return 0
        raw.set_busy_timeout(max(1, min(50, int((deadline - time.monotonic()) * 1000))))
        raw.execute("BEGIN IMMEDIATE")
        try:
            _, at, _, newest, late = position(raw)
            rows = self._engine.read(lambda main: main.rows(Q.next, (at, size)))
            entries = [(row[0], words.indexed(message_text(*row[3:]))) for row in rows]
            raw.executemany(I.enter.sqlite, entries).fetchall()
            if rows:
                at, mark = rows[-1][0], rows[-1][2]
                newest, late = lateness(newest, late, rows)
                raw.execute(I.advance.sqlite, (at, mark, newest, late)).fetchall()
            if len(rows) < size and head > at:
                # The newest ids were deleted: all up to `head`, which was read before the rows, are handled.
                raw.execute(I.advance.sqlite, (head, None, newest, late)).fetchall()
            raw.execute("COMMIT")
        finally:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
        return len(rows)

    def _forget(self) -> int:
        gone = [row[0] for row in self._engine.read(lambda main: main.rows(Q.to_forget, (self.bulk_batch,)))]
        if not gone:
            return 0

        def drop(raw: apsw.Connection) -> int:
            raw.pragma("synchronous", "FULL")
            try:
                raw.execute("BEGIN IMMEDIATE")
                raw.executemany(I.drop_entry.sqlite, [(id_,) for id_ in gone]).fetchall()
                raw.execute("COMMIT")
            finally:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raw.pragma("synchronous", "NORMAL")
            return self._file.inode()

        before = self._file.inode()
        if self._file.use(drop) == before != 0:  # else the file was replaced meanwhile: next time
            self._engine.write(lambda main: main.run(Q.forgotten, (json.dumps(gone),)))
        return len(gone)

    def merge(self) -> None:
        # A negative amount asks FTS5 to merge everything into one segment; the following steps do that work.
        self._file.use(lambda raw: _merge_step(raw, -_MERGE_PAGES))
        while self._file.use(lambda raw: _merge_step(raw, _MERGE_PAGES)):
            pass
        self._file.use(_wipe)


def _merge_step(raw: apsw.Connection, pages: int) -> bool:
    before = raw.total_changes()
    raw.set_busy_timeout(1000)
    raw.execute(I.merge.sqlite, (pages,)).fetchall()
    return raw.total_changes() - before >= 2  # fewer: nothing was left to merge


def _wipe(raw: apsw.Connection) -> None:
    """Remove the words of erased messages from freed pages and from the log; no entry contains them any more."""
    raw.set_busy_timeout(1000)
    raw.execute("VACUUM")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class Fts5View(IndexView):
    """A snapshot of the index file, and a snapshot of the store that is not earlier."""

    indexed = True

    def __init__(self, main: Connection, raw: apsw.Connection, at: int, late: float) -> None:
        super().__init__(main, at, late)
        self._raw = raw

    def _rows(self, statement: Statement, params: Sequence[Any]) -> list[Row]:
        try:
            return self._raw.execute(statement.sqlite, params).fetchall()
        except apsw.Error as error:
            raise ViewFailed(error) from error

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        only = None if among is None else json.dumps(among)
        rows = self._rows(I.newest if newest else I.oldest, (query.to_fts5(), low, high, only, only, limit))
        return [row[0] for row in rows]

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        match = query.to_fts5()
        # Finding the window's end first is cheap for one word; for more it would double the search.
        if query.is_one_word():
            beyond = scalar(self._rows(I.floor, (match, low, high, window)))
            low = low if beyond is None else beyond + 1
            rows = self._rows(I.scores, (match, low, high, None, None, limit))
            return Ranked([row[0] for row in rows], low, cut=beyond is not None)
        rows = self._rows(I.ranked_window, (match, low, high, window + 1, limit + 1))
        return Ranked.of(rows, window=window, low=low)

    def scores(self, query: Query, among: Sequence[int], limit: int) -> list[tuple[int, float]]:
        only = json.dumps(among)
        params = (query.to_fts5(), among[-1], among[0], only, only, limit)
        return [(row[0], -row[1]) for row in self._rows(I.scores, params)]

    def tail(self, below: int, limit: int) -> list[Row]:
        return self.main.rows(Q.tail, (self.position, below, limit))
