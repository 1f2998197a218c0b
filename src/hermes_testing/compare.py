"""What a store holds and what the model holds, in one shape, so that `==` says whether they agree.

Left out is what has no meaning of its own: row ids, trace ids, times, and the texts of reasons.
"""

from __future__ import annotations

from typing import Any

from hermes_state.storage.base import Connection
from hermes_testing import model, model_work


def modelled(said: model.Conversations, work: model_work.Work) -> dict[str, Any]:
    return {
        "sessions": {s.id: (s.root, s.parent, s.ended, s.title, s.count) for s in said.segments.values()},
        "tips": {root: said.tip(root) for root in said.roots()},
        "routes": said.routes,
        "messages": {s.id: [(r.role, r.content, r.state) for r in s.rows] for s in said.segments.values() if s.rows},
        "leases": {name: (lease.fence, lease.holder) for name, lease in work.leases.items()},
        "inbox": {name: (m.route, m.state, m.turn) for name, m in work.inbox.items()},
        "turns": {name: (t.conversation, t.fence, t.attempt, t.state) for name, t in work.turns.items()},
        "outbox": {key: (i.chat, i.conversation, i.turn, i.state, i.attempts) for key, i in work.outbox.items()},
    }


def stored(conn: Connection) -> dict[str, Any]:
    def table(columns: str, name: str) -> dict[str, Any]:
        found = conn.rows(f"SELECT {columns} FROM {name}")  # noqa: S608 - both from below
        return {row[0]: row[1] if len(row) == 2 else tuple(row[1:]) for row in found}

    transcripts: dict[str, list[tuple[str, str, str]]] = {}
    states = {(1, 0, 0): "live", (0, 0, 0): "taken back", (0, 1, 0): "summarised"}
    rows = conn.rows("SELECT session_id, role, content, active, compacted, replaced FROM messages ORDER BY id")
    for session, role, content, *flags in rows:
        state = "replaced" if flags[2] else states[tuple(flags)]
        transcripts.setdefault(session, []).append((role, content, state))
    return {
        "sessions": table("id, root_id, parent_session_id, end_reason, title, message_count", "sessions"),
        "tips": table("id, tip_id", "conversations"),
        "routes": table("session_key, session_id", "routes"),
        "messages": transcripts,
        "leases": table("conversation_id, fence, holder", "leases"),
        "inbox": table("message_id, route, state, turn_id", "inbox"),
        "turns": table("id, conversation_id, fence, attempt, state", "turns"),
        "outbox": table("dedup_key, chat_id, conversation_id, turn_id, state, attempts", "outbox"),
    }
