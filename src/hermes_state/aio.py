"""`AsyncSessionDB`: the store for event loops.

Any method of `SessionDB` can be awaited; it runs in a worker thread. Appends, which come in hundreds at once, take a
shorter way: they are queued to the store's writer and share a commit, and no thread waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, TypeVarTuple

from hermes_state import messages, transcript
from hermes_state.engine.base import Connection, Engine
from hermes_state.engine.writer import Job
from hermes_state.errors import StateError

if TYPE_CHECKING:
    import asyncio

    from hermes_state.session_db import SessionDB


_MOST_PATIENCE = 0.02
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class InThreads:
    """Something for event loops: its callables become coroutines in a thread, everything else passes through."""

    def __init__(self, blocking: object) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if not callable(value):
            return value

        async def forwarded(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            return await asyncio.to_thread(value, *args, **kwargs)

        forwarded.__name__ = name
        return forwarded


class AsyncSessionDB(InThreads):
    """`SessionDB` for event loops; what writes a message goes through the writer's queue and holds no thread."""

    def __init__(self, db: SessionDB) -> None:
        super().__init__(db)
        self._db = db

    async def append_message(self, session_id: str, role: str, content: Any = None, **fields: Any) -> int:
        """As `SessionDB.append_message`; many at once share one commit."""
        db = self._db
        at, top = db.clock(), db.limits.message_bytes
        if not fields and transcript.is_text(role, content, top):
            done = queued(db.engine, messages.append_text, session_id, role, content, at, whole=True)
        else:
            row = transcript.encode({"role": role, "content": content, **fields}, at, top)
            done = queued(db.engine, messages.append, session_id, row, whole=True)
        return await done

    async def write(self, fn: Callable[[Connection], Any]) -> Any:
        """`fn(conn)` in a transaction of the writer's, perhaps together with others."""
        return await queued(self._db.engine, fn)


def queued(
    engine: Engine,
    fn: Callable[[Connection, *Ts], T],
    *args: *Ts,
    whole: bool = False,
    patience: float = 0.0,
    after: Job | None = None,
) -> asyncio.Future[T]:
    """Hand `fn(conn, *args)` to the writer's thread; the future is done after the commit that carries it.

    `patience`: seconds it may wait for another job of this loop to share a commit with. `after`: see `Job`.
    """
    done: asyncio.Future[T] = posted(engine, fn, *args, whole=whole, patience=patience, after=after).ticket
    return done


def posted(
    engine: Engine,
    fn: Callable[[Connection, *Ts], Any],
    *args: *Ts,
    whole: bool = False,
    patience: float = 0.0,
    after: Job | None = None,
) -> Job:
    """As `queued`, and the job itself: `ticket` is the future. Jobs of a loop run in the order in which they came, so a
    later one can look at what became of it, perhaps in the same transaction."""
    import asyncio

    loop = asyncio.get_running_loop()
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        mailbox = _mailboxes[loop] = _Mailbox(loop)
    future = loop.create_future()
    job = Job(fn, *args, whole=whole, notify=mailbox.tell, ticket=future, after=after)
    if patience:
        mailbox.post_later(engine, job, patience)
    else:
        mailbox.post(engine, job)
    return job


class _Patient(NamedTuple):
    """Jobs that wait for another one to go with."""

    jobs: list[Job]
    alarm: asyncio.Handle
    due: float
    last: float
    """By the loop's clock: they wait no longer, whoever joins them."""


class _Mailbox:
    """What one loop sends to writers and hears from them.

    Jobs made in one round of the loop are handed over together at its end, so that they share a commit; the outcomes of
    a group come back in one wake-up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._waiting: dict[Engine, list[Job]] = {}
        self._patient: dict[Engine, _Patient] = {}

    def post(self, engine: Engine, *jobs: Job) -> None:
        waiting = self._waiting.get(engine)
        if waiting is not None:
            waiting.extend(jobs)
            return
        patient = self._patient.pop(engine, None)
        if patient is not None:
            patient.alarm.cancel()
            jobs = (*patient.jobs, *jobs)
        self._waiting[engine] = list(jobs)
        self._running_loop().call_soon(self._hand_over, engine)

    def post_later(self, engine: Engine, job: Job, seconds: float) -> None:
        """With whatever comes next, and in any case then, or a little later when another patient one comes."""
        waiting = self._waiting.get(engine)
        if waiting is not None:
            waiting.append(job)
            return
        loop = self._running_loop()
        now, jobs, due, last = loop.time(), [job], 0.0, inf
        if (patient := self._patient.get(engine)) is not None:
            patient.alarm.cancel()
            jobs, due, last = [*patient.jobs, job], patient.due, patient.last
        last = min(last, now + _MOST_PATIENCE)
        due = min(max(due, now + seconds), last)
        # Kept beside the handle, which knows its time only on asyncio's own loop.
        self._patient[engine] = _Patient(jobs, loop.call_at(due, self.post, engine), due, last)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "it is the one that runs"
        return loop

    def _hand_over(self, engine: Engine) -> None:
        jobs = self._waiting.pop(engine)
        try:
            engine.submit(jobs)
        except StateError as error:  # the store was closed meanwhile
            for job in jobs:
                job.error = error
            _settle(jobs)

    def tell(self, jobs: list[Job]) -> None:
        """From the writer's thread."""
        loop = self._loop()
        if loop is None:
            return
        # A closed loop raises, and may close at any moment: nobody waits any more, and what was written is stored.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.ticket
        if future.done():  # the caller was cancelled; the row is stored all the same
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)


P = ParamSpec("P")


async def look(db: SessionDB, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`read(…)`, which must be one indexed read of a row or two.

    Such a read takes some thirty microseconds of a local file, and handing it to a thread and waking up again takes
    five times as long, on the path of every message: on SQLite it is done at once. A server is asked in a thread: a
    round trip over a network has no bound.
    """
    if db.engine.dialect == "sqlite":
        return read(*args, **kwargs)
    return await asyncio.to_thread(read, *args, **kwargs)
