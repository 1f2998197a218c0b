"""Undo and redo: hide the last turns of a segment, and show them again.

Each is one transaction that holds the conversation's lease, so it never runs beside a turn. The event log records the
rows that an undo hid. A redo shows exactly those again, the newest undo first, and only while no message was added
since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hermes_state import columns
from hermes_state.conversations import chain, sessions, transcript
from hermes_state.errors import SessionEnded
from hermes_state.ids import ConversationId, SessionId
from hermes_state.storage.base import Connection, Row, Store, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns import events, leases

Q = Queries("undo")
T = TypeVar("T")

_LOOK_BACK = 500


@dataclass(frozen=True, slots=True)
class Undone:
    turns: int
    rows: int
    content: Any
    """The content that the oldest of these turns began with."""


class Undo(StorePart):
    """Undo and redo on the newest segment of a conversation."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._events = events.Events(store)

    def take_back(self, session_id: str, turns: int = 1, *, stays: Callable[[Any], bool]) -> Undone | None:
        """Hide up to `turns` turns, none whose content `stays`; None when there is none to hide."""
        most = min(turns, self._store.limits.undo_turns)

        def work(conn: Connection, root: ConversationId) -> Undone | None:
            target, content, count = _oldest_of(conn, session_id, most, stays)
            if not count:
                return None
            ranges = _live_ranges(conn.rows(Q.from_on, (session_id, target)))
            taken = conn.run(transcript.Q.take_back, (session_id, target))
            conn.run(transcript.Q.count_rewind, (session_id,))
            newest = scalar(conn.rows(Q.newest, (session_id,)))
            detail = {"session_id": session_id, "turns": count, "ranges": ranges, "newest": newest}
            self._events.append_in(conn, root, "undo", detail=detail)
            return Undone(count, taken, content)

        return self._held(session_id, work)

    def bring_back(self, session_id: str) -> int:
        """Show the turns of the newest undo again; returns their number, 0 when there is no undo to reverse."""

        def work(conn: Connection, root: ConversationId) -> int:
            undone = _last_undo(conn, root)
            if undone is None or undone.get("session_id") != session_id:
                return 0
            if undone.get("newest") != scalar(conn.rows(Q.newest, (session_id,))):
                return 0
            for low, high in undone["ranges"]:
                conn.run(Q.bring_back, (session_id, low, high))
            conn.run(transcript.Q.count_rewind, (session_id,))  # so agents reload the transcript
            self._events.append_in(conn, root, "redo", detail={"session_id": session_id})
            return int(undone.get("turns") or 1)  # rows of an older version have no count

        return self._held(session_id, work)

    @in_transaction
    def _held(self, conn: Connection, session_id: str, work: Callable[[Connection, ConversationId], T]) -> T:
        root = ConversationId(sessions.known(conn, session_id)["root_id"])
        with leases.held(self._store, conn, root, "undo"):
            if sessions.known(conn, session_id, lock=True)["end_reason"] == "compression":
                raise SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))
            return work(conn, root)


def _oldest_of(conn: Connection, session_id: str, turns: int, stays: Callable[[Any], bool]) -> tuple[int, Any, int]:
    """(row, content, count): where the newest `turns` begin, and how many there are. Rows of one turn count once."""
    target, content, count = 0, None, 0
    counted: str | None = None
    for row_id, turn_id in conn.rows(Q.spoken, (session_id,)):
        same = turn_id is not None and turn_id == counted
        if count == turns and not same:
            break
        said = columns.decode_content(*conn.rows(Q.content, (row_id,))[0])
        if stays(said):
            break
        target, content, counted = row_id, said, turn_id
        count += not same
    return target, content, count


def _live_ranges(found: list[Row]) -> list[list[int]]:
    """[first, last] of every run of live rows."""
    ranges: list[list[int]] = []
    running = False
    for row_id, active in found:
        if active and running:
            ranges[-1][1] = row_id
        elif active:
            ranges.append([row_id, row_id])
        running = bool(active)
    return ranges


def _last_undo(conn: Connection, root: ConversationId) -> Mapping[str, Any] | None:
    """The newest undo that was not redone."""
    brought = 0
    for row in conn.rows(events.Q.last, (root, _LOOK_BACK)):
        _, _, _, kind, _, _, detail, _ = row
        if kind == "redo":
            brought += 1
        elif kind == "undo" and brought:
            brought -= 1
        elif kind == "undo":
            found: Mapping[str, Any] = columns.from_json(detail)
            return found
    return None
