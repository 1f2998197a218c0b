"""`RouteEntries`: the routes of a sessions folder as a dictionary of `SessionEntry`, over the store's rows.

A look-up by key is one indexed read and iterating is a query in pages, so the cost does not depend on the number of
routes. All holders of an entry share one object, which a look-up updates from the row, until the route leads to another
conversation: that one has an object of its own, and unsaved changes of the earlier one are lost. In all other cases an
entry with unsaved changes is kept. `save` writes only the entries and fields that differ from the store.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, MutableMapping, Sequence, ValuesView
from dataclasses import fields
from typing import Any
from weakref import WeakValueDictionary

from gateway.routes.source import SessionEntry, instant, local_time
from hermes_state.conversations.routes import Route, RouteChange, Routes

log = logging.getLogger("hermes.gateway")
_FIELDS = frozenset(field.name for field in fields(SessionEntry))


class RouteEntries(MutableMapping[str, SessionEntry]):
    """The entries of one store; callers that change entries hold the store's lock."""

    def __init__(self, routes: Routes, *, kept: int) -> None:
        self.routes = routes
        self._kept = kept
        self._recent: OrderedDict[str, SessionEntry] = OrderedDict()
        self._known: WeakValueDictionary[str, SessionEntry] = WeakValueDictionary()
        self._added: dict[str, SessionEntry] = {}
        """Entries that were added or read from a file, and are not stored yet."""
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
        return dict(self.pairs()).items()  # by pages: the view of a mapping would look each key up

    def values(self) -> ValuesView[SessionEntry]:
        return dict(self.pairs()).values()

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
        """The entry of a row: the known object of this conversation, updated unless it has unsaved changes."""
        fresh = read_entry(row)
        if fresh is None:
            return None
        with self._guard:
            entry = self._known.get(row.session_key)
            if entry is None or _moved(entry, fresh):
                entry = fresh
            elif entry.stored != fresh.stored:
                unsaved = differing(entry)
                for name in _FIELDS - unsaved.keys():
                    setattr(entry, name, vars(fresh)[name])
            entry.conversation = fresh.conversation
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
        """Add a file's entries that have no row yet; the next `save` stores them."""
        self._added.update(entries)

    def drop_unused(self, keys: Sequence[str], before: float) -> int:
        """Delete those of `keys` that were not used since."""
        with self._guard:
            for key in keys:
                self._recent.pop(key, None)
                self._known.pop(key, None)
            return self.routes.drop_unused(keys, before) if keys else 0

    def save(self) -> bool:
        """Write all differences in one transaction; False when there are none."""
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


def read_entry(row: Route) -> SessionEntry | None:
    """The entry of a row, also of an incomplete one; None for a route without a session."""
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
    entry.stored, entry.conversation = entry.to_dict(), row.root_id
    return entry


def _moved(entry: SessionEntry, fresh: SessionEntry) -> bool:
    """Whether the route leads to another conversation than the one of this entry."""
    return entry.session_id != fresh.session_id and entry.conversation not in (None, fresh.conversation)


def differing(entry: SessionEntry) -> dict[str, Any]:
    """The fields that differ from the store."""
    now, stored = entry.to_dict(), entry.stored or {}
    gone = {name: None for name in stored if name not in now}
    return {name: value for name, value in now.items() if name not in stored or stored[name] != value} | gone


def change_of(entry: SessionEntry, key: str | None = None) -> RouteChange:
    fields = differing(entry)
    used = instant(entry.updated_at) if "updated_at" in fields else None
    return RouteChange(key or entry.session_key, fields, entry.to_dict(), used)
