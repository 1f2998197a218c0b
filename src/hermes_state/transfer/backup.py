"""Backups: made while others write, trusted only after they were opened and checked, restored in one step.

On SQLite a backup is one plain database file, copied from one snapshot of the store (`sqlite_copy`). On PostgreSQL, and
for a name that ends in `.zip`, it is an archive of every row (`copy_all`), which is restored into an empty store. The
files of the home are beside it in a zip (`home_backup`), `config.yaml` and `.env` only on request.

`verify` raises for everything that a restore would refuse: an archive is loaded into a temporary store.

`restore` writes the backup into the database through SQLite itself, in one transaction: killed at any time, the store
is the old or the new one, and a process that opens it meanwhile waits. The replaced content is first copied to the
backups folder. It is refused while anybody else has the store open. The search index belongs to the replaced content
and is deleted; the next search makes a new one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import apsw

from hermes_config.errors import UsageError
from hermes_config.home import sync_folder, write_atomic
from hermes_config.limits import Limits
from hermes_state.errors import (
    BackupRefused,
    IntegrityError,
    InvalidValue,
    NotADatabase,
    StateError,
    StoreDamaged,
    StoreUnavailable,
)
from hermes_state.storage import schema, sqlite
from hermes_state.storage.base import Store
from hermes_state.storage.sqlite import SqliteConnection, SqliteEngine
from hermes_state.storage.sqlite_errors import translated
from hermes_state.transfer import copy_all, home_backup, kept, sqlite_copy, tables

FOLDER = "backups"
AUTOMATIC = "auto-"
_NAMED = 5
_LIST = "hermes backup list shows all backups."
_DAMAGED = (apsw.NotADBError, apsw.CorruptError)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup on disk. `rows` is known after `create` or `verify`."""

    path: Path
    bytes: int
    made_at: float
    rows: dict[str, int] | None = None
    broken_links: int = 0
    """Rows that name a missing row, as other programs leave them; `hermes state check` says more."""
    others: tuple[str, ...] = ()
    """Tables and indexes of other programs, which Hermes does not use."""
    left: dict[str, int] = field(default_factory=dict)
    """Rows of such tables that an archive does not contain, by table; known after `create`."""
    refused: tuple[str, ...] = ()
    """Why a restore refuses it: triggers, views or tables that act on our rows; known after `create`."""

    @property
    def automatic(self) -> bool:
        """Whether Hermes made it before something risky; it removes the oldest when there are too many."""
        return self.path.name.startswith(AUTOMATIC)


def new_path(folder: Path, *, stem: str = "hermes", ending: str = ".db", now: float | None = None) -> Path:
    """A free name: `hermes-20261115-072613.db`; the stems of automatic backups begin with `auto-`."""
    stem = f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"
    number = 1
    path = folder / f"{stem}{ending}"
    while os.path.lexists(path):
        number += 1
        path = folder / f"{stem}-{number}{ending}"
    return path


def create(store: Store, path: Path, *, progress: sqlite_copy.Progress | None = None) -> Backup:
    """Make a verified backup at `path`, which must be free."""
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), hint="Name a new file in it.")
    if os.path.lexists(path):
        raise UsageError("the file already exists", where=str(path), hint="Choose a new name.")
    if not path.parent.is_dir():
        raise UsageError("the folder does not exist", where=str(path.parent), hint="Make it, or name another one.")
    if path.suffix == ".zip":
        copy_all.export_store(store, path, progress=progress)
        return replace(verify(path, limits=store.limits), left=store.engine.read(kept.not_copied))
    if not isinstance(store.engine, SqliteEngine):
        raise UsageError("a backup of a store on PostgreSQL is a zip", where=str(path), hint="End its name in .zip.")
    with sqlite_copy.reading(store.engine.path) as source:
        sqlite_copy.copy(source, path, progress=progress)  # checks every page of the copy before it gets its name
        made = _described(path, _counts(source), _broken_links(source))
        made = replace(made, refused=tuple(sqlite_copy.foreign_objects(SqliteConnection(source)).acting[:_NAMED]))
    write_atomic(_sum_of(path), f"{_digest(path)}  {path.name}\n")  # as `sha256sum -c` reads it
    return made


def verify(path: Path, *, limits: Limits) -> Backup:
    """Open a backup and check all of it; raises when it cannot be restored."""
    if not path.is_file():
        raise BackupRefused("this backup does not exist", where=str(path), hint=_LIST)
    if path.suffix == ".zip":
        return _described(path, _load_into_temporary(path, limits))
    try:
        with sqlite_copy.reading(path) as raw:
            version = schema.found_version(SqliteConnection(raw))
            if version is None:
                raise BackupRefused("this database is empty", where=str(path))
            schema.refuse_foreign(version, str(path))
            sqlite_copy.check_sound(raw, path)
            foreign = sqlite_copy.foreign_objects(SqliteConnection(raw))
            if foreign.acting:
                raise BackupRefused(
                    f"this database has foreign objects that act on our rows: {', '.join(foreign.acting[:_NAMED])}",
                    where=str(path),
                    hint="Nothing was changed. Use a backup of Hermes, or remove these from a copy with sqlite3.",
                )
            found = _described(path, _counts(raw), _broken_links(raw), foreign.inert)
    except (NotADatabase, StoreDamaged) as error:
        error.hint = _LIST  # their own advice is about the store
        raise
    _check_sum(path)
    return found


def _sum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _digest(path: Path) -> str:
    """Of a file that this process has not open as a database: closing it would drop SQLite's locks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_sum(path: Path) -> None:
    """Compare a copy with the checksum beside it, if there is one: SQLite does not notice a changed letter."""
    beside = _sum_of(path)
    if beside.is_file() and beside.read_bytes().split()[:1] != [_digest(path).encode()]:
        raise BackupRefused(
            "it was changed after it was written: its checksum does not fit", where=str(path),
            hint=f"If you changed it on purpose, remove {beside.name}.",
        )  # fmt: skip


def _load_into_temporary(path: Path, limits: Limits) -> dict[str, int]:
    """Load an archive into a temporary database, as valid lines may still contradict each other; rows by table."""
    from hermes_state.session_db import SessionDB

    with (
        tempfile.TemporaryDirectory(prefix="hermes-verify-") as folder,
        closing(SessionDB(Path(folder) / "state.db", synchronous="OFF", limits=limits)) as store,
    ):
        try:
            return copy_all.restore_store(store, path)
        except (IntegrityError, InvalidValue) as error:
            raise BackupRefused(f"its rows contradict each other: {error.what}", where=str(path)) from error


def existing(home: Path) -> list[Backup]:
    """The backups of a home, newest first: its backups folder, and the copies that migrations left beside the database.

    Deleting a conversation does not change them.
    """
    found: list[Path] = []
    for folder, patterns in ((home / FOLDER, ("*.db", "*.zip", "*.bak")), (home, ("*.before-*.bak",))):
        names = [path for pattern in patterns for path in folder.glob(pattern)]
        found += [path for path in names if not path.name.startswith(".")]
    found = [path for path in found if not path.name.endswith(home_backup.ENDING)]
    backups = [_described(path) for path in found if path.is_file()]
    return sorted(backups, key=lambda one: (one.made_at, one.path.name), reverse=True)


def surplus(home: Path, *, keep: int) -> list[Path]:
    """Automatic backups beyond the newest `keep`."""
    return [one.path for one in existing(home) if one.automatic][keep:]


def thin_out(home: Path, *, keep: int) -> int:
    """Remove the surplus; returns its number."""
    gone = surplus(home, keep=keep)
    for path in gone:
        path.unlink(missing_ok=True)
        home_backup.beside(path).unlink(missing_ok=True)
    alone = [path for path in (home / FOLDER).glob(f"{AUTOMATIC}*{home_backup.ENDING}") if not _store_of(path).exists()]
    for path in sorted(alone)[:-keep]:  # files that a restore into PostgreSQL replaced
        path.unlink(missing_ok=True)
    return len(gone)


def _store_of(files: Path) -> Path:
    return files.with_name(files.name.removesuffix(home_backup.ENDING))


def _counts(opened: apsw.Connection) -> dict[str, int]:
    ours = {table.name for table in tables.every()}
    return {table: count for table, count in sqlite_copy.row_counts(opened).items() if table in ours}


def _broken_links(opened: apsw.Connection) -> int:
    return len(opened.execute(sqlite_copy.Q.broken_links.sqlite).fetchall())


def _described(
    path: Path, rows: dict[str, int] | None = None, broken_links: int = 0, others: Sequence[str] = ()
) -> Backup:
    status = path.stat()
    return Backup(path, status.st_size, status.st_mtime, rows, broken_links, tuple(others))


def restore(path: Path, database: Path, *, home: Path, limits: Limits) -> Path | None:
    """Restore the backup to `database`; returns the path in `home` of the replaced content, if any."""
    if path.suffix == ".zip":
        raise UsageError("an archive is not a database file", where=str(path), hint="It goes into an empty store.")
    if path.resolve() == database.resolve():
        raise UsageError("this is the database itself, not a backup of it", where=str(path))
    verify(path, limits=limits)
    sqlite.prepare(database)
    kept = home / FOLDER
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    with sqlite_copy.reading(path) as source, _alone(database, kept) as (target, aside):
        with translated(str(database)):
            if aside is None:
                aside = _keep(target, kept)
            with target.backup("main", source, "main") as copying:
                # In one step: its transaction begins and ends here, and nobody sees anything in between.
                copying.step(-1)
        sqlite_copy.check_sound(target, database)
    drop_search_index(database)
    thin_out(home, keep=limits.backups_kept)
    return aside


def drop_search_index(database: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        database.with_name(f"{database.stem}.search.db{ending}").unlink(missing_ok=True)


@contextmanager
def _alone(database: Path, kept: Path) -> Iterator[tuple[apsw.Connection, Path | None]]:
    """A writing connection to a database that nobody else has open, and the new path of a damaged one."""
    aside = None
    raw = apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)
    try:
        _refuse_other_programs(raw, database)
        # Leaving WAL mode needs exclusive access: any other connection, even an idle one, makes it fail.
        if raw.pragma("journal_mode", "delete") != "delete":
            raise apsw.BusyError
        # Keep the access: newcomers wait, so that nobody writes between the copy and the change.
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
            raw.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # the next access applies the lock
            raw.pragma("journal_mode", "wal")
    finally:
        raw.close()


def _refuse_other_programs(raw: apsw.Connection, database: Path) -> None:
    """Refuse to replace the store of hermes-agent or of another program. An older or newer one of ours is fine."""
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a refusal leaves the file unchanged
    found = schema.found_version(SqliteConnection(raw))
    if found is not None and found < schema.OURS_FROM:
        schema.refuse_foreign(found, str(database))
    raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def _keep(target: apsw.Connection, kept: Path) -> Path | None:
    """Copy the content that is about to be replaced, sound or not; None if there is none."""
    if not target.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        return None
    aside = new_path(kept, stem=f"{AUTOMATIC}replaced")
    sqlite_copy.copy(target, aside, checked=False)
    return aside


def _move_aside(database: Path, kept: Path) -> Path:
    """Move damaged files aside unchanged: SQLite cannot copy what it cannot read."""
    aside = new_path(kept, stem=f"{AUTOMATIC}damaged")
    for ending in ("-wal", "-shm", "-journal", ""):
        part = database.with_name(f"{database.name}{ending}")
        if part.exists():
            shutil.move(part, aside.with_name(f"{aside.name}{ending}"))  # the home may be on another disk
    sync_folder(database.parent)
    return aside
