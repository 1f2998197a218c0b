"""Which rows of an old home are one conversation, and which of them is its tip.

The same rules that `chain` holds row by row, worked out for a whole home at once: a child of a row that ended by
compression continues it, unless it is a branch, a delegation or a tool's; where several do, the one that went on
itself is preferred, then a live one, then the newest. Files from before the marks existed say by their times what a
child was. Pure: no database, no writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_state import columns

LISTED = ("new", "branch", "reset")
_MARKS_SINCE = 16


@dataclass(frozen=True, slots=True)
class Outside:
    """A row that is in our store already and may be a parent."""

    root: str
    end_reason: str | None


@dataclass(slots=True)
class Lineage:
    """Every session's conversation, every conversation's tip; sessions in an order where parents come first."""

    kinds: dict[str, str] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    tips: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)
    """Session → why its link to a parent could not be kept."""


def mark_old_children(rows: Iterable[dict[str, Any]], version: int) -> int:
    """In a file from before the marks: note which children were branches and which delegations, by their times.

    Their own upgrade also hides parentless short rows with tool calls, which may have been delegations; we do not
    guess where a wrong guess would hide somebody's conversation.
    """
    if version >= _MARKS_SINCE:
        return 0
    by_id = {row["id"]: row for row in rows}
    marked = 0
    for row in by_id.values():
        parent = by_id.get(row["parent_session_id"])
        marks = columns.decode_json(row["model_config"])
        marks = dict(marks) if isinstance(marks, dict) else {}
        if parent is None or marks.get("_delegate_from") or marks.get("_branched_from"):
            continue
        after_its_end = parent["ended_at"] is not None and row["started_at"] >= parent["ended_at"]
        if after_its_end and parent["end_reason"] == "compression":
            continue
        mark = "_branched_from" if after_its_end and parent["end_reason"] == "branched" else "_delegate_from"
        row["model_config"] = columns.encode_json(marks | {mark: parent["id"]})
        marked += 1
    return marked


def kind_of(row: Mapping[str, Any]) -> str:
    """What a row is to its parent. The marks count also where the parent is gone."""
    marks = columns.decode_json(row["model_config"])
    if isinstance(marks, dict):
        if marks.get("_delegate_from"):
            return "delegate"
        if marks.get("_branched_from"):
            return "branch"
    return "new" if row["parent_session_id"] is None else "child"


def arrange(rows: Mapping[str, dict[str, Any]], outside: Mapping[str, Outside]) -> Lineage:
    """`rows` by id, with `last_active` set. A parent that is nowhere is cut off, in the row too."""
    found = Lineage()
    for session_id, row in rows.items():
        parent = row["parent_session_id"]
        if parent is not None and parent not in rows and parent not in outside:
            found.cut[session_id] = f"its parent {parent[:60]} is not there"
            row["parent_session_id"] = None
        found.kinds[session_id] = kind_of(row)
    _order(rows, found)
    for session_id in found.order:
        found.roots[session_id] = _root(rows[session_id], rows, outside, found)
    _find_tips(rows, found)
    return found


def _order(rows: Mapping[str, dict[str, Any]], found: Lineage) -> None:
    """Parents first. A ring of parents is opened at one place."""
    placed: set[str] = set()
    for start in rows:
        path: list[str] = []
        here: str | None = start
        while here is not None and here in rows and here not in placed:
            if here in path:
                closing = path[-1]
                found.cut[closing] = "its parents form a ring"
                rows[closing]["parent_session_id"] = None
                found.kinds[closing] = kind_of(rows[closing])
                break
            path.append(here)
            here = rows[here]["parent_session_id"]
        for session_id in reversed(path):
            placed.add(session_id)
            found.order.append(session_id)


def _root(
    row: dict[str, Any], rows: Mapping[str, dict[str, Any]], outside: Mapping[str, Outside], found: Lineage
) -> str:
    """The parent's conversation when the row continues it, else its own. Parents are settled before."""
    parent = row["parent_session_id"]
    own = str(row["id"])
    if parent is None or found.kinds[own] != "child" or row["source"] == "tool":
        return own
    if parent in rows:
        return found.roots[parent] if rows[parent]["end_reason"] == "compression" else own
    return outside[parent].root if outside[parent].end_reason == "compression" else own


def _find_tips(rows: Mapping[str, dict[str, Any]], found: Lineage) -> None:
    following: dict[str, list[str]] = {}
    for session_id, root in found.roots.items():
        parent = rows[session_id]["parent_session_id"]
        if root != session_id and parent is not None:
            following.setdefault(parent, []).append(session_id)
    for session_id, root in found.roots.items():
        if root == session_id:
            here = session_id
            while rows[here]["end_reason"] == "compression" and here in following:
                here = max(following[here], key=lambda one: _preference(rows[one]))
            found.tips[root] = here


def _preference(row: Mapping[str, Any]) -> tuple[int, float, float, str]:
    state = 2 if row["end_reason"] == "compression" else 1 if row["ended_at"] is None else 0
    return state, row["last_active"], row["started_at"], row["id"]
