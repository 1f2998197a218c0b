"""Sessions as plain dictionaries, out and in, under the names other tools call.

What goes out is a session's columns and its live messages. What comes in is judged first (`exchange_check`); then all
of it is stored in one transaction, or nothing. A session that exists already is skipped, never merged; a title that is
taken is dropped. Imported conversations belong to the person at this machine, whoever they were with. For whole
conversations with people and routes, and for anything big, there are archives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state import columns
from hermes_state.columns import NO_LIMIT, numbers, texts
from hermes_state.conversations import chain, sessions, titles, transcript
from hermes_state.ids import LOCAL_OWNER, is_possible_id
from hermes_state.storage.base import Connection, Store, first
from hermes_state.storage.statements import Queries

if TYPE_CHECKING:
    from hermes_state.exchange_check import Incoming

Q = Queries("exchange")

_REST = (
    "ended_at", "end_reason", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "api_call_count", "estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source",
    "pricing_version", "billing_provider", "billing_base_url", "billing_mode", "rewind_count",
)  # fmt: skip


class Exchange(Store):
    """The part of `SessionDB` that exports and imports single sessions."""

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session's columns and, under `messages`, what it says."""
        if not is_possible_id(session_id):
            return None
        return self.engine.read(lambda conn: _exported(conn, session_id), snapshot=True)

    def export_session_lineage(self, session_id: str) -> dict[str, Any] | None:
        """The whole conversation, first segment to last: `{"lineage": [id, …], "sessions": [exported, …]}`."""
        if not is_possible_id(session_id):
            return None

        def run(conn: Connection) -> dict[str, Any] | None:
            lineage = chain.lineage(conn, session_id)
            found = [_exported(conn, segment) for segment in lineage]
            return {"lineage": lineage, "sessions": found} if lineage else None

        return self.engine.read(run, snapshot=True)

    def export_all(self, source: str | None = None) -> list[dict[str, Any]]:
        """Every session, oldest first."""
        wanted = columns.clean(source)

        def run(conn: Connection) -> list[dict[str, Any]]:
            ids = [row[0] for row in conn.rows(Q.all_ids, (wanted, wanted))]
            return [found for found in (_exported(conn, session_id) for session_id in ids) if found is not None]

        return self.engine.read(run, snapshot=True)

    def import_sessions(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over exported sessions: all that are new, or none when one of them is wrong."""
        from hermes_state import exchange_check  # only an import needs it

        taken, errors = exchange_check.check(records, self.limits, self.clock())
        if errors:
            return _outcome([], [], 0, errors)
        ordered = exchange_check.parents_first(taken)
        return self.engine.write(lambda conn: _take(conn, ordered, self.clock()))


def _exported(conn: Connection, session_id: str) -> dict[str, Any] | None:
    row = sessions.fetch(conn, session_id)
    if row is None:
        return None
    said = conn.rows(transcript.Q.of_session, (session_id, 1, NO_LIMIT, 0))
    return {**row, "messages": [transcript.decode(message) for message in said]}


def _take(conn: Connection, ordered: list[Incoming], now: float) -> dict[str, Any]:
    imported: list[str] = []
    skipped: list[str] = []
    detached = 0
    for session in ordered:
        parent = _parent(conn, session, imported)
        row = {
            **session.fields, "id": session.id, "parent_session_id": parent, "root_id": session.id,
            "last_active": session.fields["started_at"], "title": _free_title(conn, session.fields["title"]),
        }  # fmt: skip
        if not sessions.insert(conn, row):
            skipped.append(session.id)
            continue
        conn.run(Q.set_rest, (*(session.fields[name] for name in _REST), session.id))
        transcript.insert_rows(conn, session.id, session.rows, started_at=row["started_at"])
        _hide(conn, session)
        sessions.place(conn, session.id, row, now)
        imported.append(session.id)
        detached += session.named_parent and parent is None
    conn.run(Q.set_owner, (LOCAL_OWNER, texts(imported)))
    return _outcome(imported, skipped, detached, [])


def _parent(conn: Connection, session: Incoming, imported: list[str]) -> str | None:
    """The parent it may keep. A conversation that goes on here is not given a second continuation from outside."""
    parent = session.parent
    if parent is None or parent in imported:
        return parent
    node = first(conn.rows(chain.Q.node, (parent,)))
    if node is None:
        return None
    if sessions.relation({**session.fields, "parent_session_id": parent}) == "child":
        return None if conn.rows(chain.Q.continuations, (parent, node[1])) else parent
    return parent


def _free_title(conn: Connection, title: str | None) -> str | None:
    return None if title is None or conn.rows(titles.Q.holder, (title,)) else title


def _hide(conn: Connection, session: Incoming) -> None:
    """Rows that were taken back or summarised where they come from are so here."""
    if not session.hidden:
        return
    ids = [row[0] for row in conn.rows(Q.row_ids, (session.id,))]
    for compacted in (0, 1):
        chosen = [ids[at] for at, state in session.hidden.items() if state == compacted]
        conn.run(Q.hide, (compacted, numbers(chosen)))


def _outcome(imported: list[str], skipped: list[str], detached: int, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "ok": not errors,
        "imported": len(imported),
        "skipped": len(skipped),
        "detached": detached,
        "imported_ids": imported,
        "skipped_ids": skipped,
        "errors": errors,
    }
