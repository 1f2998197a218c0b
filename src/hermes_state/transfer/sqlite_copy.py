"""Verified copies of a SQLite database: made by SQLite itself, then opened, checked and counted.

Backups, upgrades and migrations use `copy`. Nothing else reads an open database file, which would drop SQLite's locks
on it.

A database file is more than its rows. A trigger in it runs inside our own writes (`UPDATE people SET role = 'owner'`),
so a backup is restored only when its schema is ours (`foreign_objects`). Plain tables with other names are inert,
because Hermes does not read them; imported homes have some. They are reported, and do not cause a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes_config.home import advice, replacing
from hermes_state.errors import StateError, StoreDamaged
from hermes_state.storage import schema, statements
from hermes_state.storage.base import Connection
from hermes_state.storage.sqlite import SqliteConnection
from hermes_state.storage.sqlite_errors import translated
from hermes_state.transfer.tables import quoted

Q = statements.Queries("sqlite_copy")

LIVE = "live_views"
Progress = Callable[[int, int], None]
_WAIT_MS = 5_000
_STEP = 256  # pages at a time: small enough that a progress bar moves and nobody waits for us


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A new connection on one snapshot."""
    with translated(str(path)):
        opened = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
        try:
            opened.set_busy_timeout(_WAIT_MS)
            opened.execute("BEGIN")
            opened.execute(Q.schema.sqlite).fetchall()  # take the snapshot now, not at the first copy
            yield opened
        finally:
            opened.close()


def raw(conn: Connection) -> apsw.Connection:
    """The apsw connection behind ours."""
    assert isinstance(conn, SqliteConnection)
    return conn.raw


def copy(source: apsw.Connection, path: Path, *, progress: Progress | None = None, checked: bool = True) -> None:
    """Copy a database to `path`, completely or not at all; `checked`: only if it is sound and has all rows."""
    with drafted(path, "the backup cannot be written: {}; nothing was changed") as draft, translated(str(path)):
        _fill(source, draft, progress, checked)


@contextmanager
def drafted(path: Path, trouble: str) -> Iterator[Path]:
    """Yield an empty private file to fill; at the end of the block it is renamed to `path`, durably, or removed.

    `trouble` is the error when it cannot be written, with {} for the reason.
    """
    try:
        with replacing(path, "xb") as draft:
            yield Path(draft.name)
    except OSError as error:
        raise StateError(trouble.format(error.strerror), where=str(path), hint=advice(error)) from error


def _fill(source: apsw.Connection, draft: Path, progress: Progress | None, checked: bool) -> None:
    target = apsw.Connection(str(draft))
    try:
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_STEP)
                if progress is not None:
                    progress(copying.page_count - copying.remaining, copying.page_count)
        if checked:
            target.pragma("journal_mode", "delete")  # one file that can be opened anywhere
            check_sound(target, draft)
            if row_counts(target) != row_counts(source):
                raise StateError("the copy does not have the same rows; it was removed", where=str(draft))
        if (LIVE,) in target.execute(Q.tables.sqlite).fetchall():  # live text is not part of a copy
            target.pragma("secure_delete", "on")
            target.execute(Q.empty_live.sqlite)
    finally:
        target.close()


def check_sound(opened: apsw.Connection, path: Path) -> None:
    """Raise when pages of the file are damaged.

    Full-text indexes do not count: those of hermes-agent are not imported, ours is in another file, and a newer SQLite
    than the one that wrote them finds fault with sound ones.
    """
    said = [str(row[0]) for row in opened.execute(Q.sound.sqlite).fetchall()]
    for line in said:
        if line != "ok" and " FTS5 table " not in line:
            raise StoreDamaged(f"this database is damaged: {line}", where=str(path), hint="Use an older backup.")


def row_counts(opened: apsw.Connection) -> dict[str, int]:
    """Rows of every table, without virtual ones."""
    counts = {}
    for (table,) in opened.execute(Q.tables.sqlite).fetchall():
        counts[str(table)] = int(str(opened.execute(f"SELECT count(*) FROM {quoted(str(table))}").fetchall()[0][0]))  # noqa: S608
    return counts


# -- objects of other programs -------------------------------------------------------------------------------------

_UNIQUE = "unique index"
_Shape = dict[tuple[str, str], object]


class ForeignObjects(NamedTuple):
    """`acting` change the effect of our statements; `inert` are tables and indexes that do not."""

    acting: list[str]
    inert: list[str]


def foreign_objects(conn: Connection) -> ForeignObjects:
    """Compare a SQLite database with our schema."""
    fresh = apsw.Connection(":memory:")
    try:
        for statement in statements.schema("sqlite"):
            fresh.execute(statement)
        ours = _shape(SqliteConnection(fresh))
    finally:
        fresh.close()
    acting: list[str] = []
    inert: list[str] = []
    current = schema.found_version(conn) == schema.CURRENT
    for (kind, name), found in sorted(_shape(conn).items()):
        wanted = ours.get((kind, name))
        what = f"{kind} {name[:60]}"
        if wanted is None:
            # An older schema of ours may have had a unique index of that name.
            older = kind == _UNIQUE and not current
            harmless = _is_plain(name, found) if kind == "table" else kind == "index" or older
            (inert if harmless else acting).append(what)
        elif found != wanted and (current or kind == "trigger"):  # an older schema has other tables
            acting.append(f"{what}, which differs from ours")
    return ForeignObjects(acting, inert)


def _is_plain(name: str, table: object) -> bool:
    """Whether a table cannot affect our rows: it is not virtual, and names none of them.

    An import creates `kept_columns`, whose rows are deleted with ours.
    """
    return isinstance(table, tuple) and (not table[1] or name == "kept_columns")


def _shape(conn: Connection) -> _Shape:
    """The whole schema in a comparable form; None for virtual tables, which run their own code."""
    found: _Shape = {}
    for kind, name, sql in conn.rows(Q.schema):
        if name.startswith("sqlite_"):
            continue
        text = " ".join(str(sql or "").split())
        if kind == "table":
            found[kind, name] = None if text.upper().startswith("CREATE VIRTUAL") else _table(conn, name)
        elif kind == "index" and text.upper().startswith("CREATE UNIQUE"):
            found[_UNIQUE, name] = text  # a foreign one can refuse our rows
        else:
            found[kind, name] = text
    return found


def _table(conn: Connection, name: str) -> object:
    columns, links = conn.rows(Q.columns, (name,)), conn.rows(Q.links_of, (name,))
    return sorted(map(repr, columns)), sorted(map(repr, links))
