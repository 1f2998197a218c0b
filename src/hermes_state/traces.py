"""Traces: the life of one message as a timeline.

A trace id is given when a message is accepted and follows it through its turn, tool calls and approvals to the
delivery. Nothing is stored for this: the timeline is put together from the rows of the work tables, so it says
what is, not what somebody once logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hermes_state import rows
from hermes_state.engine.base import Connection, Row, scalar
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("traces")

_BEGUN = {"inbox": "received", "turn": "begun", "effect": "started", "approval": "asked", "outbox": "owed"}


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of a timeline: when, in which table, what happened, to which row."""

    at: float
    where: str
    what: str
    ref: str
    detail: dict[str, Any]


class Traces:
    """Look up what became of a message."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, trace_id: str) -> tuple[Moment, ...]:
        """Everything that carries this id, in the order in which it happened; empty when nothing does."""

        def read(conn: Connection) -> list[Moment]:
            found: list[Moment] = []
            turns: set[tuple[str, str]] = set()
            for where, statement in (
                ("inbox", Q.inbox),
                ("turn", Q.turns),
                ("effect", Q.effects),
                ("approval", Q.approvals),
                ("outbox", Q.outbox),
            ):
                for row in conn.execute(statement, (trace_id,)).dicts():
                    found += _both_ends(where, row)
                    if where == "turn":
                        turns.add((row["conversation_id"], row["id"]))
            for at, ref, conversation_id, turn_id, kind, detail in _events(conn, trace_id, turns):
                facts = {"conversation_id": conversation_id, "turn_id": turn_id, **(rows.from_json(detail) or {})}
                found.append(Moment(at, "event", kind, str(ref), facts))
            return found

        return tuple(sorted(self._store.engine.read(read, snapshot=True), key=lambda moment: moment.at))

    def last(self) -> str | None:
        """The trace id of the newest message that was let in."""
        found: str | None = scalar(self._store.engine.read(lambda conn: conn.rows(Q.last)))
        return found


def _events(conn: Connection, trace_id: str, turns: set[tuple[str, str]]) -> list[Row]:
    """In order. That a turn has begun is found through the turn, or, when retention has removed that, through what was
    written of it later: at least its end, under the same trace, which the log keeps for longer than the beginning."""
    found = conn.rows(Q.events, (trace_id,))
    for conversation_id, turn_id in turns | {(row[2], row[3]) for row in found if row[3] is not None}:
        found += conn.rows(Q.begun, (conversation_id, turn_id, trace_id))
    return sorted(found, key=lambda row: row[1])


def _both_ends(where: str, row: dict[str, Any]) -> list[Moment]:
    columns = list(row)
    began, ended = row[columns[0]], row[columns[-1]]
    facts = {name: row[name] for name in columns[1:-1] if row[name] is not None and name != "state"}
    if "call" in facts:  # what the approver was shown is theirs; which effect waited for it is all that is told
        facts["effect"] = (rows.from_json(facts.pop("call")) or {}).get("mark")
    ref, state = str(facts.pop("id")), row["state"]
    points = [Moment(began, where, _BEGUN[where], ref, facts)]
    if ended is not None:
        points.append(Moment(ended, where, state, ref, facts))
    elif state not in ("pending", "queued", "running", "started"):
        points.append(Moment(began, where, state, ref, facts))
    return points
