"""What a running turn writes with.

A `TurnWriter` carries the turn's fence: every row it appends checks, in the same transaction, that the turn still holds
its conversation's lease. It also carries the segment, which moves when the conversation is compressed in the middle of
the turn, so that nobody has to pass a session id along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state import leases, messages, transcript
from hermes_state.engine.base import Connection
from hermes_state.handles import Handle
from hermes_state.ids import ConversationId, SessionId, TurnId
from hermes_state.ledger import Ledger
from hermes_state.store import Store

if TYPE_CHECKING:
    from hermes_state.leases import Lease


class TurnWriter:
    """Appends under a fence, and rotates."""

    def __init__(self, store: Store, lease: Lease, session_id: SessionId, *, turn_id: TurnId | None = None) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self.conversation_id: ConversationId = lease.conversation_id
        self.fence = lease.fence
        self.session_id = session_id
        self.turn_id = turn_id

    def append(self, role: str, content: Any = None, **fields: Any) -> int:
        """One row; its id. Durable when this returns; `StaleFence` and nothing written when the lease is lost."""
        return self.append_all([{"role": role, "content": content, **fields}])[0]

    def append_all(self, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """Several rows in one commit."""
        write = self._appending(rows)
        return self._store.engine.write(write)

    async def aappend_all(self, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """As `append_all`, from an event loop: queued to the writer, perhaps sharing its commit."""
        from hermes_state import aio

        ids: list[int] = await aio.queued(self._store.engine, self._appending(rows))
        return ids

    def rotate(self, compacted: Iterable[Mapping[str, Any]], **options: Any) -> Handle:
        """Compress under the fence; this writer goes on in the child."""
        handle = self._ledger.rotate(self.session_id, compacted, fence=self.fence, **options)
        self.session_id = handle.session_id
        return handle

    def _appending(self, rows: Iterable[Mapping[str, Any]]) -> Any:
        now, top = self._store.clock(), self._store.limits.message_bytes
        encoded = [transcript.encode({"turn_id": self.turn_id, **row}, now, top) for row in rows]
        segment = self.session_id

        def run(conn: Connection) -> list[int]:
            leases.check(self._store, conn, self.conversation_id, self.fence)
            return [messages.append(conn, segment, row) for row in encoded]

        return run
