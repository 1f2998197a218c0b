"""A child process of a tool: its own process group, no terminal, no input, output by call-back, and one way to end it.

Everything happens on the event loop: output arrives by `add_reader`, the end by a process descriptor (on systems
without those, a thread waits). The group is ended as a whole, politely and then not; what a child put into a session of
its own (a daemon) has left the group and is not found.

It does not use `asyncio.create_subprocess_exec`, whose `wait` returns on some versions of Python only when every
process that inherited the pipe has closed it: `sleep 999 &` would hold a finished command open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_CHUNK = 65_536
_POLL_SECONDS = 0.02


class Child:
    """A running child. `end` (or leaving the `async with`) leaves no process and no descriptor behind."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        workdir: Path,
        environ: Mapping[str, str],
        on_output: Callable[[bytes], None],
        grace: float,
        with_errors: bool = True,
    ) -> None:
        """`with_errors` mixes standard error into the output, as a terminal would; else it is dropped."""
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._grace = grace
        self._pipe, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=workdir,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT if with_errors else subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(writing)
        os.set_blocking(self._pipe, False)
        self._drained = self._loop.create_future()
        self._loop.add_reader(self._pipe, self._read)
        self._exit = asyncio.ensure_future(self._wait())

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def exited(self) -> int:
        """The exit status of the child itself; negative for a signal. Others of its group may still run."""
        return await asyncio.shield(self._exit)

    async def drained(self, seconds: float) -> bool:
        """Wait for the end of the output; False when somebody still holds it open after `seconds`."""
        await asyncio.wait({self._drained}, timeout=seconds)
        return self._drained.done()

    def group_is_alive(self) -> bool:
        return self._signal(None)

    async def end(self) -> None:
        """End the group: asked first, killed when it is not gone within the grace."""
        try:
            if self._signal(signal.SIGTERM) and not await self._gone():
                self._signal(signal.SIGKILL)
                await asyncio.wait({self._exit}, timeout=self._grace)
        finally:
            self._signal(signal.SIGKILL)  # also when we are cancelled while we wait
            if self._pipe >= 0:
                self._read()
                self._close_pipe()
            if not self._exit.done():
                await asyncio.wait({self._exit}, timeout=self._grace)

    async def _gone(self) -> bool:
        deadline = self._loop.time() + self._grace
        while self._loop.time() < deadline:
            if self._exit.done() and not self.group_is_alive():
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    def _signal(self, number: signal.Signals | None) -> bool:
        """Whether there was anybody in the group to get the signal."""
        try:
            os.killpg(self._process.pid, number or 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _wait(self) -> int:
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            return await asyncio.to_thread(self._process.wait)
        ended = asyncio.Event()
        self._loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._process.wait()

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._on_output(data)
        else:
            self._close_pipe()

    def _close_pipe(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        if not self._drained.done():
            self._drained.set_result(None)
