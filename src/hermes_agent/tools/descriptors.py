"""Opens files by descriptor at exactly the path that was judged, never through a link.

A confined command may replace a folder of the workspace by a link at any time, also between the judgement of a path and
its use. So a path is resolved once, and only that real path is opened, without following links: a component that has
become a link is an error. Every operation in a folder (reading, the draft of a write, its rename, a removal) goes
through the folder's own descriptor.

Every component is opened from the one above it with O_NOFOLLOW.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_SUPPORTED = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class Folder:
    """An open folder; its methods take the names of files directly in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def open(self, name: str) -> int:
        """A descriptor for reading a plain file. Raises `OSError`, also for links and special files."""
        handle = os.open(name, _READ, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "not a plain file")
        return handle

    def status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def entries(self) -> list[tuple[str, bool]]:
        """(name, is a folder) of all entries, sorted."""
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            with os.scandir(handle) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        finally:
            os.close(handle)

    def open_up(self, rights: int) -> bool:
        """Give the owner every right to this folder, if one of `rights` is missing; whether it was."""
        mode = stat.S_IMODE(os.fstat(self._descriptor).st_mode)
        if mode & rights == rights:
            return False
        Path(f"/proc/self/fd/{self._descriptor}").chmod(mode | 0o700)
        return True

    def write(self, name: str, data: bytes, *, mode: int | None, replace: bool) -> None:
        """Write a file in one step. Without `replace`, an existing file is an error.

        `mode`: the file's mode; None for the default.
        """
        draft = f".{name[:100]}.{os.urandom(6).hex()}.tmp"
        handle = os.open(draft, _CREATE, 0o666, dir_fd=self._descriptor)
        try:
            with os.fdopen(handle, "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._put(draft, name, replace)
        except BaseException:
            with suppress(OSError):  # only the first failure is reported
                self._unlink(draft)
            raise

    def _put(self, draft: str, name: str, replace: bool) -> None:
        ours = self._descriptor
        if not replace:
            try:
                os.link(draft, name, src_dir_fd=ours, dst_dir_fd=ours, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
            else:
                self._unlink(draft)
                return
            if self.status(name) is not None:  # a file system without hard links
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.replace(draft, name, src_dir_fd=ours, dst_dir_fd=ours)

    def rename(self, name: str, new: str) -> None:
        """Give a file or folder another name in the same folder."""
        self.move(name, self, new)

    def move(self, name: str, folder: Folder, new: str) -> None:
        """Move a file or folder into another open folder."""
        os.rename(name, new, src_dir_fd=self._descriptor, dst_dir_fd=folder._descriptor)

    def remove(self, name: str) -> None:
        """Remove the file, if it exists."""
        with suppress(FileNotFoundError):
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)


@contextmanager
def opened(path: Path, *, make: bool = False) -> Iterator[Folder]:
    """The open folder at a real path. Raises `OSError`; ELOOP or ENOTDIR if a part of the path has become a link.

    `make`: create missing folders.
    """
    descriptor = folder_at(path, make=make)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)


def folder_at(path: Path, *, make: bool = False) -> int:
    """A descriptor of the folder; every component is opened from the one above it, and no link is followed."""
    descriptor = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:]:
            try:
                below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):  # created meanwhile; the next line checks it
                    os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
