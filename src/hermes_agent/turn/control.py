"""Control of a running turn: stop it, add a message to it, obey `hermes turns cancel`, renew its lease.

The methods of `Signals` may be called from any thread. A gateway reads the cancel requests of all its turns at once; a
turn without a route reads its own (`cancel_requests_obeyed`).
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
"""Precedes an added message, only for the model. The message is a user row, so no tool output can imitate it."""
_CANCEL_LOOK_SECONDS = 1.0


class Interrupted(Exception):
    """The person stopped the turn; `text` is the part of the answer shown until then."""

    def __init__(self, text: str = "") -> None:
        super().__init__("interrupted")
        self.text = text


class Added(NamedTuple):
    """A message added to a running turn, and its inbox row, if it has one."""

    text: str
    inbox_id: int | None = None


def text_of(added: Iterable[Added]) -> str:
    return "\n".join(one.text for one in added)


def inbox_rows(added: Iterable[Added]) -> tuple[int, ...]:
    return tuple(one.inbox_id for one in added if one.inbox_id is not None)


class Stop(asyncio.Event):
    """Set when the turn is stopped. Callbacks spare a turn the task that waits for the event, which costs more than
    the rest of a model call."""

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
    """Run the work and return its result. If the person stops the turn, cancel the work and raise `Interrupted`."""
    task = asyncio.current_task()
    assert task is not None, "a turn runs in a task"
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
        if told and task.cancelling() == before + 1:  # nobody else cancelled the task
            raise Interrupted from None
        raise
    finally:
        stop.forget(cancel)
        if told:
            task.uncancel()


class Signals:
    """The stop and steer signals of one agent, cleared at the end of a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stop: Stop | None = None
        self.stopped = False
        self._steer: list[Added] = []
        self.abandoned = False
        """If True, cancelling the turn leaves it open, for another process to recover."""
        self.message: str | None = None
        """The message with which the person interrupted."""
        self.reason = BY_PERSON
        """The reason for the stop, stored in the turn's row."""

    @property
    def running(self) -> bool:
        return self._loop is not None

    def bind(self) -> Stop:
        """Create the stop event of a turn; called at the turn's beginning, on its loop.

        While another turn of this agent runs, the signals stay bound to that turn: opening this one will be refused.
        """
        stop = Stop()
        with self._lock:
            if self._loop is None:
                self._loop, self._stop, self._task = asyncio.get_running_loop(), stop, asyncio.current_task()
        return stop

    def stop(self, message: str | None = None, reason: str | None = None) -> None:
        """Stop the turn. Thread-safe; a second call only changes the message. Does nothing between turns."""
        with self._lock:
            if self._loop is None or self._stop is None or self._loop.is_closed():
                return
            if not self.stopped:
                self.stopped, self.reason = True, reason or BY_PERSON
            self.message = message if message is not None else self.message
            self._loop.call_soon_threadsafe(self._stop.set)

    def leave_open(self) -> None:
        """Cancel the turn and leave it open for another process to recover. Thread-safe."""
        with self._lock:
            if self._loop is None or self._task is None or self._loop.is_closed():
                return
            self.abandoned = True
            self._loop.call_soon_threadsafe(self._task.cancel)

    def steer(self, text: str, inbox_id: int | None = None) -> bool:
        """Add a text after the running turn's next tool results; True if the turn accepts it."""
        with self._lock:
            if self._loop is None or self.stopped or not text.strip():
                return False
            self._steer.append(Added(text.strip(), inbox_id))
            return True

    def take_steer(self) -> list[Added]:
        """Remove and return the added messages, for the model's next request."""
        with self._lock:
            added, self._steer = self._steer, []
        return added

    def end(self) -> list[Added]:
        """Accept no more messages; return those that came too late for the model."""
        with self._lock:
            added, self._steer, self._loop = self._steer, [], None
        return added

    def clear(self, stop: Stop | None = None) -> None:
        """Clear the signals at the end of the turn bound to `stop`; with None, of any turn."""
        with self._lock:
            if stop is not None and stop is not self._stop:
                return
            self.stopped, self._steer, self.message = False, [], None
            self.abandoned, self.reason = False, BY_PERSON
            self._loop = self._task = self._stop = None


# -- periodic checks during a turn -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _repeat_during(seconds: float, look: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
    """Call `look` every `seconds` while the block runs, until it returns False.

    Most turns end before the first call, so a timer starts the task only then.
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
    """Renew the lease while the block runs. If the lease is lost, cancel the block: it may no longer write."""
    worker, lost = asyncio.current_task(), False
    assert worker is not None, "a turn runs in a task"

    async def renew() -> bool:
        nonlocal lost
        try:
            lost = not await journal.renew(ttl=seconds)
        except HermesError as error:  # for example a busy store; the lease lasts long enough to try again
            _log.warning("a lease was not renewed", extra={"action": "lease", "error": type(error).__name__})
        if lost:
            worker.cancel()
        return not lost

    try:
        async with _repeat_during(seconds / 3, renew):
            yield
    except asyncio.CancelledError:
        if not lost:
            raise
        worker.uncancel()  # `renew` cancelled the task; `StaleFence` replaces that
        raise StaleFence("another process took this conversation over") from None


@contextlib.asynccontextmanager
async def cancel_requests_obeyed(db: SessionDB, journal: Journal, signals: Signals) -> AsyncIterator[None]:
    """While the block runs, obey a cancel request on the turn's row like Ctrl-C: finished steps are kept."""

    async def look() -> bool:
        try:
            turn = await asyncio.to_thread(db.turns.get, journal.turn_id)
        except HermesError as error:  # for example a busy store; the next check reads again
            _log.warning("a cancel request was not read", extra={"action": "turn", "error": type(error).__name__})
            return True
        if turn is None or turn.state != "running" or turn.reason is None:
            return True
        signals.stop(reason=turn.reason)
        return False

    async with _repeat_during(_CANCEL_LOOK_SECONDS, look):
        yield
