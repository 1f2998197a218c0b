"""Search: find messages by their words, in an index that no write waits for.

Start with `search` (the part of `SessionDB`), then `finder` (the algorithm). `query` and `words` define a query; `fts5`
and `tsvector` are the indexes of SQLite and PostgreSQL.
"""

from hermes_state.search.search import MessageSearch, SearchHits

__all__ = ["MessageSearch", "SearchHits"]
