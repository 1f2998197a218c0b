"""Putting a backup back in the place of the store on SQLite.

The old content is written into the database through SQLite itself, in one transaction: killed at any instant, the
store is the one before or the one after, and a process that opens it meanwhile waits. What is replaced is kept in the
backups folder first. Refused while anybody else has the store open. The search index belongs to what was replaced
and goes; the next search makes a new one.

A store on PostgreSQL, and any backup that is an archive, goes into an empty store (`archive_store.restore_store`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hermes_config.errors import UsageError
from hermes_config.home import sync_folder
from hermes_config.limits import Limits
from hermes_state import backup, opening
from hermes_state.errors import StateError, StoreUnavailable
from hermes_state.storage import sqlite
from hermes_state.storage.sqlite import SqliteConnection
from hermes_state.storage.sqlite_errors import translated

_DAMAGED = (apsw.NotADBError, apsw.CorruptError)


def restore(path: Path, database: Path, *, home: Path, limits: Limits) -> Path | None:
    """Make the store at `database` what the backup says; where in `home` the replaced content was put, if any."""
    if path.suffix == ".zip":
        raise UsageError("an archive is not a database file", where=str(path), hint="It goes into an empty store.")
    if path.resolve() == database.resolve():
        raise UsageError("this is the database itself, not a backup of it", where=str(path))
    backup.verify(path, limits=limits)
    sqlite.prepare(database)
    kept = home / backup.FOLDER
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    with backup.reading(path) as source, _alone(database, kept) as (target, aside):
        with translated(str(database)):
            if aside is None:
                aside = _keep(target, kept)
            with target.backup("main", source, "main") as copying:
                # In one step: its transaction begins and ends here, and nothing in between can be seen.
                copying.step(-1)
        backup.check_sound(target, database)
    drop_search_index(database)
    backup.thin_out(home, keep=limits.backups_kept)
    return aside


def drop_search_index(database: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        database.with_name(f"{database.stem}.search.db{ending}").unlink(missing_ok=True)


@contextmanager
def _alone(database: Path, kept: Path) -> Iterator[tuple[apsw.Connection, Path | None]]:
    """A writing connection to a database that nobody else has open, and where a damaged one was moved to."""
    aside = None
    raw = apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)
    try:
        _refuse_other_programs(raw, database)
        # Leaving WAL mode needs the file for oneself: any other connection, even an idle one, makes it fail.
        if raw.pragma("journal_mode", "delete") != "delete":
            raise apsw.BusyError
        # And keeping it: who comes now waits, so that nothing is written between the copy and the change.
        raw.pragma("locking_mode", "exclusive")
        raw.execute("BEGIN EXCLUSIVE")
        raw.execute("COMMIT")
    except apsw.BusyError:
        raw.close()
        raise StoreUnavailable(
            "another process has the store open; nothing was changed",
            where=str(database),
            hint="Stop the gateway and every other hermes command, then try again.",
        ) from None
    except StateError:
        raw.close()
        raise
    except _DAMAGED:
        raw.close()
        aside = _move_aside(database, kept)
        sqlite.prepare(database)
        raw = apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)
    try:
        yield raw, aside
        with translated(str(database)):
            raw.pragma("locking_mode", "normal")
            raw.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # the lock goes with the next access
            raw.pragma("journal_mode", "wal")
    finally:
        raw.close()


def _refuse_other_programs(raw: apsw.Connection, database: Path) -> None:
    """The reference's store, or some other program's, is not ours to replace. A newer one of ours is."""
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a refusal leaves their file as it was
    found = opening.found_version(SqliteConnection(raw))
    if found is not None and found <= opening.CURRENT:
        opening.refuse_foreign(found, str(database))
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def _keep(target: apsw.Connection, kept: Path) -> Path | None:
    """A copy of what is about to be replaced, sound or not; None where there is nothing."""
    if not target.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        return None
    aside = backup.new_path(kept, kind="replaced")
    backup.copy(target, aside, checked=False)
    return aside


def _move_aside(database: Path, kept: Path) -> Path:
    """What SQLite cannot read it cannot copy: the damaged files are kept as they are."""
    aside = backup.new_path(kept, kind="damaged")
    for ending in ("-wal", "-shm", "-journal", ""):
        part = database.with_name(f"{database.name}{ending}")
        if part.exists():
            shutil.move(part, aside.with_name(f"{aside.name}{ending}"))  # the home may lie on another disk
    sync_folder(database.parent)
    return aside
