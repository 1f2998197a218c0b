"""`SessionStore`: the routes under the names that plug-ins of hermes-agent call, a few lines each over `RouteStore`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.routes.source import SessionEntry, SessionSource, instant, local_time
from gateway.routes.store import RouteStore
from hermes_state.conversations.ledger import Resolved
from hermes_state.errors import StateError
from hermes_state.storage.writer import InThreads

log = logging.getLogger("hermes.gateway")
_STORED = (
    "tool_name", "tool_calls", "tool_call_id", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
    "effect_disposition", "timestamp", "api_content",
)  # fmt: skip


class SessionStore(RouteStore):
    """One sessions folder's routes and transcripts. Without a database there are no transcripts."""

    def suspend_session(self, session_key: str) -> bool:
        """Let the next message of this route start a new conversation."""
        return self._mark(session_key, suspended=True)

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """Mark the route's turn as cut off, to be recovered; not if the person stopped it."""
        marked = local_time(self._now())
        marks = {"resume_pending": True, "resume_reason": reason, "last_resume_marked_at": marked}
        return self._mark(session_key, unless_suspended=True, **marks)

    def clear_resume_pending(self, session_key: str) -> bool:
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        if entry is None or not entry.resume_pending:
            return False
        return self._mark(session_key, resume_pending=False, resume_reason=None, last_resume_marked_at=None)

    def suspend_recently_active(self, max_age_seconds: float = 120) -> int:
        """Mark recently used routes as cut off (and not, as the name says, as stopped); returns how many."""
        return sum(
            self.mark_resume_pending(entry.session_key, "restart_interrupted")
            for entry in self.list_sessions(max_age_seconds / 60)
            if not entry.suspended and not entry.resume_pending
        )

    def update_session(self, session_key: str, last_prompt_tokens: int | None = None) -> None:
        """Record that the route was used now."""
        marks: dict[str, Any] = {"updated_at": local_time(self._now())}
        if last_prompt_tokens is not None:
            marks["last_prompt_tokens"] = last_prompt_tokens
        self._mark(session_key, **marks)

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Whether the route can ever expire."""
        return self.policy(entry.platform, entry.chat_type).mode in ("idle", "daily", "both")

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """The entries, most recently used first."""
        self._ensure_loaded()
        since = None if active_minutes is None else self._now() - active_minutes * 60
        with self._lock:
            found = [e for e in self._entries.values() if since is None or instant(e.updated_at) >= since]
        return sorted(found, key=lambda entry: entry.updated_at, reverse=True)

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        return next((entry for entry in self.list_sessions() if entry.session_id == session_id), None)

    def has_any_sessions(self) -> bool:
        """Whether there was a session before the current one."""
        return (len(self._entries) if self._db is None else self._db.session_count()) > 1

    def _should_reset(self, entry: SessionEntry, source: SessionSource) -> str | None:
        """Why the next message of the route starts a new conversation by its rule: `idle`, `daily` or None."""
        return self._due(entry, at_message=False)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """`/resume`: let the route lead to another conversation and reopen it; None when there is no such route."""
        self._save_loaded()
        with self._lock:
            known = self._entries.get(session_key)
            if known is None or known.session_id == target_session_id:
                return known
            entry = self.fresh_entry(known.origin, session_key, self._now())
            entry.session_id = target_session_id
            entry.display_name, entry.platform, entry.chat_type = known.display_name, known.platform, known.chat_type
            if self._db is None:
                return self._put_plain(entry)
            self.lead_to(session_key, target_session_id, entry)
            return self._entries[session_key]

    # -- transcripts ---------------------------------------------------------------------------------------

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        if self._db is None:
            return []
        return self._db.get_messages_as_conversation(session_id, repair_alternation=True)

    def append_to_transcript(self, session_id: str, message: Mapping[str, Any], skip_db: bool = False) -> None:
        """Store a message. Raises on failure: a message that was only in memory would be lost."""
        if self._db is None or skip_db:
            return
        more = {name: message[name] for name in _STORED if message.get(name) is not None}
        platform_id = more.pop("platform_message_id", None) or message.get("message_id")
        if platform_id is not None:
            more["platform_message_id"] = str(platform_id)
        self._db.append_message(session_id, str(message.get("role") or "user"), message.get("content"), **more)

    def rewrite_transcript(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> bool:
        """Replace the transcript by `messages`; False when the store failed."""
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
        """Undo the last `n` user turns, or as many as there are; None when there is none."""
        if self._db is None or n < 1:
            return None
        recent = self._db.list_recent_user_messages(session_id, limit=n)
        if not recent:
            return None
        undone = self._db.rewind_to_message(session_id, recent[-1]["id"])
        text = undone["target_message"].get("content")
        return {"rewound_count": undone["rewound_count"], "turns_undone": len(recent), "target_text": text}


class AsyncSessionStore(InThreads):
    """`SessionStore` for event loops."""

    def __init__(self, store: SessionStore) -> None:
        super().__init__(store)
        self._store = store

    async def resolve(self, source: SessionSource, key: str | None = None) -> Resolved:
        return await self._store.aresolve(source, key)
