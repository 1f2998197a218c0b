"""The inbox: one row per message and version, stored before the platform gets its acknowledgement.

`queued` → `claimed` by a turn → exactly one of `answered`, `error`, `silent`, `missed`, `dropped`, `superseded`, each
with time and reason. A terminal state never changes again. A redelivery finds its row and changes nothing. For a
refused message only the key and the reason are stored, rate-limited and bounded.

A command is a row without a turn: it is taken before it runs, and ends together with its reply.

The rows of a route are handled in the order in which they were accepted. A turn may claim several at once, or more
while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Required, TypedDict, TypeVar, Unpack, get_args

from hermes_state import columns
from hermes_state.errors import InvalidValue, NotQueued
from hermes_state.ids import (
    MAX_ID_BYTES,
    ConversationId,
    PersonId,
    SessionKey,
    TurnId,
    checked_id,
    is_child,
    new_trace_id,
)
from hermes_state.storage import writer
from hermes_state.storage.base import Connection, Row, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns.cursors import CursorMove, Cursors, checked
from hermes_state.turns.events import Events

if TYPE_CHECKING:
    from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

T = TypeVar("T")

Outcome = Literal["answered", "error", "silent", "missed", "dropped", "superseded"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
BESIDE = "beside:"
"""Prefix of the message ids that no platform gave: typed at a terminal, for a chat that a gateway serves."""
OWN = "hermes:"
"""Prefix of the message ids of rows that Hermes stores for itself: a job's occurrence, the result of a child
conversation, a finished background process. `hermes:job:ID:INSTANT`, `hermes:child:ID`, `hermes:process:ID`."""
QUEUED = "own.queued"
"""The event of an own row of a terminal's conversation."""
FOR_QUESTION = "it was for a question"
"""The reason of a row that was a plain yes or no to a question of Hermes, whether or not it decided it."""
LOCAL = "local"
"""The platform of a prompt that a terminal's own process answers. No gateway handles such rows."""


def local_route(conversation_id: str) -> SessionKey:
    """The lane of a conversation's prompts that terminals answer themselves."""
    return SessionKey(f"{LOCAL}:{conversation_id}"[:MAX_ID_BYTES])


@dataclass(frozen=True, slots=True)
class InboxRow:
    id: int
    platform: str
    account: str
    chat_id: str
    message_id: str
    version: int
    route: SessionKey | None
    person_id: PersonId | None
    trace_id: str
    payload: dict[str, Any] | None
    state: str
    turn_id: TurnId | None
    reason: str | None
    received_at: float
    ended_at: float | None


_row = columns.RowType(InboxRow)
Q = Queries("inbox", columns=_row.columns)


@dataclass(frozen=True, slots=True)
class Accepted:
    row: InboxRow
    new: bool
    """False: nothing to do, because the store already has this version or a newer one."""
    before: InboxRow | None = None
    """For an edit: the previous version as it was until now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The chat and lane of a turn: where later rows and answers on its behalf go."""

    platform: str
    account: str
    chat_id: str
    route: SessionKey
    person_id: PersonId | None
    source: Mapping[str, Any] | None
    """The chat as its messages describe it; None for a terminal's conversation."""

    @classmethod
    def local(cls, conversation_id: str, person_id: PersonId | None) -> Address:
        """The lane of a conversation that terminals answer themselves."""
        return cls(
            platform=LOCAL, account="", chat_id=conversation_id, route=local_route(conversation_id),
            person_id=person_id, source=None,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Arrival(TypedDict, total=False):
    """A message as a platform hands it over."""

    platform: Required[str]
    chat_id: Required[str]
    message_id: Required[str]
    route: Required[SessionKey]
    payload: Required[Mapping[str, Any]]
    account: str
    version: int
    """0 for the first version, a larger number for every edit."""
    person_id: PersonId | None
    trace_id: str | None


class _Message(NamedTuple):
    """A message about to be stored."""

    key: tuple[str, str, str, str, int]
    params: tuple[Any, ...]
    payload: dict[str, Any]

    def row(self, row_id: int) -> InboxRow:
        _, _, _, _, _, route, person_id, trace_id, _, now = self.params
        return InboxRow(row_id, *self.key, route, person_id, trace_id, self.payload, "queued", None, None, now, None)


class Inbox(StorePart):
    """Accepts or refuses messages, claims rows for turns, and ends them."""

    # -- accept and refuse -------------------------------------------------------------------------------

    def accept(self, **message: Unpack[Arrival]) -> Accepted:
        """Store an allowed message; it is durable when this returns.

        An edit (`version` above 0) replaces an older version that is still queued. An edit that arrives after a newer
        version is stored as superseded and changes nothing else.
        """
        stored = self._message(message)
        return self._store.engine.write(lambda conn: self.accept_in(conn, stored))

    async def aaccept(self, *, cursor: CursorMove | None = None, **message: Unpack[Arrival]) -> Accepted:
        """Like `accept`, from an event loop: queued to the writer, where it may share a commit.

        `cursor`: moves in the same transaction, also when the message was already stored.
        """
        stored = self._message(message)
        if cursor is None:
            return await writer.queued(self._store.engine, self.accept_in, stored, no_savepoint=True)
        return await writer.queued(self._store.engine, self._accept_at, stored, checked(cursor), no_savepoint=True)

    def _accept_at(self, conn: Connection, message: _Message, cursor: CursorMove) -> Accepted:
        accepted = self.accept_in(conn, message)
        Cursors(self._store).move_in(conn, cursor)
        return accepted

    def accept_in(self, conn: Connection, message: _Message) -> Accepted:
        while (new := scalar(conn.rows(Q.accept, message.params))) is None:
            if found := conn.rows(Q.find, message.key):  # else maintenance has just removed the old row
                return Accepted(_row(found[0]), new=False)
        others = conn.rows(Q.other_versions, message.key)
        if not others:
            return Accepted(message.row(new), new=True)
        newest, version = _row(others[-1]), message.key[-1]
        if newest.version > version:
            self._supersede(conn, new, "a newer version had come before it")
            return Accepted(_row(conn.rows(Q.get, (new,))[0]), new=False)
        self._supersede(conn, newest.id, "edited before it was read")
        return Accepted(message.row(new), new=True, before=newest)

    def _supersede(self, conn: Connection, row_id: int, reason: str) -> None:
        conn.run(Q.finish_queued, ("superseded", reason, self._store.clock(), columns.numbers([row_id])))

    def _message(self, message: Arrival) -> _Message:
        account, payload = message.get("account", ""), message["payload"]
        platform, chat_id, message_id = message["platform"], message["chat_id"], message["message_id"]
        columns.outside_key(platform=platform, account=account, chat_id=chat_id, message_id=message_id)
        key = (platform, account, chat_id, message_id, message.get("version", 0))
        whose = (checked_id(message["route"], what="route"), message.get("person_id"))
        text = columns.to_json(payload, self._store.limits, what="the message")
        trace_id = message.get("trace_id") or new_trace_id()
        return _Message(key, (*key, *whose, trace_id, text, self._store.clock()), dict(payload))

    @in_transaction
    def refuse(
        self,
        conn: Connection,
        *,
        platform: str,
        chat_id: str,
        message_id: str,
        reason: str,
        account: str = "",
        version: int = 0,
        cursor: CursorMove | None = None,
    ) -> bool:
        """Record a refused message; False when it is already recorded or the limit per minute is reached.

        `cursor`: moves in the same transaction, in either case.
        """
        if cursor is not None:
            Cursors(self._store).move_in(conn, checked(cursor))
        columns.outside_key(platform=platform, account=account, chat_id=chat_id, message_id=message_id)
        limits, now = self._store.limits, self._store.clock()
        params = (platform, account, chat_id, message_id, version, new_trace_id(), columns.note(reason), now, now)
        if limits.refused_per_minute == 0 or limits.refused_inbox_rows == 0:
            return False
        oldest = scalar(conn.rows(Q.nth_refusal, (limits.refused_per_minute - 1,)))
        if oldest is not None and now - 60 < oldest <= now:
            return False
        new = bool(conn.rows(Q.refuse, params))
        if new:
            conn.run(Q.trim_refused, (limits.refused_inbox_rows,))
        return new

    def accept_own_in(
        self,
        conn: Connection,
        address: Address,
        *,
        message_id: str,
        text: str,
        about: Mapping[str, Any],
        route: SessionKey | None = None,
    ) -> Accepted:
        """Store a row of Hermes's own for a chat; a second one with this id changes nothing.

        `about`: what the row is, for the code that handles it. `route`: the lane, if it is not that of the address. A
        terminal that has the conversation open sees the row's event (`QUEUED`) in the log that it follows.
        """
        if not message_id.startswith(OWN):
            raise InvalidValue(f"not the id of an own row: {message_id!r:.40}", hint=f"It begins with {OWN}.")
        payload: dict[str, Any] = {"text": text, "type": "text", "at": self._store.clock(), "own": dict(about)}
        if address.source is not None:
            payload["source"] = dict(address.source)
        stored = self._message(
            {"platform": address.platform, "account": address.account, "chat_id": address.chat_id,
             "message_id": message_id, "route": route or address.route, "payload": payload,
             "person_id": address.person_id}
        )  # fmt: skip
        accepted = self.accept_in(conn, stored)
        if accepted.new and address.platform == LOCAL:
            Events(self._store).append_in(
                conn, ConversationId(address.chat_id), QUEUED, detail={"inbox": accepted.row.id},
                trace_id=accepted.row.trace_id,
            )  # fmt: skip
        return accepted

    # -- claim and finish --------------------------------------------------------------------------------

    def claim_in(self, conn: Connection, *, route: SessionKey, turn_id: TurnId, limit: int = 1) -> tuple[InboxRow, ...]:
        """Claim the oldest queued rows of a route for the running turn, in order; the caller has checked the fence."""
        return _in_order(conn.rows(Q.claim, (turn_id, route, max(limit, 0))))

    def claim_ids_in(
        self, conn: Connection, *, route: SessionKey, turn_id: TurnId, ids: Sequence[int]
    ) -> tuple[InboxRow, ...]:
        """Claim exactly these queued rows of a route; the caller has checked the fence in this transaction."""
        return _in_order(conn.rows(Q.claim_ids, (turn_id, columns.numbers(ids), route)))

    def finish(self, ids: Iterable[int], outcome: Outcome, *, reason: str = "") -> int:
        """End queued rows; returns how many were still queued."""
        _check(outcome)
        return self._run(Q.finish_queued, (outcome, columns.note(reason), self._store.clock(), columns.numbers(ids)))

    def drop_in(self, conn: Connection, row_id: int, *, reason: str) -> bool:
        """Drop a queued row; False when a turn has claimed it, or it has ended."""
        params = ("dropped", columns.note(reason), self._store.clock(), columns.numbers([row_id]))
        return conn.run(Q.finish_queued, params) == 1

    @in_transaction
    def hand_over(self, conn: Connection, ids: Sequence[int], *, reason: str, **message: Unpack[Arrival]) -> Accepted:
        """End queued rows and store another message instead of them, in one transaction. Raises `NotQueued`."""
        stored, end = self._message(message), ("superseded", columns.note(reason), self._store.clock())
        if conn.run(Q.finish_queued, (*end, columns.numbers(ids))) != len(ids):
            raise NotQueued("a message that was to be handed over is not waiting any more")
        return self.accept_in(conn, stored)

    def finish_turn_in(self, conn: Connection, turn_id: TurnId, outcome: Outcome, *, reason: str) -> int:
        """End every row of the turn with this outcome, in the transaction that ends the turn."""
        _check(outcome)
        return conn.run(Q.finish_turn, (outcome, columns.note(reason), self._store.clock(), turn_id))

    # -- commands: rows that are answered without a turn ---------------------------------------------------

    def take_command_in(self, conn: Connection, row_id: int, *, holder: str | None = None) -> bool:
        """Take a command before it runs; False when it was taken before. An interrupted command is never run again.

        `holder`, the process that runs the command, is the row's `reason` until the command ends.
        """
        return conn.run(Q.take_command, (holder, row_id)) == 1

    def end_command_in(
        self, conn: Connection, row_id: int, outcome: Outcome, *, reason: str = "", reply: NewOutboxItem | None = None
    ) -> OutboxItem | None:
        """End a command: store the row's outcome and the reply together. A row that has already ended gets no reply."""
        from hermes_state.turns.outbox import Outbox

        _check(outcome)
        if conn.run(Q.end_command, (outcome, columns.note(reason), self._store.clock(), row_id)) != 1:
            return None
        return None if reply is None else Outbox(self._store).enqueue_in(conn, reply)

    def cut_off_commands(self) -> tuple[InboxRow, ...]:
        """Commands that were taken and have not ended; `reason` names their process, alive or dead."""
        return tuple(map(_row, self._rows(Q.cut_off_commands)))

    # -- reads -------------------------------------------------------------------------------------------

    def get(self, row_id: int) -> InboxRow | None:
        return self._one(_row, Q.get, (row_id,))

    def last_id(self) -> int:
        """The id of the newest row; 0 when there is none."""
        return int(scalar(self._rows(Q.last_id)))

    def versions(self, *, platform: str, chat_id: str, message_id: str, account: str = "") -> tuple[InboxRow, ...]:
        """The stored versions of one platform message: the first, then its edits."""
        key = (platform, account, chat_id, message_id)
        return tuple(map(_row, self._rows(Q.versions, key)))

    def of_turn(self, turn_id: TurnId) -> tuple[InboxRow, ...]:
        """Every row that a turn claimed and did not return."""
        return self._store.engine.read(lambda conn: self.of_turn_in(conn, turn_id))

    def of_turn_in(self, conn: Connection, turn_id: TurnId) -> tuple[InboxRow, ...]:
        return tuple(_row(row) for row in conn.rows(Q.of_turn, (turn_id,)))

    def of_trace(self, trace_id: str) -> tuple[InboxRow, ...]:
        return tuple(map(_row, self._rows(Q.of_trace, (trace_id,))))

    def address(self, turn_id: TurnId, *, route: SessionKey | None = None) -> Address | None:
        """Where later rows on behalf of a turn go: where its messages came from, or, for a child, its parent's did.

        None for a turn that claimed no row, and for a child whose parent nobody reads. `route`: the chat of a turn
        from a command, which has no row: the newest one there tells.
        """
        rows = self.of_turn(turn_id) or (() if route is None else self.list(route=route, limit=1))
        if not rows or rows[-1].route is None:
            return None
        row = rows[-1]
        assert row.route is not None
        if row.platform == LOCAL and is_child(row.chat_id):
            from hermes_state.turns.children import Children

            child = Children(self._store).get(row.chat_id)
            return None if child is None else child.address
        return Address(
            platform=row.platform, account=row.account, chat_id=row.chat_id, route=row.route, person_id=row.person_id,
            source=(row.payload or {}).get("source"),
        )  # fmt: skip

    def asked_by_in(self, conn: Connection, turn_id: TurnId, conversation_id: ConversationId) -> dict[str, Any]:
        """For a later row on behalf of a turn: the conversation it belongs to and, for that of a job, its limits.

        What a child starts belongs to the conversation that its results reach.
        """
        from hermes_state.turns.children import parent_in

        while is_child(conversation_id) and (above := parent_in(conn, conversation_id)) is not None:
            conversation_id, turn_id = above
        rows = _in_order(conn.rows(Q.of_turn, (turn_id,)))
        own = ((rows[-1].payload or {}).get("own") or {}) if rows and rows[-1].message_id.startswith(OWN) else {}
        kept = {name: own[name] for name in ("agent", "name", "job") if name in own}
        return {"conversation_id": conversation_id, **kept}

    def waiting(self, *, limit: int = 1_000) -> dict[SessionKey, int]:
        """Routes with queued rows and their number, the longest waiting first."""
        return {route: count for route, count, _oldest in self._rows(Q.routes_waiting, (limit,))}

    def queued(self, route: SessionKey, *, after: int = 0, limit: int = 500) -> tuple[InboxRow, ...]:
        """The queued rows of a route, oldest first; `after` is an id, for the next page."""
        return tuple(map(_row, self._rows(Q.queued, (route, after, limit))))

    def waiting_between(self, since: float, until: float, *, limit: int = 1_000) -> tuple[int, ...]:
        """Ids of queued rows that were received between these times, oldest first."""
        return tuple(row[0] for row in self._rows(Q.waiting_between, (since, until, limit)))

    def without_platform(self, *, limit: int = 100) -> tuple[InboxRow, ...]:
        """Queued rows for a gateway that no platform sent, oldest first; a gateway has to poll for them."""
        return tuple(map(_row, self._rows(Q.without_platform, (limit,))))

    def list(
        self,
        *,
        state: str | None = None,
        route: SessionKey | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> tuple[InboxRow, ...]:
        """Rows, newest first; `before` is an id, for the next page."""
        params = (state, state, route, route, before if before is not None else columns.NO_LIMIT, limit)
        return tuple(map(_row, self._rows(Q.list, params)))

    def oldest(self) -> float | None:
        """When the longest-waiting message arrived; None when none waits."""
        found: float | None = scalar(self._rows(Q.oldest))
        return found

    def queued_count(self) -> int:
        """The number of queued rows. The cost depends on that number, not on the size of the table."""
        return int(scalar(self._rows(Q.queued_count)))

    def counts(self) -> dict[str, int]:
        """The number of rows by state; reads the whole table."""
        return dict(self._store.engine.read(lambda conn: [(r[0], r[1]) for r in conn.rows(Q.counts)]))

    def files_to_read(self) -> set[str]:
        """What the attachments of messages that are not answered yet refer to; reads the whole table."""
        payloads = [json.loads(row[0]) for row in self._rows(Q.with_attachments)]
        return {str(one.get("ref")) for payload in payloads for one in payload.get("attachments") or ()}

    def prune(self) -> int:
        """Remove rows that ended longer ago than `limits.inbox_done_days`."""
        return self._remove_old(self._store.limits.inbox_done_days, Q.prune)


def _check(outcome: str) -> None:
    if outcome not in OUTCOMES:
        raise InvalidValue(f"no such outcome: {outcome!r:.40}", hint=f"One of {', '.join(OUTCOMES)}.")


def _in_order(found: list[Row]) -> tuple[InboxRow, ...]:
    return tuple(_row(row) for row in sorted(found))
