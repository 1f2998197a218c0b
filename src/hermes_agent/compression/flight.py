"""Who may compress: one at a time.

The lock on the segment is the one other programs know; it runs out by itself and is refreshed while the work goes on.
It names its process, so that the lock of one that was killed is not waited for on the same machine.
A running turn holds its conversation's lease already and brings its writer. Without a turn the lease is taken here, so
that no turn begins in a segment that is about to end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hermes_agent import process_identity
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.journal import TurnWriter
    from hermes_state.turns.leases import Lease

_LOCK_SECONDS = 300.0
_LEASE_SECONDS = 180.0
_REFRESH_SECONDS = 60.0


@contextlib.asynccontextmanager
async def alone(db: SessionDB, session_id: str, writer: TurnWriter | None) -> AsyncIterator[TurnWriter | None]:
    """What to rotate with, for as long as nobody else may; None while somebody else does."""
    holder = _new_holder()
    locked, lease = await _taken(db, session_id, holder, with_lease=writer is None)
    keeper: asyncio.Task[None] | None = None
    try:
        if lease is not None:
            from hermes_state.turns.journal import TurnWriter

            writer = TurnWriter(db, lease, SessionId(session_id))
        if locked and writer is not None:
            keeper = asyncio.create_task(_keep(db, session_id, holder, lease))
        yield writer if locked else None
    finally:
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await asyncio.shield(asyncio.to_thread(_give_back, db, session_id, holder, lease))


async def _taken(db: SessionDB, session_id: str, holder: str, *, with_lease: bool) -> tuple[bool, Lease | None]:
    """Lock and lease; given back when we are cancelled while a thread is just getting them."""
    taking = asyncio.ensure_future(asyncio.to_thread(_take, db, session_id, holder, with_lease))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.wait({taking})
        if taking.exception() is None:
            await asyncio.to_thread(_give_back, db, session_id, holder, taking.result()[1])
        raise


def _take(db: SessionDB, session_id: str, holder: str, with_lease: bool) -> tuple[bool, Lease | None]:
    if not db.try_acquire_compression_lock(session_id, holder, _LOCK_SECONDS):
        _release_gone(db, session_id)
        if not db.try_acquire_compression_lock(session_id, holder, _LOCK_SECONDS):
            return False, None
    return True, _lease(db, session_id, holder) if with_lease else None


def _new_holder() -> str:
    machine, pid, started, nonce = process_identity.new_holder().split("/")
    return f"pid={pid}:machine={machine}:started={started}:nonce={nonce}"


def _release_gone(db: SessionDB, session_id: str) -> None:
    """A lock of ours whose process is gone for certain; anybody else's runs out in its time."""
    holder = db.get_compression_lock_holder(session_id) or ""
    facts = dict(part.partition("=")[::2] for part in holder.split(":"))
    if "machine" in facts and process_identity.is_gone(f"{facts['machine']}/{facts['pid']}/{facts['started']}/lock"):
        db.release_compression_lock(session_id, holder)


def _lease(db: SessionDB, session_id: str, holder: str) -> Lease | None:
    conversation = db.ledger.handle(session_id).conversation_id
    return db.leases.acquire(conversation, holder=holder, ttl=_LEASE_SECONDS)


async def _keep(db: SessionDB, session_id: str, holder: str, lease: Lease | None) -> None:
    while True:
        await asyncio.sleep(_REFRESH_SECONDS)
        await asyncio.to_thread(db.refresh_compression_lock, session_id, holder, _LOCK_SECONDS)
        if lease is not None:
            await asyncio.to_thread(db.leases.renew, lease, ttl=_LEASE_SECONDS)


def _give_back(db: SessionDB, session_id: str, holder: str, lease: Lease | None) -> None:
    if lease is not None:
        db.leases.release(lease)
    db.release_compression_lock(session_id, holder)
