"""The search algorithm, on one snapshot of the index and the store.

An index is derived data. It has a position in the transcript: messages before it are in the index, messages after it
are the tail. An `IndexView` is one snapshot of both.

1. The tail is read and compared word by word.
2. By relevance: the newest matches that pass every filter, as many as the window holds, are ranked. Matches from the
   tail come first, newest first: they are recent and have no rank yet.
   By time: matches are read by id, 20,000 at most, until no better time can follow. Ids follow the order of writing
   and times mostly do too; an import brings old messages under new ids. The index knows the `lateness`: by how much a
   message was ever older than the newest one before it.
3. If related messages are wanted, those with only some of the words follow, and their neighbours: an answer
   seldom repeats the words of its question. A match passes a share of its score to the messages before and after it.
4. The hits of the page are read and compared with the query once more, so that no index error shows; then
   their snippets are cut.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from hermes_state.search import snippets, words
from hermes_state.search.query import Query
from hermes_state.search.search import Q, SearchHits
from hermes_state.storage.base import Connection, Engine, Row, scalar

T = TypeVar("T")
Progress = Callable[[int, int], None]
Found = list[tuple[int, float]]  # (message id, its time)

FORMAT = 4  # raise it when words, texts or tables of an index change: older indexes are then rebuilt
_LAST = 2**62  # above every message id
_EVER = 1e300  # later than every time
_TAIL_ROWS = 500
_TAIL_LEAST = 1_000  # always read this many; of a longer tail, after a large import, as many as time allows
_PAGE_FIRST, _PAGE_MOST = 2_048, 20_000
_SLACK = 60.0  # seconds; messages of several processes commit a little out of the order of their ids
_FEW_HIDDEN = 1_000
_RELATED_FROM = 200  # this many of the best partial matches pass on a share of their scores
_SHARE = 0.7  # above a half: a neighbour of two words is nearer than a match of one
_MANY = 50_000  # ids to pass to the index; beyond that, look up its matches instead


class Ranked(NamedTuple):
    """Ids by relevance, the oldest id that was considered, and whether older matches were left out."""

    ids: list[int]
    low: int
    cut: bool

    @classmethod
    def of(cls, rows: Sequence[Row], *, window: int, low: int) -> Ranked:
        """From rows (id, number of matches, oldest match), of a query for one match more than the window."""
        if not rows or rows[0][1] <= window:
            return cls([row[0] for row in rows], low, cut=False)
        beyond = rows[0][2]
        return cls([row[0] for row in rows if row[0] != beyond], beyond + 1, cut=True)


def lateness(newest: float, late: float, rows: Sequence[Row]) -> tuple[float, float]:
    """The newest time, and the largest lateness of a message, with these rows (id, timestamp, …) included."""
    for row in rows:
        newest = max(newest, row[1])
        late = max(late, newest - row[1])
    return newest, late


class IndexView:
    """A snapshot of the index and the store. This class has no index: every message is in the tail."""

    indexed = False

    def __init__(self, main: Connection, position: int = 0, late: float = 0.0) -> None:
        self.main = main
        self.position = position
        """The id of the last indexed message."""
        self.late = late + _SLACK
        """No message with a smaller id is newer than a message by more than this."""

    def ids(
        self, query: Query, low: int, high: int, limit: int, *, newest: bool, among: Sequence[int] | None
    ) -> list[int]:
        """Matches between two ids, from the newest or the oldest end; with `among` only those."""
        return []

    def ranked(self, query: Query, low: int, high: int, window: int, limit: int) -> Ranked:
        """The best of the newest `window` matches between two ids."""
        return Ranked([], low, cut=False)

    def scores(self, query: Query, among: Sequence[int], limit: int) -> list[tuple[int, float]]:
        """The best of the given ids with their scores; `among` is sorted newest first."""
        return []

    def tail(self, below: int, limit: int) -> list[Row]:
        """Messages after the index's position, newest first: id, then the parameters of `message_text`."""
        return self.main.rows(Q.everything, (below, limit))


class Index(ABC):
    """The index of one store. Every method raises `IndexUnusable`."""

    batch: int  # messages per transaction
    bulk_batch: int  # the same while the index is rebuilt

    def __init__(self, engine: Engine, *, read_only: bool) -> None:
        self._engine = engine
        self._read_only = read_only

    @abstractmethod
    def look(self, fn: Callable[[IndexView], T]) -> T:
        """Call `fn` with a view."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """The location, size and format of the index, and how many messages it is behind."""

    @abstractmethod
    def _clear(self) -> None:
        """Empty the index."""

    @abstractmethod
    def _take_in(self, size: int, deadline: float) -> int:
        """Index at most `size` messages in one transaction; returns their number."""

    @abstractmethod
    def _forget(self) -> int:
        """Remove deleted messages from the index, then from the store's list of them; returns their number."""

    def merge(self) -> None:  # noqa: B027 - a server keeps its index in order by itself
        """Compact the index, in small steps."""

    def close(self) -> None:  # noqa: B027 - not every index holds something between calls
        """Close the connections that stay open between calls."""

    def feed(self, budget: float, *, forget: bool) -> int:
        """Index messages for at most about `budget` seconds; with `forget`, also remove deleted ones."""
        if self._read_only:
            return 0
        deadline = time.monotonic() + budget
        taken = 0
        while True:
            batch = self._take_in(self.batch, deadline)
            taken += batch
            if batch < self.batch or time.monotonic() >= deadline:
                break
        if forget and time.monotonic() < deadline:
            taken += self._forget()
        return taken

    def rebuild(self, progress: Progress | None) -> None:
        """Delete the index and build it from the transcript."""
        total = int(scalar(self._engine.read(lambda conn: conn.rows(Q.total))))
        self._clear()
        done = 0
        while True:
            taken = self._take_in(self.bulk_batch, time.monotonic() + 60)
            done += taken
            if progress is not None:
                progress(min(done, total), total)
            if taken < self.bulk_batch:
                break
        self._forget()
        self.merge()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """Which messages a search may show; None is no limit."""

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
        """True when only hidden messages are excluded."""
        lists = (self.sources, self.without_sources, self.roles)
        return all(one is None for one in (*lists, self.conversation, self.owner, self.since, self.until))

    def visible(self, main: Connection, ids: Sequence[int]) -> Found:
        """Those of `ids` that may be shown, unordered."""
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

    view: IndexView
    query: Query
    filters: SearchFilters
    window: int
    deadline: float
    """When to stop reading a long tail."""
    related: bool = False
    low: int = 0
    high: int = _LAST
    among: list[int] | None = None
    tail: Found = field(default_factory=list)
    scanned: int = 0
    cut: bool = False
    beside: set[int] = field(default_factory=set)
    """Ids of related messages, which need not match."""

    def hits(self, *, order: str | None, offset: int, limit: int) -> SearchHits:
        unread = self._scan_tail(stop_at=None if order == "oldest" else max(self.window, offset + limit))
        self._restrict_ids()
        hits = SearchHits()
        need = offset + limit
        while True:
            ids = self._by_relevance(need) if order is None else self._by_time(need, newest=order == "newest")
            hits[:] = self._page(ids[offset:need])[:limit]  # of a long tail there are many more: each costs a snippet
            if len(hits) == limit or len(ids) < need:
                break
            need *= 2  # a message of the page did not match after all
        hits.index_lag, hits.unread, hits.cut = self.scanned + unread, unread, self.cut or unread > 0
        return hits

    def _scan_tail(self, stop_at: int | None) -> int:
        """Compare the tail with the query; returns about how many messages were too many to read."""
        below = _LAST
        while rows := self.view.tail(below, _TAIL_ROWS):
            if self.view.indexed and self.scanned >= _TAIL_LEAST and time.monotonic() >= self.deadline:
                return max(below - 1 - self.view.position, len(rows))
            matching = [row[0] for row in rows if self.query.matches(words.words(snippets.message_text(*row[1:])))]
            self.tail += sorted(self.filters.visible(self.view.main, matching), reverse=True)
            self.scanned += len(rows)
            below = rows[-1][0]
            if stop_at is not None and len(self.tail) >= stop_at:
                break
        return 0

    def _restrict_ids(self) -> None:
        """Find the range of ids of all answers; `visible` applies the other filters."""
        if self.filters.conversation is not None:
            statement, name = Q.of_conversation, self.filters.conversation
        elif self.filters.owner is not None:
            statement, name = Q.of_owner, self.filters.owner
        else:
            return
        ids = [row[0] for row in self.view.main.rows(statement, (name, _MANY + 1))]
        if len(ids) <= _MANY:
            self.among = ids
            self.low, self.high = min(ids, default=1), max(ids, default=0)

    # -- by relevance ------------------------------------------------------------------------------------

    def _by_relevance(self, need: int) -> list[int]:
        newest = [id_ for id_, _ in self.tail[: self.window]]
        free = self.window - len(newest)
        self.cut = len(self.tail) > self.window
        if free <= 0 or self.low > self.high:
            return newest
        ranked = self._rank_unfiltered(free, need) if self.filters.none else None
        if ranked is None:
            kept, more = self._visible_matches(free + 1, newest=True)
            self.cut = self.cut or more or len(kept) > free
            ids = sorted((id_ for id_, _ in kept), reverse=True)[:free]
            ranked = [id_ for id_, _ in self.view.scores(self.query, ids, need)] if ids else []
        found = newest + ranked
        # A single word has no partial matches, and its neighbours say less than the word.
        if self.related and len(found) < need and not self.query.is_one_word():
            found += self._related(set(found))[: need - len(found)]
        return found

    def _related(self, known: set[int]) -> list[int]:
        """Messages with some of the words, and their neighbours, best first."""
        some = replace(self, query=self.query.any_word(), tail=[])
        kept, _ = some._visible_matches(self.window, newest=True)
        if not kept:
            return []
        ids = sorted((id_ for id_, _ in kept), reverse=True)[: self.window]
        scores = dict(self.view.scores(some.query, ids, _RELATED_FROM))
        taken_back = int(self.filters.taken_back)
        rows = self.view.main.rows(Q.beside, (taken_back, taken_back, json.dumps(list(scores))))
        total = dict(scores)
        for id_, *neighbours in rows:
            for other in neighbours:
                if other is not None:
                    total[other] = total.get(other, 0.0) + _SHARE * scores[id_]
        self.beside = {id_ for id_, _ in self.filters.visible(self.view.main, list(total))} - known
        return sorted(self.beside, key=lambda id_: (-total[id_], -id_))

    def _rank_unfiltered(self, free: int, need: int) -> list[int] | None:
        """None when so many messages are hidden that checking each match is faster."""
        hidden = set[int]()
        for _ in range(3):  # the second try includes the hidden ones, the third those hidden meanwhile
            found = self.view.ranked(self.query, self.low, self.high, free + len(hidden), need + len(hidden))
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

    # -- by time -----------------------------------------------------------------------------------------

    def _by_time(self, need: int, *, newest: bool) -> list[int]:
        def sorted_hits(kept: Found) -> Found:
            return sorted([*self.tail, *kept], key=lambda hit: (hit[1], hit[0]), reverse=newest)

        def is_best(kept: Found, at: float) -> bool:
            found = sorted_hits(kept)[need - 1 : need]
            return bool(found) and (
                found[0][1] >= at + self.view.late if newest else found[0][1] <= at - self.view.late
            )

        kept, _ = self._visible_matches(max(need, _PAGE_MOST), newest=newest, first=need + 8, done=is_best)
        return [id_ for id_, _ in sorted_hits(kept)[:need]]

    def _visible_matches(
        self,
        enough: int,
        *,
        newest: bool,
        first: int = _PAGE_FIRST,
        done: Callable[[Found, float], bool] = lambda kept, at: False,
    ) -> tuple[Found, bool]:
        """Matches that pass the filters, from the newest or oldest id on, and whether there are more than `enough`.

        `done` is called after each page with the time of its last match; True ends the search.
        """
        kept: Found = []
        low, high, size = self.low, self.high, _PAGE_MOST if self.among is not None else first
        while low <= high:
            ids = self.view.ids(self.query, low, high, size, newest=newest, among=self.among)
            kept += self.filters.visible(self.view.main, ids)
            if len(ids) < size:
                break
            if len(kept) >= enough:
                return kept, True
            at = scalar(self.view.main.rows(Q.time_of, (ids[-1],)))
            if at is not None and (self._is_beyond(at, newest=newest) or done(kept, at)):
                break
            low, high = (low, ids[-1] - 1) if newest else (ids[-1] + 1, high)
            size = min(size * 4, _PAGE_MOST)
        return kept, False

    def _is_beyond(self, at: float, *, newest: bool) -> bool:
        """Whether all matches after one of this time are outside the wanted times."""
        since, until = self.filters.since, self.filters.until
        if newest:
            return since is not None and at + self.view.late < since
        return until is not None and at - self.view.late > until

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
                continue  # deleted, and still in the index
            (_, session_id, role, timestamp, tool_name, source, model, started, content, kind, calls, escaped,
             before, after) = rows[id_]  # fmt: skip
            text = words.composed(snippets.message_text(content, kind, tool_name, calls, escaped))
            found = words.words(text)
            if id_ not in self.beside and not self.query.matches(found):
                continue
            match = {"role": role, "content": snippets.context_text(content, kind)}
            context = [near.get(before), match, near.get(after)]
            hits.append({
                "id": id_, "session_id": session_id, "role": role,
                "snippet": snippets.snippet(text, found, phrases), "timestamp": timestamp, "tool_name": tool_name,
                "source": source, "model": model, "session_started": started,
                "context": [message for message in context if message is not None],
            })  # fmt: skip
        return hits


def _neighbours(main: Connection, ids: Iterable[int]) -> dict[int | None, dict[str, str]]:
    rows = main.rows(Q.neighbours, (json.dumps(list(ids)),))
    return {id_: {"role": role, "content": snippets.context_text(content, kind)} for id_, role, content, kind in rows}
