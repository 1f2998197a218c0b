"""The text that running turns are writing, for watchers in other processes and, on PostgreSQL, on other machines.

A watcher calls `watch` again and again. A process that runs turns calls `watched` at intervals, and writes the text of
a turn's current step with `show_in` only while somebody watches. Nothing depends on these rows: the transcript is the
record. They are cleared when the turn ends, and never archived, copied or backed up.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes_state.ids import ConversationId, TurnId
from hermes_state.storage.base import Connection, StorePart
from hermes_state.storage.statements import Queries
from hermes_state.turns.leases import shared_now

Q = Queries("live_views")
_WATCH_SECONDS = 10.0
_FORGET_SECONDS = 60.0
WATCH_AGAIN_SECONDS = 3.0
"""How often a watcher has to call `watch`."""


class LiveText(NamedTuple):
    """The text of the current step; `step` counts the steps that ended before it in the same process."""

    turn_id: TurnId
    step: int
    text: str


class LiveViews(StorePart):
    def watch(self, conversation_id: ConversationId) -> None:
        """Register a watcher for the next few seconds."""
        self._run(Q.watch, (conversation_id, shared_now(self._store), _WATCH_SECONDS))

    def watched(self) -> frozenset[ConversationId]:
        """The conversations that have a watcher now: few, and mostly none."""
        return frozenset(row[0] for row in self._rows(Q.watched, (shared_now(self._store),)))

    def show_in(self, conn: Connection, conversation_id: ConversationId, live: LiveText) -> bool:
        """Store the text; False, with nothing written, when nobody watches any more."""
        return conn.run(Q.show, (*live, conversation_id, shared_now(self._store))) == 1

    def clear_in(self, conn: Connection, conversation_id: ConversationId, turn_id: TurnId) -> None:
        """Clear the text: the turn's step has ended or starts again."""
        conn.run(Q.clear, (conversation_id, turn_id))

    def get(self, conversation_id: ConversationId) -> LiveText | None:
        """The current text of the conversation's turn; None while nothing is shown."""
        rows = self._rows(Q.get, (conversation_id,))
        return LiveText(*rows[0]) if rows else None

    def prune(self) -> int:
        """Remove rows whose watchers are gone, also those of dead processes; returns their number."""
        return self._run(Q.forget, (shared_now(self._store), _FORGET_SECONDS))
