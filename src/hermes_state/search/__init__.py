"""Search: finding messages by their words, in an index that is never in a write's way."""

from hermes_state.search.search import Search, SearchHits

__all__ = ["Search", "SearchHits"]
