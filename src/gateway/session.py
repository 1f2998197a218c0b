"""`SessionStore`: which place leads to which session, as a view over the ledger and its routes.

A message takes `resolve`: one read when nothing changes, else one transaction. The other names are those of existing
programs; entries and files are in `route_folder`, marks and expiry in `route_marks`. Every move of a route is one verb
of the ledger; only without a database (`_db` is None, looked at on each call) is it done here, in a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.routes.compat import RouteMarks, Transcripts
from gateway.routes.keys import build_session_key, is_shared_multi_user_session
from gateway.routes.resolver import BY_ITSELF
from gateway.routes.source import SessionEntry, SessionSource, local_time
from hermes_state.conversations.ledger import Resolved
from hermes_state.errors import StateError
from hermes_state.ids import SessionKey, new_session_id
from hermes_state.session_db import SessionDB
from hermes_state.storage.writer import InThreads, look, queued

__all__ = [
    "AsyncSessionStore",
    "SessionEntry",
    "SessionSource",
    "SessionStore",
    "build_session_key",
    "is_shared_multi_user_session",
]


class SessionStore(RouteMarks, Transcripts):
    """The routes of one sessions folder, and the verbs that move them."""

    def key(self, source: SessionSource) -> SessionKey:
        """The route of a source, by this gateway's flags."""
        return self._rules.key(source)

    def _generate_session_key(self, source: SessionSource) -> str:
        return self.key(source)

    def is_shared(self, source: SessionSource) -> bool:
        """Whether several people talk in the conversation this place leads to."""
        return self._rules.is_shared(source)

    def resolve(
        self, source: SessionSource, key: str | None = None, *, said: Iterable[Mapping[str, Any]] = ()
    ) -> Resolved:
        """The conversation of a message: one read when nothing is to change, else one transaction.

        The first one of a place begins with what was `said` before.
        """
        db, key = self._with_db(), key or self.key(source)
        self._save_loaded()
        resolver = self._resolver(db)
        found = resolver.at_rest(source, key)
        return found or self._resolved(db.engine.write(resolver.transaction(source, key, said)))

    async def aresolve(self, source: SessionSource, key: str | None = None) -> Resolved:
        """As `resolve`, for an event loop: a transaction goes through the writer's queue, and no thread waits."""
        import asyncio

        db, key = self._with_db(), key or self.key(source)
        if not self._loaded or self._over(db).has_unsaved_keys:
            await asyncio.to_thread(self._save_loaded)
        resolver = self._resolver(db)
        found = await look(db, resolver.at_rest, source, key)
        if found is not None:
            return found
        run = await look(db, resolver.transaction, source, key)
        return self._resolved(await queued(db.engine, run))

    def leads_to_others(self, source: SessionSource, key: str) -> bool:
        """Whether the route leads to a conversation that is not the sender's. The next message opens a new one."""
        return self._resolver(self._with_db()).leads_to_others(source, key)

    def _resolved(self, found: Resolved | None) -> Resolved:
        assert found is not None  # the source is known, so a conversation is opened where there is none
        self._touch_mirror()
        return found

    def _with_db(self) -> SessionDB:
        if self._db is None:
            raise StateError("there is no database", hint="`hermes state check` says why.")
        return self._db

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The entry of a source's route, made or begun anew where that is due."""
        key = self.key(source)
        if self._db is None:
            return self._without_db(source, key, force_new)
        self._save_loaded()
        if force_new:
            fresh = self._rules.fresh_entry(source, key, self._now())
            resolver = self._resolver(self._db)
            scope, platform = self.sessions_dir.name, str(source.platform.value)
            found = self._db.ledger.reset(
                key, scope=scope, source=platform, entry=fresh.to_dict(), fields=resolver.peer(source)
            )
            self._touch_mirror()
        else:
            found = self.resolve(source, key)
        with self._lock:
            entry = self._entries[key]
            if not found.created:
                entry.updated_at = local_time(self._now())
                self._save()
            return entry

    def _without_db(self, source: SessionSource, key: str, force_new: bool) -> SessionEntry:
        with self._lock:
            self._ensure_loaded()
            now = self._now()
            known = self._plain.get(key)
            reason = None if known is None else self._reason(known, now, at_message=True)
            if known is not None and reason is None and not force_new:
                known.updated_at = local_time(now)
                self._save()
                return known
            entry = self._rules.fresh_entry(source, key, now)
            entry.session_id = new_session_id(now)
            if known is not None and reason in BY_ITSELF:
                entry.was_auto_reset, entry.auto_reset_reason = True, reason
                entry.reset_had_activity = known.last_prompt_tokens > 0
            self._plain[key] = entry
            self._save()
            return entry

    def reset_session(self, session_key: str, display_name: str | None = None) -> SessionEntry | None:
        """`/new`: the route begins anew at the same place; None when there is no such route."""
        self._save_loaded()
        with self._lock:
            known = self._entries.get(session_key)
            if known is None:
                return None
            entry = self._rules.fresh_entry(known.origin, session_key, self._now(), is_fresh_reset=True)
            entry.display_name = display_name or known.display_name
            entry.platform, entry.chat_type = known.platform, known.chat_type
            if self._db is None:
                entry.session_id = new_session_id(self._now())
                self._plain[session_key] = entry
                self._save()
                return entry
            platform = None if known.platform is None else str(known.platform.value)
            fields = {} if known.origin is None else self._resolver(self._db).peer(known.origin)
            scope = self.sessions_dir.name
            self._db.ledger.reset(session_key, scope=scope, source=platform, entry=entry.to_dict(), fields=fields)
            self._touch_mirror()
            return self._entries[session_key]

    def lead(self, source: SessionSource, key: str, session_id: str, *, only_new: bool = False) -> None:
        """A place leads to a stored conversation from now on, whether it led anywhere before or not.

        With `only_new` it stays where it is when it led anywhere.
        """
        db = self._with_db()
        self._save_loaded()
        entry = self._rules.fresh_entry(source, key, self._now())
        scope = self.sessions_dir.name
        db.ledger.switch(key, session_id, scope=scope, entry=entry.to_dict(), only_new=only_new)
        self._touch_mirror()

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """`/resume`: the route leads to another conversation, which is open again; None when there is no such route."""
        self._save_loaded()
        with self._lock:
            known = self._entries.get(session_key)
            if known is None or known.session_id == target_session_id:
                return known
            entry = self._rules.fresh_entry(known.origin, session_key, self._now())
            entry.session_id = target_session_id
            entry.display_name, entry.platform, entry.chat_type = known.display_name, known.platform, known.chat_type
            if self._db is None:
                self._plain[session_key] = entry
                self._save()
                return entry
            scope = self.sessions_dir.name
            self._db.ledger.switch(session_key, target_session_id, scope=scope, entry=entry.to_dict())
            self._touch_mirror()
            return self._entries[session_key]


class AsyncSessionStore(InThreads):
    """`SessionStore` for event loops."""

    def __init__(self, store: SessionStore) -> None:
        super().__init__(store)
        self._store = store

    async def resolve(self, source: SessionSource, key: str | None = None) -> Resolved:
        return await self._store.aresolve(source, key)
