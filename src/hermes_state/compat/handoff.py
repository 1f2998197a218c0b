"""Handing a terminal session over to a chat: pending → running → completed or failed.

The state is a column of the session, so that the terminal and the gateway, two processes, agree on it. Each step names
the state it starts from; of two who try, one succeeds.
"""

from __future__ import annotations

from typing import Any

from hermes_state.conversations.sessions import clean
from hermes_state.errors import InvalidValue
from hermes_state.ids import is_possible_id
from hermes_state.storage.base import Store, first
from hermes_state.storage.statements import Queries, Statement

Q = Queries("handoff")

_ERROR_CHARS = 500


class Handoffs(Store):
    """The part of `SessionDB` that hands sessions over."""

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """False while one is under way, or when there is no such session."""
        name = clean(str(platform or ""))
        if not name:
            raise InvalidValue("a handoff needs the name of a platform")
        return self._step(Q.request, name, session_id)

    def claim_handoff(self, session_id: str) -> bool:
        """True for the one who is to carry it out."""
        return self._step(Q.claim, session_id)

    def complete_handoff(self, session_id: str) -> bool:
        return self._step(Q.complete, session_id)

    def fail_handoff(self, session_id: str, error: str) -> bool:
        return self._step(Q.fail, clean(str(error)[:_ERROR_CHARS]), session_id)

    def get_handoff_state(self, session_id: str) -> dict[str, Any] | None:
        """`{state, platform, error}` of the last one; None when there was none."""
        if not is_possible_id(session_id):
            return None
        found = first(self.engine.read(lambda conn: conn.rows(Q.state, (session_id,))))
        if found is None or found[0] is None:
            return None
        return {"state": found[0], "platform": found[1], "error": found[2]}

    def list_pending_handoffs(self) -> list[dict[str, Any]]:
        """Sessions that wait to be taken over, oldest first."""
        return self.engine.read(lambda conn: conn.execute(Q.pending).dicts())

    def _step(self, statement: Statement, *params: Any) -> bool:
        """One row by its id, which is the last parameter."""
        if not is_possible_id(params[-1]):
            return False
        return self.engine.write(lambda conn: conn.run(statement, params), single=True) == 1
