"""What an import found and did, as plain facts: for `--json`, for `report.json`, and for the words a person reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hermes_state.reference.homefiles import Item
from hermes_state.reference.importing import Difference, Outcome
from hermes_state.reference.survey import Survey


def facts(
    found: Survey,
    *,
    done: Outcome | None = None,
    differences: list[Difference] | None = None,
    files: list[Item] | None = None,
    unread: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Everything worth knowing. Without `done` it says what would come over."""
    problems = [asdict(problem) for problem in found.problems]
    if done is not None:
        problems += [{"kind": "link", "which": one, "why": why} for one, why in done.cut.items()]
        problems += [
            {"kind": "title", "which": one, "why": "a conversation of yours has the title and keeps it"}
            for one in done.titles_taken
        ]
    if found.lost_messages:
        problems.append({"kind": "messages", "which": str(found.lost_messages), "why": "their session is not there"})
    size = 0 if found.home.database is None else found.home.database.stat().st_size
    return {
        "home": str(found.home.folder),
        "schema": found.version,
        "database_bytes": size,
        "found": {
            "sessions": len(found.sessions),
            "conversations": found.conversations(),
            "by_source": found.by_source,
            "messages": found.messages,
            "routes": len(found.routes),
            "people": len(found.people),
        },
        "brought": None if done is None else _brought(done),
        "skipped": [] if done is None else done.skipped,
        "different": [asdict(difference) for difference in differences or []],
        "problems": problems,
        "other_tables": found.extra_tables,
        "other_columns": found.extra_columns,
        "left": _left(found, files or []),
        "files": [asdict(item) for item in files or [] if not item.left],
        "unread": unread or {},
    }


def _brought(done: Outcome) -> dict[str, Any]:
    return {
        "sessions": done.sessions,
        "conversations": done.conversations,
        "messages": done.messages,
        "messages_renumbered_by": done.offset,
        "routes": done.routes,
        "routes_kept": done.routes_kept,
        "people": done.people,
        "tables": done.tables,
        "columns": done.columns,
    }


def _left(found: Survey, files: list[Item]) -> dict[str, str]:
    """What does not come, and why."""
    left = {item.name: item.left for item in files if item.left}
    if found.source is not None and found.source.indexes:
        left["full-text indexes"] = "ours are built from the messages"
    return left
