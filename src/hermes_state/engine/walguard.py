"""Is the write-ahead log still the file we write to?

If somebody removes or replaces `state.db-wal` under an open connection, SQLite goes on writing to a file that no
longer has a name: commits succeed and are lost. So after each commit, before it is acknowledged, we ask the kernel for
the inode behind the path, and for the size. `statx` for these two is answered from memory; a full `stat` makes the file
system settle times too and costs a third of the throughput.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class WalGuard:
    """Remembers the inode of one -wal file.

    `arm` is called inside the first transaction of a connection, when SQLite has the log open; from then on a commit is
    good only while `inode()` gives what it gave then. Each look also notes the log's `size`, which costs nothing more.
    """

    __slots__ = ("_path", "expected", "inode", "size")

    def __init__(self, wal_path: str) -> None:
        self._path = wal_path
        self.expected: int | None = None
        self.inode: Callable[[], int | None]
        self.size: Size

    def arm(self) -> None:
        if self.expected is None:
            self.inode, self.size = _reader(self._path)  # not sooner: a command that only reads needs none
            self.expected = self.inode()

    def intact(self) -> bool:
        return self.expected is not None and self.inode() == self.expected


class _Number:
    """What the reader without statx puts a size into."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Size(Protocol):
    value: int


Reader = tuple[Callable[[], int | None], Size]


def _reader(path: str) -> Reader:
    if sys.platform == "linux":
        try:
            return _statx_reader(path)
        except (AttributeError, OSError):  # a libc without statx
            pass
    return _stat_reader(path)


def _stat_reader(path: str) -> Reader:
    size = _Number()

    def read() -> int | None:
        try:
            status = Path(path).stat()
        except FileNotFoundError:
            return None
        size.value = status.st_size
        return status.st_ino

    return read, size


def _statx_reader(path: str) -> Reader:
    import ctypes

    at_fdcwd, at_statx_dont_sync, statx_ino, statx_size = -100, 0x4000, 0x100, 0x200
    # PyDLL keeps the interpreter lock: the answer comes from memory, sooner than the lock could be given away.
    statx = ctypes.PyDLL(None).statx
    buffer = ctypes.create_string_buffer(256)  # struct statx
    # stx_ino stands after mask, blksize, attributes, nlink, uid, gid, mode and padding; stx_size after it
    inode, size = ctypes.c_uint64.from_buffer(buffer, 32), ctypes.c_uint64.from_buffer(buffer, 40)
    place, name = ctypes.c_int(at_fdcwd), ctypes.c_char_p(os.fsencode(path))
    flags, wanted = ctypes.c_int(at_statx_dont_sync), ctypes.c_uint(statx_ino | statx_size)

    def read() -> int | None:
        return inode.value if statx(place, name, flags, wanted, buffer) == 0 else None

    return read, size
