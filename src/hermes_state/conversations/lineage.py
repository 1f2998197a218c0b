"""The family of a conversation: its segments, branches, delegations and resets.

Read in one snapshot, for people. A reset is named but not followed: a busy chat is reset every day, and its whole past
is a list (`sessions list`), not a tree. Depth and number are bounded; `cut` says when some are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hermes_state.conversations import chain
from hermes_state.storage.base import Connection, Store
from hermes_state.storage.statements import Queries

Q = Queries("lineage")

_MOST = 200


@dataclass(slots=True)
class Member:
    """One conversation: how it began, its segments in order, and the conversations that began in each."""

    id: str
    tip_id: str
    kind: str
    """`new`, `branch`, `reset`, `delegate` or `child`."""
    origin_session_id: str | None
    origin_id: str | None
    """The conversation it began in; None when it has no origin or its origin was deleted."""
    segments: list[dict[str, Any]]
    began_in: dict[str, list[Member]] = field(default_factory=dict)
    """Segment id → the conversations that began there."""

    @property
    def title(self) -> str | None:
        """The newest title, as lists show it."""
        return next((segment["title"] for segment in reversed(self.segments) if segment["title"]), None)


@dataclass(slots=True)
class Family:
    """A conversation with all its descendants, and the title of its parent."""

    root: Member
    origin_title: str | None
    cut: bool


def of(store: Store, session_id: str) -> Family | None:
    """The family of the conversation that `session_id` is a segment of."""
    return store.look(session_id, lambda conn: _read(conn, session_id), None, snapshot=True)


def _read(conn: Connection, session_id: str) -> Family | None:
    rows = conn.rows(Q.conversation, (chain.root(conn, session_id),))
    if not rows:
        return None
    root = _member(conn, rows[0])
    members = {root.id: root}
    below = conn.rows(Q.descendants, (root.id, _MOST + 1))
    for row in below[:_MOST]:
        members.setdefault(row[0], _member(conn, row))
    for member in members.values():
        parent = members.get(member.origin_id or "")
        if parent is not None and member is not root:
            parent.began_in.setdefault(member.origin_session_id or "", []).append(member)
    for member in members.values():
        for children in member.began_in.values():
            children.sort(key=lambda child: (child.segments[0]["started_at"], child.id))
    origin_title = None
    if root.origin_id is not None:
        titles = [row["title"] for row in conn.execute(Q.segments, (root.origin_id,)).dicts() if row["title"]]
        origin_title = titles[-1] if titles else None
    return Family(root, origin_title, cut=len(below) > _MOST)


def _member(conn: Connection, row: tuple[Any, ...]) -> Member:
    root_id, tip_id, kind, origin_session, origin_root = row
    found = {segment["id"]: segment for segment in conn.execute(Q.segments, (root_id,)).dicts()}
    path = [segment_id for segment_id in chain.lineage(conn, tip_id) if segment_id in found]
    # A home that was compressed twice at once has segments beside the chain: list them before the chain's end.
    beside = [segment_id for segment_id in found if segment_id not in path]
    ordered = [found[segment_id] for segment_id in [*path[:-1], *beside, *path[-1:]]]
    return Member(root_id, tip_id, kind, origin_session, origin_root, ordered)
