"""Finding the conversation of a place whose route is not there: forgotten after months, or kept under an older key.

What is found becomes the route again, inside the caller's transaction. An older key may have stood for several places,
so its route, or a conversation that was left under it, is only taken over when it is shown to be this place's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_state import handles, routes, routing, sessions, values
from hermes_state.engine.base import Connection, Row, first
from hermes_state.handles import Sender
from hermes_state.ids import is_possible_id


@dataclass(frozen=True, slots=True)
class Search:
    """What a caller knows of the place."""

    source: str
    older_keys: tuple[str, ...] = ()
    is_ours: Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool] = field(default=lambda entry, session: False)
    """Whether a route of an older key, its entry and its session's row, belongs to this place."""
    entry: Mapping[str, Any] = field(default_factory=dict)
    """For a route that is made anew."""


def find(conn: Connection, scope: str, key: str, search: Search, sender: Sender | None) -> Row | None:
    """The route's row (session id, entry, time) as it is from now on, or None."""
    older = [name for name in search.older_keys if is_possible_id(name)]
    for name in older:
        row = first(conn.rows(handles.Q.route, (scope, name)))
        if row is None or row[0] is None:
            continue
        entry = values.decode_json(row[1])
        if search.is_ours(entry if isinstance(entry, dict) else {}, sessions.fetch(conn, row[0])):
            conn.run(routes.Q.rename, (key, scope, name))
            conn.run(routes.Q.rename_peer, (key, row[0], name))
            return row
    for name in (key, *older):
        found = conn.execute(routing.Q.latest_by_key, (search.source, name)).dicts()
        if not found or (sender is not None and routes.is_of_others(conn, found[0]["id"], sender)):
            continue
        if name == key or search.is_ours({}, found[0]):
            return _made(conn, scope, key, found[0], search)
    return None


def _made(conn: Connection, scope: str, key: str, session: dict[str, Any], search: Search) -> Row:
    text = values.encode_json({**search.entry, "session_id": session["id"]}) or "{}"
    used = session["last_active"]
    conn.run(routes.Q.put, (scope, key, session["id"], text, used))
    conn.run(routes.Q.rename_peer, (key, session["id"], session["session_key"]))
    return (session["id"], text, used)
