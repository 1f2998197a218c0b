"""Turns of which nothing is heard any more: stopped after `agent.gateway_timeout` seconds without a sign of life.

A sign of life is anything an agent tells those who look on: a piece of text, a thought, a tool that begins, prints or
ends, a word about a retry. Waiting for a person, for room or for the store is not silence. The turn is interrupted as
`/stop` does it, what was done is kept, and the person is told. Models and tools have bounds of their own; this one is
for whatever has none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.lanes import Lanes
    from gateway.running import Running
    from hermes_state.turns.turns import Turn

_log = logging.getLogger("hermes.gateway")
_LONGEST_PAUSE = 30.0
_ROUNDS = 4
"""So many looks in the time a turn may be silent."""


async def watch(lanes: Lanes, *, seconds: float) -> None:
    """Until it is cancelled; 0 seconds mean that a turn may be silent for ever."""
    while seconds > 0:
        await asyncio.sleep(min(_LONGEST_PAUSE, seconds / _ROUNDS))
        for running in lanes.turns:
            if _is_silent(running, seconds) and running.work is not None:
                await _stop(lanes, running, running.work.turn, seconds)


def _is_silent(running: Running, seconds: float) -> bool:
    """A turn that has not begun waits for others, or for the store; one that asks waits for a person, however long."""
    if running.work is None or running.agent is None or running.stopped or running.asks:
        return False
    return time.monotonic() - max(running.begun_at, running.agent.heard_at, running.asked_until) > seconds


async def _stop(lanes: Lanes, running: Running, turn: Turn, seconds: float) -> None:
    span = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:g} seconds"
    reason = f"nothing was heard of it for {span}"
    _log.warning("a turn is stopped: %s", reason, extra={"action": "turn.silent", "trace_id": turn.trace_id})
    running.interrupt(reason=reason)
    said = f"I stopped: neither the model nor a tool gave a sign for {span}. What was done is kept; /retry asks again."
    account = running.rows[-1].account if running.rows else ""
    try:
        await lanes.tell(running.source, said, what="silent", occasion=turn.id, account=account)
    except StateError as error:  # the store is busy or full; it is stopped all the same, and its row says why
        _log.warning("a silence was not told: %s", error.one_line(), extra={"action": "turn.silent"})
