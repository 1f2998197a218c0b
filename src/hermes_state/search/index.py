"""What the search asks of an index, whichever engine keeps it.

An index is derived data. It has a position in the log of messages; what lies behind it is in the index, what lies
ahead is the tail. A `View` is one moment of both: answers from the index, the tail, and the store they belong to agree
in it. When the index cannot be used at all, `Unindexed` takes its place: everything is tail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from hermes_state.search.query import Query
from hermes_state.search.times import TimeTable
from hermes_state.storage.base import Connection, Row
from hermes_state.storage.statements import Queries

T = TypeVar("T")
Q = Queries("search")

FORMAT = 1  # raise it when words, texts or tables of an index change: older indexes are then built anew

Progress = Callable[[int, int], None]


class Ranked(NamedTuple):
    """Ids by relevance, the oldest id that was considered, and whether older matches were not."""

    ids: list[int]
    low: int
    cut: bool

    @classmethod
    def of(cls, rows: Sequence[Row], *, window: int, low: int) -> Ranked:
        """From rows (id, how many there are, the oldest of them), where one more than the window was asked for."""
        if not rows or rows[0][1] <= window:
            return cls([row[0] for row in rows], low, cut=False)
        beyond = rows[0][2]
        return cls([row[0] for row in rows if row[0] != beyond], beyond + 1, cut=True)


class View(Protocol):
    """One moment of the index and of the store."""

    main: Connection

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        """Matches between two ids, from the newest or the oldest end; with `among` only those."""

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        """The best of the newest `window` matches between two ids."""

    def ranked_among(self, query: Query, among: Sequence[int], limit: int) -> list[int]:
        """The best of the given ids, newest first in `among`."""

    def times(self) -> TimeTable:
        """Which times can lie below or above an id."""

    def tail(self, below: int, limit: int) -> list[Row]:
        """Messages ahead of the position, newest first: id, then the columns `message_text` takes."""


class Index(Protocol):
    """The index of one store."""

    def look(self, fn: Callable[[View], T]) -> T:
        """`fn` with a view. Raises `IndexUnusable`."""

    def feed(self, budget: float, *, forget: bool) -> int:
        """Take in messages for at most about `budget` seconds; with `forget`, also drop what was deleted."""

    def rebuild(self, progress: Progress | None) -> None:
        """Drop the index and build it from the transcript."""

    def merge(self) -> None:
        """Put the index into its most compact form, in small steps."""

    def status(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Unindexed:
    """A view without an index."""

    def __init__(self, main: Connection) -> None:
        self.main = main

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        return []

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        return Ranked([], low, cut=False)

    def ranked_among(self, query: Query, among: Sequence[int], limit: int) -> list[int]:
        return []

    def times(self) -> TimeTable:
        return TimeTable()

    def tail(self, below: int, limit: int) -> list[Row]:
        return self.main.rows(Q.everything, (below, limit))
