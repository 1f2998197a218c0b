"""From an address to an engine whose schema is ours and current.

Opening reads one number and writes nothing when it is the expected one. An empty database gets the schema; an older
one of ours is backed up and brought up in numbered steps; anything else (a home of the reference, a file from the
future, some other program's database) is refused by name and left as it was.
"""

from __future__ import annotations

import os
from pathlib import Path

from hermes_config.errors import UsageError
from hermes_config.home import hermes_home
from hermes_config.limits import Limits
from hermes_state.errors import ForeignHome, FutureSchema, NotADatabase, StateError, StoreUnavailable
from hermes_state.storage import statements
from hermes_state.storage.base import Connection, Engine, scalar

# The reference counts 1, 2, 3 …; ours starts at 100, so that a number tells whose file it is.
OURS_FROM = 100
CURRENT = 107


def default_address() -> str | Path:
    """`HERMES_DATABASE_URL`, else `<home>/state.db`; asked anew each time."""
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
        _bring_up(engine, read_only=read_only)
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
        return Path(address.removeprefix("sqlite:///"))
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
        raise StoreUnavailable(
            "PostgreSQL needs the package psycopg", hint="pip install 'hermes-gateway[postgres]'"
        ) from error
    return postgres.PgEngine(url, read_only=read_only, limits=limits)


def _open_sqlite(path: Path, read_only: bool, synchronous: str, limits: Limits | None) -> Engine:
    from hermes_state.storage import sqlite

    if read_only:
        if not path.exists():
            raise StoreUnavailable("there is no database here", where=str(path))
        return sqlite.SqliteEngine(path, read_only=True, limits=limits)
    sqlite.prepare(path)
    return sqlite.open_shared(path, synchronous=synchronous, limits=limits)


def _bring_up(engine: Engine, *, read_only: bool) -> None:
    found = engine.read(found_version)
    if found == CURRENT:
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
        return
    from hermes_state import migrate

    migrate.migrate(engine, found)


def refuse_foreign(found: int | None, where: str) -> None:
    """Raise when `found` is no version of ours that we can work with."""
    if found is None:
        return
    if found < 0:
        raise NotADatabase("the database holds something else than Hermes", where=where, hint="It was left untouched.")
    if found < OURS_FROM:
        raise ForeignHome(
            f"this database was made by the reference system (schema {found}); it was left untouched",
            where=where,
            hint="Copy it over with `hermes import hermes PATH`, or convert it in place with `hermes state upgrade`.",
        )
    if found > CURRENT:
        raise FutureSchema(
            f"this database has schema {found}, this Hermes knows {CURRENT}; it was left untouched",
            where=where,
            hint="Install the newer Hermes, or restore a backup made by this one.",
        )


def found_version(conn: Connection) -> int | None:
    """The schema's number; None for an empty database, -1 for somebody else's."""
    tables = {row[0] for row in conn.rows(_TABLES[conn.dialect])}
    if "schema_version" in tables:
        return int(scalar(conn.rows("SELECT version FROM schema_version")) or 0)
    if "sessions" in tables and "messages" in tables:
        return 0  # the reference before it counted
    return -1 if tables else None


def _create(conn: Connection) -> None:
    if conn.dialect == "postgresql":
        conn.rows("SELECT pg_advisory_xact_lock(7205759403)")  # two first starts at once
    if found_version(conn) is not None:
        return
    for statement in statements.schema(conn.dialect):
        conn.run(statement)
    conn.run("INSERT INTO schema_version (version) VALUES (?)", (CURRENT,))


_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
}
