"""What SQLite's errors are in our terms: each says where it happened and what to do now."""

from __future__ import annotations

from typing import Any

import apsw

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


class translated:  # noqa: N801 - reads as a verb at its call sites
    """`with translated(where)`: apsw's errors leave as ours."""

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
        return StoreFull(where=where, hint="Free some space and try again.")
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(where=where, hint="Move it away, or point HERMES_HOME elsewhere.")
    if isinstance(error, apsw.CorruptError):
        return StoreDamaged(text, where=where, hint="Run `hermes state check`, then `hermes backup restore`.")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreReadOnly(where=where, hint="Check the owner and mode of the file and its folder.")
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(
            "the database file cannot be opened", where=where, hint="Check that its folder exists and can be written."
        )
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(f"reading or writing failed: {text}", where=where, hint="Check the disk.")
    return StateError(text, where=where)
