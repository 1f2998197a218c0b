"""Keeping a store small: the daily run, and erasing the work rows of deleted conversations.

`run` closes continuations that nobody used and removes empty sessions, rows that were replaced long ago, work that
ended long ago, and, if the operator wants it, old conversations; then it updates the search index and truncates the
write-ahead log. The limits say how long each is kept. Whole sessions are removed only by the careful rules of `prune`.
A replaced row counts from its replacement; undone and summarised rows are not replaced, and stay. Every step is a
series of short transactions; an interrupted run has done some of them and broken nothing.

`erase` removes everything that names a conversation: inbox rows, turns, effect marks, replies, questions, permissions
given in it, what it delegated, its log of commands outside the sandbox, events, its spending tally, prefix epochs and
the bytes only they used. It keeps the highest fence of the conversation, as a number without a name, the total of
prefix breaks, and the cost as part of its days.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state import columns
from hermes_state.ids import ConversationId
from hermes_state.maintenance.dry_run import run_and_roll_back
from hermes_state.people import media_files
from hermes_state.session_db import SessionDB
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Engine, Store
from hermes_state.storage.sqlite import SqliteEngine, truncate_log
from hermes_state.storage.statements import Queries
from hermes_state.transfer import backup
from hermes_state.turns import leases, prefixes

if TYPE_CHECKING:
    from hermes_config.sections import SessionsSection


Q = Queries("retention")

OF_CONVERSATIONS = (
    "outbox", "turns", "approvals", "wall_exits", "events", "prefix_epochs", "prefix_breaks", "leases",
    "live_views", "answer_changes", "processes", "children", "proposals",
)  # fmt: skip
"""Tables whose rows are removed with the conversation they name."""


def erase(conn: Connection, conversation_ids: Iterable[ConversationId]) -> None:
    """Remove every work row of these conversations, in the transaction that removes the conversations."""
    ids = (columns.texts(conversation_ids),)
    if ids == ("[]",):
        return
    conn.run(leases.Q.raise_floor, ids)
    # Rows without a conversation id are found through their turn, so the turns are removed after them.
    for statement in (Q.erase_inbox, Q.erase_prompts, Q.erase_effects, Q.erase_turn_items):
        conn.run(statement, ids)
    for table in OF_CONVERSATIONS:
        conn.run(Q.erase_from.on(table), ids)
    for statement in (
        Q.erase_children, Q.erase_grants, Q.erase_break_counts, Q.erase_tallies, Q.unname_reservations, Q.unname_jobs,
    ):  # fmt: skip
        conn.run(statement, ids)
    prefixes.forget_unused(conn, limit=columns.NO_LIMIT)


def prune(db: SessionDB) -> dict[str, int]:
    """Apply the retention of every work table; returns the rows removed from each. Turns must be last."""
    parts = (
        "events", "live_views", "jobs", "inbox", "outbox", "approvals", "effects", "held_answers", "prefixes",
        "budgets", "processes", "children", "proposals", "turns",
    )  # fmt: skip
    return {part: getattr(db, part).prune() for part in parts}


_BATCH = 500
_LAST_RUN = "last_maintenance"
_FEED_MS = 10_000
_WORTH_COMPACTING = 0.25
"""The share of the file. Free pages are reused before the file grows."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """One step of a run: what was (or would be) done, and how often."""

    step: str
    count: int
    what: str


class _CleanedStore(SessionDB):
    """A store that a run cleans, on any engine."""

    def __init__(self, engine: Engine, db: SessionDB) -> None:
        Store.__init__(self, engine, clock=db.clock, limits=db.limits)

    def steps(self, prune_days: float | None) -> list[RetentionStep]:
        done = [
            RetentionStep("orphans", self.finalize_orphaned_compression_sessions(), "unused continuations closed"),
            RetentionStep("ghosts", self.prune_empty_ghost_sessions(), "empty sessions removed"),
        ]
        if prune_days is not None:
            done.append(_pruned(self.prune_sessions(prune_days), prune_days))
        done.append(RetentionStep("replaced", _remove_replaced(self), "replaced messages removed"))
        done += [RetentionStep(table, count, f"old rows of {table} removed") for table, count in prune(self).items()]
        now = self.clock()
        old_locks = self.engine.write(lambda conn: conn.run(Q.old_locks, (now,)))
        return [*done, RetentionStep("locks", old_locks, "expired compression locks removed")]


def run(
    db: SessionDB,
    *,
    dry_run: bool = False,
    prune_days: float | None = None,
    vacuum: bool = False,
    home: Path | None = None,
) -> list[RetentionStep]:
    """Clean the store; returns the steps that were done, or with `dry_run` would be.

    `prune_days` removes older conversations too, `home` surplus automatic backups and received or sent files.
    """

    def tidy(engine: Engine) -> list[RetentionStep]:
        return _CleanedStore(engine, db).steps(prune_days)

    keep, most, needed = db.limits.backups_kept, db.limits.media_folder_bytes, partial(media_files.needed, db)
    if dry_run:
        would = run_and_roll_back(db.engine, tidy)
        if home is not None:
            media = media_files.surplus(home, most=most, needed=needed)
            would += [_backups(len(backup.surplus(home, keep=keep))), _media(len(media))]
        return would
    done = tidy(db.engine)
    if home is not None:
        done += [_backups(backup.thin_out(home, keep=keep)), _media(media_files.bound(home, most=most, needed=needed))]
        removed = db.processes.remove_folders(home)
        done.append(RetentionStep("process_folders", removed, "folders of ended background processes removed"))
    done.append(RetentionStep("index", db.feed(_FEED_MS), "messages added to or removed from the search index"))
    if vacuum:
        done.append(_compacted(db))
    done.append(_log_emptied(db))
    return done


def run_when_due(db: SessionDB, sessions: SessionsSection, *, home: Path, sessions_dir: Path) -> list[RetentionStep]:
    """Run the maintenance of a long-running process, if the last run, by any process, is long enough ago.

    Old conversations are removed only if `sessions.auto_prune` says so. A database is compacted only if that frees a
    good part of it: nobody can write meanwhile (half a second for 100 MB). Raises the store's errors.
    """
    hours = sessions.min_interval_hours
    if not db.engine.write(lambda conn: meta.claim_run(conn, _LAST_RUN, now=db.clock(), hours=hours)):
        return []
    done = run(db, home=home)
    if sessions.auto_prune:
        pruned = db.maybe_auto_prune_and_vacuum(
            sessions.retention_days, hours, vacuum=False, sessions_dir=sessions_dir
        )["pruned"]
        done.append(_pruned(pruned, sessions.retention_days))
        if pruned:
            compact = sessions.vacuum_after_prune and _free_share(db) >= _WORTH_COMPACTING
            done.append(_compacted(db) if compact else _log_emptied(db))
    return done


def _free_share(db: SessionDB) -> float:
    """The unused share of the file."""
    free, all_pages = db.engine.read(lambda conn: conn.rows(Q.free_pages))[0]
    return float(free / max(all_pages, 1))


def _compacted(db: SessionDB) -> RetentionStep:
    db.vacuum()
    return RetentionStep("vacuum", 1, "database compacted")


def _log_emptied(db: SessionDB) -> RetentionStep:
    return RetentionStep("log", empty_log(db), "bytes of write-ahead log moved into the database")


def _pruned(count: int, days: float) -> RetentionStep:
    return RetentionStep("prune", count, f"sessions older than {days:g} days removed")


def _backups(count: int) -> RetentionStep:
    return RetentionStep("backups", count, "old automatic backups removed")


def _media(count: int) -> RetentionStep:
    return RetentionStep("media", count, "files beyond limits.media_folder_bytes removed, those used longest ago")


def empty_log(store: Store) -> int:
    """Checkpoint and truncate the write-ahead log; returns its size before. 0 while readers still need it."""
    engine = store.engine
    if not isinstance(engine, SqliteEngine):
        return 0
    log = engine.path.with_name(f"{engine.path.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    return size if engine.with_writer(lambda raw: truncate_log(raw, store.limits.checkpoint_wait_ms)) else 0


def _remove_replaced(store: Store) -> int:
    before = store.clock() - store.limits.replaced_days * columns.DAY

    def step(conn: Connection) -> int:
        gone = columns.numbers(row[0] for row in conn.rows(Q.replaced, (before, _BATCH)))
        conn.run(Q.forget, (gone,))
        return conn.run(Q.remove, (gone,))

    removed = 0
    while count := store.engine.write(step):
        removed += count
    return removed
