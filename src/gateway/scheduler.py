"""`Scheduler`: stores the occurrences of jobs when they are due.

It sleeps until the next instant, at most two seconds, so it also notices jobs that other processes add: one small
indexed read each time. Several gateways may watch one database: the transaction that stores an occurrence moves the
job's next instant, and only one process finds it unmoved. The lanes run the stored rows (`terminal_messages.watch`,
`turns.job_turn`); a reminder needs no turn, and is in the outbox at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.outbound import notices
from gateway.periodic_tasks import NO_ACCESS, every
from gateway.routes.source import SessionSource
from hermes_agent import jobs
from hermes_agent.text import brief
from hermes_config.errors import HermesError
from hermes_state.ids import LOCAL_OWNER
from hermes_state.storage.writer import look
from hermes_state.turns.inbox import LOCAL, Address
from hermes_state.turns.jobs import NewRow, Step

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy
    from gateway.services import Services
    from hermes_state.turns.jobs import Job
    from hermes_state.turns.outbox import NewOutboxItem

_log = logging.getLogger("hermes.gateway")
_LONGEST_PAUSE, _SHORTEST_PAUSE = 2.0, 0.05
_RETRY_SECONDS = 5.0
_SET_BACK = 60.0
_PAGE = 500
_SHOWN = 100
OFFLINE = "I was offline and missed:"


async def watch(services: Services, wake: Callable[[], None], *, seconds: float = _LONGEST_PAUSE) -> None:
    """Settle due instants as long as the gateway runs. `wake`: tells the deliverer of new items."""
    scheduler = Scheduler(services, wake)

    async def settle() -> float:
        return max(_SHORTEST_PAUSE, min(seconds, await scheduler.tick()))

    await every(_RETRY_SECONDS, settle, "jobs", first=_SHORTEST_PAUSE)


class Scheduler:
    def __init__(self, services: Services, wake: Callable[[], None]) -> None:
        self._services, self._wake = services, wake
        self._looked = False
        self._seen = float("inf")

    async def tick(self) -> float:
        """Settle what is due; returns the seconds until the next instant."""
        db = self._services.db
        if (now := db.clock()) < self._seen - _SET_BACK:
            await asyncio.to_thread(self._plan_again, now)
        self._seen = now
        due_at = await look(db, db.jobs.next_due)
        if not self._looked:  # a chat's next turn reads what a job wrote before this process began
            self._services.has_jobs = bool(await asyncio.to_thread(db.jobs.list, done=True, limit=1))
            self._looked = True
        if due_at is None:
            return _LONGEST_PAUSE
        self._services.has_jobs = True
        if due_at > now:
            return due_at - now
        policy = await self._services.policy.fresh()
        if await asyncio.to_thread(self._settle, now, policy):
            self._wake()
        return 0.0

    def _plan_again(self, now: float) -> None:
        """After a start, or after the clock was set back: jobs that a wrong clock moved too far run in time again.

        An instant that has an outcome keeps it, as its row exists.
        """
        db, offset = self._services.db, 0
        while page := db.jobs.list(limit=_PAGE, offset=offset):
            offset += len(page)
            for job in page:
                if job.state == "active" and job.kind != "once" and job.next_at is not None:
                    with contextlib.suppress(
                        ValueError, ArithmeticError, HermesError
                    ):  # unreadable: told when it is due
                        then = jobs.schedule_of(job).after(now)
                        if then is not None and then < job.next_at:
                            db.jobs.settle([Step(job, (), then)])

    def _settle(self, now: float, policy: Policy) -> int:
        """One transaction for each chat, so that the chat gets one notice of all that was missed."""
        chats: dict[str, list[Job]] = {}
        for job in self._services.db.jobs.due(now):
            chats.setdefault(job.route, []).append(job)
        return sum(self._settle_chat(found, now, policy) for found in chats.values())

    def _settle_chat(self, found: Sequence[Job], now: float, policy: Policy) -> int:
        db, steps = self._services.db, []
        for job in found:
            try:
                steps.append(_step(job, now, policy, held=is_held(self._services, job)))
            except Exception as error:  # noqa: BLE001 - boundary: a row that this version cannot read
                _log.error("a job is paused: %s cannot be read (%r)", job.id, error, extra={"action": "jobs"})
                self._pause(job, error)
        return db.jobs.settle(steps, missed_notice) if steps else 0

    def _pause(self, job: Job, error: Exception) -> None:
        """Pause a job that cannot be read, with the reason in its ledger and its chat if it still says which."""
        try:
            self._services.db.jobs.settle([Step(job, [jobs.unreadable_row(job, error)], None, paused=True)])
        except (ValueError, KeyError, TypeError, OSError):
            self._services.db.jobs.change(job, "paused", None)


def is_held(services: Services, job: Job) -> bool:
    """Whether what a job sends waits until the owner has seen it."""
    address, listed = job.address, services.settings.delivery.hold
    return services.db.held_answers.is_held(listed, address["platform"], str(address["chat_id"]))


def _step(job: Job, now: float, policy: Policy, *, held: bool = False) -> Step:
    assert job.next_at is not None, "only jobs with a next instant are due"
    Address(**job.address)  # a row that cannot be stored is found here, where it stops no other job
    settled = jobs.schedule_of(job).settle(job.next_at, now)
    rows: list[NewRow] = [] if settled.missed is None else [jobs.missed_row(job, settled.missed)]
    for late in settled.fresh:
        row = jobs.row_of(job, late.instant, late_after=late.late_after, held=held)
        if is_shut_out(job, policy):
            row = NewRow(key=row.key, text=row.text, about=row.about, outcome="error", reason=NO_ACCESS)
        rows.append(row)
    return Step(job, rows, settled.next_at)


def is_shut_out(job: Job, policy: Policy) -> bool:
    """Whether the person of a job may no longer use Hermes in its chat. The owner at this machine always may."""
    if job.person_id == LOCAL_OWNER or job.address["platform"] == LOCAL:
        return False
    source = SessionSource.from_dict(job.address["source"])
    return authorisation.is_shut_out(source, policy, account=job.address["account"])


def missed_notice(steps: Sequence[Step]) -> NewOutboxItem | None:
    """Tell a chat once of everything that its jobs missed."""
    lines, offered = [], False
    for step in steps:
        for row in step.rows:
            if row.outcome == "missed":
                lines.append(_missed_line(step.job, row.about))
                offered = offered or is_offered(step.job, later=len(step.rows) > 1)
    return None if not lines else _notice(steps[0].job, lines, offered=offered)


def is_offered(job: Job, *, later: bool) -> bool:
    """Whether /catchup runs what a job missed. `later`: it has later occurrences."""
    return jobs.caught_up(job) > (1 if later else 0)


def found_late(job: Job, about: Mapping[str, Any], *, waited: bool, later: bool) -> NewOutboxItem | None:
    """Tell a chat about occurrences that were stored in time but found too late. `waited`: for another run."""
    begins = "A run took so long that I left out what was due meanwhile:" if waited else OFFLINE
    line = _missed_line(job, about)
    return _notice(job, [line], offered=is_offered(job, later=later), begins=begins, what="late")


def _missed_line(job: Job, about: Mapping[str, Any]) -> str:
    text = job.task.get("text")
    what = f"the reminder “{brief(text, _SHOWN)}”" if text else f"“{job.name}”"
    return f"{what}: {jobs.gap(about['missed'], job.zone)}"


def _notice(
    job: Job, lines: Sequence[str], *, offered: bool, begins: str = OFFLINE, what: str = "missed"
) -> NewOutboxItem | None:
    said = f"{begins}\n" + "\n".join(f"· {line}" for line in lines)
    if offered:
        said += "\n/catchup runs the latest now." if len(lines) == 1 else "\n/catchup runs the latest of each now."
    return _told(job, what, said)


def _told(job: Job, what: str, said: str) -> NewOutboxItem | None:
    """A notice to the chat of a job, once for its next instant; None without a chat."""
    address = job.address
    if address["platform"] == LOCAL:
        return None
    return notices.new_item(
        what, f"{job.id}:{job.next_at}", said, platform=address["platform"], chat_id=address["chat_id"],
        account=address["account"], thread_id=(address.get("source") or {}).get("thread_id"),
    )  # fmt: skip
