"""Session rows, one at a time: create, end, describe.

The ledger changes whole conversations (compression, reset, branch) with the same functions, in one transaction each.
`chain` keeps each row's `root_id`, tip and listing correct here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain
from hermes_state.errors import IntegrityError, SessionNotFound
from hermes_state.ids import LOCAL_OWNER, LOCAL_SOURCES, ConversationId, PersonId, checked_id, is_possible_id
from hermes_state.storage.base import Connection, Store, first, in_transaction, put, scalar, set_columns
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

Q = Queries("sessions")

_ORPHAN_AGE = 7 * 86400
_CHOSEN_MODEL = "_chosen_model"
_FILLABLE = (
    "model", "model_config", "system_prompt", "session_key", "chat_id", "chat_type", "thread_id",
    "parent_session_id", "cwd", "profile_name",
)  # fmt: skip


class Sessions(Store):
    """The part of `SessionDB` that creates, ends and describes sessions."""

    def create_session(self, session_id: str, source: str, **fields: Any) -> str:
        """Create the session, or fill the empty columns of an existing one; returns its id."""
        if unknown := fields.keys() - {*_FILLABLE, "user_id"}:
            raise TypeError(f"create_session() got an unexpected keyword argument {min(unknown)!r}")
        fields["model_config"] = columns.encode_json(fields.get("model_config"))
        fields = {name: columns.clean(value) for name, value in fields.items()}
        checked_id(session_id)
        self.engine.write(lambda conn: ensure(conn, session_id, source, fields, self.clock()))
        return session_id

    def chosen_model(self, session_id: str) -> dict[str, str]:
        """`model` and `provider` that a person chose for this conversation; empty when nobody chose."""
        row = self.get_session(session_id)
        found = columns.decode_object(row["model_config"]).get(_CHOSEN_MODEL) if row else None
        return found if isinstance(found, dict) else {}

    def choose_model(self, session_id: str, model: str | None, provider: str | None) -> None:
        """Store a person's choice; continuations and branches inherit it."""

        def write(conn: Connection) -> None:
            if (row := fetch(conn, session_id, lock=True)) is not None:
                marks = {**columns.decode_object(row["model_config"]), **chosen_mark(model, provider)}
                set_columns(conn, "sessions", session_id, model_config=columns.clean(columns.encode_json(marks)))

        if is_possible_id(session_id):
            self.engine.write(write)

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        return self.look(session_id, lambda conn: fetch(conn, session_id), None)

    def end_session(self, session_id: str, end_reason: str) -> None:
        self.engine.write(lambda conn: end(conn, session_id, end_reason, self.clock()))

    @in_transaction
    def update_system_prompt(
        self, conn: Connection, session_id: str, system_prompt: str | None, *, fence: int | None = None
    ) -> None:
        """With a `fence`, raise `StaleFence` and write nothing unless it holds the conversation's lease."""
        if not is_possible_id(session_id):
            return
        if fence is not None:
            leases.check(self, conn, chain.root(conn, session_id) or ConversationId(session_id), fence)
        self.telling_system_prompt(session_id, system_prompt)(conn)

    def telling_system_prompt(self, session_id: str, system_prompt: str | None) -> Callable[[Connection], object]:
        """`update_system_prompt` as a function for a transaction that has checked the fence."""
        text = columns.clean(system_prompt)
        return lambda conn: conn.run(Q.set_system_prompt, (text, session_id, text))

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> None:
        self._change(session_id, expiry_finalized=int(finalized))

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Hide or show a whole conversation."""
        if not is_possible_id(session_id):
            return False
        return self.engine.write(lambda conn: conn.run(Q.set_archived, (int(archived), session_id))) > 0

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """Store that no automatic compression may start before `cooldown_until`; survives a restart."""
        until = columns.seconds("cooldown_until", cooldown_until)
        note = columns.note(error)
        self._change(session_id, compression_failure_cooldown_until=until, compression_failure_error=note)

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None:
        """`{cooldown_until, remaining_seconds, error}` during the cooldown, else None."""
        row, now = self.get_session(session_id), self.clock()
        until = None if row is None else row["compression_failure_cooldown_until"]
        if row is None or until is None or until <= now:
            return None
        return {"cooldown_until": until, "remaining_seconds": until - now, "error": row["compression_failure_error"]}

    def get_compression_fallback_streak(self, session_id: str) -> int:
        """How many compressions in a row had no model's summary."""
        row = self.get_session(session_id)
        return 0 if row is None else int(row["compression_fallback_streak"] or 0)

    def set_compression_fallback_streak(self, session_id: str, streak: int) -> None:
        self._change(session_id, compression_fallback_streak=min(max(int(streak), 0), 2**31))

    @in_transaction
    def finalize_orphaned_compression_sessions(self, conn: Connection) -> int:
        """Close continuations of a compression that nobody used for a week; their messages stay."""
        now = self.clock()
        orphans = [row[0] for row in conn.rows(Q.orphans, (now - _ORPHAN_AGE, leases.shared_now(self)))]
        return sum(end(conn, orphan, "orphaned_compression", now) for orphan in orphans)

    def _change(self, session_id: str, **values: Any) -> None:
        """Set columns of one row, if the session exists."""
        if is_possible_id(session_id):
            self.engine.write(lambda conn: set_columns(conn, "sessions", session_id, **values))


def chosen_mark(model: str | None, provider: str | None) -> dict[str, dict[str, str]]:
    """A chosen model as stored in `model_config`."""
    return {_CHOSEN_MODEL: {name: said for name, said in (("model", model), ("provider", provider)) if said}}


# -- parts of larger transactions --------------------------------------------------------------------------------


def fetch(conn: Connection, session_id: str, *, lock: bool = False) -> dict[str, Any] | None:
    found = conn.execute(Q.get.locked if lock else Q.get, (session_id,)).dicts()
    return found[0] if found else None


def known(conn: Connection, session_id: str, *, lock: bool = False) -> dict[str, Any]:
    """Like `fetch`, but raises `SessionNotFound`."""
    row = fetch(conn, checked_id(session_id), lock=lock)
    if row is None:
        raise SessionNotFound(f"no session {session_id!r:.80}")
    return row


def ensure(conn: Connection, session_id: str, source: str, fields: dict[str, Any], now: float) -> None:
    """Insert the row or fill its empty columns; then give it the right conversation."""
    parent = fields.get("parent_session_id")
    if parent is not None and not conn.rows(chain.Q.node, (parent,)):
        raise IntegrityError(f"no session {parent!r:.80} to be the parent of {session_id!r:.80}")
    row = {
        **fields, "id": session_id, "source": columns.clean(source) or "unknown", "started_at": now, "last_active": now,
        "root_id": session_id,
    }  # fmt: skip
    if put(conn, "sessions", row):
        place(conn, session_id, row, now)
        return
    before = known(conn, session_id, lock=True)
    gaps = {name: fields[name] for name in _FILLABLE if fields.get(name) is not None and before[name] is None}
    if gaps:
        set_columns(conn, "sessions", session_id, **gaps)
    if parent is not None and before["parent_session_id"] is None:
        conn.run(chain.Q.delete_conversation, (session_id,))
        place(conn, session_id, {**row, **fields}, now)


def place(conn: Connection, session_id: str, row: dict[str, Any], now: float) -> None:
    """Give a new row its conversation: its parent's when it continues a compression, else a new one."""
    parent = row.get("parent_session_id")
    kind = relation(row)
    if parent is not None and kind == "child" and row["source"] != "tool":
        node = first(conn.rows(chain.Q.node.locked, (parent,)))
        if node is not None and node[3] == "compression":
            set_columns(conn, "sessions", session_id, root_id=node[1])
            chain.settle(conn, node[1])
            return
    chain.found(conn, session_id, kind, parent, owner_for(conn, row), now)


def relation(row: dict[str, Any]) -> str:
    """How a row relates to its parent, by the marks that hermes-agent leaves in `model_config`."""
    return "new" if row.get("parent_session_id") is None else kind_by_marks(row.get("model_config")) or "child"


def kind_by_marks(model_config: str | None) -> str:
    """`delegate` or `branch`, when `model_config` says so; else None."""
    marks = columns.decode_object(model_config)
    return "delegate" if marks.get("_delegate_from") else "branch" if marks.get("_branched_from") else ""


def owner_for(conn: Connection, row: dict[str, Any]) -> PersonId | None:
    """The owner of a conversation: the local person, a known person in a direct chat, else nobody."""
    if row["source"] in LOCAL_SOURCES:
        return LOCAL_OWNER
    if row.get("user_id") is None or row.get("chat_type") not in (None, "dm"):
        return None
    person = scalar(conn.rows(Q.owner_of_identity, (row["source"], row["user_id"])))
    return None if person is None else PersonId(person)


def end(conn: Connection, session_id: str, reason: str, now: float) -> bool:
    if not is_possible_id(session_id) or not conn.run(Q.end_live, (now, columns.clean(reason), session_id)):
        return False
    _reason_changed(conn, session_id, reason)
    return True


def promote(conn: Connection, session_id: str, reason: str, now: float) -> bool:
    if not conn.run(Q.promote, (now, columns.clean(reason), session_id)):
        return False
    _reason_changed(conn, session_id, reason)
    return True


def reopen(conn: Connection, session_id: str, now: float) -> None:
    if not is_possible_id(session_id):
        return
    node = first(conn.rows(chain.Q.node.locked, (session_id,)))
    if node is None:
        return
    set_columns(conn, "sessions", session_id, ended_at=None, end_reason=None)
    if node[3] == "compression":
        chain.part_children(conn, session_id, now)


def _reason_changed(conn: Connection, session_id: str, reason: str) -> None:
    if reason == "compression":
        chain.join_children(conn, session_id)
