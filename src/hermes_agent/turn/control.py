"""What a person can do to a running turn from any thread: stop it, or add a word."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.journal import Journal


BY_PERSON = "interrupted by the person"
ADDED = "(While you were at work, the person adds:)"
"""Before such words, for the model alone. A message of the person's: no tool's output can pretend to be one."""


class Added(NamedTuple):
    """A word in the middle of a turn, and the stored message it came with, if there is one."""

    text: str
    inbox_id: int | None = None


def words(added: Iterable[Added]) -> str:
    return "\n".join(one.text for one in added)


def messages(added: Iterable[Added]) -> tuple[int, ...]:
    return tuple(one.inbox_id for one in added if one.inbox_id is not None)


class Stop(asyncio.Event):
    """Set when the turn is stopped. Besides waiting for it, one can be told: a task that only waits costs a turn more
    than all the rest of asking."""

    def __init__(self) -> None:
        super().__init__()
        self._listening: list[Callable[[], None]] = []

    def tell(self, callback: Callable[[], None]) -> None:
        self._listening.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        self._listening.remove(callback)

    def set(self) -> None:
        if not self.is_set():
            super().set()
            for callback in tuple(self._listening):
                callback()


class Signals:
    """One for each agent; cleared at the end of a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._event: Stop | None = None
        self._stopped = False
        self._steer: list[Added] = []
        self.abandoned = False
        """Whoever cancels the turn wants it left as it is, for another process to take up."""
        self.message: str | None = None
        """What the person said while interrupting."""
        self.reason = BY_PERSON
        """Who or what stopped the turn, for its row."""

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def running(self) -> bool:
        return self._loop is not None

    def bind(self) -> Stop:
        """At the beginning of a turn, on its loop: the event that its waiting places watch."""
        with self._lock:
            self._loop, self._event = asyncio.get_running_loop(), Stop()
            self._task = asyncio.current_task()
            return self._event

    def stop(self, message: str | None = None, reason: str | None = None) -> None:
        """Thread-safe; a second call changes nothing but the message. Between turns there is nothing to stop."""
        with self._lock:
            if self._loop is None or self._event is None or self._loop.is_closed():
                return
            if not self._stopped:
                self._stopped, self.reason = True, reason or BY_PERSON
            self.message = message if message is not None else self.message
            self._loop.call_soon_threadsafe(self._event.set)

    def put_down(self) -> None:
        """Thread-safe: the turn is cancelled, and left as it is for another process to take up."""
        with self._lock:
            if self._loop is None or self._task is None or self._loop.is_closed():
                return
            self.abandoned = True
            self._loop.call_soon_threadsafe(self._task.cancel)

    def steer(self, text: str, inbox_id: int | None = None) -> bool:
        """True when the running turn will carry the text to the model behind its next tool results."""
        with self._lock:
            if self._loop is None or self._stopped or not text.strip():
                return False
            self._steer.append(Added(text.strip(), inbox_id))
            return True

    def take_steer(self) -> list[Added]:
        """For the model's next request."""
        with self._lock:
            added, self._steer = self._steer, []
        return added

    def end(self) -> list[Added]:
        """No more words from now on; those that came too late for the model are returned, none is lost."""
        with self._lock:
            added, self._steer = self._steer, []
            self._loop = None
        return added

    def clear(self) -> None:
        with self._lock:
            self._stopped, self._steer, self.message = False, [], None
            self.abandoned, self.reason = False, BY_PERSON
            self._loop = self._task = self._event = None


_log = logging.getLogger("hermes.agent")
_SECONDS = 1.0


@contextlib.asynccontextmanager
async def cancel_requests_obeyed(db: SessionDB, journal: Journal, signals: Signals) -> AsyncIterator[None]:
    """While the turn runs, a wish that it end stops it."""
    watching: list[asyncio.Task[None]] = []
    # Most turns are over before the first look: until then it is a timer, not a task.
    due = asyncio.get_running_loop().call_later(
        _SECONDS, lambda: watching.append(asyncio.ensure_future(_watch(db, journal, signals)))
    )
    try:
        yield
    finally:
        due.cancel()
        for task in watching:
            task.cancel()


async def _watch(db: SessionDB, journal: Journal, signals: Signals) -> None:
    while True:
        try:
            turn = await asyncio.to_thread(db.turns.get, journal.turn_id)
        except HermesError as error:  # the store is busy, say; there is another look
            _log.warning("a wish to stop was not looked for", extra={"action": "turn", "error": type(error).__name__})
            turn = None
        if turn is not None and turn.state == "running" and turn.reason is not None:
            signals.stop(reason=turn.reason)
            return
        await asyncio.sleep(_SECONDS)
