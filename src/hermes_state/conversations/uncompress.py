"""Undoing a compression: the compressed segment continues, and no later message is lost.

One transaction holds the conversation's lease, so it never runs beside a turn. The parent is open again with title and
routes, the messages of the child since the compression are appended to it, and the child is retired: its rows stay in
the conversation but are not shown (`end_reason` `uncompressed`), its id leads to the parent, and it is deleted with the
conversation.

`rotate` marks the rows that the compression itself wrote to the child. Where the mark is missing (a home of another
program, an imported archive), or these rows were changed since, the two kinds of rows cannot be told apart and nothing
is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state import columns
from hermes_state.conversations import chain, routes, sessions, transcript
from hermes_state.conversations.ledger import Handle, Q
from hermes_state.errors import ConversationHeld, InvalidValue
from hermes_state.ids import ConversationId, SessionId
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, set_columns
from hermes_state.turns import leases

if TYPE_CHECKING:
    from hermes_state.storage.base import Store

_QUIET_SECONDS = 3_600.0
_QUIET = "a person undid the last compression"
_TAKEN_BACK = (
    "model", "model_config", "system_prompt", "cwd", "git_branch", "git_repo_root", "session_key", "display_name",
    "origin_json", "title", "ended_at", "end_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Uncompressed:
    handle: Handle
    """The segment that continues."""
    brought: int
    """How many messages since the compression were moved to it."""


def mark(conn: Connection, child_id: str) -> None:
    """Record that the compression wrote all rows that the child has now."""
    count, head = conn.rows(Q.carried, (child_id, columns.NO_LIMIT))[0]
    meta.put(conn, _key(child_id), f"{count}:{head}")


def carried_up_to(store: Store, child_id: str) -> int:
    """The last row of a segment that its compression wrote; 0 for a segment that no compression of ours made."""
    stored = store.engine.read(lambda conn: meta.get(conn, _key(child_id)))
    return 0 if stored is None else int(stored.partition(":")[2])


def undo(store: Store, session_id: str) -> Uncompressed:
    """Undo the compression that made `session_id`; refuse while a turn runs, or when it was compressed again."""

    def run(conn: Connection) -> Uncompressed:
        root = ConversationId(sessions.known(conn, session_id)["root_id"])
        with leases.held(store, conn, root, "uncompress"):
            if leases.running_turn(conn, root) is not None:
                raise ConversationHeld
            return _undo(conn, sessions.known(conn, session_id, lock=True), store.clock())

    return store.engine.write(run)


def _undo(conn: Connection, child: dict[str, Any], now: float) -> Uncompressed:
    parent = _parent(conn, child)
    head = _carried(conn, child["id"])
    count, calls, newest = transcript.live_counts(conn, child["id"], after=head)
    conn.run(transcript.Q.copy_live, (parent["id"], child["id"], head))
    conn.run(Q.set_aside_messages, (child["id"],))
    # The title moves back to the parent and must be unique, so the child gives it up first.
    set_columns(conn, "sessions", child["id"], ended_at=now, end_reason="uncompressed", title=None)
    # The child's last values; the rewind count grows, so that agents with a copy of the transcript read it again.
    set_columns(
        conn, "sessions", parent["id"], **{name: child[name] for name in _TAKEN_BACK},
        message_count=(parent["message_count"] or 0) + count, tool_call_count=(parent["tool_call_count"] or 0) + calls,
        last_active=max(parent["last_active"], newest or 0.0), rewind_count=parent["rewind_count"] + 1,
        compression_failure_cooldown_until=now + _QUIET_SECONDS, compression_failure_error=_QUIET,
    )  # fmt: skip
    transcript.settle_minute(conn, parent["id"])
    conn.run(routes.Q.move_routes, (parent["id"], child["id"]))
    conn.run(Q.rotated, (parent["id"], -1, child["root_id"]))
    conn.run(Q.forget_carried, (_key(child["id"]),))
    chain.settle(conn, child["root_id"])
    return Uncompressed(Handle(ConversationId(child["root_id"]), SessionId(parent["id"])), count)


def _parent(conn: Connection, child: dict[str, Any]) -> dict[str, Any]:
    """The segment that was compressed into `child`, if the compression can be undone."""
    if child["end_reason"] == "uncompressed":
        raise InvalidValue(f"the compression that made {child['id']} was already undone")
    if child["end_reason"] == "compression":
        tip = chain.tip(conn, child["id"])
        raise InvalidValue(
            f"{child['id']} was compressed again and continues as {tip}",
            hint=f"Undo that one first: hermes sessions uncompress {tip}",
        )
    if child["parent_session_id"] is not None:
        parent = sessions.fetch(conn, child["parent_session_id"], lock=True)
        if parent is not None and parent["root_id"] == child["root_id"] and parent["end_reason"] == "compression":
            return parent
    raise InvalidValue(f"{child['id']} was not made by a compression; there is nothing to undo")


def _carried(conn: Connection, child_id: str) -> int:
    """The id of the last row that the compression wrote to its child."""
    stored = meta.get(conn, _key(child_id))
    if stored is None:
        raise InvalidValue(
            f"messages of {child_id} from before and after its compression cannot be told apart",
            hint="It was compressed by another program, or imported. The messages before it are still there.",
        )
    count, head = map(int, stored.split(":"))
    if conn.rows(Q.carried, (child_id, head))[0][0] != count:
        raise InvalidValue(
            f"messages from before the compression were undone or edited in {child_id} since",
            hint="Restore them first with /redo; else undoing the compression would bring the old ones back.",
        )
    return head


def _key(child_id: str) -> str:
    return f"carried:{child_id}"
