"""`RouteStore`: finds and changes the session of a route, over the ledger and its routes.

`resolve` finds the conversation of a message: one read when nothing changes, else one transaction. The ledger has one
method for each change of a route.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from datetime import tzinfo
from itertools import islice
from pathlib import Path
from typing import Any

from gateway.config import GatewayConfig
from gateway.routes import mirror, reset_policy
from gateway.routes.entries import RouteEntries, change_of, read_entry
from gateway.routes.resolver import Resolver, RouteRules
from gateway.routes.source import SessionEntry, SessionSource, instant, local_time
from hermes_state.conversations.ledger import Resolved
from hermes_state.conversations.routes import Routes
from hermes_state.errors import StateError
from hermes_state.ids import new_session_id
from hermes_state.session_db import SessionDB
from hermes_state.storage.writer import look, queued
from hermes_state.transfer.import_home import route_entry as written

log = logging.getLogger("hermes.gateway")
_DAY = 86_400.0


class RouteStore(RouteRules):
    """The routes of one sessions folder as a dictionary of entries, in the store's rows or in a file.

    The rows decide, and only a bounded number of entries is in memory; `sessions.json` follows (`mirror`). Without a
    database (`_db` is None, checked on each call) the entries are a plain dictionary and the file, and nothing has a
    transcript; no gateway runs like that. Loading writes nothing: the file of a folder without routes is stored with
    the first change. `_lock` guards changes to entries.
    """

    def __init__(
        self,
        sessions_dir: Path | str,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        *,
        db: SessionDB | None = None,
    ) -> None:
        super().__init__(config)
        self.sessions_dir = Path(sessions_dir)
        self._has_active_processes = has_active_processes_fn
        self._lock = threading.Lock()
        self._loaded = False
        self._plain: dict[str, SessionEntry] = {}
        self._rows: RouteEntries | None = None
        self._mirror = mirror.Mirror(self._write_mirror)
        self._owns_db = db is None
        self._db = _open_default() if db is None else db

    @property
    def _entries(self) -> MutableMapping[str, SessionEntry]:
        return self._plain if self._db is None else self._over(self._db)

    def _over(self, db: SessionDB) -> RouteEntries:
        if self._rows is None or not self._rows.routes.is_of(db):
            self._rows = RouteEntries(Routes(db, self.sessions_dir.name), kept=db.limits.route_entries)
        return self._rows

    def _resolver(self, db: SessionDB) -> Resolver:
        return Resolver(db, self._over(db).routes, self)

    def _ensure_loaded(self) -> None:
        """Read the folder's file if there are no rows. Writes nothing."""
        if self._loaded:
            return
        rows = None if self._db is None else self._over(self._db)
        if rows is None or not rows.routes.any():
            found = dict(_valid(mirror.read(self.sessions_dir)))
            if rows is None:
                self._plain.update(found)
            else:
                rows.add_unsaved(found)
        self._loaded = True

    def _save(self) -> None:
        """Store all differences. Without a database the file is written before this returns, else later."""
        if self._db is None:
            pairs = ((key, entry.to_dict()) for key, entry in self._plain.items())
            mirror.write(self.sessions_dir, pairs)
        elif self._over(self._db).save():
            self.moved()

    def _save_loaded(self) -> None:
        """Store a file's entries as rows before a row is needed."""
        self._ensure_loaded()
        if self._db is not None and self._over(self._db).has_unsaved_keys:
            with self._lock:
                self._save()

    def moved(self) -> None:
        """Tell the mirror that a route has changed in the store."""
        if self.config.write_sessions_json:
            self._mirror.touch()

    def _write_mirror(self) -> None:
        """Write the file; called on the mirror's thread."""
        if self._db is None:
            return
        routes, limit = Routes(self._db, self.sessions_dir.name), self._db.limits.mirror_routes
        entries = RouteEntries(routes, kept=1)
        rows = (row for page in routes.newest(limit) for row in page)
        pairs = ((row.session_key, entry.to_dict()) for row in rows if (entry := entries.of_row(row)) is not None)
        mirror.write(self.sessions_dir, pairs, left_out=max(0, routes.count() - limit))

    def close(self) -> None:
        """Write the mirror's last state; close a database that was opened here."""
        self._mirror.close()
        if self._owns_db and self._db is not None:
            self._db.close()

    # -- time and rules ------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.time() if self._db is None else self._db.clock()

    def busy(self, session_key: str) -> bool:
        """Whether a process that the conversation started still runs; True if that is not known."""
        if self._has_active_processes is None:
            return False
        try:
            return bool(self._has_active_processes(session_key))
        except Exception as error:  # noqa: BLE001 - boundary: a caller's own function
            said = {"action": "processes_unknown", "session_key": session_key}
            log.warning("running processes cannot be told: %s", type(error).__name__, extra=said)
            return True

    # -- from a message to its conversation ----------------------------------------------------------------

    def _generate_session_key(self, source: SessionSource) -> str:
        return self.key(source)

    def resolve(
        self, source: SessionSource, key: str | None = None, *, said: Iterable[Mapping[str, Any]] = ()
    ) -> Resolved:
        """The conversation of a message: one read when nothing changes, else one transaction.

        The first conversation of a route begins with the messages `said`.
        """
        db, key = self._with_db(), key or self.key(source)
        self._save_loaded()
        resolver = self._resolver(db)
        found = resolver.at_rest(source, key)
        return found or self._resolved(db.engine.write(resolver.transaction(source, key, said)))

    async def aresolve(self, source: SessionSource, key: str | None = None) -> Resolved:
        """As `resolve`, for an event loop: a transaction goes through the writer's queue, and no thread waits."""
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
        """Whether the route leads to another person's conversation; then the next message opens a new one."""
        return self._resolver(self._with_db()).leads_to_others(source, key)

    def _resolved(self, found: Resolved | None) -> Resolved:
        assert found is not None  # the source is known, so a conversation is opened where there is none
        self.moved()
        return found

    def _with_db(self) -> SessionDB:
        if self._db is None:
            raise StateError("there is no database", hint="`hermes state check` says why.")
        return self._db

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The entry of a source's route; a new conversation if there is none or the rule is due."""
        key = self.key(source)
        self._ensure_loaded()
        with self._lock:
            self._save()  # what a caller has changed in an entry
            if self._db is None:
                return self._without_db(source, key, force_new=force_new)
        if force_new:
            return self._begin(self.fresh_entry(source, key, self._now()))
        found = self.resolve(source, key)
        with self._lock:
            entry = self._entries[key]
            if not found.created:
                entry.updated_at = local_time(self._now())
                self._save()
            return entry

    def _without_db(self, source: SessionSource, key: str, *, force_new: bool) -> SessionEntry:
        known, marks = self._plain.get(key), dict[str, Any]()
        if known is not None and not force_new:
            why = self._due(known, at_message=True)
            if why is None:
                known.updated_at = local_time(self._now())
                self._save()
                return known
            active = known.last_prompt_tokens > 0
            marks = {"was_auto_reset": True, "auto_reset_reason": why, "reset_had_activity": active}
        return self._begin(self.fresh_entry(source, key, self._now(), **marks))

    def _begin(self, entry: SessionEntry) -> SessionEntry:
        """Start a new conversation on the entry's route."""
        if self._db is None:
            entry.session_id = new_session_id(self._now())
            return self._put_plain(entry)
        db = self._db
        db.ledger.reset(
            entry.session_key, scope=self.sessions_dir.name, entry=entry.to_dict(),
            source=None if entry.platform is None else str(entry.platform.value),
            fields={} if entry.origin is None else self._resolver(db).peer(entry.origin),
        )  # fmt: skip
        self.moved()
        return self._entries[entry.session_key]

    def _put_plain(self, entry: SessionEntry) -> SessionEntry:
        self._plain[entry.session_key] = entry
        self._save()
        return entry

    def reset_session(self, session_key: str, display_name: str | None = None) -> SessionEntry | None:
        """`/new`: start a new conversation on the route; None when there is no such route."""
        self._save_loaded()
        with self._lock:
            known = self._entries.get(session_key)
            if known is None:
                return None
            entry = self.fresh_entry(known.origin, session_key, self._now(), is_fresh_reset=True)
            entry.display_name = display_name or known.display_name
            entry.platform, entry.chat_type = known.platform, known.chat_type
            return self._begin(entry)

    def lead(self, source: SessionSource, key: str, session_id: str, *, only_new: bool = False) -> None:
        """Let a route, new or known, lead to a stored conversation; with `only_new` only a new route."""
        self._save_loaded()
        self.lead_to(key, session_id, self.fresh_entry(source, key, self._now()), only_new=only_new)

    def lead_to(self, key: str, session_id: str, entry: SessionEntry, *, only_new: bool = False) -> None:
        scope, written_entry = self.sessions_dir.name, entry.to_dict()
        self._with_db().ledger.switch(key, session_id, scope=scope, entry=written_entry, only_new=only_new)
        self.moved()

    def take_along(self, platform: str, old_chat: str, new_chat: str) -> int:
        """A chat has a new id: its conversations go along, unless the new routes lead somewhere already.

        Returns how many did. This reads every route; it happens once in the life of a chat.
        """
        self._save_loaded()
        db, taken = self._with_db(), 0
        mark, routes = json.dumps(old_chat, ensure_ascii=False), self._over(db).routes
        for row in (row for page in routes.pages() for row in page if mark in row.entry_json):
            entry = read_entry(row)
            origin = None if entry is None else entry.origin
            if entry is None or origin is None or (origin.platform.value, origin.chat_id) != (platform, old_chat):
                continue
            entry.origin = source = replace(origin, chat_id=new_chat)
            entry.session_key = self.key(source)
            taken += db.ledger.take_along(
                row.session_key, entry.session_key, scope=routes.scope, entry=entry.to_dict(),
                fields=self._resolver(db).peer(source),
            )  # fmt: skip
        if taken:
            self.moved()
        return taken

    # -- what is remembered of a route ---------------------------------------------------------------------

    def get_model_override(self, session_key: str) -> dict[str, str] | None:
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        return None if entry is None else entry.model_override

    def set_model_override(self, session_key: str, override: Mapping[str, Any] | None) -> bool:
        """Set the model of this route, or None for the usual one. A key in it is never stored."""
        return self._mark(session_key, model_override=written.model_override(override) or None)

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

    def peek_session_id(self, session_key: str) -> str | None:
        """The session of a route, without marking the route as used."""
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        return None if entry is None else entry.session_id

    # -- expiry, forgetting --------------------------------------------------------------------------------

    def _is_session_expired(self, entry: SessionEntry) -> bool:
        """Whether the conversation has expired by its rule; never while a process of it runs."""
        return self._due(entry, at_message=False) is not None

    def _due(self, entry: SessionEntry, *, at_message: bool) -> reset_policy.Reason | None:
        """Why the conversation has expired, or None."""
        db, policy = self._db, self.policy(entry.platform, entry.chat_type)

        def zone() -> tzinfo:
            return reset_policy.zone_of(self.config.timezone) if db is None else self._resolver(db).zone(entry.origin)

        used_at = instant(entry.updated_at)
        return self.reason(
            policy, entry.session_key, entry.to_dict(), used_at, self._now(), zone, at_message=at_message
        )

    def due_entries(self) -> list[SessionEntry]:
        """A bounded number of expired entries that are not marked so, oldest first, by an index."""
        db = self._with_db()
        self._save_loaded()
        entries = self._over(db)
        rows = islice(self._resolver(db).due_rows(self._now()), db.limits.expiry_batch)
        return [entry for row in rows if (entry := entries.of_row(row)) is not None]

    def set_expiry_finalized(self, entry: SessionEntry, *, clear_model_override: bool = True) -> bool:
        """Close the conversation and its session in one transaction; False when it was used meanwhile."""
        with self._lock:
            before = entry.expiry_finalized, entry.model_override
            entry.expiry_finalized = True
            if clear_model_override:
                entry.model_override = None
            used_at = instant(entry.updated_at)
            closed = self._over(self._with_db()).routes.finish(change_of(entry), entry.session_id, used_at=used_at)
            if closed:
                entry.stored = entry.to_dict()
                self.moved()
            else:
                entry.expiry_finalized, entry.model_override = before
            return closed

    def prune_old_entries(self, max_age_days: float | None) -> int:
        """Delete routes that were not used for so long; returns how many. Transcripts stay and can be resumed."""
        if not max_age_days or max_age_days <= 0:
            return 0
        self._save_loaded()
        before = self._now() - max_age_days * _DAY
        with self._lock:
            if self._db is not None:
                removed = self._prune_rows(before)
                if removed:
                    self.moved()
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
        return not entry.suspended and not self.busy(key)


def _open_default() -> SessionDB | None:
    try:
        return SessionDB()
    except StateError as error:
        log.error("there is no database: %s", error.one_line(), extra={"action": "store_unavailable"})
        return None


def _valid(index: dict[str, Any]) -> Iterator[tuple[str, SessionEntry]]:
    """The valid entries of a file; invalid ones are logged."""
    for key, value in index.items():
        try:
            entry = SessionEntry.from_dict(value)
            entry.session_key = written.session_key(key)
        except ValueError as error:
            log.warning("an entry was left out: %s", error, extra={"action": "route_left_out", "session_key": key})
            continue
        yield key, entry
