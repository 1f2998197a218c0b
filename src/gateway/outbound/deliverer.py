"""The deliverer: takes items out of the outbox to the adapters, and records in the outbox what became of them.

One item of a chat at a time, in order: the outbox does not give out the next one before the last is settled. Many chats
at once, `limits.deliveries` of each platform. An item comes in one of two ways. `deliver` takes one that its turn made
for us and that is ours already, without a round through the database. A loop claims the rest: what waits its turn or
its next attempt, and what other processes have put there, for which it looks once in a while.

The outcome of an item is written behind the delivery, together with that of others, and is never lost while the process
lives: `drain` waits for it. A dead letter and the notice about it are stored in one transaction. If the process dies in
between, or the platform's answer is lost, the item is sent again by the platform's means, or with a mark (`send_item`);
with `delivery.on_unknown: ask`, and when the attempts are used up, it is unknown, and the chat is asked.

A platform that cannot be reached (no adapter, or its connection fails before anything was sent) is left alone for a
while, a longer one each time (`PlatformBackoff`), because the next chat would fare no better; its items wait, which
uses up none of their attempts, and `back` sends them at once. Times in the store are wall-clock time, because they must
mean something after a restart; when the clock is set back (`ClockJumps`), what was put off is moved with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway import metrics
from gateway.config import Platform
from gateway.outbound import notices, send_item
from gateway.outbound.send_item import DeliveryOutcome, DeliveryProgress, after_loss, note
from gateway.platforms.base import BasePlatformAdapter
from gateway.recent import Recent
from gateway.retry import pause_after, written
from hermes_agent import process_identity
from hermes_state.errors import StateError
from hermes_state.storage.base import Connection
from hermes_state.storage.writer import queued
from hermes_state.turns.outbox import SENDING_SECONDS, OutboxItem, Parcel

if TYPE_CHECKING:
    from gateway.outbound.streaming import Draft
    from gateway.services import Services
    from hermes_state import SessionDB

log = logging.getLogger("hermes.gateway")


_NOTICED = 5.0
"""Seconds between two looks: less is a clock that is being trimmed, and delays nothing worth speaking of."""


class ClockJumps:
    """Compares the wall clock with one that nobody can set."""

    def __init__(self, wall: Callable[[], float], *, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._last = wall(), steady()

    def set_back(self) -> float:
        """By how many seconds the clock was set back since the last look; 0 when it was not."""
        (wall, steady), now = self._last, (self._wall(), self._steady())
        self._last = now
        back = (now[1] - steady) - (now[0] - wall)
        return back if back >= _NOTICED else 0.0


class _Away(NamedTuple):
    tries: int
    until: float


class PlatformBackoff:
    def __init__(self, adapters: Mapping[Platform, BasePlatformAdapter], *, most: int) -> None:
        self._adapters = adapters
        self._most = most
        self._busy: Counter[str] = Counter()
        self._away: dict[str, _Away] = {}

    def room(self) -> tuple[int, list[str]]:
        """Platforms that something may be claimed for, and how many items at once."""
        now = asyncio.get_running_loop().time()
        away = {name for name, away in self._away.items() if away.until > now}
        names = (platform.value for platform in self._adapters)
        there = [name for name in names if name not in away and self._busy[name] < self._most]
        return min((self._most - self._busy[name] for name in there), default=0), there

    def begun(self, platform: str) -> None:
        self._busy[platform] += 1

    def ended(self, platform: str) -> bool:
        """True when there was no room before."""
        full = self._busy[platform] >= self._most
        self._busy[platform] -= 1
        return full

    def failed(self, platform: str, *, seconds: float | None = None) -> None:
        """It could not be reached; `seconds`: for so long, as it said itself."""
        tries = self._away[platform].tries + 1 if platform in self._away else 1
        pause = seconds or pause_after(tries, first=1.0, longest=30.0)
        self._away[platform] = _Away(tries, asyncio.get_running_loop().time() + pause)

    def answered(self, platform: str) -> None:
        """It said something, or is known to be back."""
        self._away.pop(platform, None)


def record(
    db: SessionDB, item: OutboxItem, verdict: DeliveryOutcome
) -> Callable[[Connection], OutboxItem | bool | None]:
    """The write that stores it, for the writer's queue. It gives the item when that was put off or closed."""
    outbox = db.outbox

    def closed(conn: Connection, found: OutboxItem | None) -> OutboxItem | None:
        if found is not None and (parcel := notice(found, gone=verdict.gone)) is not None:
            outbox.enqueue_in(conn, parcel)
        return found

    match verdict.state:
        case "sent":
            return lambda conn: outbox.sent_in(conn, item, platform_ids=verdict.ids)
        case "again" if item.attempts >= item.give_up_after:
            return lambda conn: closed(conn, outbox.close_in(conn, item, "unknown", error=verdict.error))
        case "later" | "again" as state:
            seconds = pause(item, verdict.seconds, most=db.limits.retry_seconds)
            # The platform named a time: it is there and has refused nothing but the moment.
            free = verdict.seconds is not None and db.clock() - item.created_at <= db.limits.retry_seconds

            def put_off(conn: Connection) -> OutboxItem | None:
                if state == "again":
                    standing = note(under_way=len(verdict.ids), repeat=True)
                    outbox.progress_in(conn, item, platform_ids=verdict.ids, draft=standing)
                return closed(conn, outbox.put_off_in(conn, item, seconds=seconds, error=verdict.error, free=free))

            return put_off
        case "waits":
            # It is the platform that is left alone, not this chat. After a day it is tried only as often as others.
            free = db.clock() - item.created_at <= db.limits.retry_seconds
            return lambda conn: closed(conn, outbox.put_off_in(conn, item, seconds=0, error=verdict.error, free=free))
        case "failed" | "unknown" as state:
            return lambda conn: closed(conn, outbox.close_in(conn, item, state, error=verdict.error))
        case "lost":
            return lambda conn: None


def notice(item: OutboxItem, *, gone: bool = False) -> Parcel | None:
    """What its chat is told about an item that did not, or may not, have arrived. Not about what was itself a notice,
    and not where nothing arrives (`gone`)."""
    if item.payload.get("kind") == "notice":
        return None
    if item.state == "unknown":
        return notices.unknown_delivery(item)
    if item.state == "failed" and not gone:
        return notices.about_item(item, "delivery", notices.delivery_failed(item.error or "no reason is known"))
    return None


def pause(item: OutboxItem, asked: float | None, *, most: float) -> float:
    """What the platform asked for, else longer after each attempt, and never quite the same for two chats."""
    if asked is not None:
        return min(most, max(0.0, asked))
    return min(most, pause_after(item.attempts, first=1.0, longest=300.0, spread=0.2))


_LOSE_SECONDS = 30.0
_REMEMBERED = 4_096
_PATIENCE = 0.002
"""How long what became of a delivery may wait for a commit of somebody else's to go with."""
_NOT_BEGUN = DeliveryOutcome(state="waits", error="not begun before the end", seconds=0.0)


class Deliverer:
    """One a gateway."""

    def __init__(
        self, services: Services, adapters: Mapping[Platform, BasePlatformAdapter], *, poll_seconds: float = 1.0
    ) -> None:
        self._services = services
        self._db = services.db
        self._holder = services.holder
        self._metrics = services.metrics
        self._adapters = adapters
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._live: dict[str, Draft] = {}
        self._behind: set[tuple[str, str, str]] = set()
        self._reach = PlatformBackoff(adapters, most=services.db.limits.deliveries)
        self._in_hand: set[tuple[int, int]] = set()
        """Attempts from their beginning until what became of them is stored."""
        self._settled: Recent[tuple[int, int], None] = Recent(_REMEMBERED)
        """The last of those after it, for whoever comes late with an item that is done."""
        self._deliveries: set[asyncio.Task[str]] = set()
        self._background: set[asyncio.Task[object]] = set()
        self._loop: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what senders that are gone left behind, then deliver whatever is due, until `drain`."""
        await self._lose_senders(gone=True)
        self._loop = asyncio.create_task(self._run(), name="deliverer")

    def wake(self) -> None:
        """Something was put into the outbox."""
        self._woken.set()

    def back(self, platform: Platform) -> None:
        """The platform can be reached again: what waited for it goes out now."""
        self._reach.answered(platform.value)
        self.wake()

    async def drain(self, seconds: float) -> bool:
        """Take on nothing more, finish what is under way, and write down all that is known; False: not all in time."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})
        self.background(self._put_back())
        for live in list(self._live.values()):
            self.background(live.settle())
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        done = await _finish(self._deliveries, seconds)
        return await _finish(self._background, max(1.0, until - clock())) and done

    # -- from turns --------------------------------------------------------------------------------------

    def deliver(self, item: OutboxItem) -> asyncio.Task[str] | None:
        """Send an item that is ours already (`sending`) at once; one that has to wait goes out in its turn.

        The task ends with the item's state when the platform has answered; nobody needs to wait for it.
        """
        if item.state == "sending" and item.sender == self._holder:
            return self._begin(item)
        if item.state == "pending":
            self._behind.add(_chat(item))
            self.wake()
        return None

    def showing(self, key: str, draft: Draft) -> None:
        """From now on the item of that key is shown by `draft`, which is asked to settle before its delivery."""
        self._live[key] = draft

    def forget(self, key: str) -> None:
        self._live.pop(key, None)

    def background(self, work: Coroutine[Any, Any, object]) -> None:
        """Something small that `drain` has to wait for."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[object]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work beside the deliveries failed", exc_info=error, extra={"action": "delivery.defect"})

    async def say(self, parcel: Parcel) -> OutboxItem:
        """Put something into the outbox and send it in its turn."""
        item: OutboxItem = await queued(self._db.engine, lambda conn: self._db.outbox.enqueue_in(conn, parcel))
        self.wake()
        return item

    # -- claiming ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        lose_at = clock() + _LOSE_SECONDS
        jumps, back = ClockJumps(self._db.clock), 0.0
        while True:
            try:
                back += jumps.set_back()
                if back:
                    log.warning("the clock was set back by %.0f s", back, extra={"action": "delivery.clock"})
                    await asyncio.to_thread(self._db.outbox.clock_was_set_back, back)
                    back = 0.0
                pause = self._poll_seconds if await self._claim() == 0 else 0.0
                if clock() >= lose_at:
                    lose_at = clock() + _LOSE_SECONDS
                    await self._lose_senders(gone=False)
                    self.wake()  # also looks for items that nobody handed over, long before they count as lost
            except StateError as error:  # a full or locked database passes; what is owed stays where it is
                log.warning("the outbox cannot be read: %s", error, extra={"action": "delivery.store"})
                pause = max(1.0, self._poll_seconds)
            except Exception as error:  # the named boundary of the loop, without which nothing arrives any more
                log.error("the deliverer failed in our own code", exc_info=error, extra={"action": "delivery.defect"})
                pause = max(1.0, self._poll_seconds)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    async def _claim(self) -> int:
        """Claim what is due, when anything is or somebody woke us; how many."""
        woken = self._woken.is_set()
        self._woken.clear()
        room, platforms = self._reach.room()
        if not platforms:
            return 0
        outbox = self._db.outbox
        if not woken:
            due = await asyncio.to_thread(outbox.next_due, platforms=platforms)
            now = self._db.clock()
            if due is None or now < due <= now + self._db.limits.retry_seconds:  # further away: the clock was set back
                return 0
        claimed: tuple[OutboxItem, ...] = await queued(
            self._db.engine,
            lambda conn: outbox.claim_due_in(conn, sender=self._holder, limit=room, platforms=platforms),
        )
        if woken and not claimed:
            claimed = await self._left_lying()
        for item in claimed:
            self._behind.add(_chat(item))  # it may have more to come
            self._begin(item)
        return len(claimed)

    async def _left_lying(self) -> tuple[OutboxItem, ...]:
        """Items that were made ours and never handed over: their turn failed between its commit and `deliver`."""
        ours = await asyncio.to_thread(self._db.outbox.of_sender, self._holder)
        return tuple(item for item in ours if not self._known(item))

    async def _put_back(self) -> None:
        """At the end: what was made ours and never begun is the next process's, and not in doubt.

        Looked for in the writer's queue, so behind a claim that the end cut off: that one is committed all the same,
        and nobody hears of it.
        """
        ours = await written(
            self._db, lambda conn: self._db.outbox.of_sender_in(conn, self._holder), what="what was not begun"
        )
        for item in ours:
            if not self._known(item):
                self._in_hand.add((item.id, item.attempts))
                self.background(self._report(item, _NOT_BEGUN))

    async def _lose_senders(self, *, gone: bool) -> None:
        """Items of senders that are no more go on, with a note of what may have arrived."""
        lost = await asyncio.to_thread(self._lose, gone)
        for item in lost:
            log.warning(
                "delivery %s of a lost sender is %s", item.id, item.state,
                extra={"action": f"delivery.lost_{item.state}", "trace_id": item.trace_id},
            )  # fmt: skip
        if lost:
            self.wake()

    def _lose(self, gone: bool) -> list[OutboxItem]:
        outbox = self._db.outbox
        lost = list(outbox.lose_senders(go_on=after_loss, notice=notice))
        for sender in outbox.senders() if gone else ():
            if process_identity.is_gone(sender):
                lost += outbox.lose_senders(dead=sender, go_on=after_loss, notice=notice)
        return lost

    # -- one item ----------------------------------------------------------------------------------------

    def _begin(self, item: OutboxItem) -> asyncio.Task[str] | None:
        """Start the delivery, once for each attempt whoever asks for it."""
        if self._known(item):
            return None
        self._in_hand.add((item.id, item.attempts))
        task = asyncio.create_task(self._deliver(item), name=f"delivery {item.id}")
        self._deliveries.add(task)
        self._reach.begun(item.platform)
        task.add_done_callback(lambda done: self._ended(item, done))
        return task

    def _known(self, item: OutboxItem) -> bool:
        attempt = (item.id, item.attempts)
        return attempt in self._in_hand or attempt in self._settled

    def _ended(self, item: OutboxItem, task: asyncio.Task[str]) -> None:
        self._deliveries.discard(task)
        if self._reach.ended(item.platform):
            self.wake()  # there is room again

    async def _deliver(self, item: OutboxItem) -> str:
        """The named boundary of a delivery: a defect here leaves the item unknown and every other one alone."""
        metrics.follow_trace(item.trace_id)
        began = asyncio.get_running_loop().time()
        try:
            verdict = await self._carried(item)
        except asyncio.CancelledError:
            raise  # the process ends; the next one sees from the note what may be done
        except Exception as error:
            log.error("a delivery failed in our own code", exc_info=error, extra={"action": "delivery.defect"})
            verdict = DeliveryOutcome(state="unknown", error=f"a defect: {type(error).__name__}")
        self._count(item, verdict, asyncio.get_running_loop().time() - began)
        self.background(self._report(item, verdict))
        return verdict.state

    async def _carried(self, item: OutboxItem) -> DeliveryOutcome:
        clock = asyncio.get_running_loop().time
        began, slot = clock(), self._slot(item.platform)
        try:
            live = self._live.pop(item.dedup_key, None)
            standing = (await live.settle() if live is not None else None) or DeliveryProgress.of(item)
            await slot.acquire()
        except asyncio.CancelledError:
            self.background(self._report(item, _NOT_BEGUN))
            raise
        try:
            platform = Platform.find(item.platform)
            adapter = None if platform is None else self._adapters.get(platform)
            if adapter is None:
                return DeliveryOutcome(state="waits", error=f"{item.platform} is not connected")
            if clock() - began > SENDING_SECONDS / 4 and not await self._progress(item, platform_ids=standing.ids):
                return DeliveryOutcome(
                    state="lost", error="it had to wait for too long, and another sender has taken it over"
                )
            ask = self._services.settings.delivery.on_unknown == "ask"
            return await send_item.carry(
                item, adapter, standing, progress=self._progress, limits=self._db.limits, ask=ask
            )
        finally:
            slot.release()

    def _slot(self, platform: str) -> asyncio.Semaphore:
        slot = self._slots.get(platform)
        if slot is None:
            slot = self._slots[platform] = asyncio.Semaphore(self._db.limits.deliveries)
        return slot

    def _progress(self, item: OutboxItem, **facts: Any) -> Awaitable[bool]:
        what, outbox = f"how far delivery {item.id} is", self._db.outbox
        return written(
            self._db, lambda conn: outbox.progress_in(conn, item, **facts), what=what, trace_id=item.trace_id
        )

    def _count(self, item: OutboxItem, verdict: DeliveryOutcome, seconds: float) -> None:
        if verdict.state == "waits":
            self._reach.failed(item.platform, seconds=verdict.seconds)
        else:
            self._reach.answered(item.platform)
        self._metrics.deliveries(item.platform, verdict.state).inc()
        for what, count in (("stray", verdict.strays), ("repeated", verdict.repeats)):
            if count:
                self._metrics.deliveries(item.platform, what).inc(count)
        fields = {"action": f"delivery.{verdict.state}", "trace_id": item.trace_id}
        if verdict.state == "sent":
            self._metrics.delivery_seconds(item.platform).observe(seconds)
            log.debug("delivered %s", item.id, extra=fields)
        else:
            log.warning("delivery %s: %s (%s)", item.id, verdict.state, verdict.error, extra=fields)

    # -- what became of it -------------------------------------------------------------------------------

    async def _report(self, item: OutboxItem, verdict: DeliveryOutcome) -> None:
        """Write it down. The store may be busy or full for a while; the platform's answer must not be lost by that:
        it is tried until the process ends. Few wait like this, since nothing new is claimed from such a store."""
        what = f"delivery {item.id} ({verdict.state})"
        closed = await written(
            self._db, record(self._db, item, verdict), what=what, trace_id=item.trace_id, patience=_PATIENCE
        )
        self._let_go(item)
        self._reported(item, verdict, closed)

    def _let_go(self, item: OutboxItem) -> None:
        self._in_hand.discard((item.id, item.attempts))
        self._settled[item.id, item.attempts] = None

    def _reported(self, item: OutboxItem, verdict: DeliveryOutcome, closed: object) -> None:
        state = closed.state if isinstance(closed, OutboxItem) else verdict.state
        chat, dead = _chat(item), state in ("failed", "unknown")
        if chat in self._behind or dead:  # something waits behind it, or the notice about it
            if state not in ("later", "again", "waits", "pending"):
                self._behind.discard(chat)
            self.wake()


async def _finish(tasks: set[asyncio.Task[Any]], seconds: float) -> bool:
    """Wait for these and those that they start; what is not done in time is cancelled."""
    deadline = asyncio.get_running_loop().time() + seconds
    while tasks:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            late = list(tasks)
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=1.0)
            return False
        await asyncio.wait(list(tasks), timeout=left)
    return True


def _chat(item: OutboxItem) -> tuple[str, str, str]:
    return item.platform, item.account, item.chat_id
