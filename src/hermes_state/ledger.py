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
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hermes_state import beginnings, chain, leading, leases, messages, sessions, transcript, values
from hermes_state.beginnings import CARRIED, New
from hermes_state.engine.base import Connection, scalar
from hermes_state.errors import HeadMoved, SessionEnded
from hermes_state.handles import Fresh, Handle, Q, ResetRule, Resolved, Sender
from hermes_state.ids import ConversationId, PersonId, SessionId
from hermes_state.store import Store

if TYPE_CHECKING:
    from hermes_state import lost_routes
    from hermes_state.unrotate import Uncompressed


class Resolving(TypedDict, total=False):
    """How a route is followed."""

    scope: str
    reset: ResetRule | None
    source: str | None
    """Of a conversation that is opened where there is none."""
    owner: PersonId | None
    fields: Mapping[str, Any] | None
    fresh: Fresh | None
    search: lost_routes.Search | None
    """How the conversation of a route that is not there may be found again."""
    sender: Sender | None
    """Who wrote: a conversation of somebody else is not used, a new one is opened instead."""
    said: Iterable[Mapping[str, Any]]
    """What the first conversation of a route begins with. Stored with it or not at all."""


class Ledger:
    """The verbs, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _encoded(self, said: Iterable[Mapping[str, Any]]) -> tuple[transcript.Encoded, ...]:
        now, top = self._store.clock(), self._store.limits.message_bytes
        return tuple(transcript.encode(message, now, top) for message in said)

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
        new = New(source, owner, session_id, dict(fields or {}), entry)
        return self._store.engine.write(lambda conn: leading.begin(conn, new, route, scope, self._store.clock()))

    def resolve(self, route: str, **how: Unpack[Resolving]) -> Resolved | None:
        """Where `route` leads. With `source`, a conversation is opened where there is none; without, None."""
        return self._store.engine.write(self.resolving(route, **how))

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
        sender: Sender | None = None,
        said: Iterable[Mapping[str, Any]] = (),
    ) -> Callable[[Connection], Resolved | None]:
        """`resolve` as a transaction for whoever has a queue of its own."""
        new = None if source is None else New(source, owner, None, dict(fields or {}), None, fresh, self._encoded(said))
        return lambda conn: leading.follow(
            conn, route, scope, self._store.clock(), reset_rule=reset, new=new, search=search, sender=sender
        )

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
        from hermes_state import unrotate  # most conversations are never compressed

        store = self._store
        now, rows = store.clock(), self._encoded(compacted)

        def run(conn: Connection) -> Handle:
            parent = sessions.known(conn, session_id, lock=True)
            root = ConversationId(parent["root_id"])
            if fence is not None:
                leases.check(store, conn, root, fence)
            if parent["end_reason"] == "compression":
                raise SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))
            if expected_head is not None and scalar(conn.rows(Q.live_head, (session_id,))) != expected_head:
                raise HeadMoved(f"session {session_id} was written to while it was being compressed")
            conn.run(Q.close_parent, (now, session_id))
            child = {name: parent[name] for name in CARRIED}
            child |= {"parent_session_id": session_id, "root_id": root, "started_at": now, "last_active": now}
            if system_prompt is not None:
                child["system_prompt"] = sessions.clean(system_prompt)
            child_id = beginnings.insert(conn, child, new_id, now)
            messages.insert_rows(conn, child_id, rows, started_at=parent["last_active"])
            conn.run(Q.keep_preview, (parent["preview"], child_id))
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
        clean_title = values.sanitize_title(title, most=self._store.limits.title_chars)

        def run(conn: Connection) -> Handle:
            origin = sessions.known(conn, session_id, lock=True)
            marks = values.decode_json(origin["model_config"])
            marks = {**(marks if isinstance(marks, dict) else {}), "_branched_from": session_id}
            row = {name: origin[name] for name in CARRIED if name not in ("title", "archived")}
            row |= {
                "model_config": json.dumps(marks, ensure_ascii=False), "parent_session_id": session_id,
                "started_at": now, "last_active": now,
            }  # fmt: skip
            if route is None:  # it is nobody's place yet: only a route gives it a peer
                row |= {"session_key": None}
            branch_id = beginnings.insert(conn, row, new_id, now)
            owner = scalar(conn.rows(Q.owner, (origin["root_id"],)))
            beginnings.found(conn, branch_id, "branch", session_id, owner, now)
            last = 2**62 if upto_message_id is None else upto_message_id
            conn.run(messages.Q.copy_live, (branch_id, session_id, last))
            beginnings.count_copied(conn, branch_id, now)
            if clean_title is not None:
                from hermes_state import titles

                titles.set_title(conn, branch_id, clean_title)
            if route is not None:
                leading.turn(conn, route, scope, branch_id, now, entry=None)
            return Handle(ConversationId(branch_id), branch_id)

        return self._store.engine.write(run)

    def switch(
        self,
        route: str,
        target: str,
        *,
        scope: str = "",
        entry: Mapping[str, Any] | None = None,
        only_new: bool = False,
    ) -> Handle:
        """`route` leads to the newest segment of `target` from now on, which is open again.

        With `only_new` a route that leads somewhere already stays where it is.
        """
        now = self._store.clock()

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(sessions.known(conn, target)["id"]))
            row = sessions.known(conn, tip, lock=True)
            if not only_new:
                leading.turn(conn, route, scope, tip, now, entry=entry)
            elif not leading.claim(conn, scope, route, tip, entry, now):
                return Handle(ConversationId(row["root_id"]), tip)
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
        new = New(source or "", owner, session_id, dict(fields or {}), entry)
        return self._store.engine.write(
            lambda conn: leading.reset(conn, route, scope, self._store.clock(), reason=reason, new=new)
        )

    def end(self, session_id: str, reason: str) -> bool:
        """End the conversation at its newest segment; the first real reason stays."""
        now = self._store.clock()
        return self._store.engine.write(lambda conn: sessions.promote(conn, chain.tip(conn, session_id), reason, now))

    def reopen(self, session_id: str) -> Handle:
        now = self._store.clock()

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(sessions.known(conn, session_id)["id"]))
            sessions.reopen(conn, tip, now)
            return Handle(ConversationId(sessions.known(conn, tip)["root_id"]), tip)

        return self._store.engine.write(run)

    def delete(self, session_id: str) -> int:
        """Erase the whole conversation that `session_id` is part of: how many segments there were.

        Raises `ConversationHeld` when somebody is at work on it.
        """
        from hermes_state import deletion

        def run(conn: Connection) -> int:
            root = sessions.known(conn, session_id, lock=True)["root_id"]
            segments = [row[0] for row in conn.rows(chain.Q.segments, (root,))]
            return deletion.remove_idle(self._store, conn, segments).asked

        return self._store.engine.write(run)

    def handle(self, session_id: str) -> Handle:
        """The newest segment of the conversation that `session_id` is part of, now."""

        def run(conn: Connection) -> Handle:
            tip = chain.tip(conn, SessionId(sessions.known(conn, session_id)["id"]))
            return Handle(ConversationId(sessions.known(conn, tip)["root_id"]), tip)

        return self._store.engine.read(run)

    def owner(self, conversation_id: str) -> PersonId | None:
        """Whose conversation it is; None for one of several people, or of nobody we know."""
        found = scalar(self._store.engine.read(lambda conn: conn.rows(Q.owner, (conversation_id,))))
        return None if found is None else PersonId(found)

    def set_owner(self, conversation_id: str, owner: PersonId | None) -> None:
        self._store.engine.write(lambda conn: conn.run(Q.set_owner, (owner, conversation_id)))
