"""Where a route leads, inside the ledger's transactions: following it, turning it, and what begins where it ends.

What a route turns away from is ended, unless another route still leads there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_state import beginnings, chain, messages, notes, routes, sessions, values
from hermes_state.beginnings import New
from hermes_state.engine.base import Connection, Row, first, scalar
from hermes_state.handles import Handle, Q, ResetRule, Resolved, RouteState, Sender
from hermes_state.ids import ConversationId, SessionId, SessionKey, checked_id

if TYPE_CHECKING:
    from hermes_state import lost_routes

_BY_ACCIDENT = ("agent_close", "ws_orphan_reap")
_PLACE = ("user_id", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "profile_name")
"""What is the same before and after a reset: who writes, and where."""


def begin(
    conn: Connection,
    new: New,
    route: str | None,
    scope: str,
    now: float,
    *,
    kind: str = "new",
    origin: str | None = None,
) -> Handle:
    """A new conversation; `route`, when given, leads to it from now on."""
    row = {name: sessions.clean(value) for name, value in new.fields.items()}
    row |= {"source": sessions.clean(new.source) or "unknown", "started_at": now, "last_active": now}
    if route is not None:
        row["session_key"] = route
    session_id = beginnings.insert(conn, row, new.session_id, now)
    beginnings.found(conn, session_id, kind, origin, new.owner or sessions.owner_for(conn, row), now)
    if new.said:
        messages.insert_rows(conn, session_id, new.said, started_at=now)
    if route is not None:
        _point(conn, scope, route, session_id, new.entry, now)
    return Handle(ConversationId(session_id), session_id)


def follow(
    conn: Connection,
    route: str,
    scope: str,
    now: float,
    *,
    reset_rule: ResetRule | None,
    new: New | None,
    search: lost_routes.Search | None,
    sender: Sender | None = None,
) -> Resolved | None:
    """Where `route` leads, healed to the newest segment; a conversation is begun where there is none and `new` is."""
    found = first(conn.rows(Q.route, (scope, route)))
    if (found is None or found[0] is None) and search is not None:
        from hermes_state import lost_routes  # nearly every route is where it was

        found = lost_routes.find(conn, scope, route, search, sender) or found
    if found is None or found[0] is None:
        if new is None:
            return None
        opened = _first(conn, route, scope, now, new.first())
        return opened or follow(conn, route, scope, now, reset_rule=reset_rule, new=new, search=search, sender=sender)
    named = found[0]
    session = sessions.fetch(conn, chain.tip(conn, named))
    if session is None:  # an imported route whose session was never stored: it is made at first use
        if new is None:
            return None
        handle = begin(conn, New(new.source, new.owner, named, new.fields, None), route, scope, now)
        return Resolved(handle, created=True)
    if new is not None and sender is not None and routes.is_of_others(conn, session["id"], sender):
        notes.warn("route_of_others", "route %s led to another person's conversation; a new one is opened", route)
        first_one = new.first()  # nothing of the other conversation is carried over, and it goes on where it is
        return Resolved(begin(conn, first_one, route, scope, now), created=True, entry=first_one.entry)
    if session["id"] != named:
        conn.run(Q.move_routes, (session["id"], named))
    state = _state(route, found, session)
    reason = None if reset_rule is None else reset_rule(state)
    ended = session["end_reason"] if session["ended_at"] is not None else None
    if ended is not None and ended != "compression" and ended not in _BY_ACCIDENT:
        if new is None:
            return None
        return replace(_reset(conn, route, scope, now, before=state, reason=reason or ended, new=new), over=True)
    if reason is not None:
        new = new or New("", None, None, {}, None)
        return _reset(conn, route, scope, now, before=state, reason=reason, new=new)
    if ended is not None:
        sessions.reopen(conn, session["id"], now)
    return Resolved(Handle(ConversationId(session["root_id"]), SessionId(session["id"])))


def reset(conn: Connection, route: str, scope: str, now: float, *, reason: str, new: New) -> Resolved:
    """`route` leads to a new, empty conversation."""
    found = first(conn.rows(Q.route, (scope, route)))
    old = None if found is None or found[0] is None else sessions.fetch(conn, found[0])
    before = None if found is None or old is None else _state(route, found, old)
    return _reset(conn, route, scope, now, before=before, reason=reason, new=new)


def _reset(
    conn: Connection, route: str, scope: str, now: float, *, before: RouteState | None, reason: str, new: New
) -> Resolved:
    if before is None:
        new = new.first()
        return Resolved(begin(conn, new, route, scope, now), created=True, entry=new.entry)
    old = before.session
    _leave(conn, old["id"], route, scope, reason, now)
    fields = {name: old[name] for name in _PLACE} | new.fields
    owner = new.owner or scalar(conn.rows(Q.owner, (old["root_id"],)))
    entry = new.entry if new.fresh is None else new.fresh(reason, before)
    new = New(new.source or old["source"], owner, new.session_id, fields, entry)
    previous = SessionId(old["id"])
    handle = begin(conn, new, route, scope, now, kind="reset", origin=previous)
    return Resolved(handle, created=True, reset_reason=reason, previous=previous, entry=entry)


def _first(conn: Connection, route: str, scope: str, now: float, new: New) -> Resolved | None:
    """The first conversation of a route; None when another process opened one meanwhile."""
    handle = begin(conn, replace(new, fields={**new.fields, "session_key": route}), None, scope, now)
    if claim(conn, scope, route, handle.session_id, new.entry, now):
        return Resolved(handle, created=True, entry=new.entry)
    from hermes_state import deletion  # two processes must meet at the same route at the same moment

    deletion.remove(conn, [handle.session_id])
    return None


def turn(
    conn: Connection, route: str, scope: str, session_id: str, now: float, *, entry: Mapping[str, Any] | None
) -> None:
    """`route` leads to `session_id` from now on; what it led to is left."""
    before = first(conn.rows(Q.route, (scope, route)))
    if before is not None and before[0] == session_id:
        return
    if before is not None and before[0] is not None:
        _leave(conn, before[0], route, scope, "session_switch", now)
    _point(conn, scope, route, session_id, entry, now)


def _leave(conn: Connection, session_id: str, route: str, scope: str, reason: str, now: float) -> None:
    """End what a route turns away from, unless another route still leads there."""
    if not conn.rows(Q.other_route, (session_id, scope, route)):
        sessions.promote(conn, session_id, reason, now)


def claim(
    conn: Connection, scope: str, route: str, session_id: str, entry: Mapping[str, Any] | None, now: float
) -> bool:
    """`route` leads to `session_id` from now on, unless it leads somewhere already: then False."""
    return conn.run(Q.claim_route, _pointing(scope, route, session_id, entry, now)) == 1


def _point(
    conn: Connection, scope: str, route: str, session_id: str, entry: Mapping[str, Any] | None, now: float
) -> None:
    conn.run(Q.point_route, _pointing(scope, route, session_id, entry, now))


def _pointing(scope: str, route: str, session_id: str, entry: Mapping[str, Any] | None, now: float) -> tuple[Any, ...]:
    text = None if entry is None else json.dumps(entry, ensure_ascii=False)
    return scope, checked_id(route, what="route"), session_id, text, now, text


def _state(route: str, found: Row, session: Mapping[str, Any]) -> RouteState:
    entry = values.decode_json(found[1])
    return RouteState(SessionKey(route), entry if isinstance(entry, dict) else {}, found[2], session)
