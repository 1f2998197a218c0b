"""Routes as rows: read one by one, listed in pages, changed field by field.

A store may hold a hundred thousand routes. A change names only the fields that differ and is applied to the current
row, so that two writers of different fields do not undo each other, and a route that the ledger moved stays there.
(`compat.routing` reads and writes whole indexes, as plug-ins do.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hermes_state import columns
from hermes_state.conversations import chain, sessions
from hermes_state.ids import SessionId, SessionKey, checked_id, is_possible_id
from hermes_state.storage.base import Connection, Store, StorePart, first, in_transaction, scalar, set_columns
from hermes_state.storage.statements import Queries, Statement

Q = Queries("routes")
_PAGE = 500
_ROUNDING = 0.001  # an entry's time has microseconds, a row's has more


class Sender(NamedTuple):
    """Who writes to a route; a sender's route never leads to another person's conversation."""

    chat_type: str
    platform: str
    native_id: str


class Route(NamedTuple):
    """One route and its session's facts. `root_id` is None when that session has no row."""

    session_key: SessionKey
    session_id: SessionId | None
    entry_json: str
    updated_at: float
    root_id: str | None
    last_message_at: float | None
    ended_at: float | None
    zone: str | None
    """The owner of the conversation."""
    message_count: int | None
    of_others: bool = False
    """Whether the conversation is not the sender's; only `look` with a sender sets it."""

    @property
    def used_at(self) -> float:
        return max(self.updated_at, self.last_message_at or 0.0)

    @property
    def entry(self) -> dict[str, Any]:
        return columns.decode_object(self.entry_json)


@dataclass(frozen=True, slots=True)
class RouteChange:
    """The fields to change. `whole` is the full entry, for a route that does not exist (any more)."""

    session_key: str
    fields: Mapping[str, Any]
    whole: Mapping[str, Any]
    updated_at: float | None = None
    """When the route was last used; None keeps the row's time."""


class Routes(StorePart):
    """The routes of one sessions folder."""

    def __init__(self, store: Store, scope: str) -> None:
        super().__init__(store)
        self.scope = scope

    def is_of(self, store: Store) -> bool:
        return self._store is store

    def look(self, key: str, sender: Sender | None = None) -> Route | None:
        where = (self.scope, key)
        statement, params = (Q.look, where) if sender is None else (Q.look_from, (*sender, *where))
        row = self._store.look(key, lambda conn: first(conn.rows(statement, params)), None)
        return None if row is None else Route(*row)

    def pages(self) -> Iterator[list[Route]]:
        """All routes by key, one page at a time; each page is read when it is needed."""
        after = ""
        while page := self._routes(Q.page, (self.scope, after, _PAGE)):
            yield page
            after = page[-1].session_key

    def newest(self, limit: int) -> Iterator[list[Route]]:
        for offset in range(0, limit, _PAGE):
            page = self._routes(Q.newest, (self.scope, min(_PAGE, limit - offset), offset))
            yield page
            if len(page) < _PAGE:
                return

    def unused(self, before: float, *, still_open: bool = False) -> Iterator[list[Route]]:
        """Routes that nobody used since `before`, longest ago first; `still_open`: only with an open conversation."""
        statement = Q.open_unused if still_open else Q.unused
        at, key = -1e18, ""
        while page := self._routes(statement, (self.scope, before, at, at, key, before, _PAGE)):
            yield page
            at, key = page[-1].updated_at, page[-1].session_key

    def drop_unused(self, keys: Sequence[str], before: float) -> int:
        """Delete those of `keys` that are still unused since `before`."""
        wanted = json.dumps(list(keys))
        return self._run(Q.drop_unused, (self.scope, wanted, before, before))

    def of_session(self, session_id: str) -> SessionKey | None:
        params = (self.scope, session_id)
        found = self._store.look(session_id, lambda conn: scalar(conn.rows(Q.of_session, params)), None)
        return None if found is None else SessionKey(found)

    def count(self) -> int:
        return int(scalar(self._rows(Q.count, (self.scope,))))

    def any(self) -> bool:
        return bool(self._rows(Q.any, (self.scope,)))

    def change(self, changes: Iterable[RouteChange], *, drop: Iterable[str] = ()) -> None:
        """Apply all changes in one transaction."""
        wanted, gone = list(changes), list(drop)
        now = self._store.clock()

        def run(conn: Connection) -> None:
            for key in gone:
                conn.run(Q.drop_route, (self.scope, key))
            for change in wanted:
                self._change(conn, change, now)

        self._store.engine.write(run)

    @in_transaction
    def finish(self, conn: Connection, change: RouteChange, session_id: str, *, used_at: float) -> bool:
        """End an expired conversation, unless another route leads to it, and mark the route, in one transaction.

        False, with nothing changed, when the route has moved or was used since `used_at`.
        """
        now = self._store.clock()
        tip = chain.tip(conn, session_id)
        row = first(conn.rows(Q.route, (self.scope, change.session_key)))
        session = sessions.fetch(conn, tip, lock=True)
        if row is None or row[0] is None or chain.tip(conn, row[0]) != tip or session is None:
            return False
        if session["message_count"] and session["last_active"] > used_at + _ROUNDING:
            return False
        if not conn.rows(Q.other_route, (tip, self.scope, change.session_key)):
            sessions.promote(conn, tip, "session_reset", now)
            set_columns(conn, "sessions", tip, expiry_finalized=1)
        self._change(conn, change, now)
        return True

    def _change(self, conn: Connection, change: RouteChange, now: float) -> None:
        key = checked_id(change.session_key, what="session key")
        row = first(conn.rows(Q.route, (self.scope, key)))
        known = {} if row is None else columns.decode_object(row[1])
        entry = {**known, **change.fields} if known else dict(change.whole)
        named = entry.get("session_id") if row is None or "session_id" in change.fields else row[0]
        entry["session_id"] = named
        text = columns.clean(json.dumps(entry, ensure_ascii=False))
        used = change.updated_at if change.updated_at is not None else now if row is None else row[2]
        put(conn, self.scope, key, named if is_possible_id(named) else None, text, used)

    def _routes(self, statement: Statement, params: Sequence[Any]) -> list[Route]:
        return [Route(*row) for row in self._rows(statement, params)]


def put(
    conn: Connection,
    scope: str,
    key: str,
    session_id: str | None,
    entry_json: str | None,
    now: float,
    *,
    only_new: bool = False,
) -> bool:
    """Point `key` at `session_id`; without an entry the route keeps its own.

    With `only_new`: False, with nothing changed, when the route already leads somewhere.
    """
    key = checked_id(key, what="session key")
    return conn.run(Q.put, (scope, key, session_id, entry_json, now, entry_json, int(only_new))) == 1


def folder_name(scope: str) -> str:
    """The name of a sessions folder, from its path on any system: a home can be moved."""
    return str(columns.clean(scope)).replace("\\", "/").rstrip("/").rpartition("/")[2]


def is_of_others(conn: Connection, session_id: str, sender: Sender) -> bool:
    """Whether this sender must not be led to the session's conversation."""
    return bool(scalar(conn.rows(Q.session_of_others, (*sender, session_id))))
