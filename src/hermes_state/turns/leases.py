"""Leases on conversations, and the fence numbers that make them safe.

A turn holds the lease of its conversation: one task, process or machine at a time. Each time a lease changes hands its
fence number grows; it never shrinks. Every write of a turn names its fence, and `check` refuses the write in the same
transaction when the lease was taken over, released or has expired. So a holder that was suspended for an hour gets
`StaleFence` and writes nothing.

On SQLite all processes share the machine's clock, which is the store's. Several machines can share a PostgreSQL
database, so there the server's clock decides, unless the store was given its own clock, as in tests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hermes_state.errors import ConversationHeld, InvalidValue, StaleFence, TurnOver
from hermes_state.ids import ConversationId, SessionId, TurnId, checked_id
from hermes_state.storage.base import Connection, Row, Store, StorePart, scalar
from hermes_state.storage.statements import Queries

Q = Queries("leases")
_HOLD_SECONDS = 60.0  # far longer than the transaction that also releases it


@dataclass(frozen=True, slots=True)
class Lease:
    conversation_id: ConversationId
    fence: int
    holder: str
    acquired_at: float
    expires_at: float


class HeldTurn(NamedTuple):
    """A running turn whose fence was checked in this transaction."""

    conversation_id: ConversationId
    session_id: SessionId
    trace_id: str
    attempt: int


class Leases(StorePart):
    """`acquire` → work, `renew_in` at intervals → `release`."""

    def acquire(self, conversation_id: ConversationId, *, holder: str, ttl: float) -> Lease | None:
        """Take the lease with a new fence; None while anybody holds it, this holder included: one turn at a time."""
        return self._store.engine.write(
            lambda conn: self.acquire_in(conn, conversation_id, holder=holder, ttl=ttl), single=True
        )

    def acquire_in(self, conn: Connection, conversation_id: ConversationId, *, holder: str, ttl: float) -> Lease | None:
        """Like `acquire`, in the caller's transaction."""
        checked_id(conversation_id, what="conversation id")
        checked_id(holder, what="holder")
        _check_ttl(ttl)
        now = shared_now(self._store)
        return _lease(conn.rows(Q.acquire, (conversation_id, holder, now, now, ttl, ttl)))

    def renew_in(self, conn: Connection, lease: Lease, *, ttl: float) -> Lease | None:
        """The lease with `ttl` from now, or None when it is lost and the work must stop."""
        _check_ttl(ttl)
        now = shared_now(self._store)
        return _lease(conn.rows(Q.renew, (now, ttl, ttl, lease.conversation_id, lease.fence, now)))

    def release(self, lease: Lease) -> bool:
        """Release the lease; False when the caller no longer held it."""
        return self._store.engine.write(lambda conn: self.release_in(conn, lease), single=True)

    def release_in(self, conn: Connection, lease: Lease) -> bool:
        return conn.run(Q.release, (lease.conversation_id, lease.fence)) == 1

    def release_holder(self, holder: str) -> int:
        """Release every lease of a holder that is known to be dead, so that nobody waits for them to expire."""
        return self._store.engine.write(lambda conn: self.release_holder_in(conn, holder), single=True)

    def release_holder_in(self, conn: Connection, holder: str) -> int:
        return conn.run(Q.release_holder, (holder,))

    def get(self, conversation_id: ConversationId) -> Lease | None:
        """The current lease; None when the conversation is free or the lease has expired."""
        return _lease(self._rows(Q.held, (shared_now(self._store), conversation_id)))

    def check(self, conn: Connection, conversation_id: ConversationId, fence: int) -> None:
        check(self._store, conn, conversation_id, fence)


def check(store: Store, conn: Connection, conversation_id: ConversationId, fence: int) -> None:
    """Raise `StaleFence` unless `fence` may write to the conversation; the result holds until the transaction ends."""
    if not conn.rows(Q.check, (shared_now(store), conversation_id, fence)):
        raise _stale(conversation_id, fence)


@contextlib.contextmanager
def held(store: Store, conn: Connection, conversation_id: ConversationId, holder: str) -> Iterator[None]:
    """Keep turns out of the conversation until the transaction ends; `ConversationHeld` when somebody holds it.

    Lock session rows inside, not before: turns lock the lease first too, so no deadlock is possible.
    """
    lease = Leases(store).acquire_in(conn, conversation_id, holder=holder, ttl=_HOLD_SECONDS)
    if lease is None:
        raise ConversationHeld
    yield
    Leases(store).release_in(conn, lease)


def hold_turn(store: Store, conn: Connection, turn_id: TurnId, fence: int) -> HeldTurn:
    """Like `check`, for a turn that must still be running."""
    rows = conn.rows(Q.hold_turn, (shared_now(store), fence, turn_id))
    if not rows:
        raise StaleFence(f"turn {turn_id!r:.80} or its lease no longer exists; nothing was written")
    conversation_id, session_id, trace_id, attempt, state, may_write = rows[0]
    if state != "running":
        raise TurnOver(turn_id, state)
    if not may_write:
        raise _stale(conversation_id, fence)
    return HeldTurn(conversation_id, session_id, trace_id, attempt)


def running_turn(conn: Connection, conversation_id: ConversationId) -> TurnId | None:
    """The conversation's running turn, also when its process died."""
    found: TurnId | None = scalar(conn.rows(Q.running_turn, (conversation_id,)))
    return found


def shared_now(store: Store) -> float | None:
    """The parameter of `{now}`: the time that all users of this database share."""
    if store.engine.dialect == "postgresql" and store.clock is time.time:
        return None
    return store.clock()


def _lease(rows: list[Row]) -> Lease | None:
    return Lease(*rows[0]) if rows else None


def _stale(conversation_id: str, fence: int) -> StaleFence:
    return StaleFence(
        f"fence {fence} of conversation {conversation_id} is out of date; nothing was written",
        hint="Another turn took the conversation over, or this one did not renew its lease in time.",
    )


def _check_ttl(ttl: float) -> None:
    if not 0 < ttl <= 86_400:
        raise InvalidValue(f"a lease lasts between 0 and 86400 seconds, not {ttl}")
