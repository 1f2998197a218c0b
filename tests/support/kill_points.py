"""Every boundary of a process at which it could be killed, found by watching it from outside.

Production code has no seams for this. On SQLite a file system layer (a VFS) put under every connection sees
each write, flush, cut and removal of each file, and a trace sees each statement: between any two of them the
process may die. On PostgreSQL the points are "sent, not answered" and "answered" of each statement that goes
over the wire. Workloads add their own external effects with `effect`.

`Points(fatal=n)` kills its process with SIGKILL at the n-th point; `Points()` only counts. Watching changes
the whole process for good, so it belongs into a child process: `tests.support.sweep` runs one for each.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator
from typing import Any

import apsw


class Points:
    """Counts boundaries; at the fatal one the process is gone."""

    def __init__(self, fatal: int = 0) -> None:
        self.fatal = fatal
        self.count = 0
        self.kinds: Counter[str] = Counter()

    def reached(self, kind: str) -> None:
        self.count += 1
        self.kinds[kind] += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Watch everything this process does to a database from now on."""
        # apsw keeps no reference of its own; without one the layer would vanish under open files.
        self._layer = _WatchedFiles(self)
        apsw.connection_hooks.append(self._trace)
        _watch_wire(self)

    def _trace(self, conn: apsw.Connection) -> None:
        conn.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, self._on_statement, id=self)

    def _on_statement(self, event: dict[str, Any]) -> None:
        """Before each statement, and after those that end a transaction: nothing lies between the others."""
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            self.reached("statement")
        elif event["connection"].get_autocommit():
            self.reached("committed")


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


class _WatchedFile(apsw.VFSFile):
    """One file; each change of it is a boundary."""

    def __init__(self, points: Points, below: str, name: Any, flags: list[int]) -> None:
        self._points = points
        super().__init__(below, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._points.reached("file write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._points.reached("file flush")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._points.reached("file cut")
        super().xTruncate(newsize)


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
