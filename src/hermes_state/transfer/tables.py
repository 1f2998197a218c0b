"""The tables of the store as data: their columns, keys and links.

Read from the schema itself, by creating it in memory, so that a new table is moved and backed up without a change here.
Names come from our own schema and never from outside. Columns that only one engine has (PostgreSQL's `xid`) are not
part of the data.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from hermes_state.storage import schema, statements
from hermes_state.storage.base import Connection, Row, insert_statement, scalar

T = TypeVar("T")
PAGE = 500
# They belong to one database at one time: its schema version, its index's deletions, its turns' live text.
LOCAL = frozenset({"schema_version", "search_forget", "live_views"})
# Each engine derives them in its own way from the row, or needs them for itself.
DERIVED = frozenset({"active_minute", "xid"})


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    kind: str
    """TEXT, INTEGER, REAL or BLOB."""
    required: bool
    default: Any
    """The default value; None without one."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """(column, the table whose key it names)."""
    numbered: bool
    """Whether the database assigns the key, a number that it never assigns twice."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def own_links(self) -> tuple[str, ...]:
        """Columns that name another row of the same table."""
        return tuple(column for column, other in self.links if other == self.name)


@functools.cache
def every() -> tuple[Table, ...]:
    """All tables that hold data, each after the tables its rows name."""
    import apsw

    raw = apsw.Connection(":memory:")
    for statement in statements.schema("sqlite"):
        raw.execute(statement)
    found: dict[str, Table] = {}
    listed: list[Any] = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    for name, text in listed:
        if name not in LOCAL and not name.startswith("sqlite_"):
            found[name] = _described(raw, name, text)
    raw.close()
    return tuple(_in_order(found))


@functools.cache
def named(name: str) -> Table:
    return next(table for table in (*every(), *KEPT) if table.name == name)


def _kept(name: str, /, **columns: str) -> Table:
    described = (TableColumn(one, kind.rstrip("?"), not kind.endswith("?"), None) for one, kind in columns.items())
    return Table(name, tuple(described), key=(), links=(), numbered=False)


KEPT = (
    _kept("kept_columns", session_id="TEXT?", message_id="INTEGER?", name="TEXT", value="TEXT"),
    _kept("kept_rows", table_name="TEXT", columns="TEXT", row_values="TEXT"),
)
"""Not of our schema: see `kept`."""


def _described(raw: Any, name: str, text: str) -> Table:
    info = raw.execute("SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)", (name,)).fetchall()
    links = raw.execute("SELECT [from], [table] FROM pragma_foreign_key_list(?) ORDER BY 1", (name,)).fetchall()
    columns = (
        TableColumn(column, kind, bool(required or pk), _literal(raw, default))
        for column, kind, required, default, pk in info
        if column not in DERIVED
    )
    key = sorted((pk, column) for column, _, _, _, pk in info if pk)
    return Table(name, tuple(columns), tuple(column for _, column in key), tuple(links), "AUTOINCREMENT" in text)


def _literal(raw: Any, default: str | None) -> Any:
    return None if default is None else raw.execute(" ".join(("SELECT", default))).fetchone()[0]


def _in_order(found: dict[str, Table]) -> Iterator[Table]:
    placed: set[str] = set()
    while len(placed) < len(found):
        for table in found.values():
            needed = {other for _, other in table.links} - {table.name}
            if table.name not in placed and needed <= placed:
                placed.add(table.name)
                yield table


# -- statements with names of our schema -------------------------------------------------------------------------


def rows(conn: Connection, table: Table, *, page: int = PAGE) -> Iterator[Row]:
    """Every row, in the order of its key, the same on both engines; at most one page of them in memory."""
    columns, key = ", ".join(table.names), _key(conn, table)
    order = " ".join(("ORDER BY", ", ".join(key), "LIMIT ?"))
    start = " ".join(("SELECT", columns, "FROM", table.name))
    marks = ", ".join("?" * len(key))
    at = [table.names.index(name) for name in table.key]
    found = conn.rows(" ".join((start, order)), (page,))
    while found:
        yield from found
        if len(found) < page:
            return
        after = " ".join((start, "WHERE (", ", ".join(key), ") > (", marks, ")", order))
        found = conn.rows(after, (*(found[-1][i] for i in at), page))


def pages(found: Iterator[T]) -> Iterator[list[T]]:
    """The rows in pages."""
    while page := list(islice(found, PAGE)):
        yield page


def fill(conn: Connection, table: Table, found: Sequence[Row]) -> None:
    """Insert rows without links to rows of the same table; `link` sets these when all rows are stored."""
    blank = {table.names.index(name) for name in table.own_links}
    if blank:
        found = [tuple(None if i in blank else value for i, value in enumerate(row)) for row in found]
    conn.many(insert_statement(table.name, table.names), found)


def link(conn: Connection, table: Table, found: Sequence[Row]) -> None:
    names = table.names
    at = [names.index(name) for name in table.key]
    where = " AND ".join(f"{name} = ?" for name in table.key)
    for column in table.own_links:
        index = names.index(column)
        linked = [(row[index], *(row[i] for i in at)) for row in found if row[index] is not None]
        if linked:
            conn.many(" ".join(("UPDATE", table.name, "SET", column, "= ? WHERE", where)), linked)


def count(conn: Connection, name: str) -> int:
    """The number of rows of a table; its name may come from an import."""
    return int(scalar(conn.rows(" ".join(("SELECT count(*) FROM", quoted(name))))))


def quoted(name: str) -> str:
    """A name from a foreign schema as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def present(conn: Connection) -> list[str]:
    """The tables of a database, ours and others."""
    return sorted(row[0] for row in conn.rows(schema.Q.tables))


def is_empty(conn: Connection, table: Table) -> bool:
    return not conn.rows(" ".join(("SELECT 1 FROM", table.name, "LIMIT 1")))


def last_number(conn: Connection, table: Table) -> int:
    """The highest number that the database ever assigned in this table."""
    if conn.dialect == "sqlite":
        return int(scalar(conn.rows("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,))) or 0)
    given = conn.rows(
        "SELECT pg_sequence_last_value(pg_get_serial_sequence(?, ?)::regclass)", (table.name, table.key[0])
    )
    return int(scalar(given) or 0)


def set_last_number(conn: Connection, table: Table, number: int) -> None:
    """Make the database assign numbers above `number`, and above every existing row."""
    newest = scalar(conn.rows(" ".join(("SELECT max(", table.key[0], ") FROM", table.name)))) or 0
    number = max(number, newest)
    if number <= 0:
        return
    if conn.dialect == "postgresql":
        conn.rows("SELECT setval(pg_get_serial_sequence(?, ?)::regclass, ?)", (table.name, table.key[0], number))
    elif not conn.run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, table.name)):
        conn.run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, number))


def _key(conn: Connection, table: Table) -> list[str]:
    """The key's columns, texts compared by their bytes: a server's language must not change the order."""
    if conn.dialect == "sqlite":
        return list(table.key)
    kinds = {column.name: column.kind for column in table.columns}
    return [f'{name} COLLATE "C"' if kinds[name] == "TEXT" else name for name in table.key]
