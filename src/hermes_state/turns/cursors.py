"""The read position in each feed of a platform, for adapters whose platform does not store it.

A cursor moves in the transaction that stores its message (`Inbox.aaccept`), so after a crash the feed continues with
the first message that was not stored. Only the adapter knows the meaning of a value.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.storage import writer
from hermes_state.storage.base import Connection, StorePart, in_transaction
from hermes_state.storage.statements import Queries

Q = Queries("cursors")
LONGEST = 16_384
"""The largest value in bytes: some platforms give long tokens, and none needs more."""


_CONNECTED_AS = "%connected_as"
"""The name of the row with our native id; feeds have other names."""


class CursorPosition(NamedTuple):
    value: str
    moved_at: float


class CursorMove(NamedTuple):
    """The new position of a cursor; `name` is the feed, one of several that an account may have."""

    platform: str
    account: str
    name: str
    value: str


class Cursors(StorePart):
    def get(self, platform: str, account: str = "", name: str = "") -> CursorPosition | None:
        """The position; None for a feed that was never read."""
        return self._one(lambda row: CursorPosition(*row), Q.get, (platform, account, name))

    async def move(self, to: CursorMove) -> None:
        """Move the cursor alone, past messages that need no row; durable when this returns."""
        await writer.queued(self._store.engine, self.move_in, checked(to))

    @in_transaction
    def connected_as(self, conn: Connection, platform: str, account: str, native_id: str) -> bool:
        """Note which account of the platform we are; True if it was another one before.

        Another bot numbers its messages from 1. The ended rows of the one before give their keys free, so that none of
        its numbers makes a new message look like a repetition.
        """
        key = (platform, account, _CONNECTED_AS)
        found = conn.rows(Q.get, key)
        if found and found[0][0] == native_id:
            return False
        conn.run(Q.move, (*checked(CursorMove(*key, native_id)), now := self._store.clock()))
        former = "" if not found else f"{account}%{found[0][0]}@{now:.0f}"
        for retire in (Q.retire_inbox, Q.retire_outbox) if former else ():
            conn.run(retire, (former, platform, account))
        return bool(former)

    def move_in(self, conn: Connection, to: CursorMove) -> None:
        """Move the cursor in its message's transaction; `to` was checked."""
        conn.run(Q.move, (*to, self._store.clock()))


def checked(to: CursorMove) -> CursorMove:
    """Raise `InvalidValue` for a value that cannot be stored."""
    columns.outside_key(platform=to.platform, account=to.account, cursor=to.name)
    try:
        fits = "\0" not in to.value and len(to.value.encode()) <= LONGEST
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidValue(f"a cursor of {to.platform} cannot be stored", hint=f"Text of at most {LONGEST:,} bytes.")
    return to
