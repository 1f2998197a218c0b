"""A home of the reference converted in place.

    1  refuse when anybody uses the home; then lock its database, so that nobody can until the end
    2  back the database up through SQLite (its log included), check the copy and count its rows
    3  build the new database beside the old one, from the backup, by the import everybody uses
    4  compare the two row by row
    5  move the old log into the old file and rename the new file over the old

A kill before the rename leaves the home as it was, openable by the reference; after it, the new one. The backup is
there from step 2 on. A log must never lie beside a file it does not belong to, which is why the old one is emptied
and removed before the rename. The lock is SQLite's own and the kernel's: whoever opens the file meanwhile is told that
it is locked, and a kill frees it. (Comparing `data_version` before and after is not enough: a checkpoint hides a
foreign write from it.) While it is held nothing here opens the file by other means, which would drop the lock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from hermes_config.home import sync_folder
from hermes_config.limits import Limits
from hermes_state.errors import StateError, StoreDamaged, StoreUnavailable
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.sqlite_errors import translated
from hermes_state.storage.statements import Queries
from hermes_state.transfer.import_home import in_use, row_mapping, scan, write
from hermes_state.transfer.import_home.scan import Survey
from hermes_state.transfer.import_home.source import AlreadyOurs, Home, Source, quoted
from hermes_state.transfer.import_home.write import Outcome, Tick

Q = Queries("import_home")

Step = Callable[[str], write.Tick | None]
_WAIT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What was done, and the way back."""

    backup: Path
    found: scan.Survey
    done: write.Outcome


def look(home: Path) -> scan.Survey:
    """What an upgrade would do; raises when it could not. Nothing is written."""
    database = home / "state.db"
    if not database.is_file():
        raise StoreUnavailable("there is no database to upgrade", where=str(database))
    in_use.refuse_held(home)
    try:
        source = Source(database)
    except AlreadyOurs as error:
        raise AlreadyOurs("this home is one of ours already; there is nothing to upgrade", where=str(home)) from error
    with source:
        return scan.survey(_as_home(home, database), source)


def upgrade(home: Path, *, step: Step | None = None, limits: Limits | None = None) -> Upgraded:
    """Convert the home. `step` is told what begins and may give a function that hears of progress."""
    look(home)
    database = home / "state.db"
    for leftover in home.glob(".upgrade-*"):  # of an upgrade that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with translated(str(database)):
        old = _locked(database)
        draft: Path | None = None
        try:
            draft = home / f".upgrade-{_stamp()}-{os.getpid()}"
            draft.mkdir(mode=0o700)
            backup = _back_up(old, home, draft, _tick(step, "backing up"))
            new = draft / "state.db"
            found, done = _build(_as_home(home, backup), new, step, limits)
            _swap(old, new, database)
        except OSError as error:  # no space, no permission: before the rename, or after everything
            raise StoreUnavailable(f"the upgrade stopped: {error.strerror}", where=str(home)) from error
        finally:
            old.close()
            if draft is not None:
                shutil.rmtree(draft, ignore_errors=True)
    return Upgraded(backup, found, done)


def _as_home(home: Path, database: Path) -> Home:
    index = home / "sessions" / "sessions.json"
    return Home(home, database, index if index.is_file() else None, whole=True)


def _tick(step: Step | None, what: str) -> write.Tick | None:
    return None if step is None else step(what)


def _back_up(old: apsw.Connection, home: Path, draft: Path, tick: write.Tick | None) -> Path:
    """A copy of the database that is known to be whole; it gets its name only then."""
    path = draft / "backup.db"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    copy = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", old, "main") as backup:
            while not backup.done:
                backup.step(4_096)
                if tick is not None:
                    tick(backup.page_count - backup.remaining, backup.page_count)
        copy.pragma("journal_mode", "delete")  # one file that needs no other
        wrong = _damage(copy)
        if wrong:
            raise StoreDamaged(f"the database is damaged ({wrong}); it was left as it is", where=str(home / "state.db"))
        if _row_counts(copy) != _row_counts(old):
            raise StateError("the backup has not as many rows as the original; nothing was changed", where=str(home))
    finally:
        copy.close()
    folder = home / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    named = _free_name(folder, f"state-before-upgrade-{_stamp()}")
    path.replace(named)
    sync_folder(folder)
    return named


def _free_name(folder: Path, stem: str) -> Path:
    """An upgrade that was killed may have left a backup of this very second. Nobody else is here: we have the lock."""
    path, number = folder / f"{stem}.db", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.db"
    return path


def _damage(raw: apsw.Connection) -> str:
    """The first thing that is wrong with the file; empty for nothing.

    Their full-text indexes do not count: we leave them behind, and a newer SQLite than the one that wrote them finds
    fault with sound ones.
    """
    said = [str(row[0]) for row in raw.execute("PRAGMA integrity_check").fetchall()]
    return next((line for line in said if line != "ok" and " FTS5 table " not in line), "")


def _row_counts(raw: apsw.Connection) -> dict[str, int]:
    tables = [str(row[0]) for row in raw.execute(Q.source_tables.sqlite).fetchall()]
    counts = {}
    for table in tables:
        sql = Q.source_count.sqlite.replace("{table}", quoted(table))
        counts[table] = int(str(raw.execute(sql).fetchall()[0][0]))
    return counts


def _build(home: Home, new: Path, step: Step | None, limits: Limits | None) -> tuple[scan.Survey, write.Outcome]:
    """The new database, complete, compared and closed."""
    assert home.database is not None
    db = SessionDB(new, limits=limits)
    try:
        with Source(home.database) as source:
            found = scan.survey(home, source)
            done = write.bring_over(db, found, tick=_tick(step, "converting"))
            wrong = complaints(db, found, done, tick=_tick(step, "comparing"))
    finally:
        db.close()
    if wrong:
        raise StateError(
            f"the new database does not say what the old one said ({'; '.join(wrong[:3])}); nothing was changed",
            where=str(home.folder),
            hint="Please report this; hermes import hermes PATH into a new home shows more.",
        )
    if Path(f"{new}-wal").exists():
        raise StateError("the new database could not be closed; nothing was changed", where=str(new))
    return found, done


def _locked(database: Path) -> apsw.Connection:
    """The old database, ours alone until it is closed."""
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
    """The moment of truth: the old log is gone, then one rename."""
    old.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    if old.pragma("journal_mode", "delete") != "delete":
        raise StateError("the old write-ahead log cannot be closed; nothing was changed", where=str(database))
    Path(f"{database}-shm").unlink(missing_ok=True)  # of a crash: nobody uses it, and it must not outlive its log
    old.execute("BEGIN EXCLUSIVE")
    try:
        new.replace(database)
        sync_folder(database.parent)
    finally:
        old.execute("ROLLBACK")


def _stamp() -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


_ENOUGH = 20


def complaints(store: Store, found: Survey, done: Outcome, *, tick: Tick | None = None) -> list[str]:
    """What is not as it should be after an import into an empty store; at most a screenful."""
    wrong = store.engine.read(lambda conn: _counts(conn, found, done))
    return (wrong + _messages(store, found, done, tick))[:_ENOUGH]


def _counts(conn: Connection, found: Survey, done: Outcome) -> list[str]:
    expected = {
        "sessions": (len(found.sessions), Q.count_sessions),
        "messages": (found.messages - found.lost_messages, Q.count_messages),
        "routes": (len(found.routes), Q.count_routes),
        "conversations": (done.conversations, Q.count_conversations),
        "sessions without a conversation": (0, Q.count_homeless),
        "conversations without a tip": (0, Q.count_tipless),
    }
    wrong = []
    for what, (wanted, statement) in expected.items():
        stored = scalar(conn.rows(statement))
        if stored != wanted:
            wrong.append(f"{what}: {stored} instead of {wanted}")
    return wrong


def _messages(store: Store, found: Survey, done: Outcome, tick: Tick | None) -> list[str]:
    source = found.source
    if source is None:
        return []
    wrong: list[str] = []
    seen = 0
    for batch in source.messages(row_mapping.MESSAGE):
        between = (batch[0][0] + done.offset, batch[-1][0] + done.offset)
        stored = {row[0]: row for row in _stored(store, between)}
        for row in batch:
            wanted = row_mapping.message(row, done.offset, 0.0)
            if row[1] in found.sessions and not _same(stored.get(wanted[0]), wanted):
                wrong.append(f"message {row[0]} of {row[1]} is not as it was")
        seen += len(batch)
        if tick is not None:
            tick(seen, source.message_count)
        if len(wrong) > _ENOUGH:
            break
    return wrong


def _stored(store: Store, between: tuple[int, int]) -> list[tuple[object, ...]]:
    return store.engine.read(lambda conn: conn.rows(Q.stored_messages, between))


def _same(stored: tuple[object, ...] | None, wanted: tuple[object, ...]) -> bool:
    """A message without a time got the time of the import; everything else is the same."""
    if stored is None:
        return False
    return all(a == b or (at == _TIME and b == 0.0) for at, (a, b) in enumerate(zip(stored, wanted, strict=True)))


_TIME = 11
