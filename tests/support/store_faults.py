"""Trouble with the store, real and for as long as a block lasts: a full disk, a server that is down, a stuck writer.

with SmallDisk("16m") as disk, Storm(home=disk.folder / "home") as storm:
    with disk.full(): ...
    with locked(storm.scene.home / "state.db"): ...
with stopped(server): ...          # a `TestPostgres`, which may lie on a `SmallDisk`
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import apsw

if TYPE_CHECKING:
    from tests.support.stores import TestPostgres

NEEDS_MOUNT = "needs root with the right to mount (CAP_SYS_ADMIN), for a small disk"
_BLOCK = b"x" * (1 << 16)


def may_mount() -> bool:
    probe = ["unshare", "--mount", "true"]
    return os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0


class SmallDisk:
    """A file system of its own, not below pytest's folders: those are removed whatever is mounted there."""

    def __init__(self, size: str) -> None:
        self._size = size

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="hermes-disk-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", self.folder], check=True)
        self.folder.chmod(0o755)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", self.folder], check=True)
        self.folder.rmdir()

    @contextlib.contextmanager
    def full(self, server: TestPostgres | None = None) -> Iterator[None]:
        """Not one byte more can be stored. A server that did not live through it is started when there is room."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(_BLOCK)
        try:
            yield
        finally:
            ballast.unlink()
            if server is not None:
                server.start()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes to the SQLite file, and does not come to its end."""
    holder = apsw.Connection(str(path))
    try:
        holder.set_busy_timeout(10_000)
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")
    finally:
        holder.close()


@contextlib.contextmanager
def stopped(server: TestPostgres) -> Iterator[None]:
    """The PostgreSQL server is down."""
    server.stop()
    try:
        yield
    finally:
        server.start()
