"""`hermes turns cancel` for a turn at a terminal: the wish stands in the store, and the process at work looks for it.

A gateway looks for all of its turns at once (`gateway.stop_wishes`). A turn of nobody's route has this one task beside
it, which reads its row every second, and is followed as Ctrl-C would be: what was done is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_agent.signals import Signals
    from hermes_state import SessionDB
    from hermes_state.turns.journal import Journal

_log = logging.getLogger("hermes.agent")
_SECONDS = 1.0


@contextlib.asynccontextmanager
async def heeded(db: SessionDB, journal: Journal, signals: Signals) -> AsyncIterator[None]:
    """While the turn runs, a wish that it end stops it."""
    watching: list[asyncio.Task[None]] = []
    # Most turns are over before the first look: until then it is a timer, not a task.
    due = asyncio.get_running_loop().call_later(
        _SECONDS, lambda: watching.append(asyncio.ensure_future(_watch(db, journal, signals)))
    )
    try:
        yield
    finally:
        due.cancel()
        for task in watching:
            task.cancel()


async def _watch(db: SessionDB, journal: Journal, signals: Signals) -> None:
    while True:
        try:
            turn = await asyncio.to_thread(db.turns.get, journal.turn_id)
        except HermesError as error:  # the store is busy, say; there is another look
            _log.warning("a wish to stop was not looked for", extra={"action": "turn", "error": type(error).__name__})
            turn = None
        if turn is not None and turn.state == "running" and turn.reason is not None:
            signals.stop(reason=turn.reason)
            return
        await asyncio.sleep(_SECONDS)
