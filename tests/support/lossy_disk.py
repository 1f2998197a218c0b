"""A disk as it is after a power cut: of what was written and not flushed, a random part is missing.

`tests.support.kill_points` reports each open, write, cut, flush and removal of SQLite's files here. The files
themselves are what the kernel shows to readers; this keeps beside them what would be on the platter, and the changes
that no flush has confirmed yet. `lose_power` draws which of those changes arrived, sector by sector, and writes that
over the files. The shared-memory file (`-shm`) never survives. The process must end right after it, by SIGKILL.

Rules of the model, which are SQLite's own assumptions: a flush confirms every change of its file so far, and that the
file exists. The first flush of a new journal or log flushes its folder too, and so confirms removals there. Removals
are in order with what follows them under the same name. A change touches no byte outside of it.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Change:
    """One unconfirmed change: bytes at a place, a new length (`data` is None), or the removal (`at` is -1)."""

    at: int
    data: bytes | None = None


@dataclass(slots=True)
class FileOnDisk:
    """What of a file has been confirmed (None: not even that it exists), and what has not."""

    confirmed: bytearray | None
    pending: list[Change] = field(default_factory=list)

    def confirm(self, count: int) -> None:
        """The first so many changes have arrived."""
        for change in self.pending[:count]:
            self.confirmed = _applied(self.confirmed, change)
        del self.pending[:count]


class LossyDisk:
    """The files of one process. Every method may be called by any thread."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(seed)
        self._files: dict[str, FileOnDisk] = {}
        self._lock = threading.RLock()

    def opening(self, path: str) -> None:
        """Before the file is opened, or made: what is there already counts as confirmed."""
        with self._lock:
            if path not in self._files:  # later ones must not read it: closing it would drop the locks of the others
                there = Path(path)
                self._files[path] = FileOnDisk(bytearray(there.read_bytes()) if there.exists() else None)

    def written(self, path: str, at: int, data: bytes) -> None:
        self._change(path, Change(at, bytes(data)))

    def cut(self, path: str, size: int) -> None:
        self._change(path, Change(size))

    def removed(self, path: str, *, confirmed: bool) -> None:
        with self._lock:
            if path in self._files:
                file = self._files[path]
                file.pending.append(Change(-1))
                if confirmed:
                    file.confirm(len(file.pending))

    def flushed(self, path: str) -> None:
        with self._lock:
            file = self._files[path]
            if file.confirmed is None and path.endswith(("-journal", "-wal")):
                for other in self._files.values():
                    removals = [place for place, change in enumerate(other.pending) if change.at == -1]
                    other.confirm(max(removals, default=-1) + 1)
            file.confirm(len(file.pending))
            if file.confirmed is None:
                file.confirmed = bytearray()

    def lose_power(self) -> None:
        """Leave behind what a power cut would. Never returns the lock: nothing may be written after it."""
        self._lock.acquire()
        for path, file in self._files.items():
            arrives = self._dice.choice((0.0, 0.5, 0.95))
            left = self._survived(file, arrives)
            target = Path(path)
            target.with_name(f"{target.name}-shm").unlink(missing_ok=True)
            if left is None:
                target.unlink(missing_ok=True)
            else:
                target.write_bytes(left)

    def _survived(self, file: FileOnDisk, arrives: float) -> bytearray | None:
        left = file.confirmed
        if left is None and self._dice.random() >= arrives:
            return None
        for change in file.pending:
            if change.data is None:
                if self._dice.random() < arrives:
                    left = _applied(left, change)
                elif change.at == -1:
                    break  # the old file is still there, and what followed was written to another one
                continue
            for start in range(0, len(change.data), SECTOR):
                if self._dice.random() < arrives:
                    left = _applied(left, Change(change.at + start, change.data[start : start + SECTOR]))
        return left

    def _change(self, path: str, change: Change) -> None:
        with self._lock:
            self._files[path].pending.append(change)


def _applied(content: bytearray | None, change: Change) -> bytearray | None:
    if change.at == -1:
        return None
    content = bytearray() if content is None else content
    end = change.at + len(change.data or b"")
    content.extend(bytes(max(end - len(content), 0)))
    if change.data is None:
        del content[change.at :]
    else:
        content[change.at : end] = change.data
    return content
