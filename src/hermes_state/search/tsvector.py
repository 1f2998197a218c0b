"""The index of a PostgreSQL store: its own schema beside the store's, `public_search` for `public`.

Hermes makes the word vectors; PostgreSQL splits and stems nothing. Such a vector holds 16,383 positions, 256 of one
word, and a megabyte in all. A larger message is stored with its words but not their positions, or without words; it is
found whenever it might match, and the search then compares its text.

The feed does not use the store's writing connection, so appends do not wait for it. It follows the transcript by
(transaction, id) up to the oldest open transaction; the search itself reads the messages above that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from psycopg import errors

from hermes_state.errors import StateError
from hermes_state.search import words
from hermes_state.search.finder import FORMAT, Index, IndexView, Ranked, lateness
from hermes_state.search.query import Query
from hermes_state.search.search import IndexUnusable, Q
from hermes_state.search.snippets import message_text
from hermes_state.storage import statements
from hermes_state.storage.base import Connection, Row, scalar
from hermes_state.storage.postgres import PgEngine
from hermes_state.storage.statements import Statement

T = TypeVar("T")
_MAX_POSITIONS = 16_383
_MAX_POSITIONS_OF_WORD = 255
_VECTOR_BYTES = 900_000  # PostgreSQL refuses one of a megabyte


class TsvectorIndex(Index):
    batch = 256
    bulk_batch = 2_000

    def __init__(self, engine: PgEngine) -> None:
        super().__init__(engine, read_only=engine.read_only)
        self._names: _Names | None = None

    # -- reading -----------------------------------------------------------------------------------------

    def look(self, fn: Callable[[IndexView], T]) -> T:
        def view(conn: Connection) -> T:
            names = self._statements(conn)
            _, xid, position, _, late = _one(conn, names.position)
            return fn(TsvectorView(conn, names, xid, position, late))

        self._ready()
        with _unusable_if_dropped():
            return self._engine.read(view, snapshot=True)

    def status(self) -> dict[str, Any]:
        def read(conn: Connection) -> dict[str, Any]:
            names = self._statements(conn)
            format_, xid, position, *_ = _one(conn, names.position)
            return {
                "where": f"{self._engine.where} (schema {names.schema})",
                "behind": scalar(conn.rows(Q.behind, (xid, position))),
                "bytes": scalar(conn.rows(names.size, (names.schema,))),
                "format": format_,
            }

        self._ready()
        with _unusable_if_dropped():
            return self._engine.read(read)

    # -- writing, on a connection that is not the store's writer -----------------------------------------

    def _clear(self) -> None:
        self._make(rebuild=True)

    def _take_in(self, size: int, deadline: float) -> int:
        self._ready()
        return self._as_only_feeder(lambda conn, names: _feed_batch(conn, names, size))

    def _forget(self) -> int:
        return self._as_only_feeder(_forget)

    def _as_only_feeder(self, fn: Callable[[Connection, _Names], int]) -> int:
        """Run `fn` as the only feeder; 0 when another one is running."""
        return self._in_transaction(lambda conn, names: fn(conn, names) if _is_free(conn, names) else 0)

    def _in_transaction(self, fn: Callable[[Connection, _Names], T]) -> T:
        def run(conn: Connection) -> T:
            names = self._statements(conn)
            conn.run("BEGIN")
            try:
                result = fn(conn, names)
                conn.run("COMMIT")
            except BaseException:
                conn.run("ROLLBACK")
                raise
            return result

        try:
            return self._engine.read(run)
        except StateError as error:
            raise IndexUnusable(str(error)) from error

    # -- the schema --------------------------------------------------------------------------------------

    def _statements(self, conn: Connection) -> _Names:
        if self._names is None:
            self._names = _Names(f"{scalar(conn.rows('SELECT current_schema()'))}_search")
        return self._names

    def _ready(self) -> None:
        """Create the schema if it is missing or of another version."""
        try:
            ready = self._engine.read(lambda conn: _is_current(conn, self._statements(conn)))
        except StateError as error:
            raise IndexUnusable(str(error)) from error
        if not ready:
            self._make(rebuild=False)

    def _make(self, *, rebuild: bool) -> None:
        if self._read_only:
            raise IndexUnusable("there is no index yet")

        def make(conn: Connection, names: _Names) -> None:
            conn.rows(names.lock_waiting, (names.schema,))
            if not rebuild and _is_current(conn, names):
                return
            if scalar(conn.rows(names.exists, (names.schema,))):
                # Searches and feeds read it first: it is locked first, so no deadlock is possible.
                conn.run(f"LOCK TABLE {names.quoted}.feed IN ACCESS EXCLUSIVE MODE")
            conn.run(f"DROP SCHEMA IF EXISTS {names.quoted} CASCADE")
            for statement in statements.split(names.make.postgresql):
                conn.run(statement)
            conn.run(names.found, (FORMAT,))

        self._in_transaction(make)


class _Names:
    """The statements of `search_index.sql` with the schema's name in them."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.quoted = '"' + schema.replace('"', '""') + '"'
        self._plain = statements.Queries("search_index")

    def __getattr__(self, name: str) -> Statement:
        plain: Statement = getattr(self._plain, name)
        placed = Statement(plain.name, "", plain.postgresql.replace("search_index", self.quoted))
        self.__dict__[name] = placed
        return placed


@contextmanager
def _unusable_if_dropped() -> Iterator[None]:
    """Report `IndexUnusable` when another process drops the index between two of our reads, to rebuild it."""
    try:
        yield
    except StateError as error:
        if isinstance(error.__cause__, errors.UndefinedTable | errors.InvalidSchemaName):
            raise IndexUnusable("it is being rebuilt") from error
        raise


def _is_current(conn: Connection, names: _Names) -> bool:
    if not scalar(conn.rows(names.exists, (names.schema,))):
        return False
    found = conn.rows(names.position)
    return bool(found) and found[0][0] == FORMAT


def _is_free(conn: Connection, names: _Names) -> bool:
    return bool(scalar(conn.rows(names.lock, (names.schema,))))


def _one(conn: Connection, statement: Statement) -> Row:
    found = conn.rows(statement)
    if not found:
        raise IndexUnusable("it has no position")
    return found[0]


def _feed_batch(conn: Connection, names: _Names, size: int) -> int:
    _, xid, position, newest, late = _one(conn, names.position)
    rows = conn.rows(Q.next, (xid, position, size))
    if rows:
        conn.many(names.enter, [(row[0], *word_vector(words.words(message_text(*row[3:])))) for row in rows])
        conn.run(names.advance, (rows[-1][2], rows[-1][0], *lateness(newest, late, rows)))
    return len(rows)


def _forget(conn: Connection, names: _Names) -> int:
    """One transaction for the index and the store's list: both are in the same database."""
    gone = [row[0] for row in conn.rows(Q.to_forget, (TsvectorIndex.bulk_batch,))]
    if gone:
        conn.many(names.drop_entry, [(id_,) for id_ in gone])
        conn.run(Q.forgotten, (json.dumps(gone),))
    return len(gone)


def word_vector(found: Sequence[str]) -> tuple[str | None, bool]:
    """(a vector in PostgreSQL's notation, whether it contains all positions)."""
    positions: dict[str, list[str]] = {}
    for position, word in enumerate(found, 1):
        positions.setdefault(word, []).append(str(position))
    whole = len(found) <= _MAX_POSITIONS and all(len(each) <= _MAX_POSITIONS_OF_WORD for each in positions.values())
    if whole:
        vector = " ".join(f"'{word}':{','.join(each)}" for word, each in positions.items())
    else:
        vector = " ".join(f"'{word}'" for word in positions)
    vector = " ".join([vector, *(f"'{stem}'" for stem in words.stems(positions))])
    if len(vector.encode()) > _VECTOR_BYTES:
        return None, False
    return vector, whole


class TsvectorView(IndexView):
    """One snapshot of the database, index and store alike."""

    indexed = True

    def __init__(self, main: Connection, names: _Names, xid: str, position: int, late: float) -> None:
        super().__init__(main, position, late)
        self._names = names
        self._xid = xid

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        only = None if among is None else json.dumps(among)
        params = (query.to_tsquery(), query.to_loose_tsquery(), low, high, only, only, limit)
        return [row[0] for row in self.main.rows(self._names.newest if newest else self._names.oldest, params)]

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        exact = query.to_tsquery()
        params = (exact, exact, query.to_loose_tsquery(), low, high, window + 1, limit + 1)
        return Ranked.of(self.main.rows(self._names.ranked_window, params), window=window, low=low)

    def scores(self, query: Query, among: Sequence[int], limit: int) -> list[tuple[int, float]]:
        exact = query.to_tsquery()
        params = (exact, exact, query.to_loose_tsquery(), among[-1], among[0], json.dumps(among), limit)
        return [(row[0], row[1]) for row in self.main.rows(self._names.scores, params)]

    def tail(self, below: int, limit: int) -> list[Row]:
        return self.main.rows(Q.tail, (self._xid, self.position, below, limit))
