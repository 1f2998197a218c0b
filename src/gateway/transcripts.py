"""Transcripts under the names the seeds' world calls. Nothing is kept here: an append that returned is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB

log = logging.getLogger("hermes.gateway")
_STORED = (
    "tool_name", "tool_calls", "tool_call_id", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
    "effect_disposition", "timestamp", "api_content",
)  # fmt: skip


class Transcripts:
    """The part of `SessionStore` that reads and writes messages. Without a database there are none."""

    _db: SessionDB | None

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        if self._db is None:
            return []
        return self._db.get_messages_as_conversation(session_id, repair_alternation=True)

    def append_to_transcript(self, session_id: str, message: Mapping[str, Any], skip_db: bool = False) -> None:
        """Durable when it returns. A failure is raised: a message that was quietly kept in memory would be lost."""
        if self._db is None or skip_db:
            return
        more = {name: message[name] for name in _STORED if message.get(name) is not None}
        platform_id = more.pop("platform_message_id", None) or message.get("message_id")
        if platform_id is not None:
            more["platform_message_id"] = str(platform_id)
        self._db.append_message(session_id, str(message.get("role") or "user"), message.get("content"), **more)

    def rewrite_transcript(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> bool:
        """The transcript is now `messages`; False when that could not be stored."""
        if self._db is None:
            return True
        try:
            self._db.replace_messages(session_id, messages)
        except StateError as error:
            said = {"action": "rewrite_failed", "session_id": session_id}
            log.error("a transcript was not rewritten: %s", error.one_line(), extra=said)
            return False
        return True

    def rewind_session(self, session_id: str, n: int = 1) -> dict[str, Any] | None:
        """Take back the last `n` user turns, or as many as there are; None when there is none."""
        if self._db is None or n < 1:
            return None
        recent = self._db.list_recent_user_messages(session_id, limit=n)
        if not recent:
            return None
        undone = self._db.rewind_to_message(session_id, recent[-1]["id"])
        text = undone["target_message"].get("content")
        return {"rewound_count": undone["rewound_count"], "turns_undone": len(recent), "target_text": text}
