"""Compression locks and guards: who compresses a session now, and whether an automatic attempt makes sense.

A lock names its holder and runs out by itself, so a killed holder blocks nobody for longer than its time. It keeps two
compressions apart that are polite to each other; what makes a late one harmless is the ledger, which rotates in one
transaction. Times come from the store's clock. A lock from the future was taken before the clock was set back and
counts as run out, or the session could not be compressed until that time comes again.
"""

from __future__ import annotations

import math
from typing import Any

from hermes_state import columns, notes
from hermes_state.errors import InvalidValue, StateError
from hermes_state.ids import is_possible_id
from hermes_state.storage.base import Store, first, scalar
from hermes_state.storage.statements import Queries

Q = Queries("compression_guards")

_CLOCK_SLACK = 60.0  # machines that share a database differ by less
_ERROR_CHARS = 2_000


class CompressionGuards(Store):
    """The part of `SessionDB` that keeps compressions apart and remembers how the last ones went."""

    def try_acquire_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300) -> bool:
        """True when `holder` has the lock now. Without a working database nobody compresses: False."""
        if not is_possible_id(session_id) or not is_possible_id(holder):
            return False
        now = self.clock()
        params = (session_id, holder, now, now + _seconds("ttl_seconds", ttl_seconds), now, now + _CLOCK_SLACK)
        try:
            return self.engine.write(lambda conn: conn.run(Q.acquire, params), single=True) == 1
        except StateError as error:
            notes.warn("lock", "compression lock of %s not taken: %s", session_id, error)
            return False

    def refresh_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300) -> bool:
        """More time for a holder that still has it; False when it was lost."""
        if not is_possible_id(session_id) or not is_possible_id(holder):
            return False
        now = self.clock()
        params = (now, now + _seconds("ttl_seconds", ttl_seconds), session_id, holder, now, now + _CLOCK_SLACK)
        return self.engine.write(lambda conn: conn.run(Q.refresh, params), single=True) == 1

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Give it back; another holder's lock is left alone."""
        if is_possible_id(session_id) and is_possible_id(holder):
            self.engine.write(lambda conn: conn.run(Q.release, (session_id, holder)), single=True)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        if not is_possible_id(session_id):
            return None
        now = self.clock()
        rows = self.engine.read(lambda conn: conn.rows(Q.holder, (session_id, now, now + _CLOCK_SLACK)))
        holder: str | None = scalar(rows)
        return holder

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """No automatic compression before `cooldown_until`; survives a restart."""
        text = None if error is None else columns.clean(str(error)[:_ERROR_CHARS])
        self._set(Q.set_cooldown, _seconds("cooldown_until", cooldown_until), text, session_id)

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None:
        """`{cooldown_until, remaining_seconds, error}` while it lasts."""
        if not is_possible_id(session_id):
            return None
        found = first(self.engine.read(lambda conn: conn.rows(Q.cooldown, (session_id,))))
        now = self.clock()
        if found is None or found[0] is None or found[0] <= now:
            return None
        return {"cooldown_until": found[0], "remaining_seconds": found[0] - now, "error": found[1]}

    def get_compression_fallback_streak(self, session_id: str) -> int:
        """How many compressions in a row had to do without a model's summary."""
        if not is_possible_id(session_id):
            return 0
        return int(scalar(self.engine.read(lambda conn: conn.rows(Q.streak, (session_id,)))) or 0)

    def set_compression_fallback_streak(self, session_id: str, streak: int) -> None:
        self._set(Q.set_streak, min(max(int(streak), 0), 2**31), session_id)

    def _set(self, statement: Any, *params: Any) -> None:
        """One row by its id, which is the last parameter."""
        if is_possible_id(params[-1]):
            self.engine.write(lambda conn: conn.run(statement, params), single=True)


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidValue(f"{name} must be a number of seconds, not {value!r:.60}")
    return max(float(value), 0.0)
