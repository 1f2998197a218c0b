"""The event loop of this process on which the turns of synchronous callers run.

`run_conversation` is called from ordinary code, from threads, and from code with an event loop of its own. All of them
submit to one loop on one daemon thread, started on first use. Clients and agents are kept per loop, so a thousand
waiting turns are a thousand small tasks and need no threads.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Bound at import: a test of the specification replaces threading.Thread for the whole process.
_Thread = threading.Thread
_GRACE = 5.0


class LoopThread:
    """An event loop on a daemon thread of its own, started on first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = _Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop without waiting for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.get())

    def stop(self) -> None:
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_GRACE)
            if not thread.is_alive():
                _close_loop(loop)


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections to models. Turns that still run stay open: the next process recovers them."""
    if not asyncio.all_tasks(loop):
        loop.run_until_complete(loop.shutdown_asyncgens())  # closes the loop's HTTP clients, too
        loop.close()


_agents = LoopThread("hermes-agents")
atexit.register(_agents.stop)


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a coroutine on the agents' loop without waiting for it."""
    return _agents.submit(coroutine)


def run(coroutine: Coroutine[Any, Any, T], *, interrupt: Callable[[], None] | None = None) -> T:
    """Run a coroutine on the agents' loop and wait for it.

    Ctrl-C asks the work to stop (`interrupt`) and cancels it if that does not help. KeyboardInterrupt is raised only
    after the work has stored its end, so a process that exits then leaves nothing half done.
    """
    ended = threading.Event()

    async def watched() -> T:
        try:
            return await coroutine
        finally:
            ended.set()

    future = submit(watched())
    try:
        return future.result()
    except KeyboardInterrupt:
        if interrupt is not None:
            interrupt()
            ended.wait(_GRACE)
        if not ended.is_set():
            future.cancel()
            ended.wait(_GRACE)
        raise
