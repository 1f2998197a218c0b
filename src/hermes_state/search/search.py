"""`MessageSearch`: the part of `SessionDB` that finds messages and maintains the index.

A gateway keeps the index current by calling `feed` every few seconds. A search indexes new messages before it answers,
for a bounded time; after a large import it answers from a part of them and says how many it left out. Only `feed` and
the rebuild remove deleted messages, because that needs a write to the store; until then a search hides them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hermes_state.columns import scrub
from hermes_state.conversations import chain
from hermes_state.errors import InvalidValue, StateError
from hermes_state.storage.base import Store, scalar
from hermes_state.storage.statements import Queries

if TYPE_CHECKING:
    from hermes_state.search.finder import Index, IndexView, SearchFilters
    from hermes_state.search.query import Query


Q = Queries("search")


class MessageSearch(Store):
    """The part of `SessionDB` that finds messages by their words."""

    @cached_property
    def _index(self) -> Index:
        # Imported for the engine in use: each needs its own driver.
        if self.engine.dialect == "postgresql":
            from hermes_state.search.tsvector import TsvectorIndex
            from hermes_state.storage.postgres import PgEngine

            assert isinstance(self.engine, PgEngine)
            return TsvectorIndex(self.engine)
        from hermes_state.search.fts5 import Fts5Index
        from hermes_state.storage.sqlite import SqliteEngine

        assert isinstance(self.engine, SqliteEngine)
        return Fts5Index(self.engine)

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        include_inactive: bool = False,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        since: float | None = None,
        until: float | None = None,
        related: bool = False,
    ) -> SearchHits:
        """Messages with these words, best first, or by time with `sort` "newest" or "oldest".

        With `related`, and ranked by relevance, messages with some of the words follow, and their neighbours.

        It sees every message whose append returned before, or says how many it did not read (`SearchHits.unread`). An
        empty query finds nothing.
        """
        from hermes_state.search.finder import SearchFilters
        from hermes_state.search.query import parse

        if limit < 0 or offset < 0:
            raise InvalidValue(f"limit {limit} and offset {offset} must not be negative")
        parsed = parse(query, self.limits.query_chars)
        if parsed is None or limit == 0:
            return SearchHits()
        filters = SearchFilters(
            sources=source_filter, without_sources=exclude_sources, roles=role_filter,
            owner=None if owner is None else scrub(owner),
            conversation=None if conversation is None else self._root(scrub(conversation)),
            since=since, until=until, taken_back=include_inactive,
        )  # fmt: skip
        order = sort if sort in ("newest", "oldest") else "newest" if parsed.is_brief() else None
        return self._search(parsed, filters, order=order, offset=offset, limit=limit, related=related)

    def _search(
        self, query: Query, filters: SearchFilters, *, order: str | None, offset: int, limit: int, related: bool
    ) -> SearchHits:
        from hermes_state.search.finder import Finder, IndexView

        budget = self.limits.search_catch_up_ms / 1000
        deadline = time.monotonic() + budget

        def find(view: IndexView) -> SearchHits:
            finder = Finder(view, query, filters, self.limits.search_rank_window, deadline, related)
            return finder.hits(order=order, offset=offset, limit=limit)

        note = ""
        try:
            self._index.feed(budget / 2, forget=False)  # the other half is for reading the tail
        except IndexUnusable as error:
            note = str(error)
        try:
            hits = self._index.look(find)
        except IndexUnusable as error:
            note = str(error)
            hits = self.engine.read(lambda main: find(IndexView(main)), snapshot=True)
        hits.index_note = note
        return hits

    def _root(self, conversation: str) -> str:
        return self.engine.read(lambda main: chain.root(main, conversation)) or conversation

    # -- the index ---------------------------------------------------------------------------------------

    def feed(self, max_ms: int = 200) -> int:
        """Update the index for at most about `max_ms`; returns how many messages it added or removed, 0 when idle."""
        try:
            return self._index.feed(max_ms / 1000, forget=True)
        except IndexUnusable:
            return 0  # `search_status` says why; the next search or feed tries again

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Delete the index and rebuild it from the transcript; `progress(done, total)` is called meanwhile."""
        try:
            self._index.rebuild(progress)
        except IndexUnusable as error:
            raise StateError(
                f"the search index cannot be built: {error}",
                where=self.engine.where,
                hint="Searches still work, more slowly. Check the disk and the folder's mode.",
            ) from error

    def search_status(self) -> dict[str, Any]:
        """The location and size of the index and how many messages it is behind; `note` says why it cannot be used."""
        try:
            return {**self._index.status(), "note": ""}
        except IndexUnusable as error:
            behind = scalar(self.engine.read(lambda main: main.rows(Q.total)))
            return {"where": self.engine.where, "behind": behind, "bytes": 0, "format": None, "note": str(error)}

    def close_index(self) -> None:
        """Close the index's connections; they open again when needed."""
        if "_index" in self.__dict__:
            self._index.close()


class SearchHits(list[dict[str, Any]]):
    """The hits of one page, and how complete they are."""

    index_lag: int = 0
    """Messages that were not indexed yet; all but `unread` of them were read from the transcript."""
    unread: int = 0
    """About how many of the messages that are not indexed, the oldest ones, were not searched at all."""
    cut: bool = False
    """Older matches were left out: there are more than are ranked, or the index is far behind."""
    index_note: str = ""
    """Why the index could not be used; empty when it was."""


class IndexUnusable(Exception):
    """The index cannot be read or created now; the text says why. The search still answers, more slowly."""
