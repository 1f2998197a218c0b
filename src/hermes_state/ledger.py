"""The ledger: the only code that moves a conversation.

A conversation is a chain of segments; a route is a place that points at one. Every verb here is one transaction, so
none of them can be seen half done: not by another process, and not after a crash at any instant.

    open      a new conversation, and the route that leads to it
    resolve   what a route points at now: healed to the newest segment first, then the reset rule is asked
    rotate    compression: the parent ends, the child takes over messages, routes, title and tip
    unrotate  its undo: the parent goes on, with what was said in the child since
    branch    a new conversation that begins as a copy
    switch    a route turns to another conversation
    reset     a route gets a new conversation; the old one ends when nobody else is on it
    end, reopen, delete

Leases, approvals and budgets hang on the conversation's id, which no verb changes. A turn passes its `fence`; a stale
one stops the verb before it writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_config.records import record
from hermes_state import chain, messages, sessions, transcript, values
from hermes_state.engine.base import Connection, Row, first, scalar
from hermes_state.errors import HeadMoved, IdTaken, SessionEnded, SessionNotFound
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey, checked_id, new_session_id
from hermes_state.statements import Queries
from hermes_state.store import Store

if TYPE_CHECKING:
    from hermes_state import lost_routes
    from hermes_state.unrotate import Uncompressed

Q = Queries("ledger")

_BY_ACCIDENT = ("agent_close", "ws_orphan_reap")
_CARRIED = (
    "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "model",
    "model_config", "system_prompt", "cwd", "git_branch", "git_repo_root", "profile_name", "title", "preview",
    "archived", "compression_fallback_streak",
)  # fmt: skip


@record
class Handle:
    """A segment and the conversation it is part of."""

    conversation_id: ConversationId
    session_id: SessionId


@record
class Resolved:
    """What a route led to, and what had to be done for it."""

    handle: Handle
    created: bool = False
    reset_reason: str | None = None
    previous: SessionId | None = None
    over: bool = False
    """The conversation before this one had been ended already, by whoever closed it."""
    entry: Mapping[str, Any] | None = None
    """What is remembered of the route, where it was read on the way."""


@record
class RouteState:
    """What a reset rule may look at. Times are epoch seconds."""

    session_key: SessionKey
    entry: Mapping[str, Any]
    updated_at: float
    session: Mapping[str, Any]


ResetRule = Callable[[RouteState], str | None]
Fresh = Callable[[str | None, RouteState | None], Mapping[str, Any]]
"""The entry of a new conversation, from why it begins (None: it is the first) and what the route was before."""


class Ledger:
    """The verbs, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(
        self,
        *,
        source: str,
        route: str | None = None,
        scope: str = "",
        owner: PersonId | None = None,
        session_id: str | None = None,
        entry: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Handle:
        """A new conversation; `route`, when given, leads to it from now on."""
        new = _New(source, owner, session_id, dict(fields or {}), entry)
        return self._store.engine.write(lambda conn: self._open(conn, new, route, scope))

    def resolve(
        self,
        route: str,
        *,
        scope: str = "",
        reset: ResetRule | None = None,
        source: str | None = None,
        owner: PersonId | None = None,
        fields: Mapping[str, Any] | None = None,
        fresh: Fresh | None = None,
        search: lost_routes.Search | None = None,
    ) -> Resolved | None:
        """Where `route` leads. With `source`, a conversation is opened where there is none; without, None.

        `search` says how the conversation of a route that is not there may be found again.
        """
        run = self.resolving(
            route, scope=scope, reset=reset, source=source, owner=owner, fields=fields, fresh=fresh, search=search
        )
        return self._store.engine.write(run)

    def resolving(
        self,
        route: str,
        *,
        scope: str = "",
        reset: ResetRule | None = None,
        source: str | None = None,
        owner: PersonId | None = None,
        fields: Mapping[str, Any] | None = None,
        fresh: Fresh | None = None,
        search: lost_routes.Search | None = None,
    ) -> Callable[[Connection], Resolved | None]:
        """`resolve` as a transaction for whoever has a queue of its own."""
        new = None if source is None else _New(source, owner, None, dict(fields or {}), None, fresh)
        return lambda conn: self._resolve(conn, route, scope, reset, new, search)

    def rotate(
        self,
        session_id: str,
        compacted: Iterable[Mapping[str, Any]],
        *,
        fence: int | None = None,
        expected_head: int | None = None,
        new_id: str | None = None,
        system_prompt: str | None = None,
    ) -> Handle:
        """End the segment by compression and go on in a child that starts with `compacted`.

        `expected_head` is the id of the newest live message the summary was made from; when something was written
        after it, `HeadMoved` is raised and nothing changes.
        """
        from hermes_state import unrotate  # it stands on this module

        store = self._store
        now = store.clock()
        rows = [transcript.encode(message, now, store.limits.message_bytes) for message in compacted]

        def run(conn: Connection) -> Handle:
            parent = _segment(conn, session_id, lock=True)
            root = ConversationId(parent["root_id"])
            self._fenced(conn, root, fence)
            if parent["end_reason"] == "compression":
                raise SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))
            if expected_head is not None and scalar(conn.rows(Q.live_head, (session_id,))) != expected_head:
                raise HeadMoved(f"session {session_id} was written to while it was being compressed")
            conn.run(Q.close_parent, (now, session_id))
            child = {name: parent[name] for name in _CARRIED}
            child |= {"parent_session_id": session_id, "root_id": root, "started_at": now, "last_active": now}
            if system_prompt is not None:
                child["system_prompt"] = sessions.clean(system_prompt)
            child_id = _insert_new(conn, child, new_id, now)
            messages.insert_rows(conn, child_id, rows, started_at=parent["last_active"])
            conn.run("UPDATE sessions SET preview = COALESCE(?, preview) WHERE id = ?", (parent["preview"], child_id))
            unrotate.mark(conn, child_id)
            conn.run(Q.move_routes, (child_id, session_id))
            conn.run(Q.rotated, (child_id, root))
            chain.settle(conn, root)
            return Handle(root, child_id)

        return store.engine.write(run)

    def unrotate(self, session_id: str, *, fence: int | None = None) -> Uncompressed:
        """Undo the compression that made `session_id`: the segment before it goes on, and nothing said is lost."""
        from hermes_state import unrotate

        return unrotate.undo(self._store, session_id, fence=fence)

    def branch(
        self,
        session_id: str,
        *,
        upto_message_id: int | None = None,
        title: str | None = None,
        new_id: str | None = None,
        route: str | None = None,
        scope: str = "",
    ) -> Handle:
        """A new conversation that begins with what `session_id` shows (up to a message); `route` moves to it."""
        now = self._store.clock()
        clean_title = values.sanitize_title(title)

        def run(conn: Connection) -> Handle:
            origin = _segment(conn, session_id, lock=True)
            marks = values.decode_json(origin["model_config"])
            marks = {**(marks if isinstance(marks, dict) else {}), "_branched_from": session_id}
            row = {name: origin[name] for name in _CARRIED if name not in ("title", "archived")}
            row |= {
                "model_config": json.dumps(marks, ensure_ascii=False), "parent_session_id": session_id,
                "started_at": now, "last_active": now,
            }  # fmt: skip
            if route is None:  # it is nobody's place yet: only a route gives it a peer
                row |= {"session_key": None}
            branch_id = _insert_new(conn, row, new_id, now)
            owner = scalar(conn.rows(Q.owner, (origin["root_id"],)))
            _found(conn, branch_id, "branch", session_id, owner, now)
            last = 2**62 if upto_message_id is None else upto_message_id
            conn.run(messages.Q.copy_live, (branch_id, session_id, last))
            _count_copied(conn, branch_id, now)
            if clean_title is not None:
                from hermes_state import titles

                titles.set_title(conn, branch_id, clean_title)
            if route is not None:
                before = first(conn.rows(Q.route, (scope, route)))
                if before is not None and before[0] is not None:
                    self._leave(conn, before[0], route, scope, "session_switch", now)
                self._point(conn, scope, route, branch_id, None, now)
            return Handle(ConversationId(branch_id), branch_id)

        return self._store.engine.write(run)

    def switch(self, route: str, target: str, *, scope: str = "", entry: Mapping[str, Any] | None = None) -> Handle:
        """`route` leads to the newest segment of `target` from now on, which is open again."""
        now = self._store.clock()

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(_segment(conn, target)["id"]))
            row = _segment(conn, tip, lock=True)
            before = first(conn.rows(Q.route, (scope, route)))
            if before is None or before[0] != tip:
                if before is not None and before[0] is not None:
                    self._leave(conn, before[0], route, scope, "session_switch", now)
                self._point(conn, scope, route, tip, entry, now)
            if row["ended_at"] is not None:
                sessions.reopen(conn, tip, now)
            return Handle(ConversationId(row["root_id"]), tip)

        return self._store.engine.write(run)

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
        """`route` leads to a new, empty conversation; who it was and where it is are taken over from the old one."""
        new = _New(source or "", owner, session_id, dict(fields or {}), entry)

        def run(conn: Connection) -> Resolved:
            found = first(conn.rows(Q.route, (scope, route)))
            old = None if found is None or found[0] is None else sessions.fetch(conn, found[0])
            before = None if found is None or old is None else _state(route, found, old)
            return self._reset(conn, route, scope, before, reason, new)

        return self._store.engine.write(run)

    def end(self, session_id: str, reason: str) -> bool:
        """End the conversation at its newest segment; the first real reason stays."""
        now = self._store.clock()
        return self._store.engine.write(lambda conn: sessions.promote(conn, chain.tip(conn, session_id), reason, now))

    def reopen(self, session_id: str) -> Handle:
        now = self._store.clock()

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(_segment(conn, session_id)["id"]))
            sessions.reopen(conn, tip, now)
            return Handle(ConversationId(_segment(conn, tip)["root_id"]), tip)

        return self._store.engine.write(run)

    def delete(self, session_id: str) -> int:
        """Erase the whole conversation that `session_id` is part of: how many segments there were."""
        from hermes_state import deletion

        def run(conn: Connection) -> int:
            root = _segment(conn, session_id, lock=True)["root_id"]
            segments = [row[0] for row in conn.rows(chain.Q.segments, (root,))]
            return deletion.erase(conn, segments)

        return self._store.engine.write(run)

    def handle(self, session_id: str) -> Handle:
        """The newest segment of the conversation that `session_id` is part of, now."""

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(_segment(conn, session_id)["id"]))
            return Handle(ConversationId(_segment(conn, tip)["root_id"]), tip)

        return self._store.engine.read(run)

    def owner(self, conversation_id: str) -> PersonId | None:
        """Whose conversation it is; None for one of several people, or of nobody we know."""
        found = scalar(self._store.engine.read(lambda conn: conn.rows(Q.owner, (conversation_id,))))
        return None if found is None else PersonId(found)

    def set_owner(self, conversation_id: str, owner: PersonId | None) -> None:
        self._store.engine.write(lambda conn: conn.run(Q.set_owner, (owner, conversation_id)))

    # -- inside the transactions -------------------------------------------------------------------------

    def _open(
        self, conn: Connection, new: _New, route: str | None, scope: str, kind: str = "new", origin: str | None = None
    ) -> Handle:
        now = self._store.clock()
        row = {name: sessions.clean(value) for name, value in new.fields.items()}
        row |= {"source": sessions.clean(new.source) or "unknown", "started_at": now, "last_active": now}
        if route is not None:
            row["session_key"] = route
        session_id = _insert_new(conn, row, new.session_id, now)
        _found(conn, session_id, kind, origin, new.owner or sessions.owner_for(conn, row), now)
        if route is not None:
            self._point(conn, scope, route, session_id, new.entry, now)
        return Handle(ConversationId(session_id), session_id)

    def _resolve(
        self,
        conn: Connection,
        route: str,
        scope: str,
        reset: ResetRule | None,
        new: _New | None,
        search: lost_routes.Search | None,
    ) -> Resolved | None:
        found = first(conn.rows(Q.route, (scope, route)))
        if (found is None or found[0] is None) and search is not None:
            from hermes_state import lost_routes  # it stands on this module

            found = lost_routes.find(conn, scope, route, search) or found
        if found is None or found[0] is None:
            return None if new is None else Resolved(self._open(conn, new.first(), route, scope), created=True)
        named = found[0]
        session = sessions.fetch(conn, chain.tip(conn, named))
        if session is None:  # an imported route whose session was never stored: it is made at first use
            if new is None:
                return None
            handle = self._open(conn, _New(new.source, new.owner, named, new.fields, None), route, scope)
            return Resolved(handle, created=True)
        if session["id"] != named:
            conn.run(Q.move_routes, (session["id"], named))
        state = _state(route, found, session)
        reason = None if reset is None else reset(state)
        ended = session["end_reason"] if session["ended_at"] is not None else None
        if ended is not None and ended != "compression" and ended not in _BY_ACCIDENT:
            if new is None:
                return None
            return replace(self._reset(conn, route, scope, state, reason or ended, new), over=True)
        if reason is not None:
            return self._reset(conn, route, scope, state, reason, new or _New("", None, None, {}, None))
        if ended is not None:
            sessions.reopen(conn, session["id"], self._store.clock())
        return Resolved(Handle(ConversationId(session["root_id"]), SessionId(session["id"])))

    def _reset(
        self, conn: Connection, route: str, scope: str, before: RouteState | None, reason: str, new: _New
    ) -> Resolved:
        if before is None:
            return Resolved(self._open(conn, new.first(), route, scope), created=True)
        old = before.session
        self._leave(conn, old["id"], route, scope, reason, self._store.clock())
        place = ("user_id", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "profile_name")
        fields = {name: old[name] for name in place} | new.fields
        owner = new.owner or scalar(conn.rows(Q.owner, (old["root_id"],)))
        entry = new.entry if new.fresh is None else new.fresh(reason, before)
        new = _New(new.source or old["source"], owner, new.session_id, fields, entry)
        previous = SessionId(old["id"])
        handle = self._open(conn, new, route, scope, kind="reset", origin=previous)
        return Resolved(handle, created=True, reset_reason=reason, previous=previous)

    def _leave(self, conn: Connection, session_id: str, route: str, scope: str, reason: str, now: float) -> None:
        """End what a route turns away from, unless another route still leads there."""
        if not conn.rows(Q.other_route, (session_id, scope, route)):
            sessions.promote(conn, session_id, reason, now)

    def _point(
        self, conn: Connection, scope: str, route: str, session_id: str, entry: Mapping[str, Any] | None, now: float
    ) -> None:
        text = None if entry is None else json.dumps(entry, ensure_ascii=False)
        conn.run(Q.point_route, (scope, checked_id(route, what="route"), session_id, text, now, text))

    def _fenced(self, conn: Connection, conversation_id: ConversationId, fence: int | None) -> None:
        if fence is not None:
            from hermes_state import leases

            leases.check(self._store, conn, conversation_id, fence)


@record
class _New:
    """What a new conversation starts with."""

    source: str
    owner: PersonId | None
    session_id: str | None
    fields: dict[str, Any]
    entry: Mapping[str, Any] | None
    fresh: Fresh | None = None

    def first(self) -> _New:
        """For a route that had no conversation before."""
        return self if self.fresh is None else replace(self, entry=self.fresh(None, None))


def _state(route: str, found: Row, session: Mapping[str, Any]) -> RouteState:
    entry = values.decode_json(found[1])
    return RouteState(SessionKey(route), entry if isinstance(entry, dict) else {}, found[2], session)


def _segment(conn: Connection, session_id: str, *, lock: bool = False) -> dict[str, Any]:
    row = sessions.fetch(conn, checked_id(session_id), lock=lock)
    if row is None:
        raise SessionNotFound(f"no session {session_id!r:.80}", hint="`hermes sessions list` shows what there is.")
    return row


def _insert_new(conn: Connection, row: dict[str, Any], wanted: str | None, now: float) -> SessionId:
    """Insert under the wanted id, which must be free, or under a fresh one."""
    for _ in range(8):
        session_id = SessionId(checked_id(wanted)) if wanted is not None else new_session_id(now)
        if sessions.insert(conn, {"root_id": session_id, **row, "id": session_id}):
            return session_id
        if wanted is not None:
            raise IdTaken(f"a session {wanted!r:.80} exists already")
    raise IdTaken("no free session id was found")  # eight collisions of 32 random bits within one second


def _count_copied(conn: Connection, session_id: str, now: float) -> None:
    copied = conn.rows(Q.live_rows, (session_id,))
    calls = sum(transcript.calls_of(role, tool_calls) for role, tool_calls, _ in copied)
    newest = max((timestamp for _, _, timestamp in copied), default=now)
    conn.run(Q.set_copied, (len(copied), calls, newest, session_id))
    messages.settle_minute(conn, session_id)


def _found(conn: Connection, root: str, kind: str, origin: str | None, owner: str | None, now: float) -> None:
    chain.found_conversation(conn, root, tip_id=root, kind=kind, origin=origin, owner=owner, now=now)
    chain.settle(conn, root)
