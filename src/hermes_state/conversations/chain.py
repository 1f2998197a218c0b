"""The chain of compressions behind a conversation: roots, tips, links.

`root_id` follows compression links only. The ledger always writes correct chains. Third-party callers (create a child,
then end its parent, or the other way round) and old homes build chains step by step, so this module joins and separates
segments for both. Every function runs in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from hermes_state.ids import ConversationId, SessionId
from hermes_state.storage.base import Connection, Row, first, set_columns
from hermes_state.storage.statements import Queries

Q = Queries("chain")
_STEPS = 100_000  # far above any real chain; a broken home may contain a cycle
_RESUME_STEPS = 32


def tip(conn: Connection, session_id: SessionId | str) -> SessionId:
    """The segment that continues `session_id`, or itself."""
    return tip_node(conn, session_id)[0]


def tip_node(conn: Connection, session_id: SessionId | str) -> tuple[SessionId, Row | None]:
    """`tip`, with its row (`Q.node`); None when the session does not exist."""
    seen = {session_id}
    here, node = str(session_id), None
    for _ in range(_STEPS):
        node = first(conn.rows(Q.node, (here,)))
        if node is not None and node[3] == "uncompressed" and node[2] is not None and node[2] not in seen:
            here = node[2]  # the compression was undone: the segment before it continues
            seen.add(here)
            continue
        if node is None or node[3] != "compression":
            break
        following = first(conn.rows(Q.continuations, (here, node[1])))
        if following is None or following[0] in seen:
            break
        here = following[0]
        seen.add(here)
    return SessionId(here), node


def root(conn: Connection, session_id: str) -> ConversationId | None:
    """The conversation of a session; None when the session does not exist."""
    node = first(conn.rows(Q.node, (session_id,)))
    return None if node is None else ConversationId(node[1])


def ancestors(conn: Connection, session_id: str) -> list[str]:
    """Ids from the first known ancestor to `session_id`, along parent links of any kind."""
    path = [session_id]
    seen = {session_id}
    for _ in range(_STEPS):
        node = first(conn.rows(Q.node, (path[-1],)))
        if node is None or node[2] is None or node[2] in seen:
            break
        path.append(node[2])
        seen.add(node[2])
    return path[::-1]


def lineage(conn: Connection, session_id: str) -> list[str]:
    """The segments of the session's conversation, root to tip."""
    node = first(conn.rows(Q.node, (session_id,)))
    if node is None:
        return []
    end = tip(conn, session_id)
    path = [str(end)]
    for _ in range(_STEPS):
        here = first(conn.rows(Q.node, (path[-1],)))
        if here is None or here[0] == here[1] or here[2] is None or here[2] in path:
            break
        path.append(here[2])
    return path[::-1]


def resume_point(conn: Connection, session_id: str) -> str:
    """The segment to resume for somebody who asks for `session_id`: the deepest continuation with messages."""
    here = str(tip(conn, session_id))
    found = here if conn.rows(Q.has_messages, (here,)) else None
    seen = {here}
    for _ in range(_RESUME_STEPS):
        child = first(conn.rows(Q.newest_plain_child, (here,)))
        if child is None or child[0] in seen:
            break
        here = child[0]
        seen.add(here)
        if conn.rows(Q.has_messages, (here,)):
            found = here
    return found or session_id


def settle(conn: Connection, root_id: ConversationId | str) -> None:
    """Set the tip of a conversation and the row that represents it in lists."""
    conversation = first(conn.rows(Q.conversation, (root_id,)))
    if conversation is None:
        return
    end, kind = tip(conn, SessionId(str(root_id))), conversation[3]
    if end != conversation[1]:
        conn.run(Q.set_tip, (end, root_id))
    conn.run(Q.set_listed, (end, kind, root_id, end, kind))


def join_children(conn: Connection, parent_id: str) -> None:
    """After `parent_id` ended by compression, make its separate children its continuation."""
    node = first(conn.rows(Q.node, (parent_id,)))
    if node is None:
        return
    for (child,) in conn.rows(Q.plain_children, (parent_id,)):
        conn.run(Q.move_root, (node[1], child))
        conn.run(Q.delete_conversation, (child,))
    settle(conn, node[1])


def part_children(conn: Connection, parent_id: str, now: float) -> None:
    """After `parent_id` is no longer ended by compression, make its continuations separate again."""
    node = first(conn.rows(Q.node, (parent_id,)))
    if node is None:
        return
    links: dict[str, list[str]] = {}
    for segment, parent in conn.rows(Q.segments, (node[1],)):
        links.setdefault(parent, []).append(segment)
    for child in links.get(parent_id, []):
        found(conn, child, "child", parent_id, None, now)
        queue = [child]
        while queue:
            segment = queue.pop()
            set_columns(conn, "sessions", segment, root_id=child)
            queue += links.get(segment, [])
        settle(conn, child)
    settle(conn, node[1])


def parents_first(parents: Mapping[str, str | None]) -> tuple[list[str], list[str]]:
    """The sessions (id → parent), every one after its parent; and those whose link must be cut to end a cycle."""
    ordered: dict[str, None] = {}
    cut: list[str] = []
    for start in parents:
        path: dict[str, None] = {}
        here: str | None = start
        while here is not None and here in parents and here not in ordered:
            path[here] = None
            above = parents[here]
            if above in path:
                cut.append(here)
                break
            here = above
        ordered.update(dict.fromkeys(reversed(path)))
    return list(ordered), cut


def found(conn: Connection, root_id: str, kind: str, origin: str | None, owner: str | None, now: float) -> None:
    """Create a conversation whose only segment is `root_id`; an existing one stays."""
    conn.run(Q.insert_conversation, (root_id, root_id, owner, kind, origin, now))
    settle(conn, root_id)
