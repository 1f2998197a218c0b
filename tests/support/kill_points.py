"""Every boundary of a process at which it could be killed, found by watching it from outside.

Production code has no seams for this. On SQLite a file system layer (a VFS) put under every connection sees
each write, flush, cut and removal of each file, and a trace sees each statement: between any two of them the
process may die. On PostgreSQL the points are "sent, not answered" and "answered" of each statement that goes
over the wire. Connections to a model and to the process that runs tools are points where bytes are sent or have come.
Workloads add their own external effects with `effect`.

`Points(fatal=n)` kills its process with SIGKILL at the n-th point; `Points()` only counts. With a `LossyDisk` the power
is gone too: of what SQLite wrote and did not flush, a random part is missing afterwards. Watching changes the whole
process for good, so it belongs into a child process: `tests.support.sweep` runs one for each, `in_child` a smaller one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Generator
from typing import Any

import apsw
from tests.support.lossy_disk import LossyDisk


class Points:
    """Counts boundaries; at the fatal one the process is gone."""

    def __init__(self, fatal: int = 0, disk: LossyDisk | None = None) -> None:
        self.fatal = fatal
        self.disk = disk
        self.met: list[str] = []
        """The kind of each, in order."""

    def reached(self, kind: str) -> None:
        self.met.append(kind)
        if self.count == self.fatal:
            if self.disk is not None:
                self.disk.lose_power()
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def count(self) -> int:
        return len(self.met)

    def watch(self) -> None:
        """Watch everything this process does to a database, and says over sockets, from now on."""
        # apsw keeps no reference of its own; without one the layer would vanish under open files.
        self._layer = _WatchedFiles(self)
        apsw.connection_hooks.append(self._trace)
        _watch_wire(self)
        _watch_sockets(self)

    def _trace(self, conn: apsw.Connection) -> None:
        conn.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, self._on_statement, id=self)

    def _on_statement(self, event: dict[str, Any]) -> None:
        """Before each statement, and after those that end a transaction: nothing lies between the others."""
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            self.reached("statement")
        elif event["connection"].get_autocommit():
            self.reached("committed")


def in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """(exit status, what it returned, None when it was killed) of some work in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.write(write, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a forked child must never return into pytest
            traceback.print_exc(file=sys.stderr)
            os._exit(3)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    return os.waitpid(child, 0)[1], json.loads(said) if said else None


def points_in_child(work: Callable[[], object], *, fatal: int = 0) -> int:
    """How many points a forked process met in its work; 0 when it was killed at the one that was to be fatal."""

    def watched() -> int:
        points = Points(fatal)
        points.watch()
        work()
        return points.count

    status, met = in_child(watched)
    assert status == (signal.SIGKILL if met is None else 0), "it failed"
    return met or 0


class _WatchedFiles(apsw.VFS):
    """The default file system of every SQLite connection opened after it was made."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._below = apsw.vfs_names()[0]  # the default so far
        super().__init__("hermes-watched", self._below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _WatchedFile(self._points, self._below, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._points.reached("file removal")
        super().xDelete(filename, syncdir)
        if self._points.disk is not None:
            self._points.disk.removed(filename, confirmed=syncdir)


class _WatchedFile(apsw.VFSFile):
    """One file; each change of it is a boundary."""

    def __init__(self, points: Points, below: str, name: Any, flags: list[int]) -> None:
        self._points = points
        self._path = "" if name is None else name if isinstance(name, str) else name.filename()
        self._disk = points.disk if self._path else None  # a file without a name is gone with its process
        if self._disk is not None:
            self._disk.opening(self._path)
        super().__init__(below, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._points.reached("file write")
        super().xWrite(data, offset)
        if self._disk is not None:
            self._disk.written(self._path, offset, data)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._points.reached("file flush")
        super().xSync(flags)
        if self._disk is not None:
            self._disk.flushed(self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._points.reached("file cut")
        super().xTruncate(newsize)
        if self._disk is not None:
            self._disk.cut(self._path, newsize)


def _watch_wire(points: Points) -> None:
    """Split psycopg's "send and wait for the answer" in two, with a boundary after each half."""
    from psycopg import _cursor_base, generators  # only a workload on PostgreSQL needs the package

    def execute(pgconn: Any) -> Generator[Any, Any, Any]:
        yield from generators.send(pgconn)
        points.reached("sent")
        results = yield from generators.fetch_many(pgconn)
        points.reached("answered")
        return results

    _cursor_base.execute = execute  # type: ignore[attr-defined]


def _watch_sockets(points: Points) -> None:
    """A boundary before and after all that is sent, and after all that came: to a model, or to what runs tools.

    This sees Python's own sockets: those of asyncio's loop, not of uvloop and libpq.
    """

    def kind(of: socket.socket) -> str:
        return "tool child" if of.family == socket.AF_UNIX else "model socket"

    def sent(send: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: socket.socket, data: Any, *rest: Any) -> Any:
            if data == _WAKE_UP:
                return send(self, data, *rest)
            points.reached(kind(self))
            done = send(self, data, *rest)
            points.reached(kind(self))
            return done

        return watched

    def received(receive: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: socket.socket, *how: Any) -> Any:
            data = receive(self, *how)
            if data.strip(_WAKE_UP):
                points.reached(kind(self))
            return data

        return watched

    for name in ("send", "sendall", "sendmsg"):
        setattr(socket.socket, name, sent(getattr(socket.socket, name)))
    socket.socket.recv = received(socket.socket.recv)  # type: ignore[method-assign]


_WAKE_UP = b"\0"
"""What asyncio's loop sends to itself."""
