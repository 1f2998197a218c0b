"""Marks around tool calls, so that an effect happens at most once.

A call is marked as started before it runs and as finished after it. A resumed turn calls `start_in` again and reads the
mark: a finished call is not run again; a call that started and did not finish has an unknown outcome, which is reported
to the model and never repeated. The mark of such a call is finished with the result `UNKNOWN`; other marks need none,
because the transcript holds the results.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_state import columns
from hermes_state.errors import StateError
from hermes_state.ids import TurnId, checked_id
from hermes_state.storage.base import Connection, StorePart
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

Q = Queries("effects")
UNKNOWN = "unknown"
"""The result of a call whose process was lost."""


@dataclass(frozen=True, slots=True)
class Effect:
    turn_id: TurnId
    call_id: str
    tool: str
    attempt: int
    started_at: float
    finished_at: float | None
    result: str | None

    @property
    def outcome_unknown(self) -> bool:
        return self.finished_at is None


@dataclass(frozen=True, slots=True)
class Started:
    effect: Effect
    new: bool
    """True: run the call now. False: it was started before; `effect` says whether it finished."""


class Effects(StorePart):
    """Marks calls as started and finished."""

    def start_in(self, conn: Connection, turn_id: TurnId, call_id: str, *, tool: str, fence: int) -> Started:
        """Mark a call as started; only the caller that gets `new` may run it."""
        checked_id(call_id, what="call id")
        held = leases.hold_turn(self._store, conn, turn_id, fence)
        mark = (turn_id, call_id, columns.note(tool), held.attempt, self._store.clock())
        new = conn.run(Q.start, mark) == 1
        return Started(Effect(*conn.rows(Q.get, (turn_id, call_id))[0]), new)

    def finish_in(
        self, conn: Connection, turn_id: TurnId, call_id: str, *, fence: int, result: str | None = None
    ) -> bool:
        """Mark the call as finished; False when it already was. `result`: `UNKNOWN`, or nothing."""
        leases.hold_turn(self._store, conn, turn_id, fence)
        if conn.run(Q.finish, (self._store.clock(), columns.note(result), turn_id, call_id)):
            return True
        if not conn.rows(Q.get, (turn_id, call_id)):
            raise StateError(f"call {call_id!r:.80} of turn {turn_id} was never started")
        return False

    def open_effects(self, turn_id: TurnId) -> tuple[Effect, ...]:
        """Calls that started and did not finish: their outcome is unknown."""
        return tuple(Effect(*row) for row in self._rows(Q.open, (turn_id,)))

    def of_turn(self, turn_id: TurnId) -> tuple[Effect, ...]:
        """Every mark of a turn, in order."""
        return tuple(Effect(*row) for row in self._rows(Q.of_turn, (turn_id,)))

    def prune(self) -> int:
        """Remove marks older than `limits.effects_days` of turns that have ended."""
        return self._remove_old(self._store.limits.effects_days, Q.prune)
