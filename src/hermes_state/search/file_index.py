"""The index of a SQLite store: a file of its own beside the database (see `index_file` for the file itself).

New messages are taken in by id, in short transactions; the position is read inside them, so several processes may feed
at once. `synchronous=NORMAL`: after a power cut the index may be a little behind, which is its normal state; only what
lets go of deleted messages is made durable before the store is told so. A file that cannot be used makes the search
read the transcript instead. Nothing here can fail a write to the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from hermes_state.search import words
from hermes_state.search.index import Progress, Q, Ranked, View
from hermes_state.search.index_file import Broken, I, IndexFile, ViewFailed, position
from hermes_state.search.query import Query
from hermes_state.search.text import message_text
from hermes_state.search.times import CachedTimes, TimeTable, widened
from hermes_state.storage.base import Connection, Row, scalar
from hermes_state.storage.sqlite import SqliteEngine
from hermes_state.storage.statements import Statement

T = TypeVar("T")

_BATCH = 512  # messages a transaction; a few milliseconds
_BULK_BATCH = 20_000
_MERGE_PAGES = 500


class FileIndex:
    """`state.search.db` beside `state.db`."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        path = engine.path.with_name(f"{engine.path.stem}.search.db")
        self._file = IndexFile(path, read_only=engine.read_only)
        self._times = CachedTimes()

    def look(self, fn: Callable[[View], T]) -> T:
        def view(raw: apsw.Connection) -> T:
            raw.execute("BEGIN")
            try:
                _, generation, at, _ = position(raw)
                # The index first, then the store: what is committed in between is simply still in the tail.
                return self._engine.read(
                    lambda main: fn(FileView(main, raw, at, generation, self._times)), snapshot=True
                )
            finally:
                if raw.in_transaction:
                    raw.execute("COMMIT")

        return self._file.use(view)

    def status(self) -> dict[str, Any]:
        version, _, at, _ = self._file.use(position)
        behind = scalar(self._engine.read(lambda main: main.rows(Q.behind, (at,))))
        # stat only: to open a database file beside SQLite would drop its locks.
        size = sum(path.stat().st_size for path in self._file.all_files() if path.exists())
        return {"where": str(self._file.path), "behind": behind, "bytes": size, "format": version}

    def close(self) -> None:
        self._file.close()

    # -- feeding -----------------------------------------------------------------------------------------

    def feed(self, budget: float, *, forget: bool) -> int:
        if self._engine.read_only:
            return 0
        deadline = time.monotonic() + budget
        taken = 0
        while True:
            batch = self._file.use(lambda raw: self._feed_batch(raw, _BATCH, deadline))
            taken += batch
            if batch < _BATCH or time.monotonic() >= deadline:
                break
        if forget and time.monotonic() < deadline:
            taken += self._forget()
        return taken

    def _feed_batch(self, raw: apsw.Connection, size: int, deadline: float) -> int:
        """How many messages one transaction took in."""
        _, _, at, mark = position(raw)
        head, found = self._engine.read(lambda main: main.rows(Q.head, (at,)))[0]
        if head < at or (found is not None and mark is not None and found != mark):
            raise Broken("the store was put back to an older state than its index")
        if head == at:
            return 0
        raw.set_busy_timeout(max(1, min(50, int((deadline - time.monotonic()) * 1000))))
        raw.execute("BEGIN IMMEDIATE")
        try:
            _, _, at, _ = position(raw)
            rows = self._engine.read(lambda main: main.rows(Q.next, (at, size)))
            entries = [(row[0], words.indexed(message_text(*row[3:]))) for row in rows]
            raw.executemany(I.enter.sqlite, entries).fetchall()
            raw.executemany(I.widen_block.sqlite, widened(rows)).fetchall()
            if rows:
                at, mark = rows[-1][0], rows[-1][2]
                raw.execute(I.advance.sqlite, (at, mark)).fetchall()
            if len(rows) < size and head > at:
                # The newest ids were deleted: up to `head`, which was read before the rows, all are accounted for.
                raw.execute(I.advance.sqlite, (head, None)).fetchall()
            raw.execute("COMMIT")
        finally:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
        return len(rows)

    def _forget(self) -> int:
        """Let go of deleted messages: durably in the index first, then in the store's list of them."""
        gone = [row[0] for row in self._engine.read(lambda main: main.rows(Q.to_forget, (_BULK_BATCH,)))]
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

    # -- maintenance -------------------------------------------------------------------------------------

    def rebuild(self, progress: Progress | None) -> None:
        total = int(scalar(self._engine.read(lambda main: main.rows(Q.total))))
        self._file.replace()
        done = 0
        while True:
            taken = self._file.use(lambda raw: self._feed_batch(raw, _BULK_BATCH, time.monotonic() + 60))
            done += taken
            if progress is not None:
                progress(min(done, total), total)
            if taken < _BULK_BATCH:
                break
        self._forget()
        self.merge()

    def merge(self) -> None:
        # A negative amount asks for everything to be merged into one; the steps after it work that off.
        self._file.use(lambda raw: _merge_step(raw, -_MERGE_PAGES))
        while self._file.use(lambda raw: _merge_step(raw, _MERGE_PAGES)):
            pass
        self._file.use(_wipe)


def _merge_step(raw: apsw.Connection, pages: int) -> bool:
    before = raw.total_changes()
    raw.set_busy_timeout(1000)
    raw.execute(I.merge.sqlite, (pages,)).fetchall()
    return raw.total_changes() - before >= 2  # fewer: there was nothing left to merge


def _wipe(raw: apsw.Connection) -> None:
    """Words of erased messages are in no entry any more; now they leave the freed pages and the log too."""
    raw.set_busy_timeout(1000)
    raw.execute("VACUUM")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class FileView:
    """One moment of the index file, and one not earlier of the store."""

    def __init__(self, main: Connection, raw: apsw.Connection, at: int, generation: str, times: CachedTimes) -> None:
        self.main = main
        self._raw = raw
        self._position = at
        self._generation = generation
        self._times = times

    def _rows(self, statement: Statement, params: Sequence[Any]) -> list[Row]:
        try:
            return self._raw.execute(statement.sqlite, params).fetchall()
        except apsw.Error as error:
            raise ViewFailed(error) from error

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        params: list[Any] = [query.to_fts5(), low, high]
        if among is None:
            rows = self._rows(I.newest if newest else I.oldest, (*params, limit))
        else:
            rows = self._rows(I.newest_among if newest else I.oldest_among, (*params, json.dumps(among), limit))
        return [row[0] for row in rows]

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        match = query.to_fts5()
        # To find the window's end first is next to nothing for one word; for more it would be the search done twice.
        if query.is_one_word():
            beyond = scalar(self._rows(I.floor, (match, low, high, window)))
            low = low if beyond is None else beyond + 1
            rows = self._rows(I.ranked, (match, low, high, limit))
            return Ranked([row[0] for row in rows], low, cut=beyond is not None)
        rows = self._rows(I.ranked_window, (match, low, high, window + 1, limit + 1))
        return Ranked.of(rows, window=window, low=low)

    def ranked_among(self, query: Query, among: Sequence[int], limit: int) -> list[int]:
        params = (query.to_fts5(), among[-1], among[0], json.dumps(among), limit)
        return [row[0] for row in self._rows(I.ranked_among, params)]

    def times(self) -> TimeTable:
        return self._times.current(self._generation, lambda first: self._rows(I.blocks, (first,)))

    def tail(self, below: int, limit: int) -> list[Row]:
        return self.main.rows(Q.tail, (self._position, below, limit))
