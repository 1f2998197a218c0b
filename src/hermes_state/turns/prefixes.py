"""Prompt prefixes: the exact bytes that a conversation's requests begin with, in numbered epochs.

Bytes are stored once per content, by hash, and shared. An epoch begins at an announced event (first use, a compression,
a changed memory) and stores the reason; between two such events the prefix must not change. A request that does not
begin with the expected bytes is recorded as a break and counted, per conversation and in total. The rows are bounded,
the counts are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from hermes_state import columns
from hermes_state.ids import ConversationId
from hermes_state.storage.base import Connection, StorePart, first, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

Q = Queries("prefixes")

_TOTAL = ConversationId("")
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Epoch:
    conversation_id: ConversationId
    epoch: int
    hash: str
    reason: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """An epoch and its bytes."""

    epoch: Epoch
    bytes: bytes


def prefix_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Prefixes(StorePart):
    """Begins epochs, reads them back, and counts breaks."""

    @in_transaction
    def begin(
        self,
        conn: Connection,
        conversation_id: ConversationId,
        content: bytes,
        *,
        reason: str,
        fence: int | None = None,
        also: Callable[[Connection], object] | None = None,
    ) -> Epoch:
        """Begin a new epoch with these bytes. Unchanged bytes continue the current epoch, and nothing is written.

        `also` is written in the same transaction, under the same fence.
        """
        digest, now = prefix_hash(content), self._store.clock()
        if fence is not None:
            leases.check(self._store, conn, conversation_id, fence)
        if also is not None:
            also(conn)
        newest = first(conn.rows(Q.newest, (conversation_id,)))
        if newest is not None and newest[1] == digest:
            return Epoch(*conn.rows(Q.epochs, (conversation_id,))[-1])
        number = 1 if newest is None else newest[0] + 1
        epoch = Epoch(conversation_id, number, digest, columns.note(reason) or "", now)
        conn.run(Q.intern, (digest, content, now))
        conn.run(Q.add, (conversation_id, number, digest, epoch.reason, now))
        if number > self._store.limits.prefix_epochs:
            conn.run(Q.trim_epochs, (conversation_id, number - self._store.limits.prefix_epochs))
        return epoch

    def current(self, conversation_id: ConversationId) -> Prefix | None:
        """The prefix that every request must begin with now."""
        row = first(self._rows(Q.current, (conversation_id,)))
        return None if row is None else Prefix(Epoch(*row[:5]), bytes(row[5]))

    def newest(self, conversation_id: ConversationId) -> tuple[int, str] | None:
        """(epoch, hash) of the current prefix, without its bytes."""
        return self._store.engine.read(lambda conn: newest_in(conn, conversation_id))

    def epochs(self, conversation_id: ConversationId) -> tuple[Epoch, ...]:
        """All epochs, oldest first."""
        return tuple(Epoch(*row) for row in self._rows(Q.epochs, (conversation_id,)))

    def bytes_of(self, digest: str) -> bytes | None:
        found = scalar(self._rows(Q.bytes, (digest,)))
        return None if found is None else bytes(found)

    # -- breaks ------------------------------------------------------------------------------------------

    def broke_in(
        self,
        conn: Connection,
        conversation_id: ConversationId,
        *,
        epoch: int,
        expected: str,
        seen: str,
        reason: str,
    ) -> None:
        """Record that a request did not begin with the expected bytes; the arguments are hashes."""
        row = (conversation_id, epoch, expected, seen, columns.note(reason) or "", self._store.clock())
        conn.run(Q.add_break, row)
        for whose in (conversation_id, _TOTAL):
            conn.run(Q.count_break, (whose,))
        conn.run(Q.trim_breaks, (self._store.limits.prefix_breaks,))

    def break_count(self, conversation_id: ConversationId | None = None) -> int:
        """How often the prefix of a conversation broke, or of all conversations that ever existed."""
        whose = _TOTAL if conversation_id is None else conversation_id
        return int(scalar(self._rows(Q.break_count, (whose,))) or 0)

    def prune(self) -> int:
        """Remove bytes that no epoch uses."""
        removed = 0
        while step := self._store.engine.write(lambda conn: forget_unused(conn, limit=_BATCH)):
            removed += step
        return removed


def forget_unused(conn: Connection, *, limit: int) -> int:
    """Remove up to `limit` prefixes without an epoch; returns their number."""
    unused = [row[0] for row in conn.rows(Q.unused, (limit,))]
    return conn.run(Q.forget, (columns.texts(unused),)) if unused else 0


def newest_in(conn: Connection, conversation_id: ConversationId) -> tuple[int, str] | None:
    """`Prefixes.newest`, in the caller's transaction."""
    row = first(conn.rows(Q.newest, (conversation_id,)))
    return None if row is None else (row[0], row[1])
