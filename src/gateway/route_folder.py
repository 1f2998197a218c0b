"""The routes of one sessions folder as a dictionary of entries, in the store's rows or in a file.

With a database the rows are the truth and nothing is kept here but a bounded number of entries; `sessions.json` is
written behind (`mirror`). Without one (`_db` is None, looked at on each call) a plain dictionary and the file are all
there is. Loading writes nothing: a file of a folder that has no routes yet is stored with the first change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from datetime import tzinfo
from pathlib import Path
from typing import Any

from gateway import mirror, reset
from gateway.config import GatewayConfig
from gateway.entries import SessionEntry, instant
from gateway.resolving import Resolver, Rules
from gateway.route_entries import RouteEntries
from gateway.whatsapp_names import WhatsappNames
from hermes_config.home import hermes_home
from hermes_state.conversations.routes import Routes
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import route_entry as written

log = logging.getLogger("hermes.gateway")


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
        self._rules = Rules(config, self._busy, WhatsappNames(hermes_home()))
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

    def _reason(self, entry: SessionEntry, now: float, *, at_message: bool) -> reset.Reason | None:
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
            return reset.zone_of(self.config.timezone)
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
