"""The transcript: append, read, take back.

Rows are never changed in what they say. Undo, compaction and replacement change a row's state (see the schema);
only delete and prune remove rows. A structure becomes JSON, a text stays itself (`values`). Appending is the hot
path of the whole house: two statements and a commit on SQLite, one statement on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_state import chain, transcript, values
from hermes_state.engine.base import Connection, Row, first, scalar
from hermes_state.engine.sqlite_connection import SqliteConnection
from hermes_state.errors import IntegrityError, InvalidValue, SessionEnded
from hermes_state.ids import SessionId, checked_id, is_possible_id
from hermes_state.statements import Queries
from hermes_state.store import Store
from hermes_state.transcript import Encoded

Q = Queries("messages")
_BUMP, _BUMP_WITHIN, _INSERT = Q.bump.sqlite, Q.bump_within.sqlite, Q.insert.sqlite
_BUMP_TEXT, _INSERT_TEXT = Q.bump_text.sqlite, Q.insert_text.sqlite

_NO_LIMIT = 2**62
_NOTHING = (None,) * 16  # what `append_message` is told besides a text, mostly


class Messages(Store):
    """The part of `SessionDB` that holds transcripts."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        observed: bool = False,
        effect_disposition: str | None = None,
        timestamp: Any = None,
        api_content: str | None = None,
        turn_id: str | None = None,
        person_id: str | None = None,
    ) -> int:
        """Store one row; its id. Durable when this returns."""
        others = (
            tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning, reasoning_content,
            reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, effect_disposition,
            timestamp, api_content, turn_id, person_id,
        )  # fmt: skip
        if others == _NOTHING and not observed and transcript.is_text(role, content, self.limits.message_bytes):
            return self.engine.write(append_text, session_id, role, content, self.clock(), single=True)
        row = transcript.pack(
            role, content, tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning,
            reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id,
            observed, effect_disposition, timestamp, api_content, turn_id, person_id, self.clock(),
            self.limits.message_bytes,
        )  # fmt: skip
        return self.engine.write(append, session_id, row, single=True)

    def append_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> list[int]:
        """Several rows in one commit, in order."""
        now, top = self.clock(), self.limits.message_bytes
        rows = [transcript.encode(message, now, top) for message in messages]
        return self.engine.write(lambda conn: [append(conn, session_id, row) for row in rows])

    def get_messages(
        self, session_id: str, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Full rows in order; live ones unless asked."""
        window = (_NO_LIMIT if limit is None else max(limit, 0), max(offset, 0))
        params = (session_id, 0 if include_inactive else 1, *window)
        return [transcript.decode(row) for row in self._rows(session_id, Q.of_session, params)]

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
    ) -> list[dict[str, Any]]:
        """The transcript as the model is shown it."""
        active = 0 if include_inactive else 1
        if include_ancestors:
            found = self.engine.read(
                lambda conn: [
                    row
                    for segment in chain.ancestors(conn, session_id)
                    for row in conn.rows(Q.conversation, (segment, active))
                ],
                snapshot=True,
            )
            turns = transcript.without_repeats(transcript.as_conversation(found))
        else:
            turns = transcript.as_conversation(self._rows(session_id, Q.conversation, (session_id, active)))
        return transcript.repaired(turns) if repair_alternation else turns

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> None:
        """The transcript is now `messages`. The old rows are hidden at once and removed by retention."""
        self._rewrite(
            session_id,
            messages,
            lambda conn: conn.run(Q.replace_all, (int(self.clock()), session_id, int(active_only))),
        )

    def archive_and_compact(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> int:
        """Live rows count as summarised; `messages` stand in their place. How many were put in."""
        return self._rewrite(session_id, messages, lambda conn: conn.run(Q.summarise_all, (session_id,)))

    def clear_messages(self, session_id: str) -> None:
        self._rewrite(session_id, (), lambda conn: conn.run(Q.replace_all, (int(self.clock()), session_id, 0)))

    def _rewrite(self, session_id: str, messages: Iterable[Mapping[str, Any]], put_away: Any) -> int:
        now = self.clock()
        rows = [transcript.encode(message, now, self.limits.message_bytes) for message in messages]

        def run(conn: Connection) -> int:
            began = scalar(conn.rows(Q.began, (session_id,)))
            if began is None:
                raise IntegrityError(f"no session {session_id!r:.80}")
            put_away(conn)
            insert_rows(conn, session_id, rows, started_at=began)
            return len(rows)

        return self.engine.write(run)

    def rewind_to_message(self, session_id: str, target_message_id: int) -> dict[str, Any]:
        """Take back a user message and everything after it."""

        def run(conn: Connection) -> dict[str, Any]:
            target = first(conn.rows(Q.one, (row_id(target_message_id),)))
            if target is None or target[1] != session_id:
                raise InvalidValue(f"message {target_message_id} is not part of session {session_id}")
            if target[2] != "user":
                raise InvalidValue(f"rewind target must be a 'user' message (got role='{target[2]}', id={target[0]})")
            rewound = conn.run(Q.take_back, (session_id, target[0]))
            conn.run(Q.count_rewind, (session_id,))
            full = conn.rows(Q.from_on, (session_id, target[0], 1))
            return {
                "rewound_count": rewound,
                "target_message": transcript.decode(full[0]),
                "new_head_id": scalar(conn.rows(Q.head, (session_id,))),
            }

        return self.engine.write(run)

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        return self.engine.write(lambda conn: conn.run(Q.bring_back, (session_id, row_id(since_message_id))))

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        rows = self._rows(session_id, Q.recent_user, (session_id, 0 if include_inactive else 1, max(limit, 0)))
        found = []
        for message_id, timestamp, content, kind in rows:
            text = values.text_of(values.decode_content(content, kind)).replace("\n", " ").strip()
            found.append({"id": message_id, "timestamp": timestamp, "preview": text[:80]})
        return found

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        return bool(self._rows(session_id, Q.has_platform_id, (session_id, str(platform_message_id))))

    def has_archived_messages(self, session_id: str) -> bool:
        return bool(self._rows(session_id, Q.has_archived, (session_id,)))

    def set_latest_user_api_content(self, session_id: str, content: Any, api_content: str) -> bool:
        """Note what was really sent for the newest user row, if it still is the one with that content."""

        def run(conn: Connection) -> bool:
            newest = first(conn.rows(Q.recent_user, (session_id, 1, 1)))
            if newest is None or values.decode_content(newest[2], newest[3]) != content:
                return False
            return conn.run(Q.set_api_content, (values.scrub(api_content), newest[0])) == 1

        return self.engine.write(run)

    def message_count(self, session_id: str | None = None) -> int:
        """All rows, taken-back ones too (the column of that name counts appends instead)."""
        if session_id is None:
            return int(self.engine.read(lambda conn: scalar(conn.rows(Q.count_all))))
        rows = self._rows(session_id, Q.count_of, (session_id,))
        return int(scalar(rows) or 0)

    def _rows(self, session_id: str, statement: Any, params: tuple[Any, ...]) -> list[Row]:
        if not is_possible_id(session_id):
            return []
        return self.engine.read(lambda conn: conn.rows(statement, params))


# -- rows in a bigger transaction ------------------------------------------------------------------------------


def append(conn: Connection, session_id: str, row: Encoded) -> int:
    """Add one row to a session that still takes rows; its id. Fails before its first write or not at all."""
    at = row[7]
    if isinstance(conn, SqliteConnection):
        raw = conn.raw
        try:
            raw.execute(_BUMP_WITHIN, (row.calls, at, row.preview, session_id, int(at // 60)))
            if raw.changes() != 1:
                raw.execute(_BUMP, (row.calls, at, at, at, at, row.preview, session_id))
        except UnicodeEncodeError:
            raise why_not(conn, session_id) from None
        if raw.changes() == 1:
            raw.execute(_INSERT, (session_id, *row))
            return raw.last_insert_rowid()
    elif is_possible_id(session_id):
        ids = conn.rows(Q.append, (row.calls, at, at, row.preview, session_id, *row))
        if ids:
            return int(ids[0][0])
    raise why_not(conn, session_id)


def append_text(conn: Connection, session_id: str, role: str, content: str, at: float) -> int:
    """`append` for what `transcript.is_text`, as most rows are: not packing and binding the 18 columns they leave empty
    makes an append on SQLite a twentieth quicker, and the rows of a group commit a quarter."""
    if isinstance(conn, SqliteConnection):
        raw = conn.raw
        try:
            raw.execute(_BUMP_TEXT, (at, session_id, int(at // 60)))
        except UnicodeEncodeError:
            raise why_not(conn, session_id) from None
        if raw.changes() == 1:
            raw.execute(_INSERT_TEXT, (session_id, role, content, at))
            return raw.last_insert_rowid()
    return append(conn, session_id, transcript.text_row(role, content, at))


def why_not(conn: Connection, session_id: str) -> Exception:
    """The reason a session took no row."""
    if not conn.rows(chain.Q.node, (checked_id(session_id),)):
        return IntegrityError(f"no session {session_id!r:.80}", hint="Create it first.")
    return SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))


def insert_rows(conn: Connection, session_id: str, rows: Sequence[Encoded], *, started_at: float) -> None:
    """Put rows in and set the session's counters to exactly these rows."""
    if rows:
        conn.many(Q.insert, [(session_id, *row) for row in rows])
    last_active = max((row.timestamp for row in rows), default=started_at)
    preview = next((row.preview for row in rows if row.preview), None)
    conn.run(Q.set_counts, (len(rows), sum(row.calls for row in rows), last_active, preview, session_id))
    settle_minute(conn, session_id)


def settle_minute(conn: Connection, session_id: str) -> None:
    """After `last_active` was set outright: lists are ordered by its minute first."""
    if conn.dialect == "sqlite":
        conn.run(Q.settle_minute, (session_id,))


def row_id(value: Any) -> int:
    """A message id from outside; what cannot be one matches nothing."""
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else -1
