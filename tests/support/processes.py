"""Other processes for tests: started from a script, spoken to line by line, stopped or killed by their id.

A worker script prints lines (`say`) and may wait for one (`wait_for_go`). The test holds a `Worker`, which
is a context manager: what still runs at its end is killed, that one process only.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from hermes_agent.execution import bubblewrap

_ROOT = Path(__file__).parents[2]
GONE = f"{socket.gethostname()}/4194305/1/dead"
"""A holder of leases whose process is certainly no more: no number of a process is as large."""


@lru_cache(maxsize=1)
def bubblewrap_works() -> bool:
    return any(bubblewrap.probe(program) is not None for program in bubblewrap.programs())


def works(*command: str) -> bool:
    """Whether such a program is here and may do this; for tests that say what they miss."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Worker:
    """One child process running `script` with `args`."""

    def __init__(self, script: Path, *args: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},  # a script finds `tests.support` there
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, *, timeout: float = 30) -> str:
        """The next line it says; an error when it ends or stays silent instead."""
        while b"\n" not in self._unread:
            if not self._receive(timeout):
                raise RuntimeError(
                    f"the worker ended (status {self._process.wait()}) without a word; see its error above"
                )
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    def rest(self, *, timeout: float = 120) -> list[str]:
        """Everything it says until it ends."""
        while self._receive(timeout):
            pass
        self._process.wait(timeout)
        text, self._unread = self._unread.decode(), b""
        return text.splitlines()

    def finish(self, *, timeout: float = 120) -> list[str]:
        """As `rest`, and it must have ended well."""
        lines = self.rest(timeout=timeout)
        if self._process.returncode != 0:
            raise RuntimeError(f"the worker ended with status {self._process.returncode}; see its error above")
        return lines

    def _receive(self, timeout: float) -> bool:
        """More of what it says; False at its end."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise TimeoutError(f"the worker said nothing for {timeout:.0f} s")
        more = os.read(self._process.stdout.fileno(), 1 << 16)
        self._unread += more
        return bool(more)

    def go(self) -> None:
        """Wake a worker that waits in `wait_for_go`."""
        self.tell("go")

    def tell(self, line: str) -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def freeze(self) -> None:
        """SIGSTOP; returns when the process really stands still."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; what it said before can still be read."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def say(line: str) -> None:
    """In a worker: one line to the test, in one write, so that a kill cannot tear it."""
    os.write(1, f"{line}\n".encode())


def wait_for_go() -> None:
    """In a worker: go on when the test says so."""
    sys.stdin.readline()
