"""Unknown columns and tables that an import of hermes-agent kept beside our rows.

Hermes does not use them, and moving or archiving a store keeps them. Columns are rows of `kept_columns` on both
engines. A table is stored in SQLite under its own name; elsewhere its rows are in `kept_rows`, as JSON, until they come
to a SQLite store again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from hermes_state.storage.base import Connection, Row, insert_statement, scalar
from hermes_state.storage.statements import Queries
from hermes_state.transfer import tables
from hermes_state.transfer.tables import Table

Q = Queries("kept")

COLUMNS, ROWS = EVERY = tables.KEPT


def rows(conn: Connection, table: Table) -> Iterator[Row]:
    """The rows of one of the two tables, one page in memory, in the same order on both engines."""
    present = tables.present(conn)
    if table is COLUMNS and COLUMNS.name in present:
        yield from _paged(lambda last: conn.rows(Q.columns_of_sessions, (*last, tables.PAGE)), ("", ""), (0, 2))
        yield from _paged(lambda last: conn.rows(Q.columns_of_messages, (*last, tables.PAGE)), (0, ""), (1, 2))
    elif table is ROWS and ROWS.name in present:
        for _, *row in _paged(lambda last: conn.rows(Q.rows, (*last, tables.PAGE)), (0,), (0,)):
            yield tuple(row)
    elif table is ROWS and conn.dialect == "sqlite":
        for name in _plain_tables(conn):
            yield from _rows_of(conn, name)


def count(conn: Connection, table: Table) -> int:
    if table.name in tables.present(conn):
        return tables.count(conn, table.name)
    plain = _plain_tables(conn) if table is ROWS and conn.dialect == "sqlite" else []
    return sum(tables.count(conn, name) for name in plain)


def fill(conn: Connection, rows: Callable[[Table], Iterator[Row]], done: Callable[[int], None]) -> None:
    """Fill both in a store that has none; on SQLite the tables are created again."""
    made = False
    for page in tables.pages(rows(COLUMNS)):
        if not made:
            made = True
            make_columns(conn)
        conn.many(Q.insert_column, page)
        done(len(page))
    number = 0
    for (name, declared), group in groupby(rows(ROWS), key=lambda row: (row[0], row[1])):
        insert = _make_again(conn, name, declared) if conn.dialect == "sqlite" else None
        if insert is None and not number:
            conn.run(Q.make_rows)
        for page in tables.pages(group):
            if insert is not None:
                conn.many(insert, [_values(row[2]) for row in page])
            else:
                conn.many(Q.insert_row, [(number + i, *row) for i, row in enumerate(page, 1)])
                number += len(page)
            done(len(page))


def make_columns(conn: Connection) -> None:
    for statement in (Q.make_columns, Q.index_of_sessions, Q.index_of_messages):
        conn.run(statement)


def not_copied(conn: Connection) -> dict[str, int]:
    """Rows of others' tables (virtual ones, on PostgreSQL all in the schema), and of others' columns in our tables."""
    known = tables.LOCAL | {table.name for table in (*tables.every(), *tables.KEPT)}
    if conn.dialect == "sqlite":
        known |= set(_plain_tables(conn)) | {row[0] for row in conn.rows(Q.shadow_tables)}
    found = [name for name in tables.present(conn) if name not in known and not name.startswith("sqlite_")]
    counts = {name: tables.count(conn, name) for name in found}
    for table in tables.every():
        there = {str(row[0]) for row in conn.rows(Q.columns_of, (table.name,))}
        for column in sorted(there - {*table.names, *tables.DERIVED}):
            held = f"SELECT count({tables.quoted(column)}) FROM {table.name}"  # noqa: S608 - a name that the database told
            counts[f"{table.name}.{column}"] = scalar(conn.rows(held))
    return {name: rows for name, rows in counts.items() if rows}


def _paged(read: Callable[[tuple[Any, ...]], list[Row]], last: tuple[Any, ...], key: tuple[int, ...]) -> Iterator[Row]:
    while page := read(last):
        yield from page
        if len(page) < tables.PAGE:
            return
        last = tuple(page[-1][i] for i in key)


def _plain_tables(conn: Connection) -> list[str]:
    ours = tables.LOCAL | {table.name for table in (*tables.every(), *tables.KEPT)}
    return sorted(row[0] for row in conn.rows(Q.plain_tables) if row[0] not in ours)


def _rows_of(conn: Connection, name: str) -> Iterator[Row]:
    declared = json.dumps([[column, _word(kind)] for column, kind in conn.rows(Q.columns_of, (name,))])
    read = " ".join(("SELECT _rowid_, * FROM", tables.quoted(name), "WHERE _rowid_ > ? ORDER BY _rowid_ LIMIT ?"))
    for _, *values in _paged(lambda last: conn.rows(read, (*last, tables.PAGE)), (-(2**63),), (0,)):
        yield name, declared, json.dumps([_said(value) for value in values])


def _make_again(conn: Connection, name: str, declared: str) -> str | None:
    """Create a table again; returns the statement to fill it. None for a name that the store uses itself."""
    if name.startswith("sqlite_") or name in tables.present(conn) or name in tables.LOCAL:
        return None
    columns = [(str(column), _word(str(kind))) for column, kind in json.loads(declared)]
    made = ", ".join(f"{tables.quoted(column)} {kind}" for column, kind in columns)
    conn.run(" ".join(("CREATE TABLE", tables.quoted(name), "(", made, ")")))
    return insert_statement(tables.quoted(name), [tables.quoted(column) for column, _ in columns])


def _word(kind: str) -> str:
    """A declared type without its size and without any SQL."""
    return "".join(filter(str.isalpha, kind))


def _said(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, (bytes, memoryview)) else value


def _values(text: str) -> tuple[Any, ...]:
    return tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in json.loads(text))
