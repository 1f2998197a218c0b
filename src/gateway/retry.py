"""Retries: the pause between two tries (`pause_after`, `set_within`), and writes that must not be lost (`written`).

A platform's answer or a command's effect cannot be undone when the disk is full or the database server is down for a
minute: `written` tries until the write succeeds or the process ends. It raises a permanent error at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hermes_state.errors import PASSING
from hermes_state.storage.writer import queued

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.storage.base import Connection

T = TypeVar("T")

_log = logging.getLogger("hermes.gateway")


def pause_after(tries: int, *, first: float, longest: float, spread: float = 0.0) -> float:
    """Seconds to wait after `tries` failed tries: `first`, then twice as long each time, at most `longest`.

    `spread`: 0.2 is up to 20 % more or less, so that many callers do not retry at the same moment.
    """
    seconds = min(longest, first * 2.0 ** min(max(tries - 1, 0), 16))
    return seconds * random.uniform(1 - spread, 1 + spread) if spread else seconds


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event at most so long; whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def written(
    db: SessionDB, write: Callable[[Connection], T], *, what: str, trace_id: str | None = None, patience: float = 0.0
) -> T:
    """Run `write(conn)` in a transaction; after an unknown outcome it may run twice. `patience`: as in `queued`."""
    for tries in itertools.count(1):
        try:
            return await queued(db.engine, write, no_savepoint=True, patience=patience)
        except PASSING as error:
            extra = {"action": "store_trouble", "trace_id": trace_id}
            _log.warning("cannot store %s yet: %s", what, error.one_line(), extra=extra)
        await asyncio.sleep(pause_after(tries, first=0.1, longest=5.0))
    raise AssertionError("the loop ends only with a return")
