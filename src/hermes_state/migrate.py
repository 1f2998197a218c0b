"""From an older schema of ours to the current one.

Numbered steps (`sql/<dialect>/migrations/NNNN_*.sql`), one transaction each, each of which looks again under the
write lock whether somebody else has done it: of several processes that open an old database at once, one migrates and
the others find it done. Before the first step a SQLite file is copied to `<file>.before-<version>.bak` and the copy is
verified. A step that fails leaves the database at the last number it reached, working; the error says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_config.home import sync_folder
from hermes_state.errors import StateError
from hermes_state.storage import statements
from hermes_state.storage.base import Connection, Engine, scalar


class Step(NamedTuple):
    version: int
    """The number the database has when the step is done."""
    statements: Sequence[str]


def shipped(dialect: str) -> list[Step]:
    """The steps that come with this version, in order."""
    return [
        Step(version, statements.split(statements.script(file))) for version, file in statements.migrations(dialect)
    ]


def migrate(engine: Engine, found: int, steps: Sequence[Step] | None = None) -> Path | None:
    """Bring the database up from schema `found`; the verified copy that was made before, if one was."""
    due = [step for step in (shipped(engine.dialect) if steps is None else steps) if step.version > found]
    if not due:
        raise StateError(f"there is no way from schema {found} to a newer one", where=engine.where)
    copy = _copy_first(engine, found, due[-1].version)
    reached = found
    for step in due:
        try:
            engine.write(_run(step))
        except StateError as error:
            kept = f"A copy from before is {copy}." if copy else ""
            raise StateError(
                f"the step to schema {step.version} failed and was undone; the database is still at {reached}: "
                f"{error.what}",
                where=engine.where,
                hint=f"It still works with the Hermes that wrote it. {kept}".strip(),
            ) from error
        reached = step.version
    return copy


def _run(step: Step) -> Callable[[Connection], None]:
    def run(conn: Connection) -> None:
        if _version(conn, lock=True) >= step.version:
            return  # another process was quicker
        for statement in step.statements:
            conn.run(statement)
        conn.run("UPDATE schema_version SET version = ?", (step.version,))

    return run


def _version(conn: Connection, *, lock: bool = False) -> int:
    if lock and conn.dialect == "postgresql":
        # The number is read under a lock that every migrating process takes; on SQLite the writer is alone.
        conn.run("LOCK TABLE schema_version IN EXCLUSIVE MODE")
    return int(scalar(conn.rows("SELECT version FROM schema_version")) or 0)


def _copy_first(engine: Engine, found: int, target: int) -> Path | None:
    """A verified copy of a SQLite file, made under its write lock; None elsewhere, or when it is migrated already."""
    if engine.dialect != "sqlite":
        return None
    from hermes_state.storage import sqlite

    if not isinstance(engine, sqlite.SqliteEngine):
        return None
    path = engine.path.with_name(f"{engine.path.name}.before-{target}.bak")

    def copy(conn: Connection) -> Path | None:
        if _version(conn) != found:
            return None
        # SQLite does not copy from a connection inside a write; a reader sees the same, as we hold the lock.
        engine.read(lambda reader: _copy(reader, path))
        return path

    try:
        return engine.write(copy)
    except OSError as error:
        raise StateError(
            f"the copy that a migration makes first cannot be written: {error.strerror}",
            where=str(path),
            hint="Nothing was changed. Free some space and check who may write to the folder.",
        ) from error


def _copy(source: Connection, path: Path) -> None:
    import apsw

    from hermes_state.storage.sqlite import SqliteConnection

    assert isinstance(source, SqliteConnection)
    partial = path.with_name(f"{path.name}.partial")
    for leftover in (partial, partial.with_name(f"{partial.name}-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    target = apsw.Connection(str(partial))
    try:
        with target.backup("main", source.raw, "main") as backup:
            backup.step(-1)
        target.pragma("journal_mode", "delete")  # one file, readable anywhere
        _verify(source, SqliteConnection(target), path)
    finally:
        target.close()
    partial.replace(path)
    sync_folder(path.parent)


def _verify(source: Connection, copy: Connection, path: Path) -> None:
    sound = scalar(copy.rows("PRAGMA integrity_check"))
    if sound != "ok":
        raise StateError(f"the copy made before the migration is damaged: {sound}", where=str(path))
    names = [row[0] for row in source.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        count = f"SELECT COUNT(*) FROM {quoted}"  # noqa: S608 - a table's own name, quoted
        if source.rows(count) != copy.rows(count):
            raise StateError(f"the copy made before the migration lacks rows of {name}", where=str(path))
