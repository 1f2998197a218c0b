"""A write of something that has happened already, tried until the store takes it.

What a platform answered, or a command did, cannot be undone when the disk is full or the server away for a minute: it
is kept and written as soon as that passes. Whoever ends the process cancels it. An error that does not pass by itself
is raised at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hermes_state.errors import OutcomeUnknown, StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable, WriteLost
from hermes_state.storage.writer import queued

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.storage.base import Connection

T = TypeVar("T")

_log = logging.getLogger("hermes.gateway")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


async def written(
    db: SessionDB,
    write: Callable[[Connection], T],
    *,
    what: str,
    trace_id: str | None = None,
    patience: float = 0.0,
) -> T:
    """`write(conn)` in a transaction, which may run again after one whose outcome is not known.

    `patience`: as in `queued`.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return await queued(db.engine, write, patience=patience)
        except (StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable, WriteLost, OutcomeUnknown) as error:
            extra = {"action": "store_trouble", "trace_id": trace_id}
            _log.warning("%s is not written down yet: %s", what, error.one_line(), extra=extra)
        await asyncio.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 2)
