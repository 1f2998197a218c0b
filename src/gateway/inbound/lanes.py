"""Lanes: one queue for each route.

A *lane* is the queue of one route: its messages are answered one at a time, in the order in which they were accepted.
A lane exists while it has work. Everything in it is a row of the inbox, so nothing in a lane can be overwritten, and
the next process rebuilds the lanes from the table. Of many waiting rows only the ids are in memory.

A message that comes while a turn runs is steered into the turn, waits, or interrupts it (`choose`); it is stored
already, so none of the three can lose it. A notice tells the chat which one happened, at most once in a while. Commands
wait like messages, except those about the running turn, which run at once; later messages wait for them. Turns of dead
processes come first (`recovery`). Only `limits.turn_starts` turns are prepared at once, so that a thousand do not hold
up the event loop (`worker`); `max_concurrent_sessions` alone limits how many run at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gateway.background import BackgroundTasks
from gateway.config import BusyMode, Platform
from gateway.inbound.recovery import Recovery
from gateway.inbound.stored_message import is_own, is_stale, source_of
from gateway.inbound.worker import LaneWorker
from gateway.outbound import notices
from gateway.routes.source import SessionSource
from gateway.turns import user_message
from gateway.turns.running_turn import RunningTurn, Watcher
from hermes_agent.agent import LeftElsewhere
from hermes_config.recent import Recent
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.chat.commands import ChatCommands
    from gateway.outbound.deliverer import Deliverer
    from gateway.services import Services
    from gateway.turns.runner import TurnRunner
    from hermes_state.ids import ConversationId, SessionKey, TurnId
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.turns import Turn

_log = logging.getLogger("hermes.gateway")


Kind = Literal["turn", "command", "now"]
"""`turn`: a row for the model. `command`: one for `ChatCommands`. `now`: as `command`, and it waits for no turn."""
_ROWS_KEPT = 4


Tell = Callable[..., Awaitable[None]]
"""`Lanes.tell`."""


class Waiting(NamedTuple):
    """A waiting row. Only the next few rows are kept in memory; the others are read again when they are due."""

    id: int
    row: InboxRow | None
    watcher: Watcher | None = None


@dataclass(slots=True)
class Lane:
    route: SessionKey
    waiting: deque[Waiting] = field(default_factory=deque)
    left: deque[Turn] = field(default_factory=deque)
    """Turns of dead processes, to be recovered."""
    passing: set[asyncio.Task[None]] = field(default_factory=set)
    """Commands that run beside the turn."""
    steered: list[Waiting] = field(default_factory=list)
    """Messages given to the running turn; those that it did not read wait again when it has ended."""
    turn: RunningTurn | None = None
    task: asyncio.Task[None] | None = None

    def add(self, row: InboxRow, watcher: Watcher | None = None) -> None:
        kept = row if len(self.waiting) < _ROWS_KEPT else None
        self.waiting.append(Waiting(row.id, kept, watcher))

    def add_again(self, row: InboxRow, watcher: Watcher | None = None) -> None:
        """Put a message back that turned out to be no answer: before all later messages."""
        at = sum(one.id < row.id for one in self.waiting)
        self.waiting.insert(at, Waiting(row.id, row, watcher))

    def take_back_steered(self) -> None:
        """Put messages back that came too late for the running turn, before all other messages.

        Rows that the turn did read have ended, and are skipped.
        """
        self.waiting.extendleft(Waiting(one.id, None, one.watcher) for one in reversed(self.steered))
        self.steered = []

    def begins_with(self, head: Waiting) -> bool:
        return bool(self.waiting) and self.waiting[0] is head

    def abandon(self) -> None:
        """The process ends: leave the running turn to the next process."""
        turn = self.turn
        if turn is not None and turn.task is not None:
            if turn.agent is not None:
                turn.agent.abandon()
            turn.task.cancel()
        elif self.task is not None:
            self.task.cancel()
        for task in self.passing:
            task.cancel()

    @property
    def ids(self) -> set[int]:
        """The ids of all rows of the lane."""
        reading = () if self.turn is None else self.turn.rows
        return {one.id for one in (*self.waiting, *self.steered)} | {row.id for row in reading}

    @property
    def at_work(self) -> RunningTurn | None:
        """The running turn, until it has its result."""
        return None if self.turn is None or self.turn.over else self.turn

    @property
    def idle(self) -> bool:
        return self.task is None and not (self.waiting or self.left or self.passing or self.turn)

    @contextlib.contextmanager
    def occupied(self, running: RunningTurn) -> Iterator[None]:
        """Make this the lane's turn, which messages can steer or interrupt and /stop ends."""
        self.turn = running
        try:
            yield
        finally:
            self.turn = None
            running.ended.set()


def choose(
    mode: BusyMode,
    *,
    same_person: bool,
    plain: bool,
    started: bool,
    waiting: int,
    asks: bool = False,
    compresses: bool = False,
) -> BusyMode:
    """What a message does to the running turn. In a group nobody interrupts another person's turn, and no message
    overtakes one that waits.

    `plain`: text only; a file never interrupts, since it often comes with text. `started`: the agent works; before that
    there is nothing to steer or to stop. `asks`: the turn waits for a person's answer, and an interruption would count
    as a denial. `compresses`: the turn writes a summary, which a person who writes often could prevent forever.
    """
    if not (same_person and plain and started):
        return "queue"
    if (mode == "steer" and waiting) or (mode == "interrupt" and (asks or compresses)):
        return "queue"
    return mode


_NOTICE_SECONDS = 30.0
_NOTICES_KNOWN = 4_096
_STALE_SECONDS = 2.0
_STOP_SECONDS = 10.0
_LAST_SECONDS = 3.0
_QUIET_SECONDS = 5.0
"""A shorter stop or absence gets no notice."""
EXTRA_COMMANDS = 16
"""How many commands and answers a lane accepts while its queue is full."""


class Lanes:
    """All lanes of a gateway. Call its methods on the event loop."""

    def __init__(self, services: Services, turns: TurnRunner, commands: ChatCommands, deliverer: Deliverer) -> None:
        self._services, self._turns, self._commands = services, turns, commands
        self.say, self.hand_over, self.kind = deliverer.say, deliverer.deliver, commands.kind
        self._backlog = Recovery(services, commands, self.tell)
        self._worker = LaneWorker(services, turns, commands, self._backlog, self)
        self._lanes: dict[SessionKey, Lane] = {}
        self._told: Recent[SessionKey, float] = Recent(_NOTICES_KNOWN)
        self._stale: dict[SessionKey, asyncio.TimerHandle] = {}
        self._tasks = BackgroundTasks()
        """The workers of lanes, commands beside a turn, and small tasks; `drain` waits for all of them."""
        self.background = self._tasks.start
        self.is_open = False
        """Whether lanes start work: from `start` until `drain`."""

    # -- adding rows -------------------------------------------------------------------------------------

    def put(self, row: InboxRow, *, watcher: Watcher | None = None, wait: bool = False, again: bool = False) -> None:
        """Add an accepted row. `wait`: it neither steers nor interrupts, whatever the mode (`/queue`). `again`: it was
        added before, and was taken for an answer."""
        lane, kind = self._lane(row), self._commands.kind(row)
        turn = lane.at_work
        if kind == "now" and (turn is not None or "answer" in (row.payload or {})):
            self._pass(lane, row, watcher)
            return
        waited = len(lane.waiting)
        (lane.add_again if again else lane.add)(row, watcher)
        if kind == "turn" and turn is not None and not wait:
            self._meet(lane, turn, row, waited)
        self._kick(lane)

    def edited(self, row: InboxRow, before: InboxRow, *, watcher: Watcher | None = None) -> None:
        """Handle an edit: it replaces the waiting message, restarts the turn that reads it, or is only recorded."""
        lane, new = self._lane(row), Waiting(row.id, row, watcher)
        turn = lane.at_work
        for at, one in enumerate(lane.waiting):
            if one.id == before.id and turn is not None and self._commands.kind(row) == "now":
                del lane.waiting[at]
                self._pass(lane, row, watcher)  # it is /stop now, and does not wait for what it stops
                return
            if one.id == before.id:
                lane.waiting[at] = new
                return
        read = turn is not None and any(one.id == before.id for one in turn.rows)
        if read and before.state == "queued":
            lane.waiting.appendleft(new)  # the turn was about to open, and will not, without the old version
        elif turn is not None and any(_rewrites(row, one) for one in turn.rows or turn.left_rows):
            lane.waiting.appendleft(new)  # it has the position of the message that it replaces
            turn.interrupt("the message was edited", reason="the message was edited")
        elif before.state == "queued" and is_stale(
            before, now=self._services.db.clock(), most=self._services.settings.max_message_age
        ):
            self.hold(row)  # the old version waits for /catchup
        elif before.state == "queued":  # it was steered into the running turn, which no longer reads it
            lane.waiting.append(new)
            self._kick(lane)
        else:
            why = "an edit of a message that was already answered, or with the same text"
            self.background(self._backlog.finish([row.id], "silent", why))
        self._forget(lane)

    def hold(self, row: InboxRow) -> None:
        """Keep an old message queued until somebody sends /catchup, and tell its chat."""
        assert row.route is not None
        if self._commands.kind(row) != "turn":
            self.background(self._backlog.drop_old_command(row))
        elif row.route not in self._stale:  # old messages come in a burst, and get one notice
            later = asyncio.get_running_loop().call_later
            self._stale[row.route] = later(_STALE_SECONDS, self._tell_held, row.route)

    def _tell_held(self, route: SessionKey) -> None:
        self._stale.pop(route, None)
        self.background(self._backlog.tell_held(route))

    # -- reading -----------------------------------------------------------------------------------------

    def waiting(self, route: SessionKey) -> int:
        lane = self._lanes.get(route)
        return 0 if lane is None else len(lane.waiting) + len(lane.steered)

    def too_many(self, row: InboxRow) -> int:
        """How many messages wait in the row's lane if that is too many to accept this row, else 0.

        Commands that do not wait have `EXTRA_COMMANDS` of their own, so a person can inspect and stop a full queue.
        """
        assert row.route is not None, "only a refused row has none"
        lane, most = self._lanes.get(row.route), self._services.db.limits.queued_messages
        waiting, passing = self.waiting(row.route), 0 if lane is None else len(lane.passing)
        if waiting + passing < most:
            return 0
        if self._commands.kind(row) == "now":
            waiting, most = waiting + passing, most + EXTRA_COMMANDS
        return waiting if waiting >= most else 0

    def running(self, route: SessionKey) -> RunningTurn | None:
        lane = self._lanes.get(route)
        return None if lane is None else lane.at_work

    def busy(self, route: SessionKey) -> bool:
        return self.running(route) is not None

    @property
    def to_recover(self) -> int:
        """How many turns of dead processes run or wait to be recovered."""
        return self._worker.recovering + sum(len(lane.left) for lane in self._lanes.values())

    @property
    def active(self) -> int:
        """How many turns are running."""
        return len(self.turns)

    @property
    def turns(self) -> list[RunningTurn]:
        """The running turns."""
        return [turn for lane in self._lanes.values() if (turn := lane.at_work) is not None]

    # -- called by commands ------------------------------------------------------------------------------

    async def stop(self, route: SessionKey, *, reason: str | None = None) -> bool:
        """Interrupt the running turn and wait for its end; False when there is none. `reason`: for its row."""
        turn = self.running(route)
        if turn is None:
            return False
        turn.interrupt(reason=reason)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await turn.ended.wait()
        except TimeoutError:
            if turn.task is not None:
                turn.task.cancel()
        return True

    async def drop(self, route: SessionKey, *, before: int, reason: str) -> int:
        """Drop waiting messages that are older than row `before`; returns how many."""
        lane = self._lanes.get(route)
        if lane is None:
            return 0
        ids = [one.id for one in (*lane.steered, *lane.waiting) if one.id < before]
        lane.waiting = type(lane.waiting)(one for one in lane.waiting if one.id >= before)
        lane.steered = [one for one in lane.steered if one.id >= before]
        if ids:
            await self._backlog.finish(ids, "dropped", reason)
        return len(ids)

    async def run_turn(self, running: RunningTurn, watcher: Watcher | None = None) -> dict[str, Any] | None:
        """Run a turn for a command, while the lane waits for that command."""
        return await self._worker.turn(self._lane_of(running.route), running, watcher)

    def steer(self, row: InboxRow) -> bool:
        """Give a queued row's text to the running turn (`/steer`); False when the turn cannot read it."""
        lane, turn = self._lane(row), self.running(self._lane(row).route)
        taken = turn is not None and turn.steer(self._added(row), row.id)
        if taken:
            lane.steered.append(Waiting(row.id, row))
        return taken

    async def withdraw(self, route: SessionKey, wanted: Callable[[InboxRow], bool]) -> InboxRow | None:
        """Remove the first waiting message that is `wanted` from its lane; the row stays queued."""
        lane = self._lanes.get(route)
        for one in () if lane is None else tuple(lane.waiting):
            row = one.row or await asyncio.to_thread(self._services.db.inbox.get, one.id)
            if lane is not None and row is not None and wanted(row) and one in lane.waiting:
                lane.waiting.remove(one)
                return row
        return None

    async def compress(self, running: RunningTurn, focus: str | None) -> str | None:
        """Compress the conversation of a route for a command; None when there is nothing to compress."""
        with self.occupied(running):
            try:
                return await self._turns.compress(running, focus)
            except LeftElsewhere as left:
                await self.make_way(left.turn_id)
                raise

    @contextlib.contextmanager
    def occupied(self, running: RunningTurn) -> Iterator[None]:
        """Count a command's work on the conversation as the lane's turn, so that /stop ends it."""
        with self._lane_of(running.route).occupied(running):
            yield

    async def catch_up(self, route: SessionKey) -> int:
        """Answer messages that wait for /catchup, and continue old turns; returns how many messages."""
        rows = await self._backlog.held(route)
        lane = self._lane_of(route)
        known = {one.id for one in lane.waiting}
        new = [Waiting(row.id, None) for row in rows if row.id not in known]
        lane.waiting.extendleft(reversed(new))
        lane.left.extend(await self._backlog.set_aside(route))
        self._kick(lane)
        return len(new)

    async def missed(self, route: SessionKey) -> tuple[list[Turn], list[InboxRow]]:
        """The turns and messages that wait for /catchup."""
        return await self._backlog.set_aside(route), await self._backlog.held(route)

    def take(self, row: InboxRow) -> bool:
        """Add a row that another process stored; False when its lane has it already."""
        lane = self._lane(row)
        if row.id in lane.ids:
            return False
        self.put(row, wait=is_own(row))
        return True

    async def tell(self, source: SessionSource, text: str, *, what: str, occasion: object, account: str = "") -> None:
        """Send a notice to a chat, once for each (what, occasion)."""
        await self.say(notices.to_chat(what, occasion, text, source, account=account))

    # -- start and end -----------------------------------------------------------------------------------

    async def start(self, *, away: float = 0.0) -> None:
        """Read the table and start the lanes: turns of dead processes first, then queued rows.

        `away`: for how many seconds there was no gateway.
        """
        await self._backlog.end_cut_off()
        await self.recover()
        await self._tell_back(away)
        for route in await self._backlog.routes():
            found = await self._backlog.queued(route)
            lane = self._lane_of(route)
            known = {one.id for one in lane.waiting}
            for row in found.fresh:
                if row.id not in known:
                    lane.add(row)
            if found.held:
                await self._backlog.tell_held(route)
            self._forget(lane)
        self.is_open = True
        for lane in list(self._lanes.values()):
            self._kick(lane)

    async def recover(self) -> int:
        """Add to the lanes: turns of dead processes, turns whose question was answered, and rows in no lane.

        Returns how many turns. Runs now and then: a lease may run out later, and another process may take an answer.
        """
        if self.is_open:
            known = set[int]().union(*(lane.ids for lane in self._lanes.values()))
            for row in await asyncio.to_thread(self._backlog.forgotten, known):
                self.take(row)
        found = [*await asyncio.to_thread(self._backlog.abandoned), *await self._backlog.answered()]
        self._worker.waited_for.intersection_update(turn.id for turn in found)
        new = 0
        for turn in found:
            assert turn.route is not None
            lane = self._lane_of(turn.route)
            free = lane.turn is None or (turn.state == "waiting" and lane.turn.left != turn.id)
            if free and turn.id not in {one.id for one in lane.left}:
                lane.left.append(turn)
                new += 1
            self._kick(lane)
            self._forget(lane)
        return new

    async def may_continue(self, turn: Turn) -> bool:
        """Whether a waiting turn can continue now; one that never can is ended, and its card says why."""
        return await self._backlog.may_continue(turn)

    async def close_waiting(self, conversation_id: ConversationId, reason: str) -> int:
        """Cancel the turns of a conversation that wait for an answer; returns how many."""
        db = self._services.db
        waiting = await asyncio.to_thread(db.turns.waiting, conversation_id)
        for turn in waiting:
            await asyncio.to_thread(db.turns.end_waiting, turn.id, reason=reason)
            await asyncio.to_thread(db.approvals.withdraw, turn.reason or "", reason=reason)
            self._commands.question_closed(turn.reason or "", reason)
        return len(waiting)

    async def make_way(self, turn_id: TurnId) -> None:
        """Recover a dead process's turn now, because another route of its conversation waits for its end."""
        self._worker.waited_for.add(turn_id)
        await self.recover()

    async def drain(self, seconds: float) -> bool:
        """Start no more work and wait for running turns; unfinished turns are left to the next process."""
        self.is_open = False
        self._worker.closing.set()
        for handle in self._stale.values():
            handle.cancel()
        last = min(_LAST_SECONDS, seconds / 4)
        ended = await self._tasks.finish(min(_QUIET_SECONDS, seconds - last))
        if not ended and seconds - last > _QUIET_SECONDS:
            await self._tell_stopping()
            ended = await self._tasks.finish(seconds - last - _QUIET_SECONDS)
        if not ended:
            for lane in list(self._lanes.values()):
                lane.abandon()
            await self._tasks.finish(last)
        return ended

    async def _tell_stopping(self) -> None:
        """Tell chats, once for each turn, that their turn may not end in time."""
        for turn in self.turns:
            if turn.work is not None and turn.source.platform is not Platform.API_SERVER:
                said, occasion = notices.stopping(), f"{turn.work.turn.id}:{turn.work.turn.attempt}"
                with contextlib.suppress(StateError):  # the process ends either way
                    await self.tell(turn.source, said, what="stopping", occasion=occasion, account=turn.account)

    async def _tell_back(self, seconds: float) -> None:
        """After a longer absence, tell chats whose turns were cut off that the turns continue."""
        if seconds < _QUIET_SECONDS:
            return
        for turn in [turn for lane in self._lanes.values() for turn in lane.left if turn.state == "running"]:
            source, rows = await self._backlog.source_and_rows(turn)
            if source is not None and source.platform is not Platform.API_SERVER and not self._backlog.is_too_old(turn):
                await self.tell(
                    source, notices.back(seconds), what="back", occasion=f"{turn.id}:{turn.attempt}",
                    account=rows[-1].account if rows else "",
                )  # fmt: skip

    # -- private -----------------------------------------------------------------------------------------

    def _lane(self, row: InboxRow) -> Lane:
        assert row.route is not None, "an accepted row has a route"
        return self._lane_of(row.route)

    def _lane_of(self, route: SessionKey) -> Lane:
        lane = self._lanes.get(route)
        if lane is None:
            lane = self._lanes[route] = Lane(route)
        return lane

    def _forget(self, lane: Lane) -> None:
        if lane.idle:
            self._lanes.pop(lane.route, None)

    def _kick(self, lane: Lane) -> None:
        if self.is_open and lane.task is None and (lane.waiting or lane.left):
            lane.task = self.background(self._worker.work(lane))
            lane.task.add_done_callback(lambda _: self._rested(lane))

    def _rested(self, lane: Lane) -> None:
        lane.task = None
        self._kick(lane)
        self._forget(lane)

    def _pass(self, lane: Lane, row: InboxRow, watcher: Watcher | None) -> None:
        task = self.background(self._worker.command(row, watcher, after=set(lane.passing)))
        lane.passing.add(task)
        task.add_done_callback(lambda done: self._passed(lane, done))

    def _passed(self, lane: Lane, task: asyncio.Task[None]) -> None:
        lane.passing.discard(task)
        self._forget(lane)

    def _meet(self, lane: Lane, turn: RunningTurn, row: InboxRow, waited: int) -> None:
        """Steer a new message into the running turn, let it wait, or interrupt the turn."""
        self._services.refresh()
        payload = row.payload or {}
        choice = choose(
            self._services.settings.busy_input_mode, same_person=row.person_id == turn.person_id,
            plain=not payload.get("attachments") and not payload.get("album"), started=turn.started, waiting=waited,
            asks=turn.asks > 0, compresses=turn.agent is not None and turn.agent.compressing,
        )  # fmt: skip
        if choice == "steer":
            if turn.steer(self._added(row), row.id):
                lane.steered.append(lane.waiting.pop())
            else:
                choice = "queue"
        elif choice == "interrupt":
            turn.interrupt(str(payload.get("text") or ""))
        if not payload.get("album"):
            self._acknowledge(row, choice, len(lane.waiting))

    def _added(self, row: InboxRow) -> str:
        return user_message.added(row, shared=self._services.store.is_shared(source_of(row)))

    def _acknowledge(self, row: InboxRow, choice: str, waiting: int) -> None:
        """Tell the chat what happens to a message, at most once in a while."""
        assert row.route is not None
        now = time.monotonic()
        if now - self._told.get(row.route, -_NOTICE_SECONDS) < _NOTICE_SECONDS:
            return
        self._told[row.route] = now
        text = notices.busy(choice, waiting=waiting)
        self.background(self.tell(source_of(row), text, what="busy", occasion=row.id, account=row.account))


def _rewrites(row: InboxRow, read: InboxRow) -> bool:
    """Whether `row` is the message that the turn reads, with a new text: platforms also report edits that nobody sees,
    such as a new link preview."""
    one, other = ((it.platform, it.account, it.chat_id, it.message_id) for it in (row, read))
    said, before = row.payload or {}, read.payload or {}
    return one == other and any(said.get(part) != before.get(part) for part in ("text", "attachments"))
