"""Figures of a store: conversations, messages, sources, and their size on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries

Q = Queries("stats")


@dataclass(frozen=True, slots=True)
class SourceCount:
    """The figures of one source."""

    source: str
    conversations: int
    messages: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The figures of the whole store. Sizes are bytes; None where the engine has no such thing."""

    where: str
    engine: str
    conversations: int
    archived: int
    segments: int
    messages: int
    oldest: float | None
    newest: float | None
    database_bytes: int
    wal_bytes: int | None
    sources: list[SourceCount]


def store_stats(store: Store) -> StoreStats:
    """Count everything in one snapshot."""

    def run(conn: Connection) -> StoreStats:
        segments, messages, oldest, newest = conn.rows(Q.totals)[0]
        conversations, archived = conn.rows(Q.conversations)[0]
        return StoreStats(
            where=store.engine.where,
            engine=str(scalar(conn.rows(Q.version))),
            conversations=conversations,
            archived=archived,
            segments=segments,
            messages=int(messages),
            oldest=oldest,
            newest=newest,
            database_bytes=int(scalar(conn.rows(Q.size))),
            wal_bytes=_size(f"{store.engine.where}-wal") if conn.dialect == "sqlite" else None,
            sources=[
                SourceCount(name, int(count), int(said), last) for name, count, said, last in conn.rows(Q.by_source)
            ],
        )

    return store.engine.read(run, snapshot=True)


def _size(path: str) -> int:
    """The size from the kernel: opening a database's file would drop SQLite's locks on it."""
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0
