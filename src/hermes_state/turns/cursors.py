"""How far each feed of a platform was read, for adapters whose platform does not remember it for them.

A cursor moves in the transaction that stores the message it stands behind (`Inbox.aaccept`), so after a crash the feed
is read on from the first message that was not stored. What a value means is the adapter's own business.
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
"""Bytes of a value: some platforms give long tokens, and none needs more."""


class CursorPosition(NamedTuple):
    value: str
    moved_at: float


class CursorMove(NamedTuple):
    """Where a cursor moves; `name` is the feed, one of several that an account may have."""

    platform: str
    account: str
    name: str
    value: str


class Cursors(StorePart):
    def get(self, platform: str, account: str = "", name: str = "") -> CursorPosition | None:
        """None while the feed was never read."""
        return self._one(lambda row: CursorPosition(*row), Q.get, (platform, account, name))

    async def move(self, to: CursorMove) -> None:
        """Move it on its own, past what was not worth a row; durable when this returns."""
        await writer.queued(self._store.engine, self.move_in, checked(to))

    def move_in(self, conn: Connection, to: CursorMove) -> None:
        """In the transaction of what it stands behind; `to` was checked."""
        conn.run(Q.move, (*to, self._store.clock()))


def checked(to: CursorMove) -> CursorMove:
    """Raises `InvalidValue` for what cannot be stored."""
    columns.outside_key(platform=to.platform, account=to.account, cursor=to.name)
    try:
        fits = "\0" not in to.value and len(to.value.encode()) <= LONGEST
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidValue(f"a cursor of {to.platform} cannot be stored", hint=f"Text of at most {LONGEST:,} bytes.")
    return to
