"""Where people write from: the routing index under the names other tools call, and finding a chat's session.

A route is one row: (folder, session key) points at a session. What it points at stands in the column `session_id`,
which the ledger moves; the entry's JSON carries the rest. So an entry that is saved has its session id read out of the
JSON, and one that is loaded has the column's put back in. A broken entry is kept as it is and points nowhere. A folder
counts by its name, so that a home can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain, routes, sessions
from hermes_state.ids import checked_id, is_possible_id
from hermes_state.storage.base import Connection, Store
from hermes_state.storage.statements import Queries

Q = Queries("routing")


class Routing(Store):
    """The part of `SessionDB` that knows which place leads to which session."""

    def save_gateway_routing_entry(self, session_key: str, entry_json: str, *, scope: str = "") -> None:
        row = _row(scope, session_key, entry_json, self.clock())
        self.engine.write(lambda conn: conn.run(Q.save, row), single=True)

    def replace_gateway_routing_entries(self, entries: Mapping[str, str], *, scope: str = "") -> None:
        """The folder's routes are now exactly `entries`; rows that say the same already are not touched."""
        now = self.clock()
        rows = [_row(scope, key, entry, now) for key, entry in entries.items()]
        keys = json.dumps([row[1] for row in rows])

        def run(conn: Connection) -> None:
            conn.run(Q.drop_others, (folder_name(scope), keys))
            if rows:
                conn.many(Q.save, rows)

        self.engine.write(run)

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Session key → entry, in the order the routes were made."""
        rows = self.engine.read(lambda conn: conn.rows(Q.load, (folder_name(scope),)))
        return {key: _with_session(entry, session_id) for key, session_id, entry in rows}

    def delete_gateway_routing_entries(self, session_keys: Iterable[str], *, scope: str = "") -> int:
        keys = json.dumps([key for key in session_keys if is_possible_id(key)])
        return self.engine.write(lambda conn: conn.run(Q.drop, (folder_name(scope), keys)), single=True)

    def find_session_by_origin(
        self, platform: str, chat_id: str, thread_id: str | None = None, user_id: str | None = None
    ) -> str | None:
        """The live session of a chat. None also when several people have one there and none of them was named."""
        thread, user = _text(thread_id), _text(user_id)
        chat = (_text(platform), _text(chat_id), thread, thread, user, user)

        def run(conn: Connection) -> str | None:
            rows = conn.rows(Q.of_chat, chat)
            found: dict[str | None, str] = {}
            for session_id, who in rows:
                tip = chain.tip(conn, session_id)
                if conn.rows(Q.is_live, (tip,)):
                    found.setdefault(who, str(tip))
            return next(iter(found.values())) if len(found) == 1 else None

        return self.engine.read(run, snapshot=True)

    def list_gateway_sessions(self, platform: str | None = None, active_only: bool = True) -> list[dict[str, Any]]:
        """The newest session of every route key, newest first."""
        source = _text(platform)
        params = (int(active_only), source, source)
        return self.engine.read(lambda conn: conn.execute(Q.newest_per_key, params).dicts())

    def find_latest_gateway_session_for_peer(
        self,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, Any] | None:
        """The session to go on with when a route was lost: by its key, else by who and where."""
        if not session_key or not is_possible_id(session_key):
            return None
        peer = (_text(user_id), _text(chat_id), _text(chat_type), _text(thread_id))

        def run(conn: Connection) -> dict[str, Any] | None:
            found = conn.execute(routes.Q.latest_by_key, (_text(source), session_key)).dicts()
            if not found and (user_id is not None or chat_id is not None):
                found = conn.execute(Q.latest_by_peer, (_text(source), *peer)).dicts()
            return found[0] if found else None

        return self.engine.read(run)


def set_route(conn: Connection, scope: str, key: str, entry_json: str, now: float) -> None:
    """Save one entry inside a bigger transaction."""
    conn.run(Q.save, _row(scope, key, entry_json, now))


def folder_name(scope: str) -> str:
    """A sessions folder's name, from its path on any system."""
    return str(sessions.clean(scope)).replace("\\", "/").rstrip("/").rpartition("/")[2]


def _row(scope: str, session_key: str, entry_json: str, now: float) -> tuple[str, str, str | None, str, float]:
    entry = columns.decode_json(entry_json)
    session_id = entry.get("session_id") if isinstance(entry, dict) else None
    if not is_possible_id(session_id):
        session_id = None
    text = str(sessions.clean(entry_json))
    return folder_name(scope), checked_id(session_key, what="session key"), session_id, text, now


def _with_session(entry_json: str, session_id: str | None) -> str:
    if session_id is None:
        return entry_json
    entry = columns.decode_json(entry_json)
    if not isinstance(entry, dict) or entry.get("session_id") == session_id:
        return entry_json
    return json.dumps({**entry, "session_id": session_id}, ensure_ascii=False)


def _text(part: object) -> str | None:
    """Platforms number their chats; a row holds text."""
    return None if part is None else str(sessions.clean(str(part)))
