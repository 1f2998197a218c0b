"""Parts of a transcript: what stands around a message, and what is shown when a conversation is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state import chain, transcript, values
from hermes_state.engine.base import Connection
from hermes_state.ids import is_possible_id
from hermes_state.messages import Q, row_id
from hermes_state.store import Store


class Windows(Store):
    """The part of `SessionDB` that cuts windows out of transcripts."""

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> dict[str, Any]:
        """The message and up to `window` on each side, whatever their state; empty when it is not in the session."""
        return self._read_if(session_id, lambda conn: around(conn, session_id, around_message_id, window)) or _nothing()

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Sequence[str] | None = ("user", "assistant"),
    ) -> dict[str, Any]:
        """`get_messages_around` between the first and the last few messages that say something."""

        def run(conn: Connection) -> dict[str, Any]:
            view = around(conn, session_id, around_message_id, window)
            shown = view["window"]
            view["bookend_start"], view["bookend_end"] = [], []
            if not shown:
                return view
            first, last = shown[0]["id"], shown[-1]["id"]
            view["window"] = [m for m in shown if m["id"] == around_message_id or _kept(m, keep_roles)]
            start = map(transcript.decode, conn.rows(Q.from_on, (session_id, 0, _reach(bookend))))
            end = map(transcript.decode, conn.rows(Q.newest, (session_id, last, _reach(bookend))))
            heads = [m for m in start if m["id"] < first and _kept(m, keep_roles) and _says(m)]
            tails = [m for m in end if _kept(m, keep_roles) and _says(m)]
            view["bookend_start"] = heads[: max(bookend, 0)]
            view["bookend_end"] = tails[: max(bookend, 0)][::-1]
            return view

        return self._read_if(session_id, run) or {**_nothing(), "bookend_start": [], "bookend_end": []}

    def get_resume_conversations(self, session_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(what the model goes on from, what the person is shown: ancestors too)."""

        def run(conn: Connection) -> dict[str, Any]:
            own = conn.rows(Q.conversation, (session_id, 1))
            before = [
                row for part in chain.ancestors(conn, session_id)[:-1] for row in conn.rows(Q.conversation, (part, 1))
            ]
            return {"own": own, "before": before}

        found = self._read_if(session_id, run) or {"own": [], "before": []}
        shown = transcript.without_repeats(transcript.as_conversation(found["before"] + found["own"]))
        return transcript.repaired(transcript.as_conversation(found["own"])), shown

    def get_ancestor_display_prefix(self, session_id: str) -> list[dict[str, Any]]:
        """What was said before this segment began."""
        own, shown = self.get_resume_conversations(session_id)
        return shown[: max(len(shown) - len(own), 0)]

    def _read_if(self, session_id: str, fn: Any) -> dict[str, Any] | None:
        if not is_possible_id(session_id):
            return None
        found: dict[str, Any] = self.engine.read(fn, snapshot=True)
        return found


def around(conn: Connection, session_id: str, message_id: int, window: int) -> dict[str, Any]:
    size = max(window, 0)
    from_anchor = [transcript.decode(row) for row in conn.rows(Q.from_on, (session_id, row_id(message_id), size + 1))]
    if not from_anchor or from_anchor[0]["id"] != message_id:
        return _nothing()
    before = [transcript.decode(row) for row in conn.rows(Q.before, (session_id, message_id, size))][::-1]
    return {
        "window": before + from_anchor,
        "messages_before": len(before),
        "messages_after": len(from_anchor) - 1,
    }


def _nothing() -> dict[str, Any]:
    return {"window": [], "messages_before": 0, "messages_after": 0}


def _reach(bookend: int) -> int:
    """How many rows to look at to find `bookend` that say something."""
    return max(bookend, 0) * 10


def _kept(message: dict[str, Any], roles: Sequence[str] | None) -> bool:
    return roles is None or message["role"] in roles


def _says(message: dict[str, Any]) -> bool:
    return bool(values.text_of(message["content"]).strip())
