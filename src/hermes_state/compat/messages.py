"""Write and read transcripts as plug-ins of hermes-agent do: row by row, or a whole transcript at once.

Production appends through `turns.journal` and undoes through `conversations.undo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_state import columns
from hermes_state.conversations import sessions
from hermes_state.conversations.transcript import Q, StoredTranscripts, append, decode, encode, insert_rows, row_id
from hermes_state.errors import IntegrityError, InvalidValue
from hermes_state.storage.base import Connection, first, in_transaction, scalar
from hermes_state.storage.statements import Statement

_APPENDED = (
    "tool_name", "tool_calls", "tool_call_id", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
    "effect_disposition", "timestamp", "api_content",
)  # fmt: skip
"""The order of `append_message`'s further parameters in hermes-agent."""
_FIELDS = {column.name for column in columns.SAID}


class Messages(StoredTranscripts):
    """Transcripts under the names that plug-ins call."""

    def append_message(self, session_id: str, role: str, content: Any = None, *more: Any, **fields: Any) -> int:
        """Store one row; returns its id. It is durable when this returns."""
        if more:
            fields |= zip(_APPENDED, more, strict=False)
        if not fields.keys() <= _FIELDS:
            unknown = min(fields.keys() - _FIELDS)
            raise TypeError(f"append_message() got an unexpected keyword argument {unknown!r}")
        fields["role"], fields["content"] = role, content
        row = encode(fields, self.clock(), self.limits.message_bytes)
        return self.engine.write(append, session_id, row, single=True)

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> None:
        """Replace the transcript with `messages`. The old rows are hidden at once and removed by retention."""
        self._rewrite(session_id, messages, Q.replace_all, (int(self.clock()), session_id, int(active_only)))

    def archive_and_compact(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> int:
        """Mark live rows as summarised and insert `messages` instead; returns how many were inserted."""
        return self._rewrite(session_id, messages, Q.summarise_all, (session_id,))

    def clear_messages(self, session_id: str) -> None:
        self.replace_messages(session_id, ())

    def _rewrite(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], hide: Statement, params: tuple[Any, ...]
    ) -> int:
        rows = [encode(message, self.clock(), self.limits.message_bytes) for message in messages]

        def run(conn: Connection) -> int:
            session = sessions.fetch(conn, session_id)
            if session is None:
                raise IntegrityError(f"no session {session_id!r:.80}")
            conn.run(hide, params)
            insert_rows(conn, session_id, rows, started_at=session["started_at"])
            return len(rows)

        return self.engine.write(run)

    @in_transaction
    def rewind_to_message(self, conn: Connection, session_id: str, target_message_id: int) -> dict[str, Any]:
        """Hide a user message and everything after it."""
        found = first(conn.rows(Q.from_on, (session_id, row_id(target_message_id), 1)))
        target = None if found is None else decode(found)
        if target is None or target["id"] != target_message_id:
            raise InvalidValue(f"message {target_message_id} is not part of session {session_id}")
        if target["role"] != "user":
            raise InvalidValue(
                f"rewind target must be a 'user' message (got role='{target['role']}', id={target_message_id})"
            )
        rewound = conn.run(Q.take_back, (session_id, target_message_id))
        conn.run(Q.count_rewind, (session_id,))
        head = scalar(conn.rows(Q.head, (session_id,)))
        return {"rewound_count": rewound, "target_message": target, "new_head_id": head}

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        rows = self._rows(session_id, Q.recent_user, (session_id, 0 if include_inactive else 1, max(limit, 0)))
        found = []
        for message_id, timestamp, content, kind in rows:
            text = columns.text_of(columns.decode_content(content, kind)).replace("\n", " ").strip()
            found.append({"id": message_id, "timestamp": timestamp, "preview": text[:80]})
        return found

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        return bool(self._rows(session_id, Q.has_platform_id, (session_id, str(platform_message_id))))

    def message_count(self, session_id: str | None = None) -> int:
        """All rows, hidden ones too (the column of that name counts appends instead)."""
        if session_id is None:
            return int(self.engine.read(lambda conn: scalar(conn.rows(Q.count_all))))
        return int(scalar(self._rows(session_id, Q.count_of, (session_id,))) or 0)

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Sequence[str] | None = ("user", "assistant"),
    ) -> dict[str, Any]:
        """`get_messages_around` between the first and the last few messages with content."""
        view = self.get_messages_around(session_id, around_message_id, window)
        view["bookend_start"], view["bookend_end"] = [], []
        if shown := view["window"]:
            low, high, most = shown[0]["id"], shown[-1]["id"], max(bookend, 0)

            def kept(message: dict[str, Any]) -> bool:
                return keep_roles is None or message["role"] in keep_roles

            def ends(statement: Statement, after: int) -> list[dict[str, Any]]:
                rows = map(decode, self._rows(session_id, statement, (session_id, after, most * 10)))
                return [m for m in rows if kept(m) and columns.text_of(m["content"]).strip()]

            view["window"] = [m for m in shown if m["id"] == around_message_id or kept(m)]
            view["bookend_start"] = [m for m in ends(Q.from_on, 0) if m["id"] < low][:most]
            view["bookend_end"] = ends(Q.newest, high)[:most][::-1]
        return view
