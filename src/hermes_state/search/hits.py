"""What a search returns, and the one thing that can be wrong with an index."""

from __future__ import annotations

from typing import Any


class SearchHits(list[dict[str, Any]]):
    """The hits of one page, and how they came about."""

    index_lag: int = 0
    """Messages that the index did not have yet; they were read from the transcript."""
    cut: bool = False
    """There are more matches than are ranked; older ones were left out."""
    index_note: str = ""
    """Why the index could not be used; empty when it was."""


class IndexUnusable(Exception):
    """The index cannot be read or made just now; the reason is its text. Costs time, never an answer."""
