"""Search: finding messages by their words, in an index that is never in a write's way."""

from hermes_state.search.hits import SearchHits
from hermes_state.search.part import Search

__all__ = ["Search", "SearchHits"]
