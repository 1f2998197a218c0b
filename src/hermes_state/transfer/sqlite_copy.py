"""What a SQLite database holds that is not of our schema: triggers, views, virtual tables, changed tables.

A database file is more than its rows. A trigger in it runs inside our own writes (`UPDATE people SET role = 'owner'`),
so a backup is restored only when its schema is ours. Plain tables with other names are inert, because nothing of ours
reads them; homes that were imported have some. They are named, and they are no reason to refuse.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from hermes_state.storage import schema, statements
from hermes_state.storage.base import Connection
from hermes_state.storage.sqlite import SqliteConnection

_UNIQUE = "unique index"
_Shape = dict[tuple[str, str], object]


class ForeignObjects(NamedTuple):
    """`acting` change what our statements do; `inert` are tables and indexes that do not."""

    acting: list[str]
    inert: list[str]


def look(conn: Connection) -> ForeignObjects:
    """Compare a SQLite database of ours with the schema of its version."""
    fresh = apsw.Connection(":memory:")
    try:
        ours = SqliteConnection(fresh)
        for statement in statements.schema("sqlite"):
            ours.run(statement)
        return _compare(conn, _shape(ours))
    finally:
        fresh.close()


def _compare(conn: Connection, ours: _Shape) -> ForeignObjects:
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
            acting.append(f"{what}, which is not as ours is")
    return ForeignObjects(acting, inert)


def _is_plain(name: str, table: object) -> bool:
    """Whether a table has no say in what happens to our rows: it is not virtual, and names none of them.

    `kept_columns` is made by an import, and its rows go with ours.
    """
    return isinstance(table, tuple) and (not table[1] or name == "kept_columns")


def _shape(conn: Connection) -> _Shape:
    """Everything of the schema in a form that can be compared; None for what can act as it likes."""
    found: _Shape = {}
    for kind, name, sql in conn.rows("SELECT type, name, sql FROM sqlite_schema"):
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
    quoted = "'" + name.replace("'", "''") + "'"
    columns = conn.rows(f'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo({quoted})')  # noqa: S608 - quoted
    links = conn.rows(f"PRAGMA foreign_key_list({quoted})")
    return sorted(map(repr, columns)), sorted(map(repr, links))
