"""`RouteEntries`: the routes of a sessions folder as a dictionary of `SessionEntry`, over the store's rows.

A look-up by key is one indexed read and iterating is a query in pages, so nothing depends on how many routes there are.
Whoever holds an entry and whoever looks it up have the same object, for as long as somebody holds it; a look-up brings
it in line with the row. What was changed in an entry, put in or taken out is written by `save`, and only that: each
field that differs from what the store had. An entry with unsaved changes is never dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from dataclasses import fields
from datetime import tzinfo
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gateway.config import GatewayConfig
from gateway.routes import mirror, reset_policy
from gateway.routes.resolver import Resolver, RouteRules
from gateway.routes.source import SessionEntry, instant, local_time
from hermes_state.conversations.routes import Route, RouteChange, Routes
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import route_entry as written

log = logging.getLogger("hermes.gateway")
_FIELDS = frozenset(field.name for field in fields(SessionEntry))


class RouteEntries(MutableMapping[str, SessionEntry]):
    """One object a store; callers that change entries hold the store's lock."""

    def __init__(self, routes: Routes, *, kept: int) -> None:
        self.routes = routes
        self._kept = kept
        self._recent: OrderedDict[str, SessionEntry] = OrderedDict()
        self._known: WeakValueDictionary[str, SessionEntry] = WeakValueDictionary()
        self._added: dict[str, SessionEntry] = {}
        """Put in by hand, or read from a file, and not stored yet."""
        self._removed: set[str] = set()
        self._guard = threading.RLock()

    # -- as a dictionary -------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> SessionEntry:
        entry = self._look(key)
        if entry is None:
            raise KeyError(key)
        return entry

    def __setitem__(self, key: str, entry: SessionEntry) -> None:
        with self._guard:
            self._removed.discard(key)
            self._added[key] = self._known[key] = entry

    def __delitem__(self, key: str) -> None:
        if self._look(key) is None:
            raise KeyError(key)
        with self._guard:
            self._added.pop(key, None)
            self._recent.pop(key, None)
            self._known.pop(key, None)
            self._removed.add(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._look(key) is not None

    def __len__(self) -> int:
        if not self._added and not self._removed:
            return self.routes.count()
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.pairs())

    def items(self) -> ItemsView[str, SessionEntry]:
        return _Items(self)

    def values(self) -> ValuesView[SessionEntry]:
        return _Values(self)

    def pairs(self) -> Iterator[tuple[str, SessionEntry]]:
        for page in self.routes.pages():
            for row in page:
                shown = row.session_key not in self._added and row.session_key not in self._removed
                if shown and (entry := self.of_row(row)) is not None:
                    yield row.session_key, entry
        yield from [*self._added.items()]

    def _look(self, key: str) -> SessionEntry | None:
        if key in self._added:
            return self._added[key]
        row = None if key in self._removed else self.routes.look(key)
        return None if row is None else self.of_row(row)

    # -- between rows and objects ------------------------------------------------------------------------------

    def of_row(self, row: Route) -> SessionEntry | None:
        """The entry of a row: the object that is known already, brought in line where nobody changed it."""
        fresh = read_entry(row)
        if fresh is None:
            return None
        with self._guard:
            entry = self._known.get(row.session_key)
            if entry is None:
                entry = fresh
            elif entry.stored != fresh.stored:
                unsaved = differing(entry)
                for name in _FIELDS - unsaved.keys():
                    setattr(entry, name, vars(fresh)[name])
            self._keep(row.session_key, entry)
            return entry

    def _keep(self, key: str, entry: SessionEntry) -> None:
        self._known[key] = self._recent[key] = entry
        self._recent.move_to_end(key)
        while len(self._recent) > self._kept:
            oldest, dropped = self._recent.popitem(last=False)
            if differing(dropped):
                self._added[oldest] = dropped

    # -- saving --------------------------------------------------------------------------------------------------

    @property
    def has_unsaved_keys(self) -> bool:
        return bool(self._added or self._removed)

    def add_unsaved(self, entries: dict[str, SessionEntry]) -> None:
        """What a file holds and no row does yet: stored with the next save."""
        self._added.update(entries)

    def drop_unused(self, keys: Sequence[str], before: float) -> int:
        """Forget those of `keys` that nobody used since."""
        with self._guard:
            for key in keys:
                self._recent.pop(key, None)
                self._known.pop(key, None)
            return self.routes.drop_unused(keys, before) if keys else 0

    def save(self) -> bool:
        """Write what differs, in one transaction; whether anything did."""
        with self._guard:
            removed = set(self._removed)
            candidates = {**self._known, **self._added}
            changed = {key: e for key, e in candidates.items() if key not in removed and differing(e)}
            if not changed and not removed:
                return False
            self.routes.change((change_of(entry, key) for key, entry in changed.items()), drop=removed)
            for key, entry in changed.items():
                entry.stored = entry.to_dict()
                self._added.pop(key, None)
                self._keep(key, entry)
            self._removed.clear()
            return True


class _Items(ItemsView[str, SessionEntry]):
    def __init__(self, entries: RouteEntries) -> None:
        super().__init__(entries)
        self._entries = entries

    def __iter__(self) -> Iterator[tuple[str, SessionEntry]]:
        return self._entries.pairs()


class _Values(ValuesView[SessionEntry]):
    def __init__(self, entries: RouteEntries) -> None:
        super().__init__(entries)
        self._entries = entries

    def __iter__(self) -> Iterator[SessionEntry]:
        return (entry for _, entry in self._entries.pairs())


def read_entry(row: Route) -> SessionEntry | None:
    """The entry of a row, also of one that somebody else made with less; None for a route that leads nowhere."""
    if row.session_id is None:
        return None
    made = local_time(row.updated_at).isoformat()
    # Ids of rows are opaque: only what a file says has to look like a file's.
    columns = {"session_key": "key", "session_id": "id", "updated_at": made}
    try:
        entry = SessionEntry.from_dict({"created_at": made, **row.entry, **columns})
    except ValueError as error:
        log.warning("a route's entry is not valid: %s", error, extra={"action": "route_entry_broken"})
        entry = SessionEntry.from_dict({"created_at": made, **columns})
    entry.session_key, entry.session_id = row.session_key, row.session_id
    entry.updated_at = local_time(row.used_at)
    entry.stored = entry.to_dict()
    return entry


def differing(entry: SessionEntry) -> dict[str, Any]:
    """The fields that are not as the store had them."""
    now, stored = entry.to_dict(), entry.stored or {}
    gone = {name: None for name in stored if name not in now}
    return {name: value for name, value in now.items() if name not in stored or stored[name] != value} | gone


def change_of(entry: SessionEntry, key: str | None = None) -> RouteChange:
    fields = differing(entry)
    used = instant(entry.updated_at) if "updated_at" in fields else None
    return RouteChange(key or entry.session_key, fields, entry.to_dict(), used)


class RouteFolder:
    """Entries, and where they are kept. `_lock` guards changes to them."""

    def __init__(
        self,
        sessions_dir: Path | str,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        *,
        db: SessionDB | None = None,
    ) -> None:
        self.sessions_dir = Path(sessions_dir)
        self.config = config
        self._has_active_processes = has_active_processes_fn
        self._rules = RouteRules(config, self._busy)
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
        return Resolver(db, self._over(db).routes, self._rules)

    def _ensure_loaded(self) -> None:
        """Read the folder's file where it is all there is. Writes nothing."""
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
        """Store what differs. The file is written before this returns when it is all there is, else behind."""
        if self._db is None:
            pairs = ((key, entry.to_dict()) for key, entry in self._plain.items())
            mirror.write(self.sessions_dir, pairs)
        elif self._over(self._db).save():
            self._touch_mirror()

    def _save_loaded(self) -> None:
        """What a file held becomes rows before a row is needed."""
        self._ensure_loaded()
        if self._db is not None and self._over(self._db).has_unsaved_keys:
            with self._lock:
                self._save()

    def moved(self) -> None:
        """A route was moved by the ledger itself: the mirror follows."""
        self._touch_mirror()

    def _touch_mirror(self) -> None:
        if self.config.write_sessions_json:
            self._mirror.touch()

    def _write_mirror(self) -> None:
        """On the mirror's thread."""
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

    def _busy(self, session_key: str) -> bool:
        """Whether a process that the chat started still runs; when nobody can tell, it does."""
        if self._has_active_processes is None:
            return False
        try:
            return bool(self._has_active_processes(session_key))
        except Exception as error:  # noqa: BLE001 - boundary: a caller's own function
            said = {"action": "processes_unknown", "session_key": session_key}
            log.warning("running processes cannot be told: %s", type(error).__name__, extra=said)
            return True

    def _reason(self, entry: SessionEntry, now: float, *, at_message: bool) -> reset_policy.Reason | None:
        """Why the entry's conversation is over, or None."""
        policy = self._rules.policy(entry.platform, entry.chat_type)
        return self._rules.reason(
            policy,
            entry.session_key,
            entry.to_dict(),
            instant(entry.updated_at),
            now,
            lambda: self._zone(entry),
            at_message=at_message,
        )

    def _zone(self, entry: SessionEntry) -> tzinfo:
        if self._db is None:
            return reset_policy.zone_of(self.config.timezone)
        return self._resolver(self._db).zone(entry.origin)


def _open_default() -> SessionDB | None:
    try:
        return SessionDB()
    except StateError as error:
        log.error("there is no database: %s", error.one_line(), extra={"action": "store_unavailable"})
        return None


def _valid(index: dict[str, Any]) -> Iterator[tuple[str, SessionEntry]]:
    """The usable entries of a file; the others are told, one by one."""
    for key, value in index.items():
        try:
            entry = SessionEntry.from_dict(value)
            entry.session_key = written.session_key(key)
        except ValueError as error:
            log.warning("an entry was left out: %s", error, extra={"action": "route_left_out", "session_key": key})
            continue
        yield key, entry


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
