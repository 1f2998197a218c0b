"""Wishes from outside that a running turn end: `hermes turns cancel` of another process writes them into the store.

Looked for every second with one indexed read of the few running turns. A wish is followed as `/stop` is: the turn is
interrupted, what it did is kept, and the store has its end. Turns of other processes are theirs to end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.running import Running
    from hermes_state import SessionDB
    from hermes_state.ids import SessionKey, TurnId

_log = logging.getLogger("hermes.gateway")


class Stoppable(Protocol):
    """The lanes, as far as this needs them."""

    def running(self, route: SessionKey) -> Running | None: ...

    async def stop(self, route: SessionKey, *, reason: str | None = None) -> bool: ...


async def watch(db: SessionDB, lanes: Stoppable, *, seconds: float = 1.0) -> None:
    followed: set[TurnId] = set()
    while True:
        await asyncio.sleep(seconds)
        try:
            asked = await asyncio.to_thread(db.turns.asked_to_stop)
        except StateError as error:  # the store is busy or full; there is another round
            _log.warning("wishes to stop were not looked for: %s", error, extra={"action": "turn.stop_wish"})
            continue
        followed &= {turn.id for turn in asked}
        for turn in asked:
            running = None if turn.route is None else lanes.running(turn.route)
            if turn.route is None or running is None or running.work is None or running.work.turn.id != turn.id:
                continue
            if turn.id not in followed:
                followed.add(turn.id)
                _log.info(
                    "a turn is stopped from outside", extra={"action": "turn.stop_wish", "trace_id": turn.trace_id}
                )
                await lanes.stop(turn.route, reason=turn.reason)
