"""The event log of conversations, for watchers and for `hermes trace`.

Each conversation keeps `limits.events_per_conversation` rows. The oldest are removed first, in steps of a sixteenth of
the limit, so that most appends remove nothing. A follower keeps a cursor and calls `since`. On PostgreSQL ids do not
commit in order; there the follower sees a row only when no older one can still appear, so it misses none and sees none
twice. Trimmed events are gone: the log is for watching, and the transcript is the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, TurnId
from hermes_state.storage.base import Connection, Row, StorePart, scalar
from hermes_state.storage.statements import Queries

START = "0:0"
WEB_REQUEST = "web.request"
"""A request that a web tool made: `url`, `status`, `bytes`, `error`."""


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


_event = columns.RowType(Event)
Q = Queries("events", columns=_event.columns)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events after a cursor, and the cursor to ask with next time."""

    events: tuple[Event, ...]
    cursor: str


class Events(StorePart):
    """Appends events and reads them from a cursor on."""

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
        text = columns.to_json(detail, self._store.limits, what="the event")
        params = (conversation_id, conversation_id, kind, turn_id, trace_id, text, self._store.clock())
        seq = conn.rows(Q.append, params)[0][0]
        bound = self._store.limits.events_per_conversation
        step = max(1, bound // 16)
        keep = bound - step + 1  # with the appends up to the next trim, this is exactly the limit
        if seq % step == 0 and seq > keep:
            conn.run(Q.trim, (conversation_id, seq - keep))

    def append(
        self, conversation_id: ConversationId, kind: str, *, detail: Mapping[str, Any], turn_id: TurnId | None = None
    ) -> None:
        """Append one event in a transaction of its own."""
        self._store.engine.write(
            lambda conn: self.append_in(conn, conversation_id, kind, detail=detail, turn_id=turn_id)
        )

    def since(self, cursor: str = START, *, conversation_id: ConversationId | None = None, limit: int = 500) -> Batch:
        """The events after `cursor`, oldest first, of one conversation or of all."""
        params: tuple[Any, ...] = (*_position(cursor), limit)
        if conversation_id is None:
            found = self._rows(Q.since, params)
        else:
            params = (conversation_id, *params)
            found = self._rows(Q.since_in, params)
        if not found:
            return Batch((), cursor)
        return Batch(tuple(_event(row[1:]) for row in found), f"{found[-1][0]}:{found[-1][1]}")

    def of_turn(self, conversation_id: ConversationId, turn_id: TurnId) -> tuple[Event, ...]:
        """The events of a turn that the log still has, in order."""
        return tuple(map(_event, self._rows(Q.of_turn, (conversation_id, turn_id))))

    def prune(self) -> int:
        """Trim every conversation to the limit; needed only after the limit was lowered."""
        bound = self._store.limits.events_per_conversation
        overfull = self._rows(Q.overfull, (bound,))
        return sum(self._trim(conversation_id, newest - bound) for conversation_id, newest in overfull)

    def _trim(self, conversation_id: ConversationId, upto: int) -> int:
        return self._store.engine.write(lambda conn: conn.run(Q.trim, (conversation_id, upto)))


def _position(cursor: str) -> tuple[int | str, int]:
    xid, _, number = cursor.partition(":")
    if not (xid.isascii() and xid.isdigit() and number.isascii() and number.isdigit()):
        raise InvalidValue(f"not a cursor of the event log: {cursor!r:.60}", hint=f"Start with {START!r}.")
    return int(xid), int(number)


_FIRST_EVENT = {"inbox": "received", "turn": "begun", "effect": "started", "approval": "asked", "outbox": "stored"}


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of a timeline: the time, the table, the event and the row."""

    at: float
    where: str
    what: str
    ref: str
    detail: dict[str, Any]


class Traces(StorePart):
    """Finds everything that happened to one message."""

    def get(self, trace_id: str) -> tuple[Moment, ...]:
        """Everything with this trace id, in order of time; empty when nothing has it.

        A message that another message's turn answered (an album, a message added to a turn) shares what happened there.
        """

        def read(conn: Connection) -> list[Moment]:
            found: list[Moment] = []
            traces = [trace_id, *(str(row[0]) for row in conn.rows(Q.turn_traces, (trace_id,)))]
            turns: set[tuple[str, str]] = set()
            for where, statement in (
                ("inbox", Q.inbox),
                ("turn", Q.turns),
                ("effect", Q.effects),
                ("approval", Q.approvals),
                ("outbox", Q.outbox),
            ):
                for one in traces if where != "inbox" else traces[:1]:
                    for row in conn.execute(statement, (one,)).dicts():
                        found += _start_and_end(where, row)
                        if where == "turn":
                            turns.add((row["conversation_id"], row["id"]))
            for one in traces:
                for at, ref, conversation_id, turn_id, kind, detail in _events(conn, one, turns):
                    whose = {"conversation_id": conversation_id, "turn_id": turn_id}
                    facts = {**whose, **(columns.from_json(detail) or {})}
                    found.append(Moment(at, "event", kind, str(ref), facts))
            return found

        return tuple(sorted(self._store.engine.read(read, snapshot=True), key=lambda moment: moment.at))

    def last(self) -> str | None:
        """The trace id of the newest accepted message."""
        found: str | None = scalar(self._rows(Q.last_trace))
        return found


def _events(conn: Connection, trace_id: str, turns: set[tuple[str, str]]) -> list[Row]:
    """The events of a trace, in order. A turn's begin event has no trace id: the turn's row leads to it, or, after
    retention removed that row, the turn's end event, which has the trace id and which the log keeps longer."""
    found = conn.rows(Q.events, (trace_id,))
    for conversation_id, turn_id in turns | {(row[2], row[3]) for row in found if row[3] is not None}:
        found += conn.rows(Q.begun, (conversation_id, turn_id, trace_id))
    return sorted(found, key=lambda row: row[1])


def _start_and_end(where: str, row: dict[str, Any]) -> list[Moment]:
    names = list(row)
    began, ended = row[names[0]], row[names[-1]]
    facts = {name: row[name] for name in names[1:-1] if row[name] is not None and name != "state"}
    if "call" in facts:  # only the approver may see the call; the trace names the effect that waited
        facts["effect"] = (columns.from_json(facts.pop("call")) or {}).get("mark")
    ref, state = str(facts.pop("id")), row["state"]
    points = [Moment(began, where, _FIRST_EVENT[where], ref, facts)]
    if ended is not None:
        points.append(Moment(ended, where, state, ref, facts))
    elif state not in ("pending", "queued", "running", "started"):
        points.append(Moment(began, where, state, ref, facts))
    return points
