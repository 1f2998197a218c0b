"""The routing index and the look-up of a chat's session, as plug-ins of hermes-agent call them.

The column `session_id`, which the ledger moves, says where a route leads; the entry's JSON has the rest. So saving an
entry reads the session id out of the JSON, and loading it puts the column's value back in. A broken entry is stored
unchanged and leads nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain, routes
from hermes_state.conversations.routes import folder_name
from hermes_state.ids import is_possible_id
from hermes_state.storage.base import Connection, Store, in_transaction
from hermes_state.storage.statements import Queries

Q = Queries("routing")


class RoutingIndex(Store):
    """Routes and their sessions, under the names that plug-ins call."""

    def save_gateway_routing_entry(self, session_key: str, entry_json: str, *, scope: str = "") -> None:
        self._save({session_key: entry_json}, folder_name(scope))

    def replace_gateway_routing_entries(self, entries: Mapping[str, str], *, scope: str = "") -> None:
        """Make the folder's routes exactly `entries`; unchanged rows are not written."""
        self._save(entries, folder_name(scope), whole=True)

    @in_transaction
    def _save(self, conn: Connection, entries: Mapping[str, str], folder: str, *, whole: bool = False) -> None:
        wanted = {key: (_session_of(entry), str(columns.clean(entry))) for key, entry in entries.items()}
        known = {key: (session_id, entry) for key, session_id, entry in conn.rows(routes.Q.of_scope, (folder,))}
        if whole:
            conn.run(Q.drop, (folder, columns.texts(known.keys() - wanted.keys())))
        for key, row in wanted.items():
            if known.get(key) != row:
                routes.put(conn, folder, key, *row, self.clock())

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Session key → entry, in the order in which the routes were created."""
        rows = self.engine.read(lambda conn: conn.rows(routes.Q.of_scope, (folder_name(scope),)))
        return {key: _with_session(entry, session_id) for key, session_id, entry in rows}

    def delete_gateway_routing_entries(self, session_keys: Iterable[str], *, scope: str = "") -> int:
        params = (folder_name(scope), columns.texts(filter(is_possible_id, session_keys)))
        return self.engine.write(lambda conn: conn.run(Q.drop, params), single=True)

    def find_session_by_origin(
        self, platform: str, chat_id: str, thread_id: str | None = None, user_id: str | None = None
    ) -> str | None:
        """The live session of a chat. None also when several people have one there and no user is given."""
        thread, user = _text(thread_id), _text(user_id)
        chat = (_text(platform), _text(chat_id), thread, thread, user, user)

        def run(conn: Connection) -> str | None:
            found: dict[str | None, str] = {}
            for session_id, who in conn.rows(Q.of_chat, chat):
                tip = chain.tip(conn, session_id)
                if conn.rows(Q.is_live, (tip,)):
                    found.setdefault(who, str(tip))
            return next(iter(found.values())) if len(found) == 1 else None

        return self.engine.read(run, snapshot=True)

    def list_gateway_sessions(self, platform: str | None = None, active_only: bool = True) -> list[dict[str, Any]]:
        """The newest session of every route key, newest first."""
        params = (int(active_only), _text(platform), _text(platform))
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
        """The session to continue when a route was lost: by its key, else by person and chat."""
        if not session_key or not is_possible_id(session_key):
            return None
        peer = tuple(map(_text, (source, user_id, chat_id, chat_type, thread_id)))

        def run(conn: Connection) -> dict[str, Any] | None:
            found = conn.execute(routes.Q.latest_by_key, (peer[0], session_key)).dicts()
            if not found and (user_id is not None or chat_id is not None):
                found = conn.execute(routes.Q.latest_by_peer, peer).dicts()
            return found[0] if found else None

        return self.engine.read(run)


def _session_of(entry_json: str) -> str | None:
    named = columns.decode_object(entry_json).get("session_id")
    return named if is_possible_id(named) else None


def _with_session(entry_json: str, session_id: str | None) -> str:
    entry = columns.decode_json(entry_json)
    if session_id is None or not isinstance(entry, dict) or entry.get("session_id") == session_id:
        return entry_json
    return json.dumps({**entry, "session_id": session_id}, ensure_ascii=False)


def _text(part: object) -> str | None:
    """A chat's id as text: platforms use numbers, a row holds text."""
    return None if part is None else str(columns.clean(str(part)))
