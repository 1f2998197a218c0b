"""The event log: what happened in a conversation, for people who look on and for `hermes trace`.

Bounded: `limits.events_per_conversation` rows each, the oldest go first, in steps of a sixteenth of the bound so
that most appends remove nothing. A follower keeps a cursor and asks `since`; on PostgreSQL, where ids do not commit
in order, it sees a row only when no older one can still appear, so it misses none and sees none twice. What was
trimmed before it asked is gone: the log is for watching, the transcript is the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_state import rows
from hermes_state.engine.base import Connection, Row
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, TurnId
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("events")

START = "0:0"


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    conversation_id: ConversationId
    seq: int
    kind: str
    turn_id: TurnId | None
    trace_id: str | None
    detail: dict[str, Any] | None
    at: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Events after a cursor, and the cursor to ask with next time."""

    events: tuple[Event, ...]
    cursor: str


class Events:
    """Append, follow, look back."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(
        self,
        conversation_id: ConversationId,
        kind: str,
        *,
        detail: Mapping[str, Any] | None = None,
        turn_id: TurnId | None = None,
        trace_id: str | None = None,
    ) -> None:
        self._store.engine.write(
            lambda conn: self.append_in(conn, conversation_id, kind, detail=detail, turn_id=turn_id, trace_id=trace_id)
        )

    def append_in(
        self,
        conn: Connection,
        conversation_id: ConversationId,
        kind: str,
        *,
        detail: Mapping[str, Any] | None = None,
        turn_id: TurnId | None = None,
        trace_id: str | None = None,
    ) -> None:
        """As `append`, in the caller's transaction."""
        text = rows.to_json(detail, self._store.limits, what="the event")
        params = (conversation_id, conversation_id, kind, turn_id, trace_id, text, self._store.clock())
        seq = conn.rows(Q.append, params)[0][0]
        bound = self._store.limits.events_per_conversation
        step = max(1, bound // 16)
        keep = bound - step + 1  # with the appends up to the next trim: exactly the bound
        if seq % step == 0 and seq > keep:
            conn.run(Q.trim, (conversation_id, seq - keep))

    def since(self, cursor: str = START, *, conversation_id: ConversationId | None = None, limit: int = 500) -> Batch:
        """What came after `cursor`, oldest first, of one conversation or of all."""
        params: tuple[Any, ...] = (*_position(cursor), limit)
        if conversation_id is None:
            found = self._store.engine.read(lambda conn: conn.rows(Q.since, params))
        else:
            params = (conversation_id, *params)
            found = self._store.engine.read(lambda conn: conn.rows(Q.since_in, params))
        if not found:
            return Batch((), cursor)
        return Batch(tuple(_event(row[1:]) for row in found), f"{found[-1][0]}:{found[-1][1]}")

    def last(self, conversation_id: ConversationId, *, limit: int = 50) -> tuple[Event, ...]:
        """The newest events of a conversation, oldest first."""
        found = self._store.engine.read(lambda conn: conn.rows(Q.last, (conversation_id, limit)))
        return tuple(_event(row) for row in reversed(found))

    def prune(self) -> int:
        """Bring every conversation under the bound; needed only after the bound was lowered."""
        bound = self._store.limits.events_per_conversation
        overfull = self._store.engine.read(lambda conn: conn.rows(Q.overfull, (bound,)))
        return sum(self._trim(conversation_id, newest - bound) for conversation_id, newest in overfull)

    def _trim(self, conversation_id: ConversationId, upto: int) -> int:
        return self._store.engine.write(lambda conn: conn.run(Q.trim, (conversation_id, upto)))


def _position(cursor: str) -> tuple[int | str, int]:
    xid, _, number = cursor.partition(":")
    if not (xid.isascii() and xid.isdigit() and number.isascii() and number.isdigit()):
        raise InvalidValue(f"not a cursor of the event log: {cursor!r:.60}", hint=f"Start with {START!r}.")
    return int(xid), int(number)


def _event(row: Row) -> Event:
    return Event(*rows.decoded(row, 6))
