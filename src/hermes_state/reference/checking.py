"""What was written, compared row by row with what was read.

An upgrade in place swaps files only when this finds nothing. Every message is read from both sides and must be the
same in every column; every session, conversation and route must be there.
"""

from __future__ import annotations

from hermes_state.reference import records
from hermes_state.reference.importing import Outcome, Tick
from hermes_state.reference.survey import Survey
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries

Q = Queries("reference")
_ENOUGH = 20


def complaints(store: Store, found: Survey, done: Outcome, *, tick: Tick | None = None) -> list[str]:
    """What is not as it should be after an import into an empty store; at most a screenful."""
    wrong = store.engine.read(lambda conn: _counts(conn, found, done))
    return (wrong + _messages(store, found, done, tick))[:_ENOUGH]


def _counts(conn: Connection, found: Survey, done: Outcome) -> list[str]:
    expected = {
        "sessions": (len(found.sessions), Q.count_sessions),
        "messages": (found.messages - found.lost_messages, Q.count_messages),
        "routes": (len(found.routes), Q.count_routes),
        "conversations": (done.conversations, Q.count_conversations),
        "sessions without a conversation": (0, Q.count_homeless),
        "conversations without a tip": (0, Q.count_tipless),
    }
    wrong = []
    for what, (wanted, statement) in expected.items():
        stored = scalar(conn.rows(statement))
        if stored != wanted:
            wrong.append(f"{what}: {stored} instead of {wanted}")
    return wrong


def _messages(store: Store, found: Survey, done: Outcome, tick: Tick | None) -> list[str]:
    source = found.source
    if source is None:
        return []
    wrong: list[str] = []
    seen = 0
    for batch in source.messages(records.MESSAGE):
        between = (batch[0][0] + done.offset, batch[-1][0] + done.offset)
        stored = {row[0]: row for row in _stored(store, between)}
        for row in batch:
            wanted = records.message(row, done.offset, 0.0)
            if row[1] in found.sessions and not _same(stored.get(wanted[0]), wanted):
                wrong.append(f"message {row[0]} of {row[1]} is not as it was")
        seen += len(batch)
        if tick is not None:
            tick(seen, source.message_count)
        if len(wrong) > _ENOUGH:
            break
    return wrong


def _stored(store: Store, between: tuple[int, int]) -> list[tuple[object, ...]]:
    return store.engine.read(lambda conn: conn.rows(Q.stored_messages, between))


def _same(stored: tuple[object, ...] | None, wanted: tuple[object, ...]) -> bool:
    """A message without a time got the time of the import; everything else is the same."""
    if stored is None:
        return False
    return all(a == b or (at == _TIME and b == 0.0) for at, (a, b) in enumerate(zip(stored, wanted, strict=True)))


_TIME = 11
