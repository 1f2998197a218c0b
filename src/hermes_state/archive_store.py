"""A whole store as an archive: every row of every table, with its numbers, as it is.

This is the backup of a store on PostgreSQL, and a way to carry any store as one file. Unlike an export it holds
credentials that the store holds and work in progress, so it is as private as the database itself. It goes into an
empty store only, in one transaction: all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_state import archive, move, tables
from hermes_state.archive_file import ArchiveFile
from hermes_state.archive_import import as_tuple
from hermes_state.errors import ArchiveRefused
from hermes_state.storage.base import Connection, Store


def export_store(store: Store, path: Path, *, progress: archive.Progress | None = None) -> dict[str, Any]:
    """Write every row of every table; the manifest."""

    def files(conn: Connection) -> Iterator[tuple[str, Iterator[archive.Line]]]:
        total = sum(tables.count(conn, table) for table in tables.every())
        done = 0

        def counted(table: tables.Table) -> Iterator[archive.Line]:
            nonlocal done
            for row in tables.rows(conn, table):
                done += 1
                yield dict(zip(table.names, row, strict=True))
                if progress is not None:
                    progress(done, total)

        for table in tables.every():
            yield table.name, counted(table)

    return archive.write(store, path, "store", files)


def restore_store(store: Store, path: Path, *, progress: archive.Progress | None = None) -> dict[str, int]:
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


def _fill(conn: Connection, source: ArchiveFile, where: str, progress: archive.Progress | None) -> None:
    move.refuse_filled(conn, where)
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
