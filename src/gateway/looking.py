"""A look at the store from the event loop.

One row of a local file, found by its index, takes some thirty microseconds, and handing that to a thread and waking up
again takes five times as long, on the path of every message. So such a read is done at once on SQLite. A server is
asked beside the loop: a round trip over a network has no bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from hermes_state import SessionDB

P = ParamSpec("P")
T = TypeVar("T")


async def look(db: SessionDB, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`read(…)`, which must be one indexed read of a row or two."""
    if db.engine.dialect == "sqlite":
        return read(*args, **kwargs)
    return await asyncio.to_thread(read, *args, **kwargs)
