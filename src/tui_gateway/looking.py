"""Looking for a conversation: by what was said in it, and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state import SessionDB

_FOUND, _LOOKED_AT = 30, 1_000


def said(db: SessionDB, words: str, listed: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Conversations in which the words were said and that are not listed already; `found`: the place, `found_at`: where
    in it they begin."""
    if not words:
        return []
    known, shown = set(listed), []
    rows = db.list_sessions_rich(compact_rows=True, order_by_last_active=True, limit=_LOOKED_AT)
    by_root = {row["root_id"]: row for row in rows}
    for hit in db.search_messages(words, limit=_FOUND):
        root = db.get_conversation_root(str(hit["session_id"]))
        if root in known or root not in by_root:
            continue
        known.add(root)
        marked = str(hit.get("snippet") or "")
        found = {"found": marked.replace(">>>", "").replace("<<<", ""), "found_at": max(marked.find(">>>"), 0)}
        shown.append({**{name: by_root[root].get(name) for name in names}, **found})
    return shown


def add_origins(db: SessionDB, rows: Sequence[dict[str, Any]], shown: Sequence[dict[str, Any]]) -> None:
    """What a conversation branched from (`branch_of`): its title, or its id."""
    for row, one in zip(rows, shown, strict=True):
        parent = (db.get_session(row["root_id"]) or {}).get("parent_session_id")
        if parent:
            tip = db.get_compression_tip(str(parent))  # a title goes with the newest segment
            one["branch_of"] = db.get_session_title(tip) or db.get_session_title(str(parent)) or str(parent)
