"""The live rows of a segment, for whoever keeps them in another form and wants to know whether that still holds.

`live_state` is one small read, whatever the length of the transcript. Appends, undo and rewrites by anybody change it.
Two things do not: bringing undone rows back after others were appended, and noting `api_content` on a row that is
there; whoever does that beside a running conversation must tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes_state import transcript
from hermes_state.engine.base import Connection, first
from hermes_state.ids import TurnId, is_possible_id
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("live")
_ABOVE_ALL = 2**62


class LiveState(NamedTuple):
    """Equal states, equal live rows (see above)."""

    message_count: int
    rewind_count: int
    head_id: int
    """Of the newest live row; 0 when there is none."""
    compressed: bool
    """The conversation goes on in another segment."""


class LiveRows(NamedTuple):
    state: LiveState
    ids: list[int]
    messages: list[dict[str, Any]]
    """As `get_messages_as_conversation` gives them."""
    turns: list[TurnId | None]
    """Which turn each belongs to; None for what was not said in one."""


class Live(Store):
    """The part of `SessionDB` that running conversations read."""

    def live_state(self, session_id: str) -> LiveState | None:
        """None when there is no such session."""
        if not is_possible_id(session_id):
            return None
        return self.engine.read(lambda conn: state_in(conn, session_id))

    def live_rows(self, session_id: str, *, after: int = 0) -> LiveRows | None:
        """The live rows with a higher id than `after`, and the state they belong to, seen at one moment."""
        if not is_possible_id(session_id):
            return None

        def run(conn: Connection) -> LiveRows | None:
            state = state_in(conn, session_id)
            if state is None:
                return None
            rows = conn.rows(Q.rows, (session_id, after))
            said = transcript.as_conversation([row[:-2] for row in rows])
            return LiveRows(state, [row[-1] for row in rows], said, [row[-2] for row in rows])

        return self.engine.read(run, snapshot=True)

    def said_in_turn(self, session_id: str, turn_id: TurnId, *, after: int = 0) -> dict[str, Any] | None:
        """What was said to a turn first, among the rows with a higher id than `after`; None when nothing was."""
        found = self.engine.read(lambda conn: conn.rows(Q.said_in_turn, (session_id, turn_id, after)))
        return transcript.as_conversation(found)[0] if found else None

    def as_stored(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message as it will be read back once it is stored. Nothing is read or written."""
        return transcript.as_stored(message, self.clock(), self.limits.message_bytes)


def state_in(conn: Connection, session_id: str, *, below: int = _ABOVE_ALL) -> LiveState | None:
    """`live_state`, in a transaction of the caller's; `below`: as if rows from this id on were not the head."""
    row = first(conn.rows(Q.state, (below, session_id)))
    return None if row is None else LiveState(row[0], row[1], row[2], bool(row[3]))
