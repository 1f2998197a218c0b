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
    """Remembers the inode of one -wal file."""

    def __init__(self, wal_path: str) -> None:
        self._inode = _inode_reader(wal_path)
        self._expected: int | None = None

    def arm(self) -> None:
        """Call inside the first transaction of a connection: SQLite has the log open by then."""
        if self._expected is None:
            self._expected = self._inode()

    def intact(self) -> bool:
        return self._expected is not None and self._inode() == self._expected


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
    statx = ctypes.CDLL(None, use_errno=True).statx
    statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    buffer = ctypes.create_string_buffer(256)  # struct statx
    # stx_ino: after mask, blksize, attributes, nlink, uid, gid, mode and padding
    inode = ctypes.c_uint64.from_buffer(buffer, 32)
    raw = os.fsencode(path)

    def read() -> int | None:
        if statx(at_fdcwd, raw, at_statx_dont_sync, statx_ino, buffer) != 0:
            return None
        return inode.value

    return read
