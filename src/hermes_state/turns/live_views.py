"""What running turns are saying, for watchers in other processes and, on PostgreSQL, on other machines.

A watcher announces itself with `watch`, again and again. Whoever runs turns asks `watched` now and then, and writes the
text of a turn's present step with `show_in` only while somebody watches. Nothing depends on these rows: what counts is
the transcript. They are emptied when the turn ends, and never archived, copied or backed up.
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
"""How often a watcher has to announce itself."""


class LiveText(NamedTuple):
    """The text of the step that is being written; `step` counts those that ended before it in the same process."""

    turn_id: TurnId
    step: int
    text: str


class LiveViews(StorePart):
    def watch(self, conversation_id: ConversationId) -> None:
        """Somebody watches, for the next seconds."""
        self._run(Q.watch, (conversation_id, shared_now(self._store), _WATCH_SECONDS))

    def watched(self) -> frozenset[ConversationId]:
        """The conversations that somebody watches now: few, and mostly none."""
        return frozenset(row[0] for row in self._rows(Q.watched, (shared_now(self._store),)))

    def show_in(self, conn: Connection, conversation_id: ConversationId, live: LiveText) -> bool:
        """False when nobody watches any more: then nothing is written."""
        return conn.run(Q.show, (*live, conversation_id, shared_now(self._store))) == 1

    def clear_in(self, conn: Connection, conversation_id: ConversationId, turn_id: TurnId) -> None:
        """The turn says nothing more, or says it anew."""
        conn.run(Q.clear, (conversation_id, turn_id))

    def get(self, conversation_id: ConversationId) -> LiveText | None:
        """What the conversation's turn is saying; None while nothing is shown."""
        rows = self._rows(Q.get, (conversation_id,))
        return LiveText(*rows[0]) if rows else None

    def prune(self) -> int:
        """Forget rows whose watchers are gone, also of processes that were lost; how many."""
        return self._run(Q.forget, (shared_now(self._store), _FORGET_SECONDS))
