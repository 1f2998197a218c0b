"""Runs work on the agents' loop while only the main thread touches the terminal.

`drive` runs a coroutine on the loop and meanwhile shows posted output, reads typed lines and counts Ctrl-C. Ctrl-C is a
counter and not an exception, so it never cuts a line in half: the first one goes to the caller; the second cancels the
work, lets it clean up, and leaves.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from hermes_agent import sync_loop

T = TypeVar("T")

_GRACE = 5.0
"""Seconds that a cancelled turn has to store its end."""
_IDLE = 0.7
"""Seconds without output after which the waiting mark is shown."""
_LINE_BYTES = 4_096


class UserQuit(Exception):
    """The person pressed Ctrl-C twice to leave."""


class TerminalLoop:
    """Runs work and shows it. Made and used on the main thread; `post` may be called from any."""

    def __init__(self) -> None:
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._interrupts = 0
        self.typing_ended = False
        """Whether Ctrl-D was pressed while work ran."""

    def close(self) -> None:
        self._bell.close()
        self._ear.close()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed since the work began."""
        return self._interrupts > 0

    # -- from any thread ---------------------------------------------------------------------------------

    def post(self, show: Callable[[], None]) -> None:
        """Queue output; it is shown in the order of posting."""
        self._posted.put(show)
        self._ring()

    # -- on the main thread --------------------------------------------------------------------------------

    def drive(
        self,
        work: Coroutine[Any, Any, T],
        *,
        interrupt: Callable[[], None],
        idle: Callable[[], None] | None = None,
        typed: Callable[[str], None] | None = None,
    ) -> T:
        """Run the work to its end and return the result. Raises `UserQuit` on the second Ctrl-C."""
        ended = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                ended.set()
                self._ring()

        with self._counting_interrupts():
            future = sync_loop.submit(watched())
            try:
                self._watch(ended, interrupt, idle, typed)
            except BaseException:  # the person left, or the terminal closed: cancel the work and let it store its end
                future.cancel()
                ended.wait(_GRACE)
                raise
            return future.result()

    def _watch(
        self,
        ended: threading.Event,
        interrupt: Callable[[], None],
        idle: Callable[[], None] | None,
        typed: Callable[[str], None] | None,
    ) -> None:
        seen = 0
        while not (ended.is_set() and self._posted.empty()):
            quiet = self._wait(typed)
            self.show_posted()
            if quiet and idle is not None:
                idle()
            if self._interrupts > seen:
                seen = self._interrupts
                if seen > 1:
                    raise UserQuit
                interrupt()

    def _wait(self, typed: Callable[[str], None] | None) -> bool:
        """Wait for an event and pass on typed lines; return True after a while without one."""
        watched: list[Any] = [self._ear]
        if typed is not None and not self.typing_ended:
            watched.append(sys.stdin)
        ready, _, _ = select.select(watched, [], [], _IDLE)
        if self._ear in ready:
            with suppress(BlockingIOError):
                while self._ear.recv(4_096):
                    pass
        if sys.stdin in ready and typed is not None:
            line = os.read(sys.stdin.fileno(), _LINE_BYTES)  # a terminal gives one line at a time
            self.typing_ended = not line
            if line.strip():
                typed(line.decode("utf-8", "replace").strip())
        return not ready

    @property
    def has_posted(self) -> bool:
        return not self._posted.empty()

    def show_posted(self) -> None:
        """Show the queued output, on the thread that has the terminal."""
        with suppress(Empty):
            while True:
                self._posted.get_nowait()()

    def _ring(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: a wake-up is pending; closed: nobody waits
            self._bell.send(b"\0")

    @contextmanager
    def _counting_interrupts(self) -> Iterator[None]:
        self._interrupts = 0

        def count(*_: object) -> None:
            self._interrupts += 1
            self._ring()

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._interrupts = 0
