"""Copy the whole store: to another database, or to an archive of every row.

The target must be empty. Everything is copied in one transaction of the target, from one snapshot of the source: the
target holds the whole store or nothing, and a kill or an error in between costs only time. Numbers that a database
assigns (message ids, the order of the inbox) continue where the source stopped. A move also reads every row back and
compares it by value before it commits; the source is only read.

Derived data is not copied: the target builds its own search index. Columns and tables of hermes-agent that an import
kept beside our rows are copied (`kept`). Writes to the source during a move are not prevented; the result reports them.

An archive of the whole store is the backup of a PostgreSQL store, and moves any store as one file. Unlike an export it
contains the store's credentials and work in progress, so it is as private as the database itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hermes_state.errors import InvalidValue, StateError
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Engine, Row, Store
from hermes_state.transfer import archive_write, kept, tables
from hermes_state.transfer.archive_read import ArchiveFile
from hermes_state.transfer.archive_write import Progress
from hermes_state.transfer.tables import Table

Rows = Callable[[Table], Iterator[Row]]
"""Every row of a table; each call reads them again."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The result of a move: rows by table, rows it did not copy, and whether the source changed meanwhile."""

    rows: dict[str, int]
    left: dict[str, int]
    source_changed: bool

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def move(source: Engine, target: Engine, *, progress: Progress | None = None) -> MoveResult:
    """Copy all data of `source` into the empty `target`, verified row by row."""
    if source.where == target.where:
        raise InvalidValue("source and target are the same database", where=source.where)
    steps = _Steps(progress)

    def run(theirs: Connection) -> tuple[dict[str, int], list[int], dict[str, int]]:
        counts = _counts(theirs)

        def copy(ours: Connection) -> None:
            steps.begin(2 * sum(counts.values()))
            numbers = {table.name: tables.last_number(theirs, table) for table in tables.every() if table.numbered}
            _fill(ours, target.where, lambda table: tables.rows(theirs, table), numbers, steps)
            kept.fill(ours, lambda table: kept.rows(theirs, table), steps.add)
            for table in tables.every():
                verify(table, tables.rows(theirs, table), tables.rows(ours, table), steps.add)
            for table in kept.EVERY:
                verify(table, kept.rows(theirs, table), kept.rows(ours, table), steps.add)

        target.write(copy)
        return counts, _mark(theirs), kept.not_copied(theirs)

    try:
        copied, before, left = source.read(run, snapshot=True)
    except InvalidValue as error:  # SQLite lets other programs store values that a stricter database refuses
        raise StateError(
            f"a row of {steps.table} cannot be copied ({error.what}); nothing was changed", where=source.where
        ) from error
    after = source.read(lambda conn: (_counts(conn), _mark(conn)))
    return MoveResult(copied, left, source_changed=(copied, before) != after)


def export_store(store: Store, path: Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Write every row of every table; returns the manifest."""

    def files(conn: Connection) -> Iterator[tuple[str, Iterator[archive_write.Line]]]:
        steps = _Steps(progress)
        steps.begin(sum(_counts(conn).values()))

        def lines(table: Table, rows: Iterator[Row]) -> Iterator[archive_write.Line]:
            for row in rows:
                yield dict(zip(table.names, row, strict=True))
                steps.add(1)

        for table in tables.every():
            yield table.name, lines(table, tables.rows(conn, table))
        for table in kept.EVERY:
            if kept.count(conn, table):
                yield table.name, lines(table, kept.rows(conn, table))

    return archive_write.write(store, path, "store", files)


def restore_store(store: Store, path: Path, *, progress: Progress | None = None) -> dict[str, int]:
    """Load a `store` archive into an empty store; returns rows by table."""
    with ArchiveFile(path, store.limits) as source:
        source.require_scope("store")
        source.verify()
        counts = {name.removesuffix(".jsonl"): promise["rows"] for name, promise in source.manifest["files"].items()}
        numbers = {table.name: source.last_number(table.name) for table in tables.every() if table.numbered}
        steps = _Steps(progress)

        def rows(table: Table) -> Iterator[Row]:
            return (tuple(row[name] for name in table.names) for row in source.lines(table.name))

        def run(conn: Connection) -> None:
            steps.begin(sum(counts.values()))
            _fill(conn, store.engine.where, rows, numbers, steps)
            kept.fill(conn, rows, steps.add)

        store.engine.write(run)
    return counts


def _fill(conn: Connection, where: str, rows: Rows, numbers: dict[str, int], steps: _Steps) -> None:
    """Fill every table of a store that must be empty. The database's own bookkeeping rows do not count."""
    for table in tables.every():
        if table.name != "state_meta" and not tables.is_empty(conn, table):
            raise StateError(
                f"the target is not empty ({tables.count(conn, table.name)} rows in {table.name}); nothing was changed",
                where=where,
                hint="Name an empty database.",
            )
    conn.run(meta.Q.clear)
    for table in tables.every():
        steps.table = table.name
        for page in tables.pages(rows(table)):
            tables.fill(conn, table, page)
            steps.add(len(page))
        if table.own_links:
            for page in tables.pages(rows(table)):
                tables.link(conn, table, page)
        if table.numbered:
            tables.set_last_number(conn, table, numbers[table.name])


def verify(table: Table, expected: Iterator[Row], found: Iterator[Row], done: Callable[[int], None]) -> None:
    """Compare two streams of rows by value; the error names the first row that differs."""
    at = [table.names.index(name) for name in table.key]
    for theirs, ours in zip_longest(expected, found):
        if theirs != ours:
            key = ", ".join(str((theirs or ours or ())[i])[:60] for i in at)
            raise StateError(f"{table.name} [{key}] differs after the copy; nothing was changed")
        done(1)


def _counts(conn: Connection) -> dict[str, int]:
    counts = {table.name: tables.count(conn, table.name) for table in tables.every()}
    return counts | {table.name: rows for table in kept.EVERY if (rows := kept.count(conn, table))}


def _mark(conn: Connection) -> list[int]:
    """Changes when something was added, even if as much was removed."""
    return [tables.last_number(conn, table) for table in tables.every() if table.numbered]


class _Steps:
    """The progress of a copy; it restarts when the engine has to repeat the transaction."""

    def __init__(self, progress: Progress | None) -> None:
        self.table = ""
        self._total = self._done = 0
        self._progress = progress

    def begin(self, total: int) -> None:
        self._total, self._done = total, 0

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)
