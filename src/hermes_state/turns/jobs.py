"""Jobs, and the ledger of their occurrences.

An occurrence is an inbox row `hermes:job:ID:INSTANT`. `settle` stores it in the transaction that moves the job's
`next_at` from that instant to the next one, if no other process has; so every instant is settled exactly once. A row
may also stand for a range of instants that nobody ran: its state is `missed`. Rows that a person asked for have their
own ids (`hermes:job:ID:run:INSTANT`, `hermes:job:ID:catchup:INSTANT`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, PersonId, SessionKey
from hermes_state.storage.base import Connection, Row, Store, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns.inbox import OWN, Address, Inbox, Outcome
from hermes_state.turns.outbox import NewOutboxItem, Outbox

State = Literal["active", "paused", "done"]
_LONGEST_NAME = 100


def lane_of(job_id: str) -> SessionKey:
    """The lane of a job's occurrences: they run one after the other, and never in the lane of a chat."""
    return SessionKey(f"agent:main:cron:{job_id}")


def is_lane(route: str | None) -> bool:
    return route is not None and route.startswith(lane_of(""))


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    name: str
    person_id: PersonId
    conversation_id: ConversationId | None
    route: SessionKey
    schedule: str
    kind: str
    expression: str
    zone: str
    task: dict[str, Any]
    address: dict[str, Any]
    missed: str
    state: State
    next_at: float | None
    made_at: float = 0.0
    changed_at: float = 0.0


_job = columns.RowType(Job)
Q = Queries("jobs", columns=_job.columns)
_JSON = ("task", "address")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """An occurrence to store. Without an `outcome` it waits for its turn."""

    key: str
    """The last part of its id: an instant."""
    text: str
    about: Mapping[str, Any]
    outcome: Outcome | None = None
    reason: str = ""
    reply: NewOutboxItem | None = None


class Step(NamedTuple):
    """What one job does now: its new rows, and its next instant."""

    job: Job
    rows: Sequence[NewRow]
    next_at: float | None
    """None: it does not run again, or not until somebody resumes it."""
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A row of the ledger."""

    id: int
    job_id: str
    message_id: str
    state: str
    reason: str | None
    received_at: float
    ended_at: float | None
    turn_id: str | None
    about: dict[str, Any]
    turn_state: str | None
    session_id: str | None
    delivery: str | None
    error: str | None
    text: str
    zone: str
    """Of its job; UTC of a job that was removed."""

    @property
    def outcome(self) -> str:
        """answered | silent | failed | missed | unknown; waiting | running while it is open."""
        if self.state in ("queued", "claimed"):
            return "waiting" if self.state == "queued" or self.turn_state == "waiting" else "running"
        if self.delivery == "unknown" or self.turn_state == "given_up" or self.reason == CUT_OFF:
            return "unknown"
        if self.state == "answered" and self.delivery in ("failed", "dropped"):
            return "failed"
        return self.state if self.state in ("answered", "silent", "missed") else "failed"


SCRIPT = "script:"
"""Prefix of the leases on the scripts of occurrences; the id of the inbox row follows."""
CUT_OFF = "it was interrupted, and found too late to continue it"


class Jobs(StorePart):
    """Adds, changes and settles jobs; reads their ledger."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._inbox, self._outbox = Inbox(store), Outbox(store)

    @in_transaction
    def add(self, conn: Connection, job: Job) -> Job | None:
        """Store a new job; None when its id exists. Raises `InvalidValue` when the person has too many."""
        most = self._store.limits.jobs
        if scalar(conn.rows(Q.count, (job.person_id,))) >= most:
            raise InvalidValue(f"there are {most} jobs already", hint="cron remove ID makes room (limits.jobs).")
        name, now = (columns.note(" ".join(job.name.split())[:_LONGEST_NAME]) or "job"), self._store.clock()
        job = replace(job, name=name, made_at=now, changed_at=now)
        row = {one.name: getattr(job, one.name) for one in fields(job)}
        for name in _JSON:
            row[name] = columns.to_json(row[name], self._store.limits, what="the job")
        return job if conn.run(Q.add, tuple(row.values())) else None

    def get(self, job_id: str) -> Job | None:
        return self._one(_job, Q.get, (job_id,))

    def list(
        self, *, person_id: str | None = None, done: bool = False, limit: int = 100, offset: int = 0
    ) -> tuple[Job, ...]:
        """Jobs, oldest first; of one person, or all. `done`: also those that will not run again."""
        hidden = None if done else "done"
        return tuple(map(_job, self._rows(Q.list, (person_id, person_id, hidden, hidden, limit, offset))))

    def of_route(self, route: SessionKey) -> tuple[Job, ...]:
        """The jobs whose answers go to this chat."""
        return tuple(map(_job, self._rows(Q.of_route, (route,))))

    @in_transaction
    def change(
        self, conn: Connection, job: Job, state: State, next_at: float | None, rows: Sequence[NewRow] = ()
    ) -> bool:
        """Pause a job, or let it run from `next_at` on; False when it is no longer as `job` says. `rows`: the outcomes
        of its instants until now."""
        if conn.run(Q.change, (state, next_at, self._store.clock(), *_as_read(job))) != 1:
            return False
        for row in rows:
            self._store_row(conn, job, row)
        return True

    @in_transaction
    def remove(self, conn: Connection, job: Job, rows: Sequence[NewRow] = ()) -> bool:
        """Remove a job, as `change` does; occurrences that wait are ended, and the ledger of the others stays."""
        if conn.run(Q.remove, _as_read(job)) != 1:
            return False
        for row in rows:
            self._store_row(conn, job, row)
        conn.run(Q.drop_rows, ("the job was removed before it ran", self._store.clock(), job.id))
        return True

    # -- occurrences -------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """The earliest next instant of all jobs; None without one. One indexed read."""
        found: float | None = scalar(self._rows(Q.next_due))
        return found

    def active_count(self) -> int:
        return int(scalar(self._rows(Q.active_count)))

    def due(self, now: float, *, limit: int = 100) -> tuple[Job, ...]:
        return tuple(map(_job, self._rows(Q.due, (now, limit))))

    @in_transaction
    def settle(
        self,
        conn: Connection,
        steps: Sequence[Step],
        notice: Callable[[Sequence[Step]], NewOutboxItem | None] = lambda steps: None,
    ) -> int:
        """Store what jobs do now, each unless another process was first; returns how many. `notice` is told of them."""
        settled, now = [], self._store.clock()
        for step in steps:
            job = step.job
            state = "paused" if step.paused else "active" if step.next_at is not None else "done"
            if conn.run(Q.move, (step.next_at, state, now, job.id, job.next_at, job.changed_at)) == 1:
                settled.append(step)
                for row in step.rows:
                    self._store_row(conn, job, row)
        if settled and (told := notice(settled)) is not None:
            self._outbox.enqueue_in(conn, told)
        return len(settled)

    @in_transaction
    def run_extra(self, conn: Connection, job: Job, rows: Sequence[NewRow]) -> int:
        """Store occurrences that a person asked for; returns how many are new."""
        return sum(self._store_row(conn, job, row) for row in rows)

    def _store_row(self, conn: Connection, job: Job, new: NewRow) -> bool:
        accepted = self._inbox.accept_own_in(
            conn, Address(**job.address), message_id=message_id(job.id, new.key), text=new.text, about=new.about,
            route=lane_of(job.id),
        )  # fmt: skip
        if accepted.new:
            conn.run(Q.name_row, (job.id, accepted.row.id))
            if new.outcome is not None:
                self._end(conn, accepted.row.id, new.outcome, new.reason, new.reply)
        return accepted.new

    @in_transaction
    def end(
        self,
        conn: Connection,
        row_ids: Sequence[int],
        outcome: Outcome,
        *,
        reason: str = "",
        reply: NewOutboxItem | None = None,
    ) -> int:
        """End queued occurrences without a turn, with one reply; returns how many were still queued."""
        ended = sum(self._end(conn, row_id, outcome, reason, None) for row_id in row_ids)
        if ended and reply is not None:
            self._outbox.enqueue_in(conn, reply)
        return ended

    def _end(self, conn: Connection, row_id: int, outcome: Outcome, reason: str, reply: NewOutboxItem | None) -> bool:
        if conn.run(Q.end_row, (outcome, columns.note(reason), self._store.clock(), row_id)) != 1:
            return False
        if reply is not None:
            self._outbox.enqueue_in(conn, reply)
        return True

    # -- reads -------------------------------------------------------------------------------------------

    def ledger(
        self,
        job_id: str | None = None,
        *,
        person_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> tuple[Occurrence, ...]:
        """Occurrences of one job, of one person's or of all, newest first; `before` is a row's id: the next page."""
        top = columns.NO_LIMIT if before is None else before
        if job_id:
            found = self._rows(Q.ledger, (job_id, top, limit))
        elif person_id:
            found = self._rows(Q.ledger_of_person, (person_id, top, limit))
        else:
            found = self._rows(Q.whole_ledger, (top, limit))
        return tuple(map(_occurrence, found))

    def wrote(
        self, route: SessionKey, conversation_id: ConversationId, *, longest: float, limit: int
    ) -> tuple[tuple[str, float, str], ...]:
        """(job, time, text) of what a chat got from its jobs since its conversation's last turn, oldest first; only
        of runs that ended within the last `longest` seconds."""
        last, oldest = scalar(self._rows(Q.last_turn, (conversation_id,))), self._store.clock() - longest
        found = self._rows(Q.wrote, (route, oldest, last or 0.0, limit))
        return tuple((name, at, _text_of(payload)) for name, at, payload in found[::-1])

    def chat(
        self, platform: str, chat_id: str, *, thread_id: str | None = None, person_id: str | None = None
    ) -> Address | None:
        """A chat in which this person (or anybody) has a conversation, as an address."""
        params = (platform, chat_id, person_id, person_id, thread_id, thread_id)
        return _address(self._rows(Q.chat, params), person_id)

    def has_route(self, platform: str, route: str) -> bool:
        """Whether a conversation was ever opened by this route. One of an imported home has no address."""
        return bool(self._rows(Q.has_route, (platform, route)))

    def private_chat(self, person_id: str, *, platform: str | None = None) -> Address | None:
        """The private chat in which a person began a conversation last."""
        return _address(self._rows(Q.private_chat, (person_id, platform, platform)), person_id)

    def prune(self) -> int:
        """Remove jobs that ended longer ago than `limits.inbox_done_days`, as their occurrences are."""
        self._run(Q.prune_scripts, (f"{SCRIPT}%", self._store.clock()))
        return self._remove_old(self._store.limits.inbox_done_days, Q.prune)


def message_id(job_id: str, key: str) -> str:
    return f"{OWN}job:{job_id}:{key}"


def job_of(key: str) -> str:
    """The id of the job in a `message_id`; empty for any other."""
    begins = f"{OWN}job:"
    return key[len(begins) :].partition(":")[0] if key.startswith(begins) else ""


def _address(found: list[Row], person_id: str | None) -> Address | None:
    if not found:
        return None
    route, origin = found[0]
    source = columns.decode_object(origin)
    if not source.get("platform") or not source.get("chat_id"):
        return None
    return Address(
        platform=str(source["platform"]), account="", chat_id=str(source["chat_id"]), route=SessionKey(route),
        person_id=None if person_id is None else PersonId(person_id), source=source,
    )  # fmt: skip


def _as_read(job: Job) -> tuple[Any, ...]:
    return job.id, job.state, job.changed_at, job.next_at


def _occurrence(row: Row) -> Occurrence:
    about = columns.decode_object(row[8]).get("own") or {}
    facts: Row = (*row[:8], about, *row[9:13], _text_of(row[13]), row[14] or "UTC")
    return Occurrence(*facts)


def _text_of(payload: str | None) -> str:
    return str(columns.decode_object(payload).get("text") or "")
