"""The read position in each feed of a platform, for adapters whose platform does not store it.

A cursor moves in the transaction that stores its message (`Inbox.aaccept`), so after a crash the feed continues with
the first message that was not stored. Only the adapter knows the meaning of a value.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.storage import writer
from hermes_state.storage.base import Connection, StorePart
from hermes_state.storage.statements import Queries

Q = Queries("cursors")
LONGEST = 16_384
"""The largest value in bytes: some platforms give long tokens, and none needs more."""


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
