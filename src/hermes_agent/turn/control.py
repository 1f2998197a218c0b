"""Control of a running turn: a person stops it or adds a message, `hermes turns cancel` ends it, its lease is renewed.

Methods of `Signals` are called from any thread. A gateway looks for cancel requests of all its turns at once; a turn
without a route looks for its own (`cancel_requests_obeyed`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hermes_config.errors import HermesError
from hermes_state.errors import StaleFence

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.journal import Journal

_log = logging.getLogger("hermes.agent")

T = TypeVar("T")

BY_PERSON = "interrupted by the person"
ADDED = "(While you were at work, the person adds:)"
"""Before such a message, for the model alone. It is a row of the person's: no tool's output can pretend to be one."""
_CANCEL_LOOK_SECONDS = 1.0


class Interrupted(Exception):
    """The person stopped the turn; `text` is what was shown until then."""

    def __init__(self, text: str = "") -> None:
        super().__init__("interrupted")
        self.text = text


class Added(NamedTuple):
    """A message in the middle of a turn, and its inbox row, if there is one."""

    text: str
    inbox_id: int | None = None


def text_of(added: Iterable[Added]) -> str:
    return "\n".join(one.text for one in added)


def inbox_rows(added: Iterable[Added]) -> tuple[int, ...]:
    return tuple(one.inbox_id for one in added if one.inbox_id is not None)


class Stop(asyncio.Event):
    """Set when the turn is stopped. Besides waiting for it, one can be told: a task that only waits costs a turn more
    than all the rest of asking."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    def tell(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    def set(self) -> None:
        if not self.is_set():
            super().set()
            for callback in tuple(self._callbacks):
                callback()


async def until_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """The result of the work. It is cancelled, and `Interrupted` raised, as soon as the person stops the turn."""
    task = asyncio.current_task()
    assert task is not None, "a turn is a task"
    before, told = task.cancelling(), False

    def cancel() -> None:
        nonlocal told
        told = True
        task.cancel()

    if stop.is_set():
        work.close()
        raise Interrupted
    stop.tell(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if told and task.cancelling() == before + 1:  # nobody else wants it ended
            raise Interrupted from None
        raise
    finally:
        stop.forget(cancel)
        if told:
            task.uncancel()


class Signals:
    """One for each agent; cleared at the end of a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stop: Stop | None = None
        self.stopped = False
        self._steer: list[Added] = []
        self.abandoned = False
        """Cancelling the turn leaves it open, for another process to recover."""
        self.message: str | None = None
        """What the person said while interrupting."""
        self.reason = BY_PERSON
        """Who or what stopped the turn, for its row."""

    @property
    def running(self) -> bool:
        return self._loop is not None

    def bind(self) -> Stop:
        """At the beginning of a turn, on its loop: the event that its waiting parts watch.

        While another turn of this agent runs, the signals stay that turn's: opening this one will be refused.
        """
        stop = Stop()
        with self._lock:
            if self._loop is None:
                self._loop, self._stop, self._task = asyncio.get_running_loop(), stop, asyncio.current_task()
        return stop

    def stop(self, message: str | None = None, reason: str | None = None) -> None:
        """Thread-safe; a second call changes nothing but the message. Between turns there is nothing to stop."""
        with self._lock:
            if self._loop is None or self._stop is None or self._loop.is_closed():
                return
            if not self.stopped:
                self.stopped, self.reason = True, reason or BY_PERSON
            self.message = message if message is not None else self.message
            self._loop.call_soon_threadsafe(self._stop.set)

    def put_down(self) -> None:
        """Thread-safe: the turn is cancelled, and left open for another process to recover."""
        with self._lock:
            if self._loop is None or self._task is None or self._loop.is_closed():
                return
            self.abandoned = True
            self._loop.call_soon_threadsafe(self._task.cancel)

    def steer(self, text: str, inbox_id: int | None = None) -> bool:
        """True when the running turn will carry the text to the model behind its next tool results."""
        with self._lock:
            if self._loop is None or self.stopped or not text.strip():
                return False
            self._steer.append(Added(text.strip(), inbox_id))
            return True

    def take_steer(self) -> list[Added]:
        """For the model's next request."""
        with self._lock:
            added, self._steer = self._steer, []
        return added

    def end(self) -> list[Added]:
        """Accept no more messages; those that came too late for the model are returned, none is lost."""
        with self._lock:
            added, self._steer, self._loop = self._steer, [], None
        return added

    def clear(self, stop: Stop | None = None) -> None:
        """At the end of the turn that was bound to `stop`; None clears whatever turn there is."""
        with self._lock:
            if stop is not None and stop is not self._stop:
                return
            self.stopped, self._steer, self.message = False, [], None
            self.abandoned, self.reason = False, BY_PERSON
            self._loop = self._task = self._stop = None


# -- beside the turn -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _repeated(seconds: float, look: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
    """Call `look` every `seconds` beside the block, until it returns False.

    Most turns are over before the first look: until then it is a timer, not a task.
    """
    tasks: list[asyncio.Task[None]] = []

    async def watch() -> None:
        while True:
            if not await look():
                return
            await asyncio.sleep(seconds)

    due = asyncio.get_running_loop().call_later(seconds, lambda: tasks.append(asyncio.ensure_future(watch())))
    try:
        yield
    finally:
        due.cancel()
        for task in tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def lease_kept(journal: Journal, seconds: float) -> AsyncIterator[None]:
    """Renew the lease while the block runs. When it is lost, the block is stopped: it may write nothing any more."""
    worker, lost = asyncio.current_task(), False
    assert worker is not None, "a turn is a task"

    async def renew() -> bool:
        nonlocal lost
        try:
            lost = not await journal.renew(ttl=seconds)
        except HermesError as error:  # the store is busy, say; there is time for another try
            _log.warning("a lease was not renewed", extra={"action": "lease", "error": type(error).__name__})
        if lost:
            worker.cancel()
        return not lost

    try:
        async with _repeated(seconds / 3, renew):
            yield
    except asyncio.CancelledError:
        if not lost:
            raise
        worker.uncancel()  # it was us, and `StaleFence` is the answer to it
        raise StaleFence("another process took this conversation over") from None


@contextlib.asynccontextmanager
async def cancel_requests_obeyed(db: SessionDB, journal: Journal, signals: Signals) -> AsyncIterator[None]:
    """While the block runs, a cancel request on the turn's row stops it as Ctrl-C would: what was done is kept."""

    async def look() -> bool:
        try:
            turn = await asyncio.to_thread(db.turns.get, journal.turn_id)
        except HermesError as error:  # the store is busy, say; there is another look
            _log.warning("a cancel request was not read", extra={"action": "turn", "error": type(error).__name__})
            return True
        if turn is None or turn.state != "running" or turn.reason is None:
            return True
        signals.stop(reason=turn.reason)
        return False

    async with _repeated(_CANCEL_LOOK_SECONDS, look):
        yield
