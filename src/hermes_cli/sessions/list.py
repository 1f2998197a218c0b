"""`hermes sessions list` and `stats`: the conversations, and how much space they take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Verbs, add_offset

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.maintenance.stats import StoreStats

_COLUMNS = output.columns("Title…20", "Preview…", ">Active", "Src", "ID")


def add(verbs: Verbs) -> None:
    listing = verbs.add(
        "list", _list, "list conversations, newest activity first",
        "", "--source {platform} --limit 50", "--archived --json", db=True, json=True, limit=20,
    )  # fmt: skip
    add_offset(listing)
    listing.add_argument("-a", "--all", action="store_true", help="show all conversations")
    listing.add_argument("--source", metavar="NAME", help="only from one source: cli, {platform}, api_server …")
    listing.add_argument("--workspace", metavar="FOLDER", help="only those whose working folder begins with this")
    listing.add_argument("--archived", action="store_true", help="show the archived conversations instead")
    verbs.add("stats", _stats, "count conversations and measure the database", db=True, json=True)


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    filters = {"source": args.source, "cwd_prefix": args.workspace, "archived_only": args.archived}
    total = db.session_count(exclude_children=True, **filters)
    most = total if args.all else args.limit
    rows = db.list_sessions_rich(
        order_by_last_active=True, compact_rows=True, limit=most, offset=args.offset, **filters
    )  # fmt: skip
    if not rows:
        narrowed = args.source or args.workspace or args.archived or args.offset
        return CommandAnswer(rows, "No conversation matches." if narrowed else "There are no conversations yet.")
    more = total > args.offset + len(rows)
    notes = [f"{len(rows)} of {total:,} shown; --all shows the rest."] if more else []
    return CommandAnswer(rows, drawn=lambda: listing(rows), notes=notes)


def listing(rows: Sequence[dict[str, Any]]) -> str:
    """Conversations as a table, one line each."""
    cells = [
        (row["title"] or "—", row["preview"] or "—", text.ago(row["last_active"]), row["source"], row["id"])
        for row in rows
    ]
    return output.table(_COLUMNS, cells)


def _stats(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_state.maintenance import stats

    found, index = stats.store_stats(db), db.search_status()
    return CommandAnswer({**asdict(found), "search_index": index}, drawn=_described(found, index))


def _described(found: StoreStats, index: dict[str, Any]) -> str:
    facts = [
        ("where", found.where),
        ("engine", found.engine),
        ("conversations", f"{found.conversations:,} ({found.archived:,} archived)"),
        ("segments", f"{found.segments:,}"),
        ("messages", f"{found.messages:,}"),
        ("oldest, newest", f"{text.when(found.oldest)}, {text.when(found.newest)}"),
        ("database", text.size(found.database_bytes)),
    ]
    if found.wal_bytes is not None:
        facts.append(("write-ahead log", text.size(found.wal_bytes)))
    behind = f", {text.counted(index['behind'], 'message')} behind" if index["behind"] else ""
    facts.append(("search index", index["note"] or f"{text.size(index['bytes'])}{behind}"))
    shown = output.facts(facts, wide=16)
    if not found.sources:
        return shown
    columns = output.columns("Source", ">Conversations", ">Messages", ">Last active")
    cells = [(row.source, f"{row.conversations:,}", f"{row.messages:,}", text.ago(row.newest)) for row in found.sources]
    return f"{shown}\n\n{output.table(columns, cells)}"
