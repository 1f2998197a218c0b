"""What is remembered of routes beside where they lead: stops, restarts, models, expiry; and forgetting old ones."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from gateway.entries import SessionEntry, instant, local_time
from gateway.route_entries import change_of
from gateway.route_folder import RouteFolder
from hermes_state.transfer.import_home import route_entry as written

_DAY = 86_400.0


class RouteMarks(RouteFolder):
    """The part of `SessionStore` that marks, lists and prunes routes."""

    # -- stopped, cut off by a restart ---------------------------------------------------------------------------

    def suspend_session(self, session_key: str) -> bool:
        """The next message at this place begins anew."""
        return self._mark(session_key, suspended=True)

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """The turn there was cut off and is to be taken up; not where the person stopped it."""
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
        """Mark what was in use a moment ago as cut off (and not, as the name says, as stopped): how many."""
        self._save_loaded()
        since = self._now() - max_age_seconds
        if self._db is None:
            recent = [entry for entry in self._plain.values() if instant(entry.updated_at) >= since]
        else:
            entries = self._over(self._db)
            found = (entries.of_row(row) for row in entries.routes.used_since(since))
            recent = [entry for entry in found if entry is not None]
        return sum(
            self.mark_resume_pending(entry.session_key, "restart_interrupted")
            for entry in recent
            if not entry.suspended and not entry.resume_pending
        )

    def take_fresh_reset(self, session_key: str) -> bool:
        """Whether this is the first message after `/new`; told once."""
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        return entry is not None and entry.is_fresh_reset and self._mark(session_key, is_fresh_reset=False)

    # -- models, use -----------------------------------------------------------------------------------------------

    def set_model_override(self, session_key: str, override: Mapping[str, Any] | None) -> bool:
        """The model of this place, or None for the usual one. A key in it is never stored."""
        return self._mark(session_key, model_override=written.model_override(override) or None)

    def get_model_override(self, session_key: str) -> dict[str, str] | None:
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        return None if entry is None else entry.model_override

    def update_session(self, session_key: str, last_prompt_tokens: int | None = None) -> None:
        """The place was used now."""
        marks: dict[str, Any] = {"updated_at": local_time(self._now())}
        if last_prompt_tokens is not None:
            marks["last_prompt_tokens"] = last_prompt_tokens
        self._mark(session_key, **marks)

    def _mark(self, session_key: str, *, unless_suspended: bool = False, **marks: Any) -> bool:
        self._save_loaded()
        with self._lock:
            entry = self._entries.get(session_key)
            if entry is None or (unless_suspended and entry.suspended):
                return False
            for name, value in marks.items():
                setattr(entry, name, value)
            self._save()
            return True

    # -- expiry ------------------------------------------------------------------------------------------------------

    def _is_session_expired(self, entry: SessionEntry) -> bool:
        """Whether the conversation's time is up by its rule; never while a process of it runs."""
        return self._reason(entry, self._now(), at_message=False) is not None

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Whether its time will ever be up."""
        return self._rules.policy(entry.platform, entry.chat_type).mode in ("idle", "daily", "both")

    def due_entries(self, now: float | None = None) -> list[SessionEntry]:
        """Those whose time is up and which are not marked so, longest ago first: by an index, and a bounded number."""
        self._save_loaded()
        moment = self._now() if now is None else now
        if self._db is None:
            found = (e for e in self._plain.values() if self._reason(e, moment, at_message=False) is not None)
            return [entry for entry in found if not entry.expiry_finalized]
        entries = self._over(self._db)
        rows = islice(self._resolver(self._db).due_rows(moment), self._db.limits.expiry_batch)
        return [entry for row in rows if (entry := entries.of_row(row)) is not None]

    def set_expiry_finalized(self, entry: SessionEntry, *, clear_model_override: bool = True) -> bool:
        """Close the conversation, in one step with its session's end; False when somebody used it in between."""
        with self._lock:
            before = entry.expiry_finalized, entry.model_override
            entry.expiry_finalized = True
            if clear_model_override:
                entry.model_override = None
            if self._db is None:
                self._save()
                return True
            used_at = instant(entry.updated_at)
            closed = self._over(self._db).routes.finish(change_of(entry), entry.session_id, used_at=used_at)
            if closed:
                entry.stored = entry.to_dict()
                self._touch_mirror()
            else:
                entry.expiry_finalized, entry.model_override = before
            return closed

    # -- listing, forgetting ---------------------------------------------------------------------------------------

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """Used last first."""
        self._ensure_loaded()
        since = None if active_minutes is None else self._now() - active_minutes * 60
        with self._lock:
            found = [e for e in self._entries.values() if since is None or instant(e.updated_at) >= since]
        return sorted(found, key=lambda entry: entry.updated_at, reverse=True)

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        self._ensure_loaded()
        if self._db is not None and not self._over(self._db).has_unsaved_keys:
            key = self._over(self._db).routes.of_session(session_id)
            return None if key is None else self._entries.get(key)
        return next((entry for entry in self._entries.values() if entry.session_id == session_id), None)

    def peek_session_id(self, session_key: str) -> str | None:
        """Where a route leads, without using it."""
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        return None if entry is None else entry.session_id

    def has_any_sessions(self) -> bool:
        """Whether there is more than the one that is just beginning."""
        return len(self._entries) > 1 if self._db is None else self._db.session_count() > 1

    def prune_old_entries(self, max_age_days: float | None) -> int:
        """Forget routes nobody used for so long: how many. The transcripts stay, and so does the way back to them."""
        if not max_age_days or max_age_days <= 0:
            return 0
        self._save_loaded()
        before = self._now() - max_age_days * _DAY
        with self._lock:
            if self._db is not None:
                removed = self._prune_rows(before)
                if removed:
                    self._touch_mirror()
                return removed
            old = [key for key, e in self._plain.items() if instant(e.updated_at) < before and self._may_go(key, e)]
            for key in old:
                del self._plain[key]
            if old:
                self._save()
            return len(old)

    def _prune_rows(self, before: float) -> int:
        assert self._db is not None
        entries = self._over(self._db)
        removed = 0
        for page in entries.routes.unused(before):
            found = ((row.session_key, entries.of_row(row)) for row in page)
            old = [key for key, entry in found if entry is None or self._may_go(key, entry)]
            removed += entries.drop_unused(old, before)
        return removed

    def _may_go(self, key: str, entry: SessionEntry) -> bool:
        return not entry.suspended and not self._busy(key)
