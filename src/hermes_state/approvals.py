"""Approvals: a person's leave for one exact call.

A question is bound to the turn, the hash of the exact call, who asked, who may decide, and a time by which it lapses.
The answer is a denial or a grant: for `once` it serves one time; for the `session` (the conversation) or for `always`
it becomes a standing rule of the requester for exactly that call. Whatever is not an unexpired grant — time-out,
unknown id, somebody else's answer, a second use — is a denial. All of it is rows: a question survives a restart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hermes_state import leases, rows
from hermes_state.engine.base import Connection, Row
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, PersonId, TurnId, checked_id
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("approvals")

Verdict = Literal["once", "session", "always", "deny"]


@dataclass(frozen=True, slots=True)
class Approval:
    id: str
    conversation_id: ConversationId
    turn_id: TurnId
    call_hash: str
    call: dict[str, Any]
    requester_id: PersonId | None
    approver_id: PersonId | None
    state: str
    scope: str | None
    reason: str | None
    created_at: float
    expires_at: float
    rule_expires_at: float | None
    decided_at: float | None
    used_at: float | None


class Approvals:
    """Ask, decide, spend."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(
        self,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_hash: str,
        call: Mapping[str, Any],
        requester_id: PersonId | None,
        approver_id: PersonId | None,
        seconds: float,
        fence: int | None = None,
    ) -> Approval:
        """The question about this call; the one that is there already when the turn was resumed.

        Leave that was used up is no answer: the same call a second time in a turn is asked about again.
        """
        checked_id(call_hash, what="call hash")
        if seconds <= 0:
            raise InvalidValue(f"a question must stay open for some time, not {seconds} s")
        text = rows.to_json(call, self._store.limits, what="the call")
        now, new = self._store.clock(), f"ask_{os.urandom(6).hex()}"
        params = (new, conversation_id, turn_id, call_hash, text, requester_id, approver_id, now, now + seconds)

        def run(conn: Connection) -> Row:
            if fence is not None:
                leases.check(self._store, conn, conversation_id, fence)
            conn.run(Q.put_aside, (turn_id, call_hash))
            conn.run(Q.ask, params)
            return conn.rows(Q.of_call, (turn_id, call_hash))[0]

        return _approval(self._store.engine.write(run))

    def decide(
        self,
        approval_id: str,
        verdict: Verdict,
        *,
        approver_id: PersonId | None,
        reason: str = "",
        rule_seconds: float | None = None,
    ) -> Approval | None:
        """Answer a question; None when it is not open any more, has lapsed, or is not this person's to answer."""
        if verdict not in get_args(Verdict):
            raise InvalidValue(f"no such answer: {verdict!r:.40}", hint="once, session, always or deny.")
        now = self._store.clock()
        state, scope = ("denied", None) if verdict == "deny" else ("granted", verdict)
        until = None if rule_seconds is None else now + rule_seconds

        def run(conn: Connection) -> Approval | None:
            found = conn.rows(Q.lock, (approval_id,))
            if not found:
                return None
            asked = _approval(found[0])
            mine = asked.approver_id is None or asked.approver_id == approver_id
            if asked.state != "pending" or asked.expires_at <= now or not mine:
                return None
            conn.run(Q.decide, (state, scope, approver_id, rows.note(reason), until, now, approval_id))
            return _approval(conn.rows(Q.get, (approval_id,))[0])

        return self._store.engine.write(run)

    def spend(
        self,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_hash: str,
        person_id: PersonId | None,
        fence: int | None = None,
    ) -> Approval | None:
        """The grant under which this call may run now, used up if it was for once. None is a denial."""
        now = self._store.clock()

        def run(conn: Connection) -> Approval | None:
            if fence is not None:  # a turn that was overtaken must not use up the leave of its successor
                leases.check(self._store, conn, conversation_id, fence)
            found = _standing(conn, conversation_id, call_hash, person_id, now)
            if not found:
                found = conn.rows(Q.spend_once, (now, turn_id, call_hash, conversation_id))
            return _approval(found[0]) if found else None

        return self._store.engine.write(run)

    def standing(
        self, *, conversation_id: ConversationId, call_hash: str, person_id: PersonId | None
    ) -> Approval | None:
        """The rule that allows this person exactly this call here, if there is one."""
        now = self._store.clock()
        found = self._store.engine.read(lambda conn: _standing(conn, conversation_id, call_hash, person_id, now))
        return _approval(found[0]) if found else None

    def rules(self, person_id: PersonId) -> tuple[Approval, ...]:
        """Every standing rule of a person."""
        params = (person_id, self._store.clock())
        return tuple(map(_approval, self._store.engine.read(lambda conn: conn.rows(Q.rules, params))))

    def revoke(self, approval_id: str, *, reason: str = "revoked by hand") -> bool:
        """Take back a question, a grant or a standing rule."""
        params = (rows.note(reason), self._store.clock(), approval_id)
        return self._store.engine.write(lambda conn: conn.run(Q.revoke, params), single=True) == 1

    def get(self, approval_id: str) -> Approval | None:
        found = self._store.engine.read(lambda conn: conn.rows(Q.get, (approval_id,)))
        return _approval(found[0]) if found else None

    def of_turn(self, turn_id: TurnId) -> tuple[Approval, ...]:
        """Every question of a turn, oldest first."""
        return tuple(map(_approval, self._store.engine.read(lambda conn: conn.rows(Q.of_turn, (turn_id,)))))

    def pending(self, *, limit: int = 100) -> tuple[Approval, ...]:
        """Open questions, oldest first."""
        params = (self._store.clock(), limit)
        return tuple(map(_approval, self._store.engine.read(lambda conn: conn.rows(Q.pending, params))))

    def lapse(self) -> tuple[Approval, ...]:
        """Close the questions nobody answered in time; they are denials."""
        now = self._store.clock()
        found = self._store.engine.write(lambda conn: conn.rows(Q.lapse, (now, now)), single=True)
        return tuple(map(_approval, found))

    def prune(self) -> int:
        """Remove what was settled longer ago than `limits.approvals_days`; standing rules stay."""
        before = self._store.clock() - self._store.limits.approvals_days * rows.DAY
        self.lapse()
        return rows.remove_in_steps(self._store, Q.prune, before, before)


def _standing(
    conn: Connection,
    conversation_id: ConversationId,
    call_hash: str,
    person_id: PersonId | None,
    now: float,
) -> list[Row]:
    if person_id is None:  # nobody we know has rules
        return []
    return conn.rows(Q.standing, (call_hash, person_id, conversation_id, now))


def _approval(row: Row) -> Approval:
    return Approval(*rows.decoded(row, 4))
