"""The supervisor of one background command: a process of its own, which goes on when Hermes ends.

It forks a keeper (see `supervisor`), which starts the command inside its sandbox and ends everything the command
started. The keeper ends the command when this process dies, also by kill -9; this process ends what a killed keeper
leaves. Each background command has a folder in the Hermes home, which commands cannot see:

- `lock`: locked from before the command starts until the supervisor and the keeper are gone;
- `input`: a pipe, which the command reads; closed with the order `close`;
- `control`: a pipe for orders: `close` or `kill`, one a line;
- `output.N`: the output from byte N on. The first half of the limit stays; of the rest the newest part is kept;
- `status.json`: how it ended, written once, into room that was taken at the start: the output may have filled the disk.
  Without it and without a lock, the process is lost.

This file runs as a program of its own: it imports the standard library and its neighbours, nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from typing import Any

from hermes_agent.execution import landlock, supervisor

LOCK, CONTROL, INPUT, OUTPUT, STATUS = "lock", "control", "input", "output.", "status.json"
_CHUNK = 65_536
_LOOK_SECONDS = 5.0
_DRAIN_SECONDS = 0.3
_A_SECOND = 4 << 20
"""Bytes of output a second; a command that prints faster waits, so that it cannot wear out a disk for hours."""
_STATUS_BYTES = 1024
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The time limit also counts while the machine sleeps."""


def main(lock: int, workdir: int) -> None:
    """Run the command that standard input describes, to its end; say `1` on standard output when it has begun.

    `lock` and `workdir` are descriptors: of the locked file, and of the folder in which the command runs.
    """
    os.set_inheritable(lock, False)
    os.set_inheritable(workdir, False)
    order = json.load(sys.stdin.buffer)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        landlock.adopt_orphans()
    os.chdir(order["folder"])
    with contextlib.suppress(OSError):  # a disk that is full already may have room at the end
        _write_status(b"")
    control = os.open(CONTROL, os.O_RDWR | os.O_NONBLOCK)  # for both, so that it does not end with a sender
    output, writing = os.pipe()
    source = os.open(INPUT, os.O_RDONLY | os.O_NONBLOCK)
    feeding = os.open(INPUT, os.O_WRONLY)  # the command's input ends when this and every sender is closed
    os.set_blocking(source, True)
    keeper = supervisor.fork_keeper(
        order["request"], output=writing, folder=workdir, source=source, others=[control, output, feeding]
    )
    for descriptor in (writing, source, workdir):
        os.close(descriptor)
    keeper.setblocking(False)
    os.set_blocking(output, False)
    with contextlib.suppress(OSError):  # Hermes has been killed meanwhile
        os.write(1, b"1")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    gc.freeze()
    kept = _OutputFiles(order["output_bytes"])
    _finish(_Run(lock, keeper, output, feeding, control, kept, seconds=order["seconds"]).to_the_end(), kept)


def _write_status(text: bytes) -> None:
    """Write over what is there, which needs no more room than `_STATUS_BYTES` that were written at the start."""
    with open(os.open(f"{STATUS}.new", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:  # noqa: PTH123
        file.write(text.ljust(_STATUS_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _finish(ended: dict[str, Any], kept: _OutputFiles) -> None:
    kept.close()
    text = json.dumps(ended | {"output_bytes": kept.size, "ended_at": time.time()}).encode()
    for _ in range(600):  # a full disk may have room again
        if not os.path.exists(LOCK):  # noqa: PTH110 - the folder was removed
            return
        try:
            _write_status(text)
            os.rename(f"{STATUS}.new", STATUS)  # noqa: PTH104
            return
        except OSError:
            time.sleep(1)


class _OutputFiles:
    """The bounded output: a first half that stays, and two files of a quarter each that follow the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = 0
        self._file = -1
        self._room = 0
        self._later: list[str] = []

    def add(self, data: bytes) -> None:
        while data:
            if not self._room and not self._open():
                break
            part = data[: self._room]
            try:
                written = os.write(self._file, part)
            except OSError:  # the disk is full: these bytes are dropped, the next ones go into a new file
                self.close()
                break
            self._room -= written
            self.size += written
            data = data[written:]
        self.size += len(data)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._room = -1, 0

    def _open(self) -> bool:
        self.close()
        name = f"{OUTPUT}{self.size}"
        try:
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:
            return False
        self._room = self._most // 4 if self.size else self._most // 2
        if self.size:
            self._later.append(name)
        if len(self._later) > 2:
            with contextlib.suppress(OSError):
                os.unlink(self._later.pop(0))  # noqa: PTH108
        return True


class _Run:
    def __init__(
        self, lock: int, keeper: Any, output: int, feeding: int, control: int, kept: _OutputFiles, *, seconds: float
    ) -> None:
        self._lock, self._keeper, self._output, self._kept = lock, keeper, output, kept
        self._feeding, self._control = feeding, control
        self._deadline = time.clock_gettime(_CLOCK) + seconds
        self._orders = b""
        self._said = b""
        self._state = ""
        """Why the command was ended: `killed` or `timed_out`; empty while nobody ended it."""
        self._second, self._in_second = 0, 0

    def to_the_end(self) -> dict[str, Any]:
        while self._step():
            pass
        facts = json.loads(self._said) if self._said.endswith(b"\n") else {}
        supervisor.kill_descendants()  # of a keeper that was killed
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._output >= 0 and time.monotonic() < deadline and self._read():
            pass
        if self._state and not facts:
            return {"state": self._state, "exit_code": None, "trouble": ""}
        if not facts:
            return {"state": "lost", "exit_code": None, "trouble": ""}
        return {"state": "exited", "exit_code": facts["code"], "trouble": facts["why"]}

    def _step(self) -> bool:
        """Wait for something and handle it; False when the keeper is gone."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        reading = [self._keeper, self._control]
        if self._output >= 0 and self._in_second < _A_SECOND:
            reading.append(self._output)
        left = self._deadline - time.clock_gettime(_CLOCK)
        slow = self._in_second >= _A_SECOND
        ready, _, _ = select.select(reading, [], [], max(0.0, min(left, 0.1 if slow else _LOOK_SECONDS)))
        if left <= 0:
            self._end("timed_out")
        if not os.fstat(self._lock).st_nlink:  # somebody has removed its folder, perhaps with the whole home
            self._end("killed")
        if self._control in ready:
            self._obey()
        if self._output in ready:
            self._read()
        return self._keeper not in ready or self._hear()

    def _hear(self) -> bool:
        try:
            data = self._keeper.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._said += data
        if self._said.endswith(b"\n") and json.loads(self._said)["left"]:
            # The command has ended; processes that it left running get a moment for their last output, then end.
            deadline = time.monotonic() + _DRAIN_SECONDS
            while self._output >= 0 and (left := deadline - time.monotonic()) > 0:
                select.select([self._output], [], [], left)
                self._read()
            self._order_end()
        return bool(data)

    def _read(self) -> bool:
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            os.close(self._output)
            self._output = -1
            return False
        self._in_second += len(data)
        self._kept.add(data)
        return True

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._orders += os.read(self._control, _CHUNK)
        *lines, self._orders = self._orders.split(b"\n")
        if b"close" in lines and self._feeding >= 0:
            os.close(self._feeding)
            self._feeding = -1
        if b"kill" in lines:
            self._end("killed")

    def _end(self, state: str) -> None:
        if not self._state:
            self._state = state
            self._deadline = float("inf")
            self._order_end()

    def _order_end(self) -> None:
        with contextlib.suppress(OSError):
            self._keeper.shutdown(1)  # the keeper ends the command, and then itself
