"""`Deliverer`: gives outbox items to the adapters and records the outcomes in the outbox.

Each chat gets one item at a time, in order: the outbox gives out the next item when the last one has an outcome. Many
chats are served at once, `limits.deliveries` a platform. An item comes in one of two ways. A turn gives `deliver`
an item that is claimed already, without a database read. A loop claims the rest: items that wait for others of their
chat or for their next attempt, and items of other processes, for which it looks once in a while.

Outcomes are stored after the delivery, several at once, and none is lost while the process lives: `drain` waits for
them. A failed item and the notice about it are stored in one transaction. If the process dies in between, or the
platform's answer is lost, the item is sent again by the platform's means, or with a mark (`send_item`); with
`delivery.on_unknown: ask`, and when the attempts are used up, its state is unknown, and the chat is asked.

When a platform cannot be reached (no adapter, or its connection fails before anything was sent), the deliverer pauses
it, longer each time (`PlatformBackoff`), because other chats would fail too; its items wait, which uses up none of
their attempts, and `back` sends them at once. Times in the store are wall-clock time, because they must mean something
after a restart; when the clock is set back (`ClockJumps`), the times of waiting items are moved with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway import metrics, scheduler
from gateway.access import authorisation
from gateway.background import BackgroundTasks
from gateway.config import Platform
from gateway.inbound.stored_message import source_of
from gateway.outbound import notices, send_item
from gateway.outbound.send_item import DeliveryOutcome, DeliveryProgress, after_loss, note
from gateway.platforms.base import BasePlatformAdapter
from gateway.platforms.connections import adapter_of
from gateway.retry import pause_after, set_within, written
from hermes_agent import process_identity
from hermes_config.limits import Limits
from hermes_config.recent import Recent
from hermes_state.errors import StateError
from hermes_state.storage.base import Connection
from hermes_state.storage.writer import queued
from hermes_state.turns.inbox import BESIDE
from hermes_state.turns.jobs import job_of
from hermes_state.turns.outbox import SENDING_SECONDS, NewOutboxItem, OutboxItem

if TYPE_CHECKING:
    from gateway.outbound.streaming import Draft
    from gateway.services import Services
    from hermes_state import SessionDB

log = logging.getLogger("hermes.gateway")


_NOTICED = 5.0
"""A jump of fewer seconds is a clock that is being adjusted, and delays nothing."""


class ClockJumps:
    """Notices when the wall clock is set back, by comparing it with the monotonic clock."""

    def __init__(self, wall: Callable[[], float], *, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._last = wall(), steady()

    def set_back(self) -> float:
        """By how many seconds the clock was set back since the last call; 0 when it was not."""
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

    def available(self) -> tuple[int, list[str]]:
        """How many items may be claimed now, and for which platforms."""
        now = asyncio.get_running_loop().time()
        away = {name for name, away in self._away.items() if away.until > now}
        names = (platform.value for platform in self._adapters)
        there = [name for name in names if name not in away and self._busy[name] < self._most]
        return min((self._most - self._busy[name] for name in there), default=0), there

    def begun(self, platform: str) -> None:
        self._busy[platform] += 1

    def ended(self, platform: str) -> bool:
        """Count a delivery as ended; True when the platform was at its limit before."""
        full = self._busy[platform] >= self._most
        self._busy[platform] -= 1
        return full

    def failed(self, platform: str, *, seconds: float | None = None) -> None:
        """Pause a platform that could not be reached; `seconds`: the pause that the platform asked for.

        A longer pause stays: a turn that ends before its platform is connected tries to send its answer.
        """
        before = self._away.get(platform, _Away(0, 0.0))
        pause = seconds or pause_after(before.tries + 1, first=1.0, longest=30.0)
        until = asyncio.get_running_loop().time() + pause
        self._away[platform] = _Away(before.tries + 1, max(before.until, until))

    def answered(self, platform: str) -> None:
        """End the pause of a platform that has answered or is connected again."""
        self._away.pop(platform, None)


def record(
    db: SessionDB, item: OutboxItem, verdict: DeliveryOutcome
) -> Callable[[Connection], OutboxItem | bool | None]:
    """The write that stores an outcome. It returns the item when the item was put off or closed."""
    outbox = db.outbox

    def closed(conn: Connection, found: OutboxItem | None) -> OutboxItem | None:
        if found is not None and (new_item := notice(found, gone=verdict.gone)) is not None:
            outbox.enqueue_in(conn, new_item)
        return found

    match verdict.state:
        case "sent":
            return lambda conn: outbox.sent_in(conn, item, platform_ids=verdict.ids, repeated=verdict.repeats)
        case "again" if item.attempts >= item.give_up_after:
            return lambda conn: closed(conn, outbox.close_in(conn, item, "unknown", error=verdict.error))
        case "later" | "again" as state:
            seconds = pause(item, verdict.seconds, db.limits)
            # The platform named a time, so it works and only asks us to wait: this uses up no attempt.
            free = verdict.seconds is not None and db.clock() - item.created_at <= db.limits.retry_seconds

            def put_off(conn: Connection) -> OutboxItem | None:
                if state == "again":
                    standing = verdict.note or note(under_way=len(verdict.ids), repeat=1)
                    outbox.progress_in(conn, item, platform_ids=verdict.ids, draft=standing)
                error, away = verdict.error, verdict.away
                return closed(
                    conn, outbox.put_off_in(conn, item, seconds=seconds, error=error, free=free, unreachable=away)
                )

            return put_off
        case "waits":
            # The platform is paused, not this chat. After a day the item uses up attempts like others.
            free = db.clock() - item.created_at <= db.limits.retry_seconds
            return lambda conn: closed(conn, outbox.put_off_in(conn, item, seconds=0, error=verdict.error, free=free))
        case "failed" | "unknown" as state:
            return lambda conn: closed(
                conn, outbox.close_in(conn, item, state, error=verdict.error, unreachable=verdict.gone)
            )
        case "lost":
            return lambda conn: None


def notice(item: OutboxItem, *, gone: bool = False) -> NewOutboxItem | None:
    """The notice to a chat about an item that failed or may not have arrived; None for an item that was a notice
    itself, and for a chat that cannot be written to (`gone`)."""
    if item.payload.get("kind") == "notice":
        return None
    if item.state == "unknown":
        return notices.unknown_delivery(item)
    if item.state == "failed" and not gone:
        return notices.delivery_failed(item)
    return None


def pause(item: OutboxItem, asked: float | None, limits: Limits) -> float:
    """The pause that the platform asked for, else a longer one after each attempt, a little different for each chat.

    Free attempts (pauses that were asked for, senders that died) make it no longer; each has put off giving up by one.
    """
    if asked is not None:
        return min(limits.retry_seconds, max(0.0, asked))
    free = item.give_up_after - limits.delivery_attempts
    return min(limits.retry_seconds, pause_after(item.attempts - free, first=1.0, longest=300.0, spread=0.2))


_LOSE_SECONDS = 30.0
_REMEMBERED = 4_096
_PATIENCE = 0.002
"""How long the write of an outcome may wait for another commit to share."""
_NOT_BEGUN = DeliveryOutcome(state="waits", error="not begun before the end", seconds=0.0)


class Deliverer:
    """Delivers the outbox of one gateway."""

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
        self._slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(services.db.limits.deliveries))
        self._live: dict[str, Draft] = {}
        self._behind: set[tuple[str, str, str]] = set()
        self._reach = PlatformBackoff(adapters, most=services.db.limits.deliveries)
        self._in_hand: set[tuple[str, int]] = set()
        """Attempts from their start until their outcome is stored."""
        self._settled: Recent[tuple[str, int], None] = Recent(_REMEMBERED)
        """The latest attempts whose outcome is stored, for callers that come late with such an item."""
        self._deliveries, self._others = BackgroundTasks(), BackgroundTasks()
        self.background = self._others.start
        """Runs a small task; `drain` waits for it."""
        self._loop: asyncio.Task[None] | None = None

    # -- start and end -----------------------------------------------------------------------------------

    async def start(self, *, connecting: float = 0.0) -> None:
        """Release the items of dead senders, then deliver every item that is due, until `drain`.

        `connecting`: nothing is claimed for a platform before `back` names it, or for so many seconds. What was claimed
        would be in doubt if the process died before it had a connection.
        """
        await self._lose_senders(gone=True)
        for platform in self._adapters if connecting else ():
            self._reach.failed(platform.value, seconds=connecting)
        self._loop = asyncio.create_task(self._run(), name="deliverer")

    def wake(self) -> None:
        """Look at the outbox now: it has a new item."""
        self._woken.set()

    def back(self, platform: Platform) -> None:
        """Send the waiting items of a platform that can be reached again."""
        self._reach.answered(platform.value)
        self.wake()

    async def reachable_again(self, platform: str, account: str, chat_id: str) -> int:
        """Send what a chat did not get because it could not be written to; returns how many items there are.

        An item whose author has lost access since stays as it is.
        """
        policy = await self._services.policy.fresh()

        def revived() -> int:
            outbox = self._db.outbox
            found = outbox.unreachable(platform, account, chat_id)
            return outbox.reachable_again([item for item in found if not self._is_shut_out(item, policy)])

        count = await asyncio.to_thread(revived)
        if count:
            log.info("%d deliveries to a chat that can be reached again", count, extra={"action": "delivery.reachable"})
            self._behind.add((platform, account, chat_id))
            self.wake()
        return count

    def _is_shut_out(self, item: OutboxItem, policy: authorisation.Policy) -> bool:
        """Whether the person who asked for an item has lost access. Reads the store."""
        inbox = self._db.inbox
        rows = inbox.of_trace(item.trace_id) if item.turn_id is None else inbox.of_turn(item.turn_id)
        row = rows[-1] if rows else None
        job_id = job_of(item.dedup_key) or ("" if row is None else job_of(row.message_id))
        if job_id:
            job = self._db.jobs.get(job_id)
            return job is not None and scheduler.is_shut_out(job, policy)
        if row is None or row.payload is None or row.message_id.startswith(BESIDE):
            return False
        return authorisation.is_shut_out(source_of(row), policy, account=row.account)

    async def drain(self, seconds: float) -> bool:
        """Start no more deliveries, finish the running ones and store all outcomes; False: not all in time."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})
        self.background(self._put_back())
        for live in list(self._live.values()):
            self.background(live.settle())
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        done = await self._deliveries.finish(seconds, cancel=True)
        return await self._others.finish(max(1.0, until - clock()), cancel=True) and done

    # -- from turns --------------------------------------------------------------------------------------

    def deliver(self, item: OutboxItem) -> asyncio.Task[str] | None:
        """Send an item that this gateway has claimed (`sending`) at once; one that has to wait is sent in its order.

        The task returns the item's state when the platform has answered; the caller need not wait for it.
        """
        if item.state == "sending" and item.sender == self._holder:
            return self._begin(item)
        if item.state == "pending":
            self._behind.add(_chat(item))
            self.wake()
        return None

    def showing(self, key: str, draft: Draft) -> None:
        """Register the draft that shows the item of this key; the draft settles before the item's delivery."""
        self._live[key] = draft

    def forget(self, key: str) -> None:
        self._live.pop(key, None)

    async def say(self, new_item: NewOutboxItem) -> OutboxItem:
        """Put an item into the outbox, to be sent in its order."""
        item: OutboxItem = await queued(self._db.engine, lambda conn: self._db.outbox.enqueue_in(conn, new_item))
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
                    self.wake()  # also finds claimed items that nobody handed over, long before they count as lost
            except StateError as error:  # a full or locked database is temporary; the items stay in the outbox
                log.warning("cannot read the outbox: %s", error, extra={"action": "delivery.store"})
                pause = max(1.0, self._poll_seconds)
            except Exception as error:  # the error boundary of the loop, without which nothing would be delivered
                log.error(
                    "the deliverer failed because of a defect in Hermes",
                    exc_info=error,
                    extra={"action": "delivery.defect"},
                )
                pause = max(1.0, self._poll_seconds)
            await set_within(self._woken, pause)

    async def _claim(self) -> int:
        """Claim and start the items that are due; returns how many."""
        woken = self._woken.is_set()
        self._woken.clear()
        limit, platforms = self._reach.available()
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
            lambda conn: outbox.claim_due_in(conn, sender=self._holder, limit=limit, platforms=platforms),
        )
        if woken and not claimed:
            claimed = await self._never_handed_over()
        for item in claimed:
            self._behind.add(_chat(item))  # the chat may have more items
            self._begin(item)
        return len(claimed)

    async def _never_handed_over(self) -> tuple[OutboxItem, ...]:
        """Claimed items that never came here: their turn failed between its commit and `deliver`."""
        ours = await asyncio.to_thread(self._db.outbox.of_sender, self._holder)
        return tuple(item for item in ours if not self._known(item))

    async def _put_back(self) -> None:
        """At the end, give back claimed items whose delivery never started, for the next process.

        The read goes through the writer's queue, so it also sees a claim that was committed while `drain` cancelled
        the loop.
        """
        ours = await written(
            self._db, lambda conn: self._db.outbox.of_sender_in(conn, self._holder), what="the list of unsent items"
        )
        for item in ours:
            if not self._known(item):
                self._in_hand.add(_attempt(item))
                self.background(self._report(item, _NOT_BEGUN))

    async def _lose_senders(self, *, gone: bool) -> None:
        """Release the items of dead senders, with a note about messages that may have arrived."""
        lost = await asyncio.to_thread(self._lose, gone)
        for item in lost:
            log.warning(
                "delivery %s of a dead sender is now %s", item.id, item.state,
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
        """Start the delivery of an item, once for each attempt."""
        if self._known(item):
            return None
        self._in_hand.add(_attempt(item))
        task = self._deliveries.start(self._deliver(item), name=f"delivery {item.id}")
        self._reach.begun(item.platform)
        task.add_done_callback(lambda _: self._ended(item))
        return task

    def _known(self, item: OutboxItem) -> bool:
        attempt = _attempt(item)
        return attempt in self._in_hand or attempt in self._settled

    def _ended(self, item: OutboxItem) -> None:
        if self._reach.ended(item.platform):
            self.wake()  # the platform is below its limit again

    async def _deliver(self, item: OutboxItem) -> str:
        """Deliver one item. This is its error boundary: after a defect the item is unknown, and others go on."""
        metrics.follow_trace(item.trace_id)
        began = asyncio.get_running_loop().time()
        try:
            verdict = await self._carried(item)
        except asyncio.CancelledError:
            raise  # the process ends; the item's note tells the next process where to continue
        except Exception as error:
            log.error(
                "a delivery failed because of a defect in Hermes", exc_info=error, extra={"action": "delivery.defect"}
            )
            verdict = DeliveryOutcome(state="unknown", error=f"a defect in Hermes: {type(error).__name__}")
        self._count(item, verdict, asyncio.get_running_loop().time() - began)
        self.background(self._report(item, verdict))
        return verdict.state

    async def _carried(self, item: OutboxItem) -> DeliveryOutcome:
        clock = asyncio.get_running_loop().time
        began, slot = clock(), self._slots[item.platform]
        try:
            live = self._live.pop(item.dedup_key, None)
            progress = (await live.settle() if live is not None else None) or DeliveryProgress.of(item)
            await slot.acquire()
        except asyncio.CancelledError:
            self.background(self._report(item, _NOT_BEGUN))
            raise
        try:
            adapter = adapter_of(self._adapters, item.platform)
            if adapter is None:
                return DeliveryOutcome(state="waits", error=f"{item.platform} is not connected")
            if clock() - began > SENDING_SECONDS / 4 and not await self._keep(item, platform_ids=progress.ids):
                return DeliveryOutcome(state="lost", error="it waited too long, and another sender has taken it over")
            # Nobody would be asked about a notice.
            ask = self._services.settings.delivery.on_unknown == "ask" and item.payload.get("kind") != "notice"
            return await send_item.carry(item, adapter, progress, keep=self._keep, limits=self._db.limits, ask=ask)
        finally:
            slot.release()

    def _keep(self, item: OutboxItem, **facts: Any) -> Awaitable[bool]:
        what, outbox = f"the progress of delivery {item.id}", self._db.outbox
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
            if "held" not in item.payload:  # that time was the owner's
                self._metrics.delivery_seconds(item.platform).observe(seconds)
            log.debug("delivered %s", item.id, extra=fields)
        else:
            log.warning("delivery %s: %s (%s)", item.id, verdict.state, verdict.error, extra=fields)

    # -- outcomes ----------------------------------------------------------------------------------------

    async def _report(self, item: OutboxItem, verdict: DeliveryOutcome) -> None:
        """Store the outcome. A store that is busy or full must not lose the platform's answer, so this tries until
        the process ends. Few outcomes wait like this, since nothing new is claimed from such a store."""
        what = f"the outcome of delivery {item.id} ({verdict.state})"
        closed = await written(
            self._db, record(self._db, item, verdict), what=what, trace_id=item.trace_id, patience=_PATIENCE
        )
        self._in_hand.discard(_attempt(item))
        self._settled[_attempt(item)] = None
        self._reported(item, verdict, closed)

    def _reported(self, item: OutboxItem, verdict: DeliveryOutcome, closed: object) -> None:
        state = closed.state if isinstance(closed, OutboxItem) else verdict.state
        chat, dead = _chat(item), state in ("failed", "unknown")
        if chat in self._behind or dead:  # another item of the chat waits, or the notice about this one
            if state not in ("later", "again", "waits", "pending"):
                self._behind.discard(chat)
            self.wake()


def _attempt(item: OutboxItem) -> tuple[str, int]:
    """Names an attempt; by the trace, because in a database that was restored meanwhile row numbers begin anew."""
    return f"{item.trace_id}:{item.id}", item.attempts


def _chat(item: OutboxItem) -> tuple[str, str, str]:
    return item.platform, item.account, item.chat_id
