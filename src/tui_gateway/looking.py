"""Looking for a conversation: by what was said in it, and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state import SessionDB

_FOUND = 30


def said(db: SessionDB, words: str, listed: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Conversations in which the words were said and that are not listed already, with the place (`found`)."""
    shown: list[dict[str, Any]] = []
    known = set(listed)
    for hit in db.search_messages(words, limit=_FOUND) if words else ():
        root = db.get_conversation_root(str(hit["session_id"]))
        if root in known:
            continue
        known.add(root)
        rows = db.list_sessions_rich(id_query=root, compact_rows=True, limit=1)
        if rows:
            snippet = str(hit.get("snippet") or "").replace(">>>", "").replace("<<<", "")
            shown.append({**{name: rows[0].get(name) for name in names}, "found": snippet})
    return shown


def add_origins(db: SessionDB, rows: Sequence[dict[str, Any]], shown: Sequence[dict[str, Any]]) -> None:
    """What a conversation branched from (`branch_of`): its title, or its id."""
    for row, one in zip(rows, shown, strict=True):
        parent = (db.get_session(row["root_id"]) or {}).get("parent_session_id")
        if parent:
            one["branch_of"] = db.get_session_title(str(parent)) or str(parent)
