"""Child conversations: work that a turn delegated, and how its results get back to the parent.

`create` makes the children of one call in one transaction, under the call's mark: a call that is repeated after a crash
finds the same children. A child is a conversation of its own with one inbox row in its own lane; whichever process
claims the row runs it. The transaction that ends the child's turn also ends its row here (`ended_in`).

The results of a call reach the parent exactly once, decided by `returned`: with the call's result (`call`), in one
inbox row of the parent (`row`), or not at all, because nobody can receive them or the person stopped the work
(`dropped`). `later` means that the call no longer waits. A row is stored in the transaction that ends the last child,
if the call no longer waits or its turn is over; `settle` finds the turns that ended in between without taking the
results.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hermes_state import columns
from hermes_state.conversations import ledger, origins
from hermes_state.errors import TooManyChildren
from hermes_state.ids import ConversationId, PersonId, SessionId, TurnId, is_child, is_possible_id, new_child_ids
from hermes_state.storage.base import Connection, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases
from hermes_state.turns.events import Events
from hermes_state.turns.inbox import OWN, Address, Inbox

BEGUN, ENDED = "child.begun", "child.ended"
"""Events in the parent's log."""
_RESULT_CHARS = 16_000
_MOST = 1_000
State = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Child:
    id: ConversationId
    parent_id: ConversationId
    turn_id: TurnId
    call_id: str
    position: int
    depth: int
    inbox_id: int
    goal: str
    spec: dict[str, Any]
    budget_usd: float | None
    state: str
    result: str | None
    returned: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None

    @property
    def is_open(self) -> bool:
        return self.state in ("pending", "running")

    @property
    def address(self) -> Address | None:
        """Where the parent's rows go; None if nobody could receive one."""
        kept = self.spec.get("address")
        return None if kept is None else Address(**kept)


_child = columns.RowType(Child, id="conversation_id")
Q = Queries("children", columns=_child.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChild:
    goal: str
    text: str
    """What the child reads: the goal and its context."""
    spec: Mapping[str, Any]
    budget_usd: float | None = None


class Children(StorePart):
    """Creates, ends and stops children, and returns their results."""

    # -- create ------------------------------------------------------------------------------------------

    @in_transaction
    def create(
        self,
        conn: Connection,
        wanted: Sequence[NewChild],
        *,
        parent: SessionId,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_id: str,
        fence: int,
        source: str,
        person_id: PersonId | None,
        most: int = _MOST,
    ) -> tuple[Child, ...]:
        """The children of a call: those it made before, or new ones. `parent`: the session that delegates.

        `most`: how many children of the conversation may be open. Raises `TooManyChildren`.
        """
        leases.check(self._store, conn, conversation_id, fence)
        if found := self._of_call(conn, turn_id, call_id):
            return found
        already = int(scalar(conn.rows(Q.open_count, (conversation_id,))))
        if already + len(wanted) > most:
            raise TooManyChildren(
                f"{already} tasks of this conversation are still at work, and at most {most} may be"
                " (delegation.max_children)",
                hint="Wait for their results.",
            )
        above = conn.rows(Q.get, (conversation_id,)) if is_child(conversation_id) else []
        depth = 1 + (_child(above[0]).depth if above else 0)
        owner, now = scalar(conn.rows(ledger.Q.owner, (conversation_id,))), self._store.clock()
        for position, (one, new_id) in enumerate(zip(wanted, new_child_ids(now, len(wanted)), strict=True)):
            marks = {**one.spec.get("model_config", {}), "_delegate_from": parent}
            fields = {
                "parent_session_id": parent, "model": one.spec.get("model"), "cwd": one.spec.get("workdir"),
                "model_config": json.dumps(marks, ensure_ascii=False),
            }  # fmt: skip
            new = ledger.New(source, owner, new_id, fields, None)
            child = ledger.begin(conn, new, now, kind="delegate", origin=parent).conversation_id
            address = Address.local(child, person_id)
            about = {"child": child, "parent": conversation_id}
            row = Inbox(self._store).accept_own_in(
                conn, address, message_id=f"{OWN}child:{child}", text=one.text, about=about
            )
            spec = columns.to_json(one.spec, self._store.limits, what="the task")
            key = (child, conversation_id, turn_id, call_id, position, depth, row.row.id)
            conn.run(Q.add, (*key, columns.clean(one.goal), spec, one.budget_usd, now))
        return self._of_call(conn, turn_id, call_id)

    # -- in the transactions of a child's turn -----------------------------------------------------------

    def begun_in(self, conn: Connection, conversation_id: ConversationId) -> None:
        for row in conn.rows(Q.begin, (self._store.clock(), conversation_id)):
            self._tell(conn, _child(row), BEGUN)

    def ended_in(self, conn: Connection, conversation_id: ConversationId, state: State, text: str) -> None:
        """End a child with its turn; the last one of a call may return the results. Its own children are stopped."""
        found = conn.rows(Q.get, (conversation_id,))
        if not found or not (child := _child(found[0])).is_open:
            return
        self._of_call(conn, child.turn_id, child.call_id, lock=True)  # of two last ones, the second sees the first
        text = columns.clean(text)
        if len(text) > _RESULT_CHARS:
            text = (
                f"{text[:_RESULT_CHARS]}…\n(cut here; session_search and `hermes sessions show {child.id}` have it all)"
            )
        conn.run(Q.end, (state, text, self._store.clock(), conversation_id))
        for row in conn.rows(Q.of_parent, (conversation_id, _MOST)):
            self._cancel_pending(conn, _child(row), "its parent has ended")
        self._tell(conn, child, ENDED, state=state)
        self._settle_in(conn, child.turn_id, child.call_id)

    # -- in the transaction that stores a call's result -----------------------------------------------------

    def return_in(self, conn: Connection, turn_id: TurnId, call_id: str, *, later: bool) -> None:
        """The call's result is being stored: it contains the children's, or says that they come `later`."""
        self._of_call(conn, turn_id, call_id, lock=True)
        conn.run(Q.set_returned, ("later" if later else "call", turn_id, call_id))
        if later:
            self._settle_in(conn, turn_id, call_id)

    def _settle_in(self, conn: Connection, turn_id: TurnId, call_id: str) -> bool:
        """Store the results of a call in one row of its parent, if they are complete and the call takes none."""
        children = self._of_call(conn, turn_id, call_id, lock=True)
        if not children or any(child.is_open for child in children):
            return False
        first, how = children[0], children[0].returned
        turn_state = scalar(conn.rows(Q.turn_state, (turn_id,)))
        if how not in (None, "later") or (how is None and turn_state in ("running", "waiting")):
            return False
        address = first.address
        if address is None or (how is None and turn_state == "cancelled"):
            conn.run(Q.set_returned, ("dropped", turn_id, call_id))
            return True
        text = f"[The work that you delegated has ended.]\n\n{results_text(children)}"
        asked_by = Inbox(self._store).asked_by_in(conn, turn_id, first.parent_id)
        about = {
            "children": turn_id, "call": call_id, "origin": origins.outside("a delegated task"), **asked_by,
        }  # fmt: skip
        Inbox(self._store).accept_own_in(
            conn, address, message_id=f"{OWN}children:{turn_id}:{call_id}", text=text, about=about
        )
        conn.run(Q.set_returned, ("row", turn_id, call_id))
        return True

    def settle(self) -> int:
        """Return results whose turn ended without taking them; how many calls had some."""
        calls = {(child.turn_id, child.call_id) for child in self.open() if not child.is_open}
        return sum(
            self.engine.write(functools.partial(self._settle_in, turn_id=one, call_id=two)) for one, two in calls
        )

    # -- stop --------------------------------------------------------------------------------------------

    def stop(self, child: Child, *, reason: str) -> bool:
        """Stop a child: cancel it if nobody has begun it, else ask its process to end its turn."""
        if self.engine.write(lambda conn: self._cancel_pending(conn, child, reason)):
            return True
        from hermes_state.turns.turns import Turns

        running = self._rows(Q.running_turn, (child.id,))
        return bool(running) and Turns(self._store).ask_to_stop(TurnId(running[0][0]), reason=reason)

    @in_transaction
    def fail(self, conn: Connection, child: Child, reason: str) -> None:
        """End a child that has no turn: it cannot begin, or its turn is gone."""
        Inbox(self._store).drop_in(conn, child.inbox_id, reason=reason)
        if not conn.rows(Q.running_turn, (child.id,)):
            self.ended_in(conn, child.id, "failed", reason)

    def _cancel_pending(self, conn: Connection, child: Child, reason: str) -> bool:
        if not Inbox(self._store).drop_in(conn, child.inbox_id, reason=reason):
            return False
        self.ended_in(conn, child.id, "cancelled", reason)
        return True

    # -- reads -------------------------------------------------------------------------------------------

    def get(self, conversation_id: str) -> Child | None:
        return self._one(_child, Q.get, (conversation_id,)) if is_possible_id(conversation_id) else None

    def of_call(self, turn_id: TurnId, call_id: str) -> tuple[Child, ...]:
        return tuple(map(_child, self._rows(Q.of_call, (turn_id, call_id))))

    def of_turn(self, turn_id: TurnId) -> tuple[Child, ...]:
        return tuple(map(_child, self._rows(Q.of_turn, (turn_id,))))

    def of_parent(self, conversation_id: ConversationId, *, limit: int = 100) -> tuple[Child, ...]:
        """The children of a conversation, the newest call first."""
        return tuple(map(_child, self._rows(Q.of_parent, (conversation_id, limit))))

    def open(self, *, limit: int = _MOST) -> tuple[Child, ...]:
        """Children that have not ended, or whose results have not reached their parent."""
        return tuple(map(_child, self._rows(Q.open, (limit,))))

    def above(self, child: Child) -> list[tuple[ConversationId, float | None]]:
        """The conversations that a child works for, nearest first, each with its own spending limit."""
        found: list[tuple[ConversationId, float | None]] = []
        below: Child | None = child
        while below is not None and len(found) < _MOST:
            parent = below.parent_id
            known = self.get(parent) if is_child(parent) else None
            found.append((parent, below.spec.get("parent_usd") if known is None else known.budget_usd))
            below = known
        return found

    def prune(self) -> int:
        """Remove rows that ended longer ago than `limits.turns_days`; the children's conversations stay."""
        return self._remove_old(self._store.limits.turns_days, Q.prune)

    def _of_call(self, conn: Connection, turn_id: TurnId, call_id: str, *, lock: bool = False) -> tuple[Child, ...]:
        return tuple(map(_child, conn.rows(Q.of_call.locked if lock else Q.of_call, (turn_id, call_id))))

    def _tell(self, conn: Connection, child: Child, kind: str, **more: Any) -> None:
        detail = {"child": child.id, **more}
        Events(self._store).append_in(conn, child.parent_id, kind, detail=detail, turn_id=child.turn_id)


def parent_in(conn: Connection, conversation_id: ConversationId) -> tuple[ConversationId, TurnId] | None:
    """The conversation and the turn that a child works for."""
    found = conn.rows(Q.get, (conversation_id,))
    return (_child(found[0]).parent_id, _child(found[0]).turn_id) if found else None


def results_text(children: Sequence[Child]) -> str:
    """The results of a call's children for the model that delegated, in order."""
    parts = []
    for number, child in enumerate(children, start=1):
        outcome = "" if child.state == "done" else f" ({'still at work' if child.is_open else child.state})"
        parts.append(f"## {number}. {' '.join(child.goal.split())[:200]}{outcome}\n{child.result or ''}".rstrip())
    return "\n\n".join(parts)
