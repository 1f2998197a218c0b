"""Moving a store to another database: SQLite to PostgreSQL, or back.

The target must be empty. Everything is copied in one transaction of the target, from one moment of the source, and
before that transaction commits every row is read back and compared by value; so the target holds the whole store or
nothing, and a kill or an error in between costs only time. The source is read and never written. Numbers that a
database gives out (message ids, the order of the inbox) go on where the source stopped.

What is derived stays behind: the target makes its own search index. A source that is still written to is noticed at
the end and said, not prevented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hermes_state.errors import ArchiveRefused, InvalidValue, StateError
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Engine, Row, Store
from hermes_state.transfer import archive_write, tables
from hermes_state.transfer.archive_import import as_tuple
from hermes_state.transfer.archive_read import ArchiveFile
from hermes_state.transfer.tables import Table

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move copied: rows by table, and whether the source changed meanwhile."""

    rows: dict[str, int]
    source_changed: bool

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def move(source: Engine, target: Engine, *, progress: Progress | None = None) -> Moved:
    """Copy all data of `source` into the empty `target`, verified row by row."""
    if source.where == target.where:
        raise InvalidValue("source and target are the same database", where=source.where)

    steps = _Steps(progress)

    def run(theirs: Connection) -> tuple[dict[str, int], list[int]]:
        copied = target.write(lambda ours: _copy_and_verify(theirs, ours, target.where, steps))
        return copied, _mark(theirs)

    try:
        copied, before = source.read(run, snapshot=True)
    except InvalidValue as error:  # SQLite lets other programs store what a stricter database refuses
        raise StateError(
            f"a row of {steps.table} cannot be copied ({error.what}); nothing was changed", where=source.where
        ) from error
    after = source.read(lambda conn: ({t.name: tables.count(conn, t) for t in tables.every()}, _mark(conn)))
    return Moved(copied, source_changed=(copied, before) != after)


def refuse_filled(conn: Connection, where: str) -> None:
    """Raise unless there is nothing that a copy could mix with. Notes of the database to itself do not count."""
    for table in tables.every():
        if table.name != "state_meta" and not tables.is_empty(conn, table):
            raise StateError(
                f"the target holds rows already ({tables.count(conn, table)} in {table.name}); nothing was changed",
                where=where,
                hint="Give an empty database.",
            )
    conn.run(meta.Q.clear)


def _copy_and_verify(theirs: Connection, ours: Connection, where: str, steps: _Steps) -> dict[str, int]:
    refuse_filled(ours, where)
    counts = {table.name: tables.count(theirs, table) for table in tables.every()}
    steps.begin(2 * sum(counts.values()))
    for table in tables.every():
        steps.table = table.name
        _copy(theirs, ours, table, steps)
    for table in tables.every():
        verify(table, tables.rows(theirs, table), tables.rows(ours, table), steps.add)
    return counts


def _copy(theirs: Connection, ours: Connection, table: Table, steps: _Steps) -> None:
    for page in tables.pages(tables.rows(theirs, table)):
        tables.fill(ours, table, page)
        steps.add(len(page))
    if table.own_links:
        for page in tables.pages(tables.rows(theirs, table)):
            tables.link(ours, table, page)
    if table.numbered:
        tables.set_last_number(ours, table, tables.last_number(theirs, table))


def verify(table: Table, expected: Iterator[Row], found: Iterator[Row], done: Callable[[int], None]) -> None:
    """Compare two streams of rows by value; the first difference is an error that names the row."""
    at = [table.names.index(name) for name in table.key]
    for theirs, ours in zip_longest(expected, found):
        if theirs != ours:
            key = ", ".join(str((theirs or ours or ())[i])[:60] for i in at)
            raise StateError(f"{table.name} [{key}] did not arrive as it left; nothing was changed")
        done(1)


def _mark(conn: Connection) -> list[int]:
    """Moves when something was added, even where as much was removed."""
    return [tables.last_number(conn, table) for table in tables.every() if table.numbered]


class _Steps:
    """How far the copy is; it starts again when the engine has to repeat the transaction."""

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


def export_store(store: Store, path: Path, *, progress: archive_write.Progress | None = None) -> dict[str, Any]:
    """Write every row of every table; the manifest."""

    def files(conn: Connection) -> Iterator[tuple[str, Iterator[archive_write.Line]]]:
        total = sum(tables.count(conn, table) for table in tables.every())
        done = 0

        def counted(table: tables.Table) -> Iterator[archive_write.Line]:
            nonlocal done
            for row in tables.rows(conn, table):
                done += 1
                yield dict(zip(table.names, row, strict=True))
                if progress is not None:
                    progress(done, total)

        for table in tables.every():
            yield table.name, counted(table)

    return archive_write.write(store, path, "store", files)


def restore_store(store: Store, path: Path, *, progress: archive_write.Progress | None = None) -> dict[str, int]:
    """Put a `store` archive into an empty store; rows by table."""
    with ArchiveFile(path, store.limits) as source:
        if source.scope != "store":
            raise ArchiveRefused(
                "this archive holds conversations, not a whole store",
                where=str(path),
                hint="Use `hermes sessions import`.",
            )
        source.verify()
        store.engine.write(lambda conn: _fill(conn, source, store.engine.where, progress))
        return {table.name: source.rows_in(table.name) for table in tables.every()}


def _fill(conn: Connection, source: ArchiveFile, where: str, progress: archive_write.Progress | None) -> None:
    refuse_filled(conn, where)
    done, total = 0, sum(source.rows_in(table.name) for table in tables.every())
    for table in tables.every():
        for page in tables.pages(source.lines(table.name)):
            tables.fill(conn, table, [as_tuple(table.names, row) for row in page])
            done += len(page)
            if progress is not None:
                progress(done, total)
        if table.own_links:
            for page in tables.pages(source.lines(table.name)):
                tables.link(conn, table, [as_tuple(table.names, row) for row in page])
        if table.numbered:
            tables.set_last_number(conn, table, source.last_number(table.name))
