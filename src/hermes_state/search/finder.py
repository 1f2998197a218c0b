"""How a search finds its answers in a view of the index and the store.

1. The tail, which no index has yet, is read and compared word by word.
2. By relevance: the newest matches that pass every filter, as many as the window holds, are ranked. Matches from the
   tail come first, newest first: they have no rank yet, and they are what was said a moment ago.
   By time: matches are walked by id until no better time can follow.
3. The hits of the page are read, compared with the query once more (so that nothing an index gets wrong can show), and
   their snippets cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from hermes_state.search import snippets as texts
from hermes_state.search import words
from hermes_state.search.query import Query
from hermes_state.search.search import SearchHits
from hermes_state.search.times import TimeTable
from hermes_state.storage.base import Connection, Row
from hermes_state.storage.statements import Queries

_LAST = 2**62  # above every message id
_EVER = 1e300  # beyond every time
_TAIL_ROWS = 500
_WALK_FIRST, _WALK_MOST = 8, 20_000
_FEW_HIDDEN = 1_000
_MANY = 50_000  # ids to hand to the index; beyond that its matches are looked up instead

Found = list[tuple[int, float]]  # (message id, its time)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """What a search may show; None is no limit."""

    sources: Sequence[str] | None = None
    without_sources: Sequence[str] | None = None
    roles: Sequence[str] | None = None
    conversation: str | None = None
    owner: str | None = None
    since: float | None = None
    until: float | None = None
    taken_back: bool = False

    @property
    def none(self) -> bool:
        """True when only hidden messages are left out."""
        return all(
            value is None
            for value in (
                self.sources, self.without_sources, self.roles, self.conversation, self.owner, self.since, self.until
            )
        )  # fmt: skip

    def visible(self, main: Connection, ids: Sequence[int]) -> Found:
        """Those of `ids` that may be shown, in no order."""
        if not ids:
            return []
        params: list[Any] = [json.dumps(ids), int(self.taken_back)]
        for names in (self.sources, self.without_sources, self.roles):
            listed = None if names is None else json.dumps(list(names))
            params += [listed, listed]
        params += [self.conversation, self.conversation, self.owner, self.owner]
        params += [-_EVER if self.since is None else self.since, _EVER if self.until is None else self.until]
        return [(row[0], row[1]) for row in main.rows(Q.visible, params)]


@dataclass(slots=True)
class Finder:
    """One search in one view."""

    view: View
    query: Query
    filters: SearchFilters
    window: int
    low: int = 0
    high: int = _LAST
    among: list[int] | None = None
    tail: Found = field(default_factory=list)
    scanned: int = 0
    cut: bool = False

    def hits(self, *, order: str | None, offset: int, limit: int) -> SearchHits:
        self._scan_tail(stop_at=None if order == "oldest" else max(self.window, offset + limit))
        self._narrow()
        hits = SearchHits()
        need = offset + limit
        while True:
            ids = self._by_relevance(need) if order is None else self._by_time(need, newest=order == "newest")
            hits[:] = self._page(ids[offset:])[:limit]
            if len(hits) == limit or len(ids) < need:
                break
            need *= 2  # something on the page turned out not to match
        hits.index_lag, hits.cut = self.scanned, self.cut
        return hits

    def _scan_tail(self, stop_at: int | None) -> None:
        below = _LAST
        while rows := self.view.tail(below, _TAIL_ROWS):
            matching = [row[0] for row in rows if self.query.matches(words.words(texts.message_text(*row[1:])))]
            self.tail += sorted(self.filters.visible(self.view.main, matching), reverse=True)
            self.scanned += len(rows)
            below = rows[-1][0]
            if stop_at is not None and len(self.tail) >= stop_at:
                return

    def _narrow(self) -> None:
        """Where all answers must lie; filters that cannot say so are left to `visible`."""
        main, filters = self.view.main, self.filters
        ids: list[int] | None = None
        if filters.conversation is not None:
            ids = [row[0] for row in main.rows(Q.of_conversation, (filters.conversation, _MANY + 1))]
        elif filters.owner is not None:
            ids = [row[0] for row in main.rows(Q.of_owner, (filters.owner, _MANY + 1))]
        if ids is not None and len(ids) <= _MANY:
            self.among = ids
            self.low, self.high = min(ids, default=1), max(ids, default=0)
        if filters.since is not None or filters.until is not None:
            since = -_EVER if filters.since is None else filters.since
            until = _EVER if filters.until is None else filters.until
            first, last = self.view.times().ids_between(since, until)
            self.low, self.high = max(self.low, first), min(self.high, last)

    # -- by relevance ------------------------------------------------------------------------------------

    def _by_relevance(self, need: int) -> list[int]:
        newest = [id_ for id_, _ in self.tail[: self.window]]
        room = self.window - len(newest)
        self.cut = len(self.tail) > self.window
        if room <= 0 or self.low > self.high:
            return newest
        ranked = self._rank_unfiltered(room, need) if self.filters.none else None
        if ranked is None:
            ranked = self._rank_filtered(room, need)
        return newest + ranked

    def _rank_unfiltered(self, room: int, need: int) -> list[int] | None:
        """None when so many messages are hidden that it is better to look at each match."""
        hidden = set[int]()
        for _ in range(3):  # at the second try there is room for what is hidden, the third is for the unlucky
            found = self.view.ranked(self.query, self.low, self.high, room + len(hidden), need + len(hidden))
            known = len(hidden)
            hidden = {
                id_
                for id_, for_good in self.view.main.rows(Q.hidden, (found.low, self.high, found.low, self.high))
                if for_good or not self.filters.taken_back
            }
            if len(hidden) > _FEW_HIDDEN:
                return None
            if len(hidden) <= known:
                break
        self.cut = self.cut or found.cut
        return [id_ for id_ in found.ids if id_ not in hidden]

    def _rank_filtered(self, room: int, need: int) -> list[int]:
        kept: list[int] = []
        high, size = self.high, _WALK_MOST if self.among is not None else _WALK_FIRST * 256
        while len(kept) <= room:
            ids = self.view.ids(self.query, self.low, high, size, newest=True, among=self.among)
            kept += sorted((id_ for id_, _ in self.filters.visible(self.view.main, ids)), reverse=True)
            if len(ids) < size:
                break
            high, size = ids[-1] - 1, min(size * 4, _WALK_MOST)
        self.cut = self.cut or len(kept) > room
        kept = kept[:room]
        return self.view.ranked_among(self.query, kept, need) if kept else []

    # -- by time -----------------------------------------------------------------------------------------

    def _by_time(self, need: int, *, newest: bool) -> list[int]:
        times = self.view.times()
        found = list(self.tail)
        low, high, size = self.low, self.high, need + _WALK_FIRST
        while True:
            ids = self._matches(low, high, size, newest=newest)
            found += self.filters.visible(self.view.main, ids)
            found.sort(key=lambda hit: (hit[1], hit[0]), reverse=newest)
            if len(ids) < size:
                break
            low, high = (low, ids[-1] - 1) if newest else (ids[-1] + 1, high)
            size = min(size * 3, _WALK_MOST)
            if len(found) >= need:
                edge = found[need - 1][1]
                if edge >= times.newest_below(high + 1) if newest else edge <= times.oldest_above(low - 1):
                    break
        return [id_ for id_, _ in found[:need]]

    def _matches(self, low: int, high: int, size: int, *, newest: bool) -> list[int]:
        if low > high:
            return []
        return self.view.ids(self.query, low, high, size, newest=newest, among=self.among)

    # -- the page ----------------------------------------------------------------------------------------

    def _page(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        if not ids:
            return []
        taken_back = int(self.filters.taken_back)
        rows = {row[0]: row for row in self.view.main.rows(Q.page, (taken_back, taken_back, json.dumps(ids)))}
        near = _neighbours(self.view.main, (id_ for row in rows.values() for id_ in row[12:14] if id_ is not None))
        phrases = self.query.wanted()
        hits = []
        for id_ in ids:
            if id_ not in rows:
                continue  # deleted, and the index does not know yet
            (_, session_id, role, timestamp, tool_name, source, model, started, content, kind, calls, escaped,
             before, after) = rows[id_]  # fmt: skip
            text = words.composed(texts.message_text(content, kind, tool_name, calls, escaped))
            found = words.words(text)
            if not self.query.matches(found):
                continue
            match = {"role": role, "content": texts.context_text(content, kind)}
            context = [near.get(before), match, near.get(after)]
            hits.append({
                "id": id_, "session_id": session_id, "role": role,
                "snippet": texts.snippet(text, found, phrases), "timestamp": timestamp, "tool_name": tool_name,
                "source": source, "model": model, "session_started": started,
                "context": [message for message in context if message is not None],
            })  # fmt: skip
        return hits


def _neighbours(main: Connection, ids: Iterable[int]) -> dict[int | None, dict[str, str]]:
    rows = main.rows(Q.neighbours, (json.dumps(list(ids)),))
    return {id_: {"role": role, "content": texts.context_text(content, kind)} for id_, role, content, kind in rows}


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
