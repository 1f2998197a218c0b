"""Opening a store: which database it is, its schema version, and migrations.

Opening reads one number and writes nothing when it is the expected one. An empty database gets the schema of release
0.1 and the numbered steps since (`sql/migrations/`); an older database of ours is copied and gets the steps it lacks.
Any other one (a home of hermes-agent, a database from before 0.1 or from the future, another program's) is refused by
name and left unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hermes_config import version
from hermes_config.errors import UsageError
from hermes_config.home import hermes_home
from hermes_config.limits import Limits
from hermes_state.errors import ForeignHome, FutureSchema, NotADatabase, OldSchema, StateError, StoreUnavailable
from hermes_state.storage import statements
from hermes_state.storage.base import Connection, Engine, scalar

# hermes-agent counts 1, 2, 3 …; ours starts at 100, so the number tells whose file it is.
OURS_FROM = 100
OLDEST = 109  # the schema of release 0.1, the oldest that migrations start from
CURRENT = 112

Step = tuple[int, Sequence[str]]  # (the version it reaches, its statements)

Q = statements.Queries("opening")


def default_address() -> str | Path:
    """`HERMES_DATABASE_URL`, else `<home>/state.db`; read anew at each call."""
    return os.environ.get("HERMES_DATABASE_URL") or hermes_home() / "state.db"


def open_engine(
    address: str | Path | None, *, read_only: bool = False, synchronous: str = "FULL", limits: Limits | None = None
) -> Engine:
    if address is None:
        address = default_address()
    if isinstance(address, str) and address.startswith(("postgresql://", "postgres://")):
        engine = _open_postgres(address, read_only, limits)
    else:
        engine = _open_sqlite(_as_path(address), read_only, synchronous, limits)
    try:
        _prepare_schema(engine, read_only=read_only)
    except BaseException:
        close_engine(engine)
        raise
    return engine


def close_engine(engine: Engine) -> None:
    if engine.dialect == "sqlite":
        from hermes_state.storage import sqlite

        if isinstance(engine, sqlite.SqliteEngine):
            sqlite.release(engine)
            return
    engine.close()


def _as_path(address: str | Path) -> Path:
    if isinstance(address, Path):
        return address
    if address.startswith("sqlite:///"):
        path = Path(address.removeprefix("sqlite:///"))
        if not path.is_absolute():  # it would be another database in every folder
            hint = "A whole path makes four slashes: sqlite:////srv/hermes.db."
            raise UsageError(f"{address} does not name a whole path", hint=hint)
        return path
    if "://" in address:
        raise UsageError(
            f"cannot open {address.split('://')[0]}://…",
            hint="Use sqlite:///PATH or postgresql://USER@HOST/DATABASE.",
        )
    return Path(address)


def _open_postgres(url: str, read_only: bool, limits: Limits | None) -> Engine:
    try:
        from hermes_state.storage import postgres
    except ImportError as error:
        hint = version.adding(extra="postgres")
        raise StoreUnavailable("PostgreSQL needs the package psycopg", hint=hint) from error
    return postgres.PgEngine(url, read_only=read_only, limits=limits)


def _open_sqlite(path: Path, read_only: bool, synchronous: str, limits: Limits | None) -> Engine:
    from hermes_state.storage import sqlite

    if read_only:
        if not path.exists():
            raise StoreUnavailable("there is no database here", where=str(path))
        return sqlite.SqliteEngine(path, read_only=True, limits=limits)
    sqlite.prepare(path)
    return sqlite.open_shared(path, synchronous=synchronous, limits=limits)


def _prepare_schema(engine: Engine, *, read_only: bool) -> None:
    found = engine.read(found_version)
    if found == CURRENT:
        if engine.dialect == "postgresql" and not read_only and engine.read(_is_restored_elsewhere):
            engine.write(_renumber_transactions)
        return
    refuse_foreign(found, engine.where)
    if read_only:
        raise StateError(
            "the database has no Hermes schema yet" if found is None else f"the database has the older schema {found}",
            where=engine.where,
            hint="Open it once for writing.",
        )
    if found is None:
        engine.write(_create)
    else:
        migrate(engine, found, statements.migrations(engine.dialect))


def refuse_foreign(found: int | None, where: str) -> None:
    """Raise an error when this Hermes cannot work with schema version `found`."""
    if found is None:
        return
    if found < 0:
        raise NotADatabase("the database belongs to another program", where=where, hint="It was left untouched.")
    if found < OURS_FROM:
        raise ForeignHome(
            f"this database was made by hermes-agent (schema {found}); it was left untouched",
            where=where,
            hint="Copy it over with `hermes import hermes PATH`, or convert it in place with `hermes state upgrade`.",
        )
    if found < OLDEST:
        raise OldSchema(
            f"this database was made before Hermes 0.1 (schema {found}); it was left untouched",
            where=where,
            hint="Export it with a Hermes from before 0.1 and import that here: docs/operators/upgrade.md says how.",
        )
    if found > CURRENT:
        raise FutureSchema(
            f"this database has schema {found}, this Hermes knows {CURRENT}; it was left untouched",
            where=where,
            hint="Install the newer Hermes, or restore a backup made by this one.",
        )


def found_version(conn: Connection) -> int | None:
    """The schema version; None for an empty database, -1 for another program's."""
    tables = {row[0] for row in conn.rows(Q.tables)}
    if "schema_version" in tables:
        return _version(conn)
    if "sessions" in tables and "messages" in tables:
        return 0  # hermes-agent before it had versions
    return -1 if tables else None


def _version(conn: Connection) -> int:
    return int(scalar(conn.rows(Q.version)) or 0)


def _create(conn: Connection) -> None:
    if conn.dialect == "postgresql":
        conn.rows(Q.lock_creation)  # two processes started for the first time at once
    if found_version(conn) is not None:
        return
    for statement in statements.schema(conn.dialect):
        conn.run(statement)
    conn.run(Q.first_version, (CURRENT,))


def _is_restored_elsewhere(conn: Connection) -> bool:
    return bool(scalar(conn.rows(Q.from_another_cluster)))


def _renumber_transactions(conn: Connection) -> None:
    """Renumber transactions after a restore into another cluster, which has not reached the numbers of the rows.

    New rows would sort before the old ones, and neither the search index nor a follower of events would see them.
    """
    if not _is_restored_elsewhere(conn):
        return  # another process was faster
    for statement in (Q.renumber_messages, Q.renumber_events):
        conn.run(statement)
    schema = f"{scalar(conn.rows(Q.current_schema))}_search".replace('"', '""')
    conn.run(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')  # the next search rebuilds the index


# -- from an older schema of ours ----------------------------------------------------------------------------------


def migrate(engine: Engine, found: int, steps: Sequence[Step]) -> Path | None:
    """Migrate the database from schema `found`; returns the verified copy of the SQLite file from before.

    One transaction per step. Each step checks under the write lock whether another process has done it. A step that
    fails leaves the database working at the last version it reached; the error says so.
    """
    due = [step for step in steps if step[0] > found]
    if not due:
        raise StateError(f"there is no migration from schema {found}", where=engine.where)
    copy = _copy_first(engine, found, due[-1][0])
    reached = found
    for step in due:
        try:
            engine.write(_step(*step))
        except StateError as error:
            kept = f" A copy from before is {copy}." if copy else ""
            raise StateError(
                f"the step to schema {step[0]} failed and was undone; the database is still at {reached}: {error.what}",
                where=engine.where,
                hint=f"It still works with the Hermes that wrote it.{kept}",
            ) from error
        reached = step[0]
    return copy


def _step(version: int, script: Sequence[str]) -> Callable[[Connection], None]:
    def run(conn: Connection) -> None:
        if conn.dialect == "postgresql":
            conn.run(Q.lock_version)  # on SQLite there is only one writer
        if _version(conn) < version:
            for statement in script:
                conn.run(statement)
            conn.run(Q.set_version, (version,))

    return run


def _copy_first(engine: Engine, found: int, target: int) -> Path | None:
    """Copy a SQLite file to `<file>.before-<schema>.bak` under its write lock; None if there was nothing to copy."""
    if engine.dialect != "sqlite":
        return None
    from hermes_state.transfer import sqlite_copy  # PostgreSQL works without apsw

    path = Path(engine.where).with_name(f"{Path(engine.where).name}.before-{target}.bak")

    def copy(conn: Connection) -> Path | None:
        if _version(conn) != found:
            return None
        # SQLite cannot copy from a connection inside a write; a reader sees the same data, as we hold the lock.
        engine.read(lambda reader: sqlite_copy.copy(sqlite_copy.raw(reader), path))
        return path

    return engine.write(copy)
