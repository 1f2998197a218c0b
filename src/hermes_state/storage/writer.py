"""One writer per process, with group commit.

A thread that wants to write and finds the writer free runs its own transaction at once. If the writer is busy, the
thread queues a job; the next thread to get the writer commits all queued jobs in one transaction, each inside a
savepoint, so that a failing job undoes only itself. A thread, started at first need, commits jobs from event loops
(`queued`) the same way.

A job that nearly always succeeds, or else fails before its first write (`no_savepoint`: an append, the beginning of a
turn), needs no savepoint, which saves two statements; if it fails half-way, the group is undone and its jobs are run
one by one. A job's outcome is reported after its commit, once per group to each event loop. The engine knows how to
begin, commit and undo, and what to check after a commit.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, TypeVarTuple

from hermes_config.limits import Limits
from hermes_state.errors import StateError, StoreBusy, StoreReadOnly, StoreUnavailable
from hermes_state.storage.base import Connection, Engine, OnLongWait

if TYPE_CHECKING:
    import asyncio

    from hermes_state.session_db import SessionDB


T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

# Bound at import: a test of the specification replaces threading.Thread for the whole process.
_Thread = threading.Thread


class QueuedWrite:
    """A write that waits for the writer. `notify` gets the finished jobs, all of a group at once.

    It holds its arguments beside the function, not in a closure: hundreds of waiting closures, seven objects each,
    cost an event loop a tenth of its time in the garbage collector.
    """

    __slots__ = ("args", "done", "error", "fn", "no_savepoint", "notify", "result", "ticket")

    def __init__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        no_savepoint: bool = False,
        notify: Notify | None = None,
        ticket: Any = None,
    ) -> None:
        self.fn = fn
        self.args = args
        self.no_savepoint = no_savepoint
        self.notify = notify
        self.ticket = ticket
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


Notify = Callable[[list[QueuedWrite]], None]


class NeedsOwnTransaction(Exception):
    """A job without a savepoint failed after it had, or may have, written."""


class WritingEngine(ABC):
    """The common part of the engines: one writer, and how a group of jobs becomes one transaction."""

    dialect: str

    def __init__(self, where: str, *, read_only: bool, limits: Limits | None) -> None:
        self.where = where
        self.read_only = read_only
        self.on_long_wait: OnLongWait | None = None
        self._limits = limits or Limits()
        self._closed = False
        self._abandoned: list[object] = []
        self.writer = Writer(self, max_group=self._limits.group_commit)

    @abstractmethod
    def alone(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        """Run `fn(conn, *args)` in its own transaction, retried where that is safe."""

    @abstractmethod
    def _is_lost(self, conn: Connection, error: Exception | None) -> bool:
        """Whether the whole transaction is lost, after a job that raised `error` or none."""

    @abstractmethod
    def _our_error(self, error: Exception) -> Exception:
        """A driver's error as one of ours; any other unchanged."""

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        if self._closed or self.read_only:
            self._check_writable()
        return self.writer.run(fn, *args, single=single)

    def submit(self, jobs: Iterable[QueuedWrite]) -> None:
        self._check_writable()
        self.writer.submit(jobs)

    def group(self, jobs: list[QueuedWrite]) -> None:
        """Run all `jobs` in one transaction and set their outcomes. Raises only when none was committed."""

        def run(conn: Connection) -> None:
            for job in jobs:
                self._run_job(conn, job)

        self.alone(run)

    def _run_job(self, conn: Connection, job: QueuedWrite) -> None:
        before, job.result = conn.written, None  # forget the result of an earlier attempt
        if not job.no_savepoint:
            conn.run("SAVEPOINT job")
        try:
            job.result, job.error = job.fn(conn, *job.args), None
        except Exception as error:  # boundary: one job's failure does not affect the others
            if self._is_lost(conn, error):
                raise
            if job.no_savepoint and (not isinstance(error, StateError) or conn.written != before):
                raise NeedsOwnTransaction from error  # a failing statement breaks the transaction, too
            job.error = self._our_error(error)
            if not job.no_savepoint:
                conn.run("ROLLBACK TO SAVEPOINT job")
        if self._is_lost(conn, None):
            raise StateError("nothing was written: a statement had failed", where=self.where)
        if not job.no_savepoint:
            conn.run("RELEASE SAVEPOINT job")

    def _abandon(self, *connections: object) -> None:
        """After a fork: do not use or close the parent's connections."""
        self._abandoned += connections
        self.writer = Writer(self, max_group=self._limits.group_commit)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", where=self.where)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise StoreReadOnly("the store was opened for reading only", where=self.where)


class Writer:
    """The queue before the one writing connection."""

    def __init__(self, transaction: WritingEngine, *, max_group: int) -> None:
        self._transaction = transaction
        self._max_group = max_group
        self.owner = 0
        self.lock = threading.Lock()
        self.queue: deque[QueuedWrite] = deque()
        self._wake = threading.Lock()  # held while the thread has nothing to do
        self._wake.acquire()
        self._asleep = False
        self._beginning = threading.Lock()  # not `lock`: an event loop must not wait here for another transaction
        self._thread: threading.Thread | None = None
        self._closing = False

    def run(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        me = threading.get_ident()
        if self.owner == me:
            raise RuntimeError("a write inside a write: pass the connection on instead")
        if self.lock.acquire(blocking=False):
            try:
                if not self.queue:
                    self.owner = me
                    return self._transaction.alone(fn, *args, single=single)
            finally:
                self.owner = 0
                self.lock.release()
        job = QueuedWrite(fn, *args)
        self.queue.append(job)
        with self.lock:
            while not job.done:
                self._commit_waiting()
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def submit(self, jobs: Iterable[QueuedWrite]) -> None:
        """Queue `jobs` for the thread; it commits them together when it can."""
        self.queue.extend(jobs)
        if self._thread is None:
            self._start()
        elif self._asleep:
            self._wake_thread()

    def close(self) -> None:
        """Commit the queued jobs, then stop the thread."""
        self._closing = True
        if self._thread is not None:
            self._wake_thread()
            self._thread.join()
            self._thread = None
        with self.lock:
            while self.queue:
                self._commit_waiting()

    def exclusive(self, fn: Callable[[], T]) -> T:
        """Call `fn` while nobody writes."""
        with self.lock:
            return fn()

    def _start(self) -> None:
        with self._beginning:
            if self._thread is None:
                self._thread = _Thread(target=self._serve, name="hermes-writer", daemon=True)
                self._thread.start()

    def _wake_thread(self) -> None:
        self._asleep = False
        with contextlib.suppress(RuntimeError):  # another thread woke it at the same moment
            self._wake.release()

    def _serve(self) -> None:
        while True:
            if self.queue:
                with self.lock:
                    while self.queue:
                        self._commit_waiting()
            if self._closing:
                return
            self._asleep = True
            if not self.queue and not self._closing:  # a job queued after this line wakes the thread
                self._wake.acquire()
            self._asleep = False

    def _commit_waiting(self) -> None:
        """Commit up to one group of queued jobs. The caller holds the lock."""
        jobs: list[QueuedWrite] = []
        while self.queue and len(jobs) < self._max_group:
            jobs.append(self.queue.popleft())
        try:
            if len(jobs) == 1:
                self._alone(jobs[0])
            elif jobs:
                self._transaction.group(jobs)
        except NeedsOwnTransaction:
            self._one_by_one(jobs)
        except BaseException as error:  # noqa: BLE001 - boundary: the outcome belongs to the caller that queued the job
            for job in jobs:
                job.error, job.result = error, None
        told: dict[Notify, list[QueuedWrite]] = {}
        for job in jobs:
            job.done, job.args = True, ()
            del job.fn  # release the jobs' references
            if job.notify is not None:
                told.setdefault(job.notify, []).append(job)
        for notify, finished in told.items():
            notify(finished)

    def _one_by_one(self, jobs: list[QueuedWrite]) -> None:
        left = list(jobs)  # the group was rolled back: every job runs again
        try:
            while left:
                self._alone(left[0])
                job = left.pop(0)
                # Each of the others would wait as long for the same error; on a server only one row may be locked.
                whole = (StoreBusy, StoreUnavailable) if self._transaction.dialect == "sqlite" else StoreUnavailable
                if isinstance(job.error, whole):
                    raise job.error
        except BaseException as error:  # noqa: BLE001 - boundary: the outcome belongs to the caller that queued the job
            for job in left:
                job.error, job.result = error, None

    def _alone(self, job: QueuedWrite) -> None:
        try:
            job.result, job.error = self._transaction.alone(job.fn, *job.args), None
        except BaseException as error:  # noqa: BLE001 - boundary: the outcome belongs to the caller that queued the job
            job.error, job.result = error, None


_MOST_PATIENCE = 0.02


class InThreads:
    """An object for event loops: its callables become coroutines in a thread, all else passes through."""

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


def queued(
    engine: Engine, fn: Callable[[Connection, *Ts], T], *args: *Ts, no_savepoint: bool = False, patience: float = 0.0
) -> asyncio.Future[T]:
    """Queue `fn(conn, *args)` to the writer's thread; the future is done after its commit.

    `patience`: seconds that it may wait for another job of this loop to share a commit with. The jobs of a loop run in
    the order in which they were queued.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    queue = _loop_queues.get(loop)
    if queue is None:
        queue = _loop_queues[loop] = _LoopQueue(loop)
    future: asyncio.Future[T] = loop.create_future()
    job = QueuedWrite(fn, *args, no_savepoint=no_savepoint, notify=queue.tell, ticket=future)
    if patience:
        queue.post_later(engine, job, patience)
    else:
        queue.post(engine, job)
    return future


class _Patient(NamedTuple):
    """Jobs that wait for another one to share a commit."""

    jobs: list[QueuedWrite]
    alarm: asyncio.Handle
    due: float
    last: float
    """By the loop's clock: the latest time, also when other jobs join."""


class _LoopQueue:
    """The jobs of one event loop and their outcomes.

    Jobs queued in one iteration of the loop are submitted together at its end, so that they share a commit; the
    outcomes of a group come back in one wake-up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._waiting: dict[Engine, list[QueuedWrite]] = {}
        self._patient: dict[Engine, _Patient] = {}

    def post(self, engine: Engine, *jobs: QueuedWrite) -> None:
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

    def post_later(self, engine: Engine, job: QueuedWrite, seconds: float) -> None:
        """Submit with the next job, at the latest after `seconds`, or a little later when another patient job comes."""
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
        # Stored beside the handle, whose time only asyncio's own loop can tell.
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

    def tell(self, jobs: list[QueuedWrite]) -> None:
        """Receive finished jobs; called in the writer's thread."""
        loop = self._loop()
        if loop is None:
            return
        # A closed loop raises, and it may close at any moment: then nobody waits, and the writes are stored.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


_loop_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopQueue] = weakref.WeakKeyDictionary()


def _settle(jobs: list[QueuedWrite]) -> None:
    for job in jobs:
        future = job.ticket
        if future.done():  # the caller was cancelled; the row is stored nevertheless
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)


async def look(db: SessionDB, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `read(…)`, which must be one indexed read of a row or two.

    Such a read takes about thirty microseconds on a local file, and a thread takes five times as long to start it and
    wake the loop, on the path of every message: on SQLite the loop reads directly. A server is asked in a thread: a
    network round trip has no time limit.
    """
    if db.engine.dialect == "sqlite":
        return read(*args, **kwargs)
    import asyncio  # most commands run without a loop, and start faster without this import

    return await asyncio.to_thread(read, *args, **kwargs)
