"""Shows a running turn to terminals, which may be on other machines: through the store, while one of them watches.

The text of the present step is written at most a few times a second (`hermes_state.turns.live_views`). A turn that
nobody watches writes nothing, but checks now and then for watchers, so that one who comes later sees the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from gateway.turns.running_turn import Watcher
from hermes_config.errors import HermesError
from hermes_state.storage.writer import look, queued
from hermes_state.turns.live_views import LiveText

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId, TurnId
    from hermes_state.turns.turns import Work

_log = logging.getLogger("hermes.gateway")
_FIRST_SECONDS, _SECONDS = 0.05, 0.15
_UNWATCHED_SECONDS = 0.5
_LONG = 32_768
"""Characters: each write holds the whole text, so a text that is twice as long is written half as often."""


class Watched:
    """The conversations that have watchers: one read for all turns of this process."""

    def __init__(self, db: SessionDB) -> None:
        self.db = db
        self._found: frozenset[ConversationId] = frozenset()
        self._until = 0.0

    async def has(self, conversation_id: ConversationId) -> bool:
        if time.monotonic() >= self._until:
            self._until = time.monotonic() + _FIRST_SECONDS
            self._found = await look(self.db, self.db.live_views.watched)
        return conversation_id in self._found


class LiveView(Watcher):
    """The watcher that shows one turn to other processes."""

    def __init__(self, watched: Watched, conversation_id: ConversationId) -> None:
        self._watched, self._db, self._conversation = watched, watched.db, conversation_id
        self._turn_id: TurnId | None = None
        self._step = 0
        self._pieces: list[str] = []
        self._new = False
        """Some pieces were not written yet."""
        self._shown = False
        self._publishing: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def began(self, work: Work) -> None:
        self._turn_id, self._step, self._new = work.turn.id, 0, False
        self._pieces.clear()
        if work.turn.attempt > 1:  # the text of the process that was lost
            self._clear(work.turn.id)

    def delta(self, text: str) -> None:
        self._pieces.append(text)
        self._new = True
        if self._publishing is None:  # a timer first: most turns end before a task would have anything to do
            pause = _SECONDS if self._shown else _FIRST_SECONDS
            self._publishing = asyncio.get_running_loop().call_later(pause, self._publish_soon)

    def broke_off(self) -> None:
        self._new = False
        self._pieces.clear()

    def step(self) -> None:
        self._step, self._new = self._step + 1, False
        self._pieces.clear()

    def ended(self, result: dict[str, Any]) -> None:
        self.left()

    def left(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None
        if self._shown and self._turn_id is not None:
            self._clear(self._turn_id)

    def _publish_soon(self) -> None:
        self._publishing = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        """Write the text until no piece is new; the next piece starts this again."""
        try:
            while self._new:
                if self._turn_id is None or not await self._watched.has(self._conversation):
                    await asyncio.sleep(_UNWATCHED_SECONDS)
                    continue
                self._new, self._shown = False, True
                live = LiveText(self._turn_id, self._step, "".join(self._pieces))
                await queued(self._db.engine, self._db.live_views.show_in, self._conversation, live)
                await asyncio.sleep(_SECONDS * (1 + len(live.text) // _LONG))
        except HermesError as error:
            _log.warning("cannot show this turn to terminals: %s", error.one_line(), extra={"action": "live_view"})
            return  # `_publishing` stays set, so that no other task starts
        self._publishing = None

    def _clear(self, turn_id: TurnId) -> None:
        """Remove the text. Writes of one loop run in order, so this one comes after the last text."""
        done = queued(self._db.engine, self._db.live_views.clear_in, self._conversation, turn_id)
        done.add_done_callback(_cleared)


def _cleared(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _log.warning("cannot remove a text of the live view: %s", error, extra={"action": "live_view"})
