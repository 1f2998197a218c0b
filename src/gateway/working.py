"""How a lane is worked off: what a lost process left, then row after row, until nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from gateway import tracing
from gateway.backlog import Backlog, nobody_waits
from gateway.intake import source_of
from gateway.lane import Commands, Lane, Waiting
from gateway.looking import look
from gateway.running import Running
from gateway.troubles import Patience, Troubles
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.board import Board
    from gateway.turns import TurnRunner
    from gateway.watching import Watcher
    from hermes_state.ids import TurnId
    from hermes_state.turns.inbox import Arriving, InboxRow
    from hermes_state.turns.turns import Turn

_log = logging.getLogger("hermes.gateway")
_ALBUM_PAUSE, _ALBUM_LONGEST = 0.35, 1.0
_ORDER_SECONDS = 5.0
_SUSPECT = 2
"""Processes lost under a turn."""


class Worker:
    """Works off lanes, each in a task of its own."""

    def __init__(
        self, board: Board, turns: TurnRunner, commands: Commands, troubles: Troubles, backlog: Backlog
    ) -> None:
        self._board, self._turns, self._commands = board, turns, commands
        self._troubles, self._backlog = troubles, backlog
        self._starts = asyncio.Semaphore(board.db.limits.turn_starts)
        self._suspects = asyncio.Semaphore(1)
        self.waited_for: set[TurnId] = set()
        """Turns that were left behind, and that another place of their conversation waits for."""
        most = board.settings.max_concurrent_sessions
        self._room = asyncio.Semaphore(most) if most else contextlib.nullcontext()

    async def work(self, lane: Lane) -> None:
        """Until there is nothing to do. What goes wrong with one row is that row's trouble."""
        patience = Patience()
        while not self._troubles.closing.is_set():
            try:
                if lane.passing:
                    await asyncio.wait(lane.passing)  # what was typed before comes before
                elif lane.left:
                    await self._take_up(lane, lane.left.popleft())
                elif lane.arriving:
                    (arriving, watcher), lane.arriving = lane.arriving, None
                    await self._arrived(lane, arriving, watcher)
                elif lane.waiting:
                    await self._next(lane)
                else:
                    return
                patience.tries = 0
            except StateError as error:  # what comes next cannot be read; it stays where it is
                await self._troubles.look_failed(error, patience)

    async def _next(self, lane: Lane) -> None:
        head = lane.waiting[0]
        row = await self._row(head)
        if not lane.begins_with(head):
            return  # it was edited, dropped or overtaken while we looked
        if row is None:
            lane.waiting.popleft()
        elif self._commands.kind(row) != "turn":
            lane.waiting.popleft()
            await self.command(row, head.watcher)
        else:
            rows = await self._batch(lane, row)
            if rows:
                tracing.follow(rows[0].trace_id)
                running = Running(lane.route, source_of(rows[-1]), rows[-1].person_id, rows=rows)
                running.at_once = head.at_once
                await self.turn(lane, running, head.watcher)

    async def _arrived(self, lane: Lane, arriving: Arriving, watcher: Watcher | None) -> None:
        """A turn for what is being stored."""
        row = arriving.row
        tracing.follow(row.trace_id)
        running = Running(lane.route, source_of(row), row.person_id, rows=(row,), arriving=arriving, at_once=True)
        arriving.accepted.add_done_callback(running.stored)
        await self.turn(lane, running, watcher)

    async def command(
        self, row: InboxRow, watcher: Watcher | None, *, after: Collection[asyncio.Task[None]] = ()
    ) -> None:
        """The named boundary of a command: a defect costs that command alone.

        `after`: what passed the turn before it and is not done. Of two buttons the first one pressed counts; but what
        hangs does not keep /stop from being heard.
        """
        tracing.follow(row.trace_id)
        if after:
            await asyncio.wait(after, timeout=_ORDER_SECONDS)
        try:
            await self._commands.run(row, watcher)
        except Exception as error:  # noqa: BLE001
            extra = {"action": "command_defect", "trace_id": row.trace_id}
            _log.error("a command failed in our own code (%s)", type(error).__name__, exc_info=error, extra=extra)

    async def turn(self, lane: Lane, running: Running, watcher: Watcher | None = None) -> dict[str, Any] | None:
        """One turn to its end, whatever comes; its result, None when there is none."""
        with lane.occupied(running):
            try:
                return await self._turn(running, watcher)
            finally:
                self._wait_again(lane)

    async def _turn(self, running: Running, watcher: Watcher | None) -> dict[str, Any] | None:
        patience = Patience()
        while True:
            try:
                result = await self._attempt(running, lambda: self._turns.run(running, watcher))
                # Cancelled, because it did not end by itself?
                if running.stopped and result is None and await running.has_rows():
                    await self._troubles.finish(running.rows, "dropped", "stopped by the person")
                return result
            except Exception as error:  # noqa: BLE001 - the named boundary of a lane: `Troubles` has a rule for each
                if not (await running.has_rows() and await self._troubles.after(error, running, patience)):
                    return None
            if running.stopped:
                await self._troubles.finish(running.rows, "dropped", "stopped by the person")
                return None

    async def _attempt(
        self, running: Running, work: Callable[[], Coroutine[Any, Any, dict[str, Any] | None]]
    ) -> dict[str, Any] | None:
        """A task of its own: whoever gives the turn up cancels that and not the lane."""
        # Only so many turns are prepared at once; one that has begun makes room for the next.
        async with self._room, _Place(self._starts) as running.on_begun:
            if self._troubles.closing.is_set():
                return None  # it waited for room until the gateway ended: the next one begins it
            running.task = asyncio.ensure_future(work())
            await asyncio.wait({running.task})
        return None if running.task.cancelled() else running.task.result()

    @contextlib.asynccontextmanager
    async def _apart(self, turn: Turn) -> AsyncIterator[None]:
        """Turns under which processes were lost before are taken up one after the other, a moment apart.

        One of those that ran then may have been what killed the process. Taken up together, all of them would be given
        up for what one does; one by one, the others come to their end.
        """
        db = self._board.db
        if turn.attempt < _SUSPECT or turn.attempt - await look(db, db.turns.times_left, turn) < _SUSPECT:
            yield
            return
        async with _Place(self._suspects) as leave:
            long_enough = asyncio.get_running_loop().call_later(db.limits.turn_alone_ms / 1000, leave)
            try:
                yield
            finally:
                long_enough.cancel()

    async def _take_up(self, lane: Lane, turn: Turn) -> None:
        """A turn that a lost process left behind. Its rows are its own already."""
        tracing.follow(turn.trace_id)
        source, rows = await self._backlog.place(turn)
        if source is None:
            _log.warning("a turn that was left behind has no place", extra={"action": "left_behind", "turn": turn.id})
            await self._backlog.forgo(turn, "its place is gone")  # other places of the conversation wait for its end
            return
        if rows and nobody_waits(rows[-1]) and await self._backlog.forgo(turn):
            return
        running = Running(lane.route, source, rows[-1].person_id if rows else None, left=turn.id)
        with lane.occupied(running):
            async with self._apart(turn):
                await self._resumed(running, turn)
        self._wait_again(lane)

    async def _resumed(self, running: Running, turn: Turn) -> None:
        """To its end, or as far as it can be brought now: what is still open then is found again at the next look."""
        patience = Patience()
        while not running.stopped:
            try:
                await self._attempt(running, lambda: self._turns.resume(running, turn))
                return
            except Exception as error:  # noqa: BLE001 - the named boundary of a lane
                if not await self._troubles.after(error, running, patience):
                    if turn.id in self.waited_for and not isinstance(error, StateError):
                        await self._backlog.forgo(turn, "it could not be taken up, which its place was told")
                    return

    def _wait_again(self, lane: Lane) -> None:
        """Words that came too late for the turn they were meant for are messages again, before all others.

        Those that the turn took in are passed over when their rows are read.
        """
        lane.waiting.extendleft(Waiting(one.id, None, one.watcher) for one in reversed(lane.steered))
        lane.steered = []

    # -- rows ----------------------------------------------------------------------------------------------

    async def _row(self, waiting: Waiting) -> InboxRow | None:
        """The row, when it still waits."""
        if waiting.row is not None:
            return waiting.row  # accepted a moment ago; should it have ended since, the turn is not opened
        db = self._board.db
        row = await look(db, db.inbox.get, waiting.id)
        return row if row is not None and row.state == "queued" else None

    async def _batch(self, lane: Lane, first: InboxRow) -> tuple[InboxRow, ...]:
        """The next message; the parts of an album, which come one by one, are one message."""
        album = (first.payload or {}).get("album")
        if album is None:
            lane.waiting.popleft()
            return (first,)
        began, seen = time.monotonic(), 0
        while len(lane.waiting) > seen and time.monotonic() - began < _ALBUM_LONGEST:
            seen = len(lane.waiting)
            await asyncio.sleep(_ALBUM_PAUSE)
        rows: list[InboxRow] = []
        while lane.waiting:
            head = lane.waiting[0]
            row = await self._row(head)
            if not lane.begins_with(head):
                continue
            if row is not None and (row.payload or {}).get("album") != album:
                break
            lane.waiting.popleft()
            if row is not None:
                rows.append(row)
        return tuple(rows)


class _Place:
    """One of the places there are, until the end or until it is given back before."""

    def __init__(self, within: asyncio.Semaphore) -> None:
        self._within, self._inside = within, False

    async def __aenter__(self) -> Callable[[], None]:
        await self._within.acquire()
        self._inside = True
        return self._leave

    async def __aexit__(self, *error: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self._within.release()
