"""`LaneWorker`: processes a lane, first the turns of dead processes, then row after row, until nothing waits.

`_handle` says what happens when a turn could not run: try again, wait, tell the person, or leave it. Every kind of
error ends in one of two ways: the rows get an outcome, or they stay queued and are tried again. No error affects
another lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Literal

from gateway import metrics
from gateway.inbound.recovery import Recovery, nobody_waits
from gateway.inbound.stored_message import own_of, source_of
from gateway.outbound import notices
from gateway.retry import pause_after, set_within, written
from gateway.turns import reply as replies
from gateway.turns.job_turn import JobEnded
from gateway.turns.running_turn import RunningTurn, ShutOut, Stopped, Watcher
from hermes_agent.agent import ConversationBusy, LeftElsewhere
from hermes_config.errors import HermesError
from hermes_state.errors import NotQueued, SessionNotFound, StaleFence, StateError
from hermes_state.storage.writer import look, queued
from hermes_state.turns.outbox import NewOutboxItem

if TYPE_CHECKING:
    from gateway.chat.commands import ChatCommands
    from gateway.inbound.lanes import Lane, Lanes, Waiting
    from gateway.services import Services
    from gateway.turns.runner import TurnRunner
    from hermes_state.ids import TurnId
    from hermes_state.storage.base import Connection
    from hermes_state.turns.inbox import InboxRow, Outcome
    from hermes_state.turns.turns import Turn


_log = logging.getLogger("hermes.gateway")
_FIRST_PAUSE, _LONGEST_BUSY, _LONGEST_STORE = 0.05, 2.0, 5.0
_TOLD_AFTER = 6
"""Tries: by then the conversation was busy elsewhere for two seconds."""
_ALBUM_PAUSE, _ALBUM_LONGEST = 0.35, 1.0
_ORDER_SECONDS = 5.0
_SUSPECT = 2
"""Turns under which so many processes died are recovered one after the other."""


class LaneWorker:
    """Processes lanes, each in a task of its own."""

    def __init__(
        self, services: Services, turns: TurnRunner, commands: ChatCommands, backlog: Recovery, lanes: Lanes
    ) -> None:
        self._services, self._turns, self._commands = services, turns, commands
        self._backlog, self._lanes = backlog, lanes
        self.closing = asyncio.Event()
        """Set when the gateway ends, so that no pause lasts longer."""
        self._starts = asyncio.Semaphore(services.db.limits.turn_starts)
        self._suspects = asyncio.Semaphore(1)
        self.recovering = 0
        """How many turns of dead processes are being recovered, one of each lane at most."""
        self.waited_for: set[TurnId] = set()
        """Turns of dead processes for whose end another route of the conversation waits."""
        most = services.settings.max_concurrent_sessions
        self._running_slots = asyncio.Semaphore(most) if most else contextlib.nullcontext()

    async def work(self, lane: Lane) -> None:
        """Process a lane until it is empty. An error of one row does not affect the next one."""
        tries = 0
        while not self.closing.is_set():
            try:
                if lane.passing:
                    await asyncio.wait(lane.passing)  # commands that came earlier end first
                elif lane.left:
                    self.recovering += 1
                    try:
                        await self._recover(lane, lane.left.popleft())
                    finally:
                        self.recovering -= 1
                elif lane.waiting:
                    await self._next(lane)
                else:
                    return
                tries = 0
            except StateError as error:  # the next row cannot be read; it stays in the lane
                _log.error("a lane waits for the store: %s", error.one_line(), extra={"action": "store_trouble"})
                tries += 1
                await self._pause(tries, _LONGEST_STORE)

    async def _next(self, lane: Lane) -> None:
        head = lane.waiting[0]
        row = await self._row(head)
        if not lane.begins_with(head):
            return  # the row was edited, dropped or overtaken during the read
        if row is None:
            lane.waiting.popleft()
        elif self._commands.kind(row) != "turn":
            lane.waiting.popleft()
            await self.command(row, head.watcher)
        else:
            rows = await self._batch(lane, row)
            if rows:
                metrics.follow_trace(rows[0].trace_id)
                last = rows[-1]
                running = RunningTurn(lane.route, source_of(last), last.person_id, rows=rows, own=own_of(last))
                await self.turn(lane, running, head.watcher)

    async def command(
        self, row: InboxRow, watcher: Watcher | None, *, after: Collection[asyncio.Task[None]] = ()
    ) -> None:
        """Run a command. This is the error boundary of a command: a defect ends that command alone.

        `after`: earlier commands that still run. Of two pressed buttons the first one counts; but a command that hangs
        does not block /stop.
        """
        metrics.follow_trace(row.trace_id)
        if after:
            await asyncio.wait(after, timeout=_ORDER_SECONDS)
        try:
            await self._commands.run(row, watcher)
        except Exception as error:  # noqa: BLE001
            extra = {"action": "command_defect", "trace_id": row.trace_id}
            _log.error(
                "a command failed because of a defect in Hermes (%s)", type(error).__name__, exc_info=error, extra=extra
            )

    async def turn(self, lane: Lane, running: RunningTurn, watcher: Watcher | None = None) -> dict[str, Any] | None:
        """Run one turn to its end, whatever happens; returns its result, or None."""
        with lane.occupied(running):
            try:
                return await self._turn(running, watcher)
            finally:
                lane.take_back_steered()

    async def _turn(self, running: RunningTurn, watcher: Watcher | None) -> dict[str, Any] | None:
        while True:
            try:
                result = await self._attempt(running, lambda: self._turns.run(running, watcher))
                if running.stopped and result is None:  # the turn did not end by itself and was cancelled
                    await self._finish(running.rows, "dropped", "stopped by the person")
                return result
            except Exception as error:  # noqa: BLE001 - the error boundary of a lane: `_handle` knows each kind
                if not await self._try_again(error, running):
                    return None
            if running.stopped:
                await self._finish(running.rows, "dropped", "stopped by the person")
                return None

    async def _attempt(
        self, running: RunningTurn, work: Callable[[], Coroutine[Any, Any, dict[str, Any] | None]]
    ) -> dict[str, Any] | None:
        """Run the turn in a task of its own, so that cancelling the turn does not cancel the lane."""
        # Only so many turns are prepared at once; a turn that has begun frees its slot for the next.
        async with self._running_slots, _slot(self._starts) as running.on_begun:
            if self.closing.is_set():
                return None  # the gateway ended meanwhile: the next process runs the turn
            running.task = asyncio.ensure_future(work())
            await asyncio.wait({running.task})
        return None if running.task.cancelled() else running.task.result()

    @contextlib.asynccontextmanager
    async def _apart(self, turn: Turn) -> AsyncIterator[None]:
        """Recover turns under which processes died one after the other, a moment apart.

        One of them may have killed the process, or none did. Recovered together, all of them would be given up for the
        fault of one; one by one, the others come to their end. A death does not count against a turn beside which other
        recovered turns ran.
        """
        db = self._services.db
        died = (await look(db, db.turns.deaths, turn, turn.attempt)).all
        if died < _SUSPECT:
            if died and self._lanes.to_recover > 1:
                await asyncio.to_thread(db.turns.accompanied, turn)
            yield
            return
        async with _slot(self._suspects) as release:

            def next_begins() -> None:
                release()
                if self._lanes.to_recover > 1:
                    self._lanes.background(asyncio.to_thread(db.turns.accompanied, turn))

            timer = asyncio.get_running_loop().call_later(db.limits.turn_alone_ms / 1000, next_begins)
            try:
                yield
            finally:
                timer.cancel()

    async def _recover(self, lane: Lane, turn: Turn) -> None:
        """Recover a dead process's turn, which has claimed its rows already."""
        metrics.follow_trace(turn.trace_id)
        source, rows = await self._backlog.source_and_rows(turn)
        if source is None:
            _log.warning("a dead process's turn has no route", extra={"action": "abandoned_turn", "turn": turn.id})
            await self._backlog.forgo(turn, "its route is gone")  # other routes of the conversation wait for its end
            return
        if rows and nobody_waits(rows[-1]) and await self._backlog.forgo(turn):
            return
        account = rows[-1].account if rows else ""
        if turn.state == "waiting" and not await self._backlog.may_continue(turn):
            return
        if turn.state == "running" and self._backlog.is_too_old(turn):
            await self._backlog.forgo_old(turn, source, account=account)
            return
        running = RunningTurn(lane.route, source, None, left=turn.id, left_rows=rows)
        if rows:
            running.person_id, running.own = rows[-1].person_id, own_of(rows[-1])
        with lane.occupied(running):
            async with self._apart(turn):
                await self._resume(running, turn)
        lane.take_back_steered()
        if turn.state == "waiting":
            await self._backlog.show_closed(turn)

    async def _resume(self, running: RunningTurn, turn: Turn) -> None:
        """Run the turn to its end if possible; `Lanes.recover` finds a turn that is still open. A turn that was stopped
        before it continued, or whose author lost access, is ended here, or it would be found again."""
        why = "stopped before it continued"
        while not running.stopped:
            try:
                await self._attempt(running, lambda: self._turns.resume(running, turn))
                return
            except Stopped:
                break
            except ShutOut:
                why = "its author lost access before it continued"
                break
            except Exception as error:  # noqa: BLE001 - the error boundary of a lane
                if not await self._try_again(error, running):
                    if turn.id in self.waited_for and not isinstance(error, StateError):
                        await self._backlog.forgo(turn, "it could not be recovered; its chat was told")
                    return
        await self._backlog.forgo(turn, why)

    # -- errors of a turn ----------------------------------------------------------------------------------

    async def _try_again(self, error: Exception, running: RunningTurn) -> bool:
        """Handle the error of a turn; True: try the turn again."""
        try:
            return await self._handle(error, running)
        except StateError as worse:
            _log.error("a lane waits for the store: %s", worse.one_line(), extra=_about(running, "store_trouble"))
            return await self._pause_turn(running, _LONGEST_STORE)

    async def _handle(self, error: Exception, running: RunningTurn) -> bool:
        if isinstance(error, Stopped):
            await self._finish(running.rows, "dropped", "stopped by the person")
            return False
        if isinstance(error, JobEnded):
            return False
        if isinstance(error, ShutOut):
            await self._finish(running.rows, "dropped", "its author lost access before it was read")
            return False
        if isinstance(error, ConversationBusy):
            return await self._busy(error, running)
        if isinstance(error, NotQueued):
            return await self._keep_queued_rows(running)
        if isinstance(error, StaleFence):
            _log.warning("another process took over a conversation", extra=_about(running, "taken_over"))
            return False  # the other process ends the turn and its rows
        if isinstance(error, SessionNotFound) and not running.missed:
            running.missed = True  # the session was deleted meanwhile: the route is resolved again
            return True
        if isinstance(error, StateError):
            _log.error("a turn was not stored: %s", error.one_line(), extra=_about(running, "store_trouble"))
            if not await self._pause_turn(running, _LONGEST_STORE):
                return False
            return await self._keep_queued_rows(running) or await self._release_lease(running)
        if isinstance(error, HermesError):
            _log.warning("a turn failed: %s", error.one_line(), extra=_about(running, "turn_failed"))
            await self._failed(running, error.in_chat())
            return False
        _log.error("a turn failed because of a defect in Hermes", exc_info=error, extra=_about(running, "turn_defect"))
        await self._failed(running, f"Something went wrong inside Hermes ({type(error).__name__}).")
        return False

    async def _busy(self, error: ConversationBusy, running: RunningTurn) -> bool:
        running.agent = None  # it may work for another route, which a /stop here must not stop
        if isinstance(error, LeftElsewhere):
            await self._lanes.make_way(error.turn_id)
        if running.tries == _TOLD_AFTER and running.rows:
            said, row = notices.elsewhere(), running.rows[-1]
            await self._lanes.tell(running.source, said, what="elsewhere", occasion=row.id, account=row.account)
        return await self._pause_turn(running, _LONGEST_BUSY)

    async def _pause_turn(self, running: RunningTurn, most: float) -> bool:
        running.tries += 1
        return await self._pause(running.tries, most)

    async def _pause(self, tries: int, most: float) -> bool:
        """Wait, a little longer each time; False when the gateway ends: then the rows stay queued."""
        seconds = pause_after(tries, first=_FIRST_PAUSE, longest=most)
        return not await set_within(self.closing, seconds)

    async def _keep_queued_rows(self, running: RunningTurn) -> bool:
        """Keep only rows that no turn has claimed; claimed rows are recovered with their turn."""
        running.rows = tuple([row for row in running.rows if await self._is_queued(row)])
        return bool(running.rows)

    async def _release_lease(self, running: RunningTurn) -> Literal[False]:
        """Release the lease of a turn during which the store failed, so that the next `recover` finds the turn.

        Otherwise the turn would wait until the lease of this living process has run out.
        """
        agent, work, db = running.agent, running.work, self._services.db
        if agent is not None and not agent.in_turn:

            def release(conn: Connection) -> None:
                if work is not None:
                    db.turns.interrupted_in(conn, work.turn.id)
                db.leases.release_holder_in(conn, agent.holder)

            await written(db, release, what="the end of a lease")
        return False

    async def _is_queued(self, row: InboxRow) -> bool:
        db = self._services.db
        now = await look(db, db.inbox.get, row.id)
        return now is not None and now.state == "queued"

    async def _failed(self, running: RunningTurn, said: str) -> None:
        """No turn was opened: end the rows with an error message to the person."""
        text = replies.normalize_empty_agent_response({"failed": True, "error": said}, "")
        if not running.rows:
            await self._lanes.tell(
                running.source, text, what="failed", occasion=running.left or f"{running.route}:{running.since}"
            )
            return
        row, inbox = running.rows[-1], self._services.db.inbox
        reply = NewOutboxItem(
            dedup_key=f"answer:inbox:{row.id}", platform=row.platform, account=row.account, chat_id=row.chat_id,
            payload=notices.payload(text, "answer", thread_id=running.source.thread_id), trace_id=row.trace_id,
        )  # fmt: skip

        def run(conn: Connection) -> None:
            for one in running.rows:
                if inbox.take_command_in(conn, one.id):
                    answer = reply if one is row else None
                    inbox.end_command_in(conn, one.id, "error", reason=said, reply=answer)

        await queued(self._services.db.engine, run)

    async def _finish(self, rows: tuple[InboxRow, ...], outcome: Outcome, reason: str) -> None:
        """Store the outcome of rows that no turn has claimed."""
        ids = [row.id for row in rows]
        await asyncio.to_thread(self._services.db.inbox.finish, ids, outcome, reason=reason)

    # -- rows ----------------------------------------------------------------------------------------------

    async def _row(self, waiting: Waiting) -> InboxRow | None:
        """The row, if it is still queued."""
        if waiting.row is not None:
            return waiting.row  # accepted a moment ago; if the row has ended since, the turn is not opened
        db = self._services.db
        row = await look(db, db.inbox.get, waiting.id)
        return row if row is not None and row.state == "queued" else None

    async def _batch(self, lane: Lane, first: InboxRow) -> tuple[InboxRow, ...]:
        """The rows of the next message; the parts of an album, which come one by one, are one message."""
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


@contextlib.asynccontextmanager
async def _slot(slots: asyncio.Semaphore) -> AsyncIterator[Callable[[], None]]:
    """Hold a slot until the end of the block, or until the caller releases it earlier."""
    await slots.acquire()
    held = True

    def release() -> None:
        nonlocal held
        if held:
            held = False
            slots.release()

    try:
        yield release
    finally:
        release()


def _about(running: RunningTurn, action: str) -> dict[str, object]:
    trace = running.rows[-1].trace_id if running.rows else None
    return {"action": action, "trace_id": trace}
