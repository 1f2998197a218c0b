"""The ledger: the only code that opens, continues, moves or ends a conversation.

A conversation is a chain of segments; a route (one chat) points at a segment. Every verb here is one transaction, so
no other process sees a verb half done, and no crash leaves it half done.

    open      begin a new conversation, and point the route at it
    resolve   find a route's conversation: move to its newest segment, then apply the reset rule
    rotate    compress: the parent ends, the child takes over messages, routes, title and tip
    uncompress  undo a compression: the parent continues, with the messages of the child since
    branch    begin a new conversation as a copy
    switch    point a route at another conversation
    take_along  point the route of a chat's new id at the conversation of its old one
    reset     point a route at a new conversation; the old one ends when no other route leads to it
    end, reopen, delete

Leases, approvals and budgets hang on the conversation's id, which no verb changes. A turn passes its `fence`; a stale
one stops the verb before it writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_state import columns, log
from hermes_state.conversations import chain, routes, sessions, transcript
from hermes_state.conversations.routes import Sender
from hermes_state.conversations.transcript import Encoded
from hermes_state.errors import HeadMoved, IdTaken, SessionEnded
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey, checked_id, is_possible_id, new_session_id
from hermes_state.storage.base import Connection, Row, StorePart, first, in_transaction, put, scalar, set_columns
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

if TYPE_CHECKING:
    from hermes_state.conversations.uncompress import Uncompressed

Q = Queries("ledger")


class Ledger(StorePart):
    """The verbs, on one store."""

    def _encoded(self, said: Iterable[Mapping[str, Any]]) -> tuple[transcript.Encoded, ...]:
        now, top = self._store.clock(), self._store.limits.message_bytes
        return tuple(transcript.encode(message, now, top) for message in said)

    @in_transaction
    def open(
        self,
        conn: Connection,
        *,
        source: str,
        route: str | None = None,
        scope: str = "",
        owner: PersonId | None = None,
        session_id: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Handle:
        """Begin a new conversation; `route`, if given, leads to it from now on."""
        new = New(source, owner, session_id, dict(fields or {}), None)
        now = self._store.clock()
        return begin(conn, new, now) if route is None else _Route(conn, scope, route, now).begin(new)

    def resolving(
        self,
        route: str,
        *,
        scope: str = "",
        reset: ResetRule | None = None,
        source: str | None = None,
        fields: Mapping[str, Any] | None = None,
        fresh: Fresh | None = None,
        search: Search | None = None,
        sender: Sender | None = None,
        said: Iterable[Mapping[str, Any]] = (),
    ) -> Callable[[Connection], Resolved | None]:
        """A transaction that finds the conversation of `route`. If there is none, it opens one with `source`, else
        returns None."""
        new = None if source is None else New(source, None, None, dict(fields or {}), None, fresh, self._encoded(said))
        return lambda conn: _Route(conn, scope, route, self._store.clock()).follow(new, reset, search, sender)

    def rotate(
        self,
        session_id: str,
        compacted: Iterable[Mapping[str, Any]],
        *,
        fence: int | None = None,
        expected_head: int | None = None,
        new_id: str | None = None,
    ) -> Handle:
        """End the segment by compression and continue in a child that starts with `compacted`.

        `expected_head` is the id of the newest live message that the summary covers; if a newer one exists, `HeadMoved`
        is raised and nothing changes.
        """
        from hermes_state.conversations import uncompress

        store = self._store
        now, rows = store.clock(), self._encoded(compacted)

        def run(conn: Connection) -> Handle:
            root = ConversationId(sessions.known(conn, session_id)["root_id"])
            if fence is not None:
                leases.check(store, conn, root, fence)
            parent = sessions.known(conn, session_id, lock=True)  # after the lease, as turns do
            if parent["end_reason"] == "compression":
                raise SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))
            if expected_head is not None and scalar(conn.rows(transcript.Q.head, (session_id,))) != expected_head:
                raise HeadMoved(f"session {session_id} was written to while it was being compressed")
            # The title moves to the continuation and must be unique, so the parent gives it up first.
            set_columns(conn, "sessions", session_id, ended_at=now, end_reason="compression", title=None)
            child = {name: parent[name] for name in CARRIED}
            child |= {"parent_session_id": session_id, "root_id": root, "started_at": now, "last_active": now}
            child_id = insert(conn, child, new_id, now)
            # Lists show the conversation's first message, not the summary that the continuation begins with.
            transcript.insert_rows(conn, child_id, rows, started_at=parent["last_active"], preview=parent["preview"])
            uncompress.mark(conn, child_id)
            conn.run(routes.Q.move_routes, (child_id, session_id))
            conn.run(Q.rotated, (child_id, 1, root))
            chain.settle(conn, root)
            return Handle(root, child_id)

        return store.engine.write(run)

    def uncompress(self, session_id: str) -> Uncompressed:
        """Undo the compression that made `session_id`: the segment before it continues, and no message is lost."""
        from hermes_state.conversations import uncompress

        return uncompress.undo(self._store, session_id)

    @in_transaction
    def branch(
        self,
        conn: Connection,
        session_id: str,
        *,
        title: str | None = None,
        new_id: str | None = None,
        route: str | None = None,
        scope: str = "",
    ) -> Handle:
        """Begin a conversation with the visible messages of `session_id`; `route` moves to it."""
        now = self._store.clock()
        clean_title = columns.sanitize_title(title, most=self._store.limits.title_chars)
        origin = sessions.known(conn, session_id, lock=True)
        marks = {**columns.decode_object(origin["model_config"]), "_branched_from": session_id}
        row = {name: origin[name] for name in CARRIED if name not in ("title", "archived")}
        row |= {
            "model_config": json.dumps(marks, ensure_ascii=False), "parent_session_id": session_id,
            "started_at": now, "last_active": now,
        }  # fmt: skip
        if route is None:  # no chat has it yet: only a route gives it a peer
            row |= {"session_key": None}
        branch_id = insert(conn, row, new_id, now)
        owner = scalar(conn.rows(Q.owner, (origin["root_id"],)))
        chain.found(conn, branch_id, "branch", session_id, owner, now)
        conn.run(transcript.Q.copy_live, (branch_id, session_id, 0))
        count, calls, newest = transcript.live_counts(conn, branch_id)
        counts = {"message_count": count, "tool_call_count": calls, "last_active": now if newest is None else newest}
        set_columns(conn, "sessions", branch_id, **counts)
        transcript.settle_minute(conn, branch_id)
        if clean_title is not None:
            from hermes_state.conversations import titles

            titles.set_title(conn, branch_id, clean_title)
        if route is not None:
            _Route(conn, scope, route, now).turn_to(branch_id, None)
        return Handle(ConversationId(branch_id), branch_id)

    @in_transaction
    def switch(
        self,
        conn: Connection,
        route: str,
        target: str,
        *,
        scope: str = "",
        entry: Mapping[str, Any] | None = None,
        only_new: bool = False,
    ) -> Handle:
        """Point `route` at the newest segment of `target` and reopen it.

        With `only_new` a route that already leads somewhere stays unchanged.
        """
        now = self._store.clock()
        tip = chain.tip(conn, SessionId(sessions.known(conn, target)["id"]))
        row = sessions.known(conn, tip, lock=True)
        target_route = _Route(conn, scope, route, now)
        if not only_new:
            target_route.turn_to(tip, entry)
        elif not target_route.point(tip, entry, only_new=True):
            return Handle(ConversationId(row["root_id"]), tip)
        if row["ended_at"] is not None:
            sessions.reopen(conn, tip, now)
        return Handle(ConversationId(row["root_id"]), tip)

    @in_transaction
    def take_along(
        self,
        conn: Connection,
        route: str,
        new_route: str,
        *,
        scope: str = "",
        entry: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> bool:
        """The chat of `route` has a new id, which `fields` name: let `new_route` lead to the same conversation.

        False, with nothing changed, when `new_route` leads somewhere already. `route` stays, for work under way.
        """
        old = _Route(conn, scope, route, self._store.clock()).row()
        session = None if old is None or old[0] is None else sessions.fetch(conn, chain.tip(conn, old[0]), lock=True)
        if old is None or session is None:
            return False
        if not _Route(conn, scope, new_route, old[2]).point(session["id"], entry, only_new=True):
            return False
        if session["session_key"] == route:  # it began there, and was not only resumed there
            for segment, _ in conn.rows(chain.Q.segments, (session["root_id"],)):
                set_columns(conn, "sessions", segment, session_key=new_route, **(fields or {}))
        return True

    def reset(
        self,
        route: str,
        *,
        scope: str = "",
        reason: str = "session_reset",
        source: str | None = None,
        owner: PersonId | None = None,
        session_id: str | None = None,
        entry: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Resolved:
        """Point `route` at a new, empty conversation with the people and the chat of the old one."""
        new = New(source or "", owner, session_id, dict(fields or {}), entry)
        return self._store.engine.write(lambda conn: _Route(conn, scope, route, self._store.clock()).reset(reason, new))

    def end(self, session_id: str, reason: str) -> bool:
        """End the conversation at its newest segment; the first real reason stays."""
        now = self._store.clock()
        return self._store.engine.write(lambda conn: sessions.promote(conn, chain.tip(conn, session_id), reason, now))

    @in_transaction
    def reopen(self, conn: Connection, session_id: str) -> Handle:
        now = self._store.clock()
        tip = chain.tip(conn, SessionId(sessions.known(conn, session_id)["id"]))
        sessions.reopen(conn, tip, now)
        return Handle(ConversationId(sessions.known(conn, tip)["root_id"]), tip)

    @in_transaction
    def delete(self, conn: Connection, session_id: str) -> int:
        """Erase the whole conversation of `session_id`; returns its number of segments.

        Raises `ConversationHeld` when somebody works on it.
        """
        from hermes_state.conversations import delete

        root = sessions.known(conn, session_id)["root_id"]  # lock its lease before its rows
        segments = [row[0] for row in conn.rows(chain.Q.segments, (root,))]
        return delete.remove_idle(self._store, conn, segments).named

    def owner(self, conversation_id: str) -> PersonId | None:
        """The owner of a conversation; None for a group's or an unknown person's."""
        found = scalar(self._rows(Q.owner, (conversation_id,)))
        return None if found is None else PersonId(found)


_BY_ACCIDENT = ("agent_close", "ws_orphan_reap")
_PLACE = ("user_id", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "profile_name")
"""Columns that a reset keeps: who writes, and in which chat."""


def begin(
    conn: Connection, new: New, now: float, *, route: str | None = None, kind: str = "new", origin: str | None = None
) -> Handle:
    """Begin a conversation, for a `route` if given; no route leads to it yet."""
    row = {name: columns.clean(value) for name, value in new.fields.items()}
    row |= {"source": columns.clean(new.source) or "unknown", "started_at": now, "last_active": now}
    if route is not None:
        row["session_key"] = route
    session_id = insert(conn, row, new.session_id, now)
    chain.found(conn, session_id, kind, origin, new.owner or sessions.owner_for(conn, row), now)
    if new.said:
        transcript.insert_rows(conn, session_id, new.said, started_at=now)
    return Handle(ConversationId(session_id), session_id)


class _Route(NamedTuple):
    """One route, in a transaction."""

    conn: Connection
    scope: str
    key: str
    now: float

    def row(self, key: str | None = None) -> Row | None:
        """(session id, entry, time), locked; of `key` if given."""
        return first(self.conn.rows(routes.Q.route, (self.scope, key or self.key)))

    def point(self, session_id: str, entry: Mapping[str, Any] | None, *, only_new: bool = False) -> bool:
        text = None if entry is None else json.dumps(entry, ensure_ascii=False)
        return routes.put(self.conn, self.scope, self.key, session_id, text, self.now, only_new=only_new)

    def begin(self, new: New, *, kind: str = "new", origin: str | None = None) -> Handle:
        """Begin a conversation and point the route at it."""
        handle = begin(self.conn, new, self.now, route=self.key, kind=kind, origin=origin)
        self.point(handle.session_id, new.entry)
        return handle

    def follow(
        self, new: New | None, reset_rule: ResetRule | None, search: Search | None, sender: Sender | None
    ) -> Resolved | None:
        """The route's conversation at its newest segment; `new` is begun if there is none."""
        conn, found = self.conn, self.row()
        if (found is None or found[0] is None) and search is not None:
            found = self._find(search, sender) or found
        if found is None or found[0] is None:
            if new is None:
                return None
            return self._first(new.first()) or self.follow(new, reset_rule, search, sender)
        named = found[0]
        session = sessions.fetch(conn, chain.tip(conn, named))
        if session is None:  # an imported route whose session was never stored: create it at first use
            if new is None:
                return None
            return Resolved(self.begin(New(new.source, new.owner, named, new.fields, None)), created=True)
        if new is not None and sender is not None and routes.is_of_others(conn, session["id"], sender):
            log.warn("route_of_others", "route %s led to another person's conversation; a new one is opened", self.key)
            first_one = new.first()  # it takes nothing over from the other conversation, which stays as it is
            return Resolved(self.begin(first_one), created=True, entry=first_one.entry)
        if session["id"] != named:
            conn.run(routes.Q.move_routes, (session["id"], named))
        state = self._state(found, session)
        reason = None if reset_rule is None else reset_rule(state)
        ended = session["end_reason"] if session["ended_at"] is not None else None
        if ended is not None and ended != "compression" and ended not in _BY_ACCIDENT:
            return None if new is None else replace(self._reset(state, reason or ended, new), over=True)
        if reason is not None:
            return self._reset(state, reason, new or New("", None, None, {}, None))
        if ended is not None:
            sessions.reopen(conn, session["id"], self.now)
        return Resolved(Handle(ConversationId(session["root_id"]), SessionId(session["id"])))

    def reset(self, reason: str, new: New) -> Resolved:
        """Point the route at a new, empty conversation."""
        found = self.row()
        old = None if found is None or found[0] is None else sessions.fetch(self.conn, chain.tip(self.conn, found[0]))
        return self._reset(None if found is None or old is None else self._state(found, old), reason, new)

    def _reset(self, before: RouteState | None, reason: str, new: New) -> Resolved:
        if before is None:
            new = new.first()
            return Resolved(self.begin(new), created=True, entry=new.entry)
        old = before.session
        self._leave(old["id"], reason)
        fields = {name: old[name] for name in _PLACE} | new.fields
        owner = new.owner or scalar(self.conn.rows(Q.owner, (old["root_id"],)))
        entry = new.entry if new.fresh is None else new.fresh(reason, before)
        new = New(new.source or old["source"], owner, new.session_id, fields, entry)
        previous = SessionId(old["id"])
        handle = self.begin(new, kind="reset", origin=previous)
        return Resolved(handle, created=True, reset_reason=reason, previous=previous, entry=entry)

    def _first(self, new: New) -> Resolved | None:
        """Begin the first conversation of the route; None when another process did so meanwhile."""
        handle = begin(self.conn, new, self.now, route=self.key)
        if self.point(handle.session_id, new.entry, only_new=True):
            return Resolved(handle, created=True, entry=new.entry)
        from hermes_state.conversations import delete

        delete.remove(self.conn, [handle.session_id])
        return None

    def turn_to(self, session_id: str, entry: Mapping[str, Any] | None) -> None:
        """Point the route at `session_id`, and end the old conversation unless another route leads to it."""
        before = self.row()
        if before is not None and before[0] == session_id:
            return
        if before is not None and before[0] is not None and (left := chain.tip(self.conn, before[0])) != session_id:
            self._leave(left, "session_switch")
        self.point(session_id, entry)

    def _leave(self, session_id: str, reason: str) -> None:
        """End a conversation that the route leaves, unless another route still leads to it."""
        if not self.conn.rows(routes.Q.other_route, (session_id, self.scope, self.key)):
            sessions.promote(self.conn, session_id, reason, self.now)

    def _state(self, found: Row, session: Mapping[str, Any]) -> RouteState:
        return RouteState(SessionKey(self.key), columns.decode_object(found[1]), found[2], session)

    def _find(self, search: Search, sender: Sender | None) -> Row | None:
        """The route's row, taken from a route with an older key or from a session without a route."""
        conn, older = self.conn, [name for name in search.older_keys if is_possible_id(name)]
        for name in older:
            row = self.row(name)
            if row is None or row[0] is None:
                continue
            if search.is_ours(columns.decode_object(row[1]), sessions.fetch(conn, row[0])):
                conn.run(routes.Q.rename, (self.key, self.scope, name))
                conn.run(routes.Q.rename_peer, (self.key, row[0], name))
                return row
        for name in (self.key, *older):
            found = conn.execute(routes.Q.latest_by_key, (search.source, name)).dicts()
            if not found or (sender is not None and routes.is_of_others(conn, found[0]["id"], sender)):
                continue
            if name == self.key or search.is_ours({}, found[0]):
                return self._create_from_session(found[0], search)
        return None

    def _create_from_session(self, session: dict[str, Any], search: Search) -> Row:
        text = columns.encode_json({**search.entry, "session_id": session["id"]}) or "{}"
        used = session["last_active"]
        routes.put(self.conn, self.scope, self.key, session["id"], text, used)
        self.conn.run(routes.Q.rename_peer, (self.key, session["id"], session["session_key"]))
        return (session["id"], text, used)


CARRIED = (
    "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "model",
    "model_config", "system_prompt", "cwd", "git_branch", "git_repo_root", "profile_name", "title", "preview",
    "archived", "compression_fallback_streak",
)  # fmt: skip
"""Columns that a segment takes from the one it continues or branches from."""


@dataclass(frozen=True, slots=True)
class New:
    """The initial values of a new conversation."""

    source: str
    owner: PersonId | None
    session_id: str | None
    fields: dict[str, Any]
    entry: Mapping[str, Any] | None
    fresh: Fresh | None = None
    said: tuple[Encoded, ...] = ()
    """Earlier messages from elsewhere: the first conversation of a route begins with them."""

    def first(self) -> New:
        """The values for a route that had no conversation before."""
        return self if self.fresh is None else replace(self, entry=self.fresh(None, None))


def insert(conn: Connection, row: dict[str, Any], wanted: str | None, now: float) -> SessionId:
    """Insert under the wanted id, which must be free, or under a fresh one."""
    for _ in range(8):
        session_id = SessionId(checked_id(wanted)) if wanted is not None else new_session_id(now)
        if put(conn, "sessions", {"root_id": session_id, **row, "id": session_id}):
            return session_id
        if wanted is not None:
            raise IdTaken(f"a session {wanted!r:.80} exists already")
    raise IdTaken("no free session id was found")  # eight collisions of 32 random bits within one second


@dataclass(frozen=True, slots=True)
class Handle:
    """A segment and its conversation."""

    conversation_id: ConversationId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Resolved:
    """The conversation of a route, and the changes that finding it needed."""

    handle: Handle
    created: bool = False
    reset_reason: str | None = None
    previous: SessionId | None = None
    over: bool = False
    """Whether the previous conversation had already ended."""
    entry: Mapping[str, Any] | None = None
    """The route's entry, if this call read it."""
    message_count: int | None = None
    """The segment's row, if this call read it."""


@dataclass(frozen=True, slots=True)
class RouteState:
    """The input of a reset rule. Times are epoch seconds."""

    session_key: SessionKey
    entry: Mapping[str, Any]
    updated_at: float
    session: Mapping[str, Any]


ResetRule = Callable[[RouteState], str | None]
Fresh = Callable[[str | None, RouteState | None], Mapping[str, Any]]
"""Makes the entry of a new conversation from the reset reason (None: the first conversation) and the old state."""


@dataclass(frozen=True, slots=True)
class Search:
    """How to find an earlier route or session of the same chat."""

    source: str
    older_keys: tuple[str, ...] = ()
    is_ours: Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool] = field(default=lambda entry, session: False)
    """Whether a route with an older key, its entry and its session's row, belongs to this chat."""
    entry: Mapping[str, Any] = field(default_factory=dict)
    """For a route that has to be created."""
