"""Translate SQLite's errors into ours: each says where it happened and what to do now."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import apsw

from hermes_config.home import advice
from hermes_state.errors import (
    IntegrityError,
    NotADatabase,
    StateError,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_MIN_FREE_BYTES = 65_536  # the minimum for SQLite's shared memory beside the file


class translated:  # noqa: N801 - reads as a verb at its call sites
    """`with translated(where)`: turns apsw's errors into ours."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, apsw.Error):
            raise our_error(error, self._where) from error


def our_error(error: apsw.Error, where: str) -> StateError:
    text = str(error)
    if isinstance(error, apsw.ConstraintError):
        return IntegrityError(text, where=where)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(where=where, hint="Try again in a moment.")
    if isinstance(error, apsw.FullError):
        return StoreFull(where=where, hint=_advice(errno.ENOSPC))
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(where=where, hint="Run hermes doctor for the next step.")
    if isinstance(error, apsw.CorruptError):
        return StoreDamaged(text, where=where, hint="Run `hermes state check`, then `hermes backup restore`.")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError, apsw.IOError)):
        return _refused(error, where)
    return StateError(text, where=where)


def _refused(error: apsw.Error, where: str) -> StateError:
    """Ask the file system why SQLite could not use the file; SQLite says little about it."""
    cause = _cause(Path(where))
    if cause == errno.ENOSPC:
        return StoreFull(where=where, hint=_advice(cause))
    if cause == errno.EISDIR:
        return StoreUnavailable("the database's path is a folder", where=where, hint=_advice(cause))
    if cause in (errno.EROFS, errno.EACCES) or isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreReadOnly(where=where, hint=_advice(cause or errno.EACCES))
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable("the database file cannot be opened", where=where, hint=_advice(errno.EACCES))
    return StoreUnavailable(f"reading or writing failed: {error}", where=where, hint=_advice(errno.EIO))


def _cause(file: Path) -> int:
    """The errno of the path's problem; 0 when none is visible. The file itself is never opened."""
    try:
        if file.is_dir():
            return errno.EISDIR
        if file.exists() and not os.access(file, os.R_OK | os.W_OK):
            return errno.EACCES
        filesystem = os.statvfs(file.parent)
    except OSError:
        return 0
    if filesystem.f_flag & os.ST_RDONLY:
        return errno.EROFS
    return errno.ENOSPC if filesystem.f_bavail * filesystem.f_frsize < _MIN_FREE_BYTES else 0


def _advice(number: int) -> str:
    return advice(OSError(number, os.strerror(number)))
