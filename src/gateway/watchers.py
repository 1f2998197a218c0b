"""What the gateway does now and then by itself: conversations whose time is up are closed, lost turns taken up, and
what is over is removed.

The loop over expired conversations is `GatewayRunner._session_expiry_watcher`, whose name and shape are given; what one
round of it looks at is here. A conversation that keeps failing to close is marked closed after a few rounds, so that
it does not come up for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hermes_config import config as configuration
from hermes_config.errors import HermesError
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.board import Board
    from gateway.entries import SessionEntry
    from gateway.lanes import Lanes
    from hermes_state.maintenance import retention

_log = logging.getLogger("hermes.gateway")

FIRST_EXPIRY_SECONDS = 60
PRUNE_SECONDS = 3_600.0
_TAKE_UP_SECONDS = 20.0
_FIRST_TIDY_SECONDS = 1_800.0
_TIDY_SECONDS = 3_600.0
"""How often it is asked whether it is time; `sessions.min_interval_hours` says when it is."""
_TRIES = 3


def expired(store: Any, due: Callable[[], Iterable[SessionEntry]] | None) -> list[SessionEntry]:
    """Entries whose time is up and which were not closed yet. `due` finds candidates by an index; else all are."""
    if due is not None:
        found = list(due())
    else:
        store._ensure_loaded()
        with store._lock:
            found = list(store._entries.values())
    return [entry for entry in found if not entry.expiry_finalized and store._is_session_expired(entry)]


class Failures:
    """How often closing each conversation failed."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def again(self, session_id: str, error: HermesError) -> bool:
        """Whether to try it again in the next round."""
        count = self._counts.pop(session_id, 0) + 1
        _log.warning("a conversation was not closed: %s", error.one_line(), extra={"action": "expiry", "tries": count})
        if count < _TRIES:
            self._counts[session_id] = count
        return count < _TRIES


async def tidy_up(board: Board) -> None:
    """What is over goes, as the table of limits says; old conversations where `sessions.auto_prune` wants it."""
    pause = _FIRST_TIDY_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = _TIDY_SECONDS
        try:
            done = await asyncio.to_thread(_tidied, board)
        except (StateError, OSError) as error:  # the store or the disk is busy or full; there is another round
            _log.warning("tidying up was cut short: %s", error, extra={"action": "maintenance"})
            continue
        for one in done:
            if one.count:
                _log.info("%d %s", one.count, one.what, extra={"action": "maintenance", "step": one.step})


def _tidied(board: Board) -> list[retention.RetentionStep]:
    from hermes_state.maintenance import retention

    sessions = configuration.load_or_last_good(board.home)[0].sessions
    return retention.run_when_due(board.db, sessions, home=board.home, sessions_dir=board.store.sessions_dir)


async def take_up_lost_turns(lanes: Lanes) -> None:
    """A process on another machine may be lost while we run: its leases run out, and its turns are ours to end."""
    while True:
        await asyncio.sleep(_TAKE_UP_SECONDS)
        try:
            await lanes.take_up()
        except StateError as error:  # the store is busy or full; there is another round
            _log.warning("lost turns were not looked for: %s", error.one_line(), extra={"action": "take_up"})
