"""The model calls of turns: which model, how many tokens, and the hash of the bytes that were sent.

A call is written in the commit of the row that it led to, so it costs no commit of its own. The bytes are not stored:
they are rendered again from the prefix and the rows, and the hash says whether they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hermes_state import columns
from hermes_state.ids import SessionId, TurnId
from hermes_state.storage.base import Connection, Row, StorePart
from hermes_state.storage.statements import Queries


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call that has ended. The store sets the first three fields."""

    turn_id: TurnId | None = None
    number: int = 0
    """From 1, in the order of the turn."""
    attempt: int = 0
    """Of the turn."""
    task: str = ""
    """Empty for a step of the turn; else `compression`."""
    session_id: SessionId
    """The segment whose rows it read."""
    model: str
    provider: str
    outcome: str
    """The finish reason, `interrupted`, or the kind of the error."""
    retries: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cost_usd: float | None = None
    sha256: str | None = None
    """Of the last request that was sent; None: none was, or its parts are not kept."""
    request: Mapping[str, Any] | None = None
    """What a renderer needs besides the prefix and the rows (`hermes_agent.prompt.sent_request`)."""
    at: float
    seconds: float


_FIELDS = tuple(one.name for one in fields(ModelCall))
Q = Queries("model_calls", columns=", ".join(_FIELDS))


class ModelCalls(StorePart):
    """Stores and reads the calls of turns. They are removed with their turn."""

    def add_in(self, conn: Connection, turn_id: TurnId, attempt: int, calls: Sequence[ModelCall]) -> None:
        for call in calls:
            values = {name: getattr(call, name) for name in _FIELDS[3:]}
            values["outcome"] = columns.note(call.outcome) or ""
            values["request"] = columns.to_json(call.request, self._store.limits, what="the request")
            conn.run(Q.add, (turn_id, turn_id, attempt, *values.values()))

    def of_turn(self, turn_id: TurnId) -> tuple[ModelCall, ...]:
        """The calls of a turn, in order; empty for a turn of an older version."""
        return tuple(map(_call, self._rows(Q.of_turn, (turn_id,))))


def _call(row: Row) -> ModelCall:
    call = dict(zip(_FIELDS, row, strict=True))
    return ModelCall(**{**call, "request": columns.from_json(call["request"])})
