"""Convert a home of hermes-agent in place.

    1  refuse when a process uses the home; then lock its database, so that none can until the end
    2  back the database up through SQLite (its log included), check the copy and count its rows
    3  build the new database beside the old one, from the backup, with the ordinary import
    4  compare the two row by row
    5  checkpoint the old log and rename the new file over the old

A kill before the rename leaves the old home, openable by hermes-agent; after it, the new one. The backup exists
from step 2 on. A log must never lie beside a file it does not belong to, which is why the old one is emptied
and removed before the rename. The lock is SQLite's own and the kernel's: a process that opens the file meanwhile gets
"locked", and a kill frees it. (Comparing `data_version` before and after is not enough: a checkpoint hides a
foreign write from it.) While it is held nothing here opens the file by other means, which would drop the lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from hermes_config.home import sync_folder
from hermes_config.limits import Limits
from hermes_state.errors import StateError, StoreUnavailable
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.sqlite_errors import translated
from hermes_state.storage.statements import Queries
from hermes_state.transfer import backup, sqlite_copy, tables
from hermes_state.transfer.import_home import in_use, row_mapping, scan, write
from hermes_state.transfer.import_home.scan import HomeScan
from hermes_state.transfer.import_home.source import AgentHome, AlreadyOurs, HomeDatabase
from hermes_state.transfer.import_home.write import ImportOutcome, Tick

Q = Queries("import_home")

Step = Callable[[str], write.Tick | None]
_WAIT_MS = 2_000
_ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The finished upgrade, and how to undo it."""

    backup: Path
    found: scan.HomeScan
    done: write.ImportOutcome


def look(home: Path) -> scan.HomeScan:
    """What an upgrade would do; raises when it is impossible. Nothing is written."""
    database = home / "state.db"
    if not database.is_file():
        raise StoreUnavailable("there is no database to upgrade", where=str(database))
    in_use.refuse_in_use(home)
    try:
        source = HomeDatabase(database)
    except AlreadyOurs as error:
        raise AlreadyOurs("this home already belongs to Hermes; nothing to upgrade", where=str(home)) from error
    with source:
        return scan.scan_home(_as_home(home, database), source)


def upgrade(home: Path, *, step: Step | None = None, limits: Limits | None = None) -> Upgraded:
    """Convert the home. `step` is called with each stage's name and may return a function for progress."""
    look(home)
    database = home / "state.db"
    for leftover in home.glob(".upgrade-*"):  # of an upgrade that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with translated(str(database)):
        old = _locked(database)
        draft: Path | None = None
        try:
            draft = home / f".upgrade-{os.getpid()}-{os.urandom(4).hex()}"
            draft.mkdir(mode=0o700)
            kept = _back_up(old, home, draft, _tick(step, "backing up"))
            new = draft / "state.db"
            found, done = _build(_as_home(home, kept), new, step, limits)
            _swap(old, new, database)
        except OSError as error:  # no space, no permission: before the rename, or after everything
            raise StoreUnavailable(f"the upgrade stopped: {error.strerror}", where=str(home)) from error
        finally:
            old.close()
            if draft is not None:
                shutil.rmtree(draft, ignore_errors=True)
    return Upgraded(kept, found, done)


def _as_home(home: Path, database: Path) -> AgentHome:
    index = home / "sessions" / "sessions.json"
    return AgentHome(home, database, index if index.is_file() else None, whole=True)


def _tick(step: Step | None, what: str) -> write.Tick | None:
    return None if step is None else step(what)


def _back_up(old: apsw.Connection, home: Path, draft: Path, tick: write.Tick | None) -> Path:
    """A copy of the database; it gets its name only after it was checked."""
    copied, folder = draft / "backup.db", home / backup.FOLDER
    sqlite_copy.copy(old, copied, progress=tick)
    folder.mkdir(mode=0o700, exist_ok=True)
    # A killed upgrade may have left a backup of this very second. Nobody else is here: we have the lock.
    named = backup.new_path(folder, stem="state-before-upgrade")
    copied.replace(named)
    sync_folder(folder)
    return named


def _build(
    home: AgentHome, new: Path, step: Step | None, limits: Limits | None
) -> tuple[scan.HomeScan, write.ImportOutcome]:
    """Build, compare and close the new database."""
    assert home.database is not None
    db = SessionDB(new, limits=limits)
    try:
        with HomeDatabase(home.database) as source:
            found = scan.scan_home(home, source)
            done = write.write_home(db, found, tick=_tick(step, "converting"))
            wrong = differences(db, found, done, tick=_tick(step, "comparing"))
    finally:
        db.close()
    if wrong:
        raise StateError(
            f"the new database differs from the old one ({'; '.join(wrong[:3])}); nothing was changed",
            where=str(home.folder),
            hint="Please report this; hermes import hermes PATH into a new home shows more.",
        )
    if Path(f"{new}-wal").exists():
        raise StateError("the new database could not be closed; nothing was changed", where=str(new))
    return found, done


def _locked(database: Path) -> apsw.Connection:
    """The old database, locked for us until it is closed."""
    old = apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)
    try:
        old.set_busy_timeout(_WAIT_MS)
        old.pragma("locking_mode", "exclusive")
        old.execute("BEGIN EXCLUSIVE")  # in this mode the lock stays when the transaction ends
        old.execute("COMMIT")
    except apsw.Error as error:
        old.close()
        if isinstance(error, apsw.BusyError):
            raise in_use.HomeInUse(where=str(database.parent), hint="Stop the other program and try again.") from error
        raise
    return old


def _swap(old: apsw.Connection, new: Path, database: Path) -> None:
    """Replace the old database: remove its log, then rename the new file."""
    old.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    if old.pragma("journal_mode", "delete") != "delete":
        raise StateError("the old write-ahead log cannot be closed; nothing was changed", where=str(database))
    Path(f"{database}-shm").unlink(missing_ok=True)  # left by a crash: nobody uses it, and it must not outlive its log
    old.execute("BEGIN EXCLUSIVE")
    try:
        new.replace(database)
        sync_folder(database.parent)
    finally:
        old.execute("ROLLBACK")


def differences(store: Store, found: HomeScan, done: ImportOutcome, *, tick: Tick | None = None) -> list[str]:
    """Differences after an import into an empty store; at most a screenful.

    Every message is read from both sides and must be equal in every column; every session, conversation and route must
    exist.
    """
    wrong = store.engine.read(lambda conn: _wrong_counts(conn, found, done))
    return (wrong + _wrong_messages(store, found, done, tick))[:_ENOUGH]


def _wrong_counts(conn: Connection, found: HomeScan, done: ImportOutcome) -> list[str]:
    expected = {
        "sessions": len(found.sessions),
        "messages": found.messages - found.lost_messages,
        "routes": len(found.routes),
        "conversations": done.conversations,
    }
    counted = [(table, tables.count(conn, table), wanted) for table, wanted in expected.items()]
    counted.append(("sessions without a conversation", int(scalar(conn.rows(Q.count_homeless))), 0))
    counted.append(("conversations without a tip", int(scalar(conn.rows(Q.count_tipless))), 0))
    return [f"{what}: {stored} instead of {wanted}" for what, stored, wanted in counted if stored != wanted]


def _wrong_messages(store: Store, found: HomeScan, done: ImportOutcome, tick: Tick | None) -> list[str]:
    source = found.source
    if source is None:
        return []
    timed = row_mapping.INSERTED.index("timestamp")
    wrong: list[str] = []
    seen = 0
    for batch in source.messages(row_mapping.MESSAGE):
        between = (batch[0][0] + done.offset, batch[-1][0] + done.offset)
        stored = store.engine.read(partial(_stored, between=between))
        for row in batch:
            wanted = list(row_mapping.message(row, done.offset, 0.0))
            here = stored.get(wanted[0])
            if here is not None and wanted[timed] == 0.0:
                here[timed] = 0.0  # a message without a time got the time of the import
            if row[1] in found.sessions and here != wanted:
                wrong.append(f"message {row[0]} of {row[1]} differs")
        seen += len(batch)
        if tick is not None:
            tick(seen, source.message_count)
        if len(wrong) > _ENOUGH:
            break
    return wrong


def _stored(conn: Connection, between: tuple[int, int]) -> dict[int, list[Any]]:
    return {row[0]: list(row) for row in conn.rows(Q.stored_messages, between)}
