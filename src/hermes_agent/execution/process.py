"""A running child process: reports output by callback, waits for its end, and can end it.

The process itself belongs to a keeper (see `supervisor`). Output and the keeper's report of the end arrive on the event
loop by `add_reader`. Closing our side of the socket orders the keeper to end everything the command started; the
keeper closes its side when nothing is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from hermes_cli import plugins

_CHUNK = 65_536
_CHUNKS = 16
"""The most that a pipe can hold."""
_PLUGIN_END_SECONDS = 10.0


class ChildProcess:
    """A running child. `end` (or leaving the `async with`) leaves no process and no descriptor behind."""

    def __init__(
        self, request: Mapping[str, Any], *, folder: int, on_output: Callable[[bytes], None],
        streams: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """`folder`: a descriptor of the working folder.

        `streams`: where the command reads its input and where its output goes; `on_output` gets its errors then."""
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self.trouble = ""
        """Why the command was ended or not run: `memory`, `processes`, `disk`, or `sandbox` and the failed part."""
        self.undone: list[str] = []
        """The files that the executor restored after the end, one line each."""
        self._left = False
        self._said = b""
        self._pipe, writing = os.pipe()
        self._keeper, theirs = socket.socketpair()
        try:
            body = json.dumps(request).encode("utf-8", "surrogateescape")
            _supervisors[bool(request.get("own_network"))].submit((theirs.fileno(), writing, folder, *(streams or ())))
            theirs.close()  # otherwise we would not notice the keeper's end
            self._keeper.sendall(len(body).to_bytes(4, "big") + body)
        except BaseException:
            os.close(self._pipe)
            self._keeper.close()
            raise
        finally:
            theirs.close()
            os.close(writing)
        os.set_blocking(self._pipe, False)
        self._keeper.setblocking(False)
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._pipe, self._read)
        self._loop.add_reader(self._keeper.fileno(), self._listen)

    async def __aenter__(self) -> ChildProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def exited(self) -> int:
        """The exit status of the command itself; negative for a signal."""
        return await asyncio.shield(self._exit)

    async def ended(self, seconds: float, *events: asyncio.Event) -> int | None:
        """Wait until the command ends, an event is set or the time is up; the exit status, or None if it still runs."""
        waits = [asyncio.ensure_future(one) for one in (self.exited(), *(event.wait() for event in events))]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].result() if waits[0].done() else None
        finally:
            for one in waits:
                one.cancel()

    async def drained(self, seconds: float) -> bool:
        """Wait for the end of the output; False if a process still holds it open after `seconds`."""
        await asyncio.wait({self._drained}, timeout=seconds)
        return self._drained.done()

    @property
    def left_running(self) -> bool:
        """Whether the command left processes running when it ended."""
        return self._left

    async def end(self) -> None:
        """End everything the command started: by a request first, by a kill after the grace period."""
        if self._keeper.fileno() >= 0:
            try:
                self._keeper.shutdown(socket.SHUT_WR)
            except OSError:  # the keeper has ended already
                self._close_keeper()
        try:
            await asyncio.shield(self._gone)
        finally:
            self._close_keeper()
            for _ in range(_CHUNKS):
                if self._pipe < 0 or not self._read():
                    break
            self._close_pipe()

    def _read(self) -> bool:
        """Read one part of the output; whether there was any.

        No more at once: however fast a command prints, other conversations have their turn between.
        """
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._on_output(data)
        else:
            self._close_pipe()
        return bool(data)

    def _listen(self) -> None:
        try:
            while data := self._keeper.recv(_CHUNK):
                self._said += data
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            facts = json.loads(line)
            self._left, self.trouble = bool(facts["left"]), str(facts["why"])
            if not self._exit.done():
                self._exit.set_result(int(facts["code"]))
        if data == b"" or (self._exit.done() and not self._left):  # nothing is left of it
            self._close_keeper()

    def _close_keeper(self) -> None:
        if self._keeper.fileno() >= 0:
            self._loop.remove_reader(self._keeper.fileno())
            self._keeper.close()
        if not self._exit.done():
            self._exit.set_result(-9)
        if not self._gone.done():
            self._gone.set_result(None)

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        if not self._drained.done():
            self._drained.set_result(None)


class PluginProcess:
    """A command run by a plug-in's executor, with the interface of `ChildProcess`."""

    left_running = False

    def __init__(self, running: Coroutine[Any, Any, int]) -> None:
        self.trouble = ""
        self.undone: list[str] = []
        self._task = asyncio.ensure_future(running)

    async def ended(self, seconds: float, *events: asyncio.Event) -> int | None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait((self._task, *waits), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return self._status() if self._task.done() else None

    def _status(self) -> int:
        if self._task.cancelled():
            return -9
        if (error := self._task.exception()) is not None:
            self.trouble = f"sandbox: the executor failed ({type(error).__name__})"
            plugins.complain(error, plugin="executor", action="executor_failed")
            return -9
        return int(self._task.result())

    async def drained(self, seconds: float) -> bool:
        return True

    async def end(self) -> None:
        """Cancel the command and wait, for a bounded time, until the executor confirms its end."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_PLUGIN_END_SECONDS)
        if not self._task.done():
            self.trouble = "sandbox: the executor did not end the command"


class _Supervisor:
    """Our side of the socket to a supervisor. `own_networks`: its commands have only a loopback network."""

    def __init__(self, *, own_networks: bool) -> None:
        self._own_networks = own_networks
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None

    def submit(self, descriptors: tuple[int, ...]) -> None:
        """Pass a request on; start the supervisor at the first request, or again if it has ended."""
        with self._lock:
            for attempt in (1, 2):
                channel = self._channel = self._channel or _start(own_networks=self._own_networks)
                try:
                    socket.send_fds(channel, [b"1"], list(descriptors))
                    return
                except OSError:
                    channel.close()
                    self._channel = None
                    if attempt == 2:
                        raise

    def forget(self) -> None:
        """Drop the socket in a forked child, which must not use it."""
        self._lock = threading.Lock()
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _start(*, own_networks: bool) -> socket.socket:
    ours, theirs = socket.socketpair()
    source = Path(__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from hermes_agent.execution import supervisor\n"
        f"supervisor.main({theirs.fileno()}, own_networks={own_networks})"
    )
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], pass_fds=(theirs.fileno(),), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            env={"PATH": os.defpath},
        )  # fmt: skip
    process.returncode = 0  # nobody waits for the supervisor: it ends when our side of the socket closes
    return ours


_supervisors = {own_networks: _Supervisor(own_networks=own_networks) for own_networks in (False, True)}
"""At most two supervisors a process: for commands with the machine's network, and for those with their own."""
for _one in _supervisors.values():
    os.register_at_fork(after_in_child=_one.forget)
