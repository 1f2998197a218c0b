"""Is the write-ahead log still the file we write to?

If somebody removes or replaces `state.db-wal` under an open connection, SQLite goes on writing to a file that no
longer has a name: commits succeed and are lost. So after each commit, before it is acknowledged, we ask the kernel
for the inode behind the path. `statx` with STATX_INO alone is answered from memory; a full `stat` makes the file
system settle sizes and times and costs a third of the throughput.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path


class WalGuard:
    """Remembers the inode of one -wal file.

    `expected` is set inside the first transaction of a connection, when SQLite has the log open; from then on a commit
    is good only while `inode()` says the same.
    """

    __slots__ = ("expected", "inode")

    def __init__(self, wal_path: str) -> None:
        self.inode = _inode_reader(wal_path)
        self.expected: int | None = None


def _inode_reader(path: str) -> Callable[[], int | None]:
    if sys.platform == "linux":
        try:
            return _statx_reader(path)
        except (AttributeError, OSError):  # a libc without statx
            pass
    return lambda: _stat_inode(path)


def _stat_inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None


def _statx_reader(path: str) -> Callable[[], int | None]:
    import ctypes

    at_fdcwd, at_statx_dont_sync, statx_ino = -100, 0x4000, 0x100
    # PyDLL keeps the interpreter lock: the answer comes from memory, sooner than the lock could be given away.
    statx = ctypes.PyDLL(None).statx
    buffer = ctypes.create_string_buffer(256)  # struct statx
    # stx_ino: after mask, blksize, attributes, nlink, uid, gid, mode and padding
    inode = ctypes.c_uint64.from_buffer(buffer, 32)
    place, name = ctypes.c_int(at_fdcwd), ctypes.c_char_p(os.fsencode(path))
    flags, wanted = ctypes.c_int(at_statx_dont_sync), ctypes.c_uint(statx_ino)

    def read() -> int | None:
        return inode.value if statx(place, name, flags, wanted, buffer) == 0 else None

    return read
