"""Pruning and the search index under names that plug-ins of hermes-agent call.

Production prunes through `maintenance.retention` and `hermes sessions`, and looks after the index through `feed` and
`reindex`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Unpack

from hermes_state.columns import texts
from hermes_state.maintenance.prune import Chosen, PruneFilters, Pruning, Q
from hermes_state.search.search import IndexUnusable, MessageSearch
from hermes_state.storage.base import Connection


class MaintenanceNames(Pruning, MessageSearch):
    """The part of `SessionDB` with these names."""

    def archive_sessions(
        self, older_than_days: float | None = 90, source: str | None = None, **filters: Unpack[PruneFilters]
    ) -> int:
        """Hide from lists what `prune_sessions` would erase; how many sessions."""
        chosen = self._candidates(older_than_days, source, {"archived": False, **filters})

        def run(conn: Connection) -> int:
            return conn.run(Q.archive, (texts(chosen.ids(conn)),))

        return self.engine.write(run)

    def count_empty_sessions(self) -> int:
        return len(self.engine.read(Chosen(Q.empty, self._now(), []).ids))

    def delete_empty_sessions(self, sessions_dir: str | Path | None = None) -> int:
        """Erase ended sessions without messages that are not archived; how many."""
        return self._erase(Chosen(Q.empty, self._now(), []), sessions_dir)

    def rebuild_fts(self) -> None:
        self.reindex()

    def optimize_fts(self) -> int:
        """Bring the index up and make it as compact as it can be; how many indexes there are."""
        try:
            deadline = time.monotonic() + 60
            while self._index.feed(1.0, forget=True) and time.monotonic() < deadline:
                pass
            self._index.merge()
        except IndexUnusable:
            return 0
        return 1
