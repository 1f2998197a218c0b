"""The outbox: messages for a chat, until the platform has them or a person has decided.

`pending` → `sending` → `sent`, or `failed` (it did not arrive, and another try would not help), or `unknown` (it may
have arrived, and a person decides whether it is sent again). Failed and unknown items are the dead letters: a person
lists, retries or drops them; `limits.dead_letters` bounds their number. An answer may be `held` before it is pending
(`held_answers`).

A chat gets its items in order: an item is not due while an older one of its chat is pending or being sent. Two
deliverers never get the same item, and a report counts only from the current attempt. A reply may be shown by edits
before its turn is committed: such an item is a `draft`, and `enqueue_in` with the same key makes it final.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, TurnId, checked_id, new_trace_id
from hermes_state.storage.base import Connection, Store, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries, Statement
from hermes_state.turns.events import Events
from hermes_state.turns.inbox import FOR_QUESTION
from hermes_state.turns.leases import shared_now

SENDING_SECONDS = 120.0
"""How long a sender may be silent before its item is taken from it."""
_UNREACHABLE = "unreachable"
"""In an item's note: its chat could not be written to (blocked, away), and nothing else kept it from being sent."""
_NOT_REVIVED = frozenset({"notice", "question"})
"""Kinds that mean nothing to a person who comes back later."""


def answer_key(turn_id: str) -> str:
    """The unique outbox key of a turn's answer."""
    return f"answer:{turn_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutboxItem:
    """A message to put into the outbox. `dedup_key` identifies it for ever, for example by its turn."""

    dedup_key: str
    platform: str
    chat_id: str
    payload: Mapping[str, Any]
    account: str = ""
    conversation_id: ConversationId | None = None
    turn_id: TurnId | None = None
    trace_id: str | None = None
    sender: str | None = None
    """The sender that sends it at once: the item starts as `sending`, unless an older one of its chat still waits."""
    held: bool = False
    """It waits in state `held` until the owner decides (`held_answers`), unless the chat shows it already."""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    id: int
    dedup_key: str
    platform: str
    account: str
    chat_id: str
    conversation_id: ConversationId | None
    turn_id: TurnId | None
    trace_id: str
    payload: dict[str, Any]
    state: str
    attempts: int
    give_up_after: int
    next_attempt_at: float | None
    sender: str | None
    sending_until: float | None
    platform_ids: tuple[str, ...]
    draft: dict[str, Any] | None
    error: str | None
    created_at: float
    ended_at: float | None


item_of = columns.RowType(OutboxItem)
Q = Queries("outbox", columns=item_of.columns)


class Outbox(StorePart):
    """Stores items, hands out due ones, records reports, and lets a person decide about dead letters."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._events = Events(store)

    # -- new items ---------------------------------------------------------------------------------------

    def enqueue_in(self, conn: Connection, message: NewOutboxItem) -> OutboxItem:
        """Store an item for delivery. The same key again returns the existing item, unchanged."""
        now = shared_now(self._store)
        if message.held:
            return self._put(conn, Q.enqueue_held, message, now)
        item = self._put(conn, Q.enqueue, message, now)
        if message.sender is None or item.state != "pending":
            return item
        taken = conn.rows(Q.claim_new, (message.sender, now, SENDING_SECONDS, item.id))
        return item_of(taken[0]) if taken else item

    enqueue = in_transaction(enqueue_in)

    def draft_in(self, conn: Connection, message: NewOutboxItem) -> OutboxItem:
        """Store a draft: a running turn shows it by edits and records with `progress_in` what the chat shows."""
        return self._put(conn, Q.draft, message, shared_now(self._store))

    def may_show_in(self, conn: Connection, message: NewOutboxItem) -> bool:
        """Whether a draft may begin now: nothing older of its chat waits, and its turn still runs."""
        return bool(conn.rows(Q.may_show, (*_chat(message), message.turn_id)))

    def _put(self, conn: Connection, statement: Statement, message: NewOutboxItem, now: float | None) -> OutboxItem:
        params = (message.dedup_key, *_chat(message), *self._content(message), now)
        found = conn.rows(statement, params) or conn.rows(Q.by_key, (message.dedup_key,))
        return item_of(found[0])

    def _content(self, message: NewOutboxItem) -> tuple[Any, ...]:
        checked_id(message.dedup_key, what="dedup key")
        columns.outside_key(platform=message.platform, account=message.account, chat_id=message.chat_id)
        payload = columns.to_json(message.payload, self._store.limits, what="the reply")
        return (
            message.conversation_id, message.turn_id, message.trace_id or new_trace_id(), payload,
            self._store.limits.delivery_attempts,
        )  # fmt: skip

    def drop_drafts_in(self, conn: Connection, turn_id: TurnId, *, reason: str) -> int:
        return conn.run(Q.drop_drafts, (columns.note(reason), shared_now(self._store), turn_id))

    def set_aside_drafts_in(self, conn: Connection, turn_id: TurnId, *, reason: str) -> int:
        return conn.run(Q.set_aside_drafts, (columns.note(reason), shared_now(self._store), turn_id))

    # -- delivery ----------------------------------------------------------------------------------------

    def claim_due_in(
        self,
        conn: Connection,
        *,
        sender: str,
        limit: int = 32,
        platforms: Sequence[str] | None = None,
        seconds: float = SENDING_SECONDS,
    ) -> tuple[OutboxItem, ...]:
        """The items that this sender must deliver now, oldest first, at most one for each chat."""
        now, only = shared_now(self._store), None if platforms is None else columns.texts(platforms)
        params = (sender, now, seconds, now, now, self._store.limits.retry_seconds, only, only, limit)
        return tuple(item_of(row) for row in sorted(conn.rows(Q.claim_due, params)))

    def next_due(self, *, platforms: Sequence[str] | None = None) -> float | None:
        """When the next item is due (in the past: now); None when nothing is pending.

        With `platforms`: the next item that can be claimed, so none that waits behind an item being sent.
        """
        only = None if platforms is None else columns.texts(platforms)
        due: float | None = scalar(self._rows(Q.next_due, (only, only)))
        return due

    def progress_in(
        self,
        conn: Connection,
        item: OutboxItem,
        *,
        platform_ids: Sequence[str],
        draft: Mapping[str, Any] | None = None,
        seconds: float = SENDING_SECONDS,
    ) -> bool:
        """Record what the chat shows so far; False when another sender has the item now."""
        text = columns.to_json(draft, self._store.limits, what="the draft")
        params = (_ids(platform_ids), text, shared_now(self._store), seconds, item.id, item.attempts)
        return conn.run(Q.progress, params) == 1

    def sent_in(self, conn: Connection, item: OutboxItem, *, platform_ids: Sequence[str], repeated: int = 0) -> bool:
        """Record that the chat has the item. `repeated`: how many of its messages were sent again with a mark."""
        note = json.dumps({"repeated": repeated}) if repeated else None
        return conn.run(Q.sent, (_ids(platform_ids), note, shared_now(self._store), item.id, item.attempts)) == 1

    def put_off_in(
        self,
        conn: Connection,
        item: OutboxItem,
        *,
        seconds: float,
        error: str,
        free: bool = False,
        unreachable: bool = False,
    ) -> OutboxItem | None:
        """Schedule another attempt, or fail the item when its attempts are used up. None: another sender has it now.

        `free`: this attempt does not count, because there was no connection to send it over. `unreachable`: its chat
        cannot be written to now (`reachable_again`).
        """
        if not 0 <= seconds <= self._store.limits.retry_seconds:
            raise InvalidValue(f"a delivery may wait 0 to {self._store.limits.retry_seconds} s, not {seconds}")
        now, spare = shared_now(self._store), int(free)
        marked = self._marked(conn, item) if unreachable else None
        params = (columns.note(error), marked, spare, spare, spare, now, seconds, spare, now, item.id, item.attempts)
        return self._close(conn, Q.put_off, params)

    def clock_was_set_back(self, seconds: float) -> int:
        """Correct the due times of postponed items; returns their number, or None with a database's clock."""
        now = shared_now(self._store)
        if now is None:
            return 0
        return self._run(Q.clock_was_set_back, (seconds, now))

    def close_in(
        self,
        conn: Connection,
        item: OutboxItem,
        state: Literal["failed", "unknown"],
        *,
        error: str,
        unreachable: bool = False,
    ) -> OutboxItem | None:
        """Close an item: `failed` (it did not arrive; no retry helps) or `unknown` (the platform's answer is lost).

        `unreachable`: because its chat cannot be written to (`reachable_again`).
        """
        marked, now = self._marked(conn, item) if unreachable else None, shared_now(self._store)
        return self._close(conn, Q.close, (state, columns.note(error), marked, now, item.id, item.attempts))

    def _marked(self, conn: Connection, item: OutboxItem) -> str | None:
        """The item's present note with the mark that its chat could not be written to."""
        found = conn.rows(Q.get.locked, (item.id,))
        noted = item_of(found[0]).draft if found else None
        return columns.to_json({**(noted or {}), _UNREACHABLE: True}, self._store.limits, what="the draft")

    def of_sender(self, sender: str) -> tuple[OutboxItem, ...]:
        """The items this sender has to report on, oldest first."""
        return self._store.engine.read(lambda conn: self.of_sender_in(conn, sender))

    def of_sender_in(self, conn: Connection, sender: str) -> tuple[OutboxItem, ...]:
        return tuple(map(item_of, conn.rows(Q.of_sender, (sender,))))

    def senders(self) -> tuple[str, ...]:
        """The senders of items in state `sending`, alive or dead."""
        return tuple(row[0] for row in self._rows(Q.senders))

    @in_transaction
    def lose_senders(
        self,
        conn: Connection,
        *,
        dead: str | None = None,
        go_on: Callable[[OutboxItem], Mapping[str, Any]] | None = None,
        notice: Callable[[OutboxItem], NewOutboxItem | None] = lambda item: None,
    ) -> tuple[OutboxItem, ...]:
        """Make the items of silent or `dead` senders pending again, with the note of `go_on`.

        A dead sender uses up no attempt until there were three times as many. Items without attempts left become
        unknown, as do all without `go_on`; `notice` is stored with them.
        """
        now, far = shared_now(self._store), self._store.limits.retry_seconds
        why = "the sender died before the platform's answer"
        lost = [item_of(row) for row in sorted(conn.rows(Q.lose_senders, (why, now, now, now, far, dead)))]
        for at, item in enumerate(lost):
            free = item.attempts < 3 * self._store.limits.delivery_attempts
            if go_on is not None and (free or item.attempts < item.give_up_after):
                text = columns.to_json(go_on(item), self._store.limits, what="the draft")
                lost[at] = item_of(conn.rows(Q.go_on, (text, int(free), item.id))[0])
            elif (message := notice(item)) is not None:
                self.enqueue_in(conn, message)
        if lost:
            self._bound_dead(conn)
        return tuple(lost)

    def _close(self, conn: Connection, statement: Statement, params: tuple[Any, ...]) -> OutboxItem | None:
        found = conn.rows(statement, params)
        if not found:
            return None
        item = item_of(found[0])
        if item.state != "pending":
            self._bound_dead(conn)
        return item

    def _bound_dead(self, conn: Connection) -> None:
        for row in conn.rows(Q.trim_dead, (self._store.limits.dead_letters,)):
            item = item_of(row)
            self._events.append_in(
                conn,
                item.conversation_id or ConversationId(""),
                "outbox.dead_letter_removed",
                detail={"id": item.id, "state": item.state, "error": item.error},
                turn_id=item.turn_id,
                trace_id=item.trace_id,
            )

    # -- a person decides --------------------------------------------------------------------------------

    @in_transaction
    def retry(self, conn: Connection, item_id: int) -> bool:
        """Send a dead letter again; only a person asks for this. An unknown item may then arrive twice: its note says
        so, and the sender can tell the person."""
        found = conn.rows(Q.get.locked, (item_id,))
        if not found or (item := item_of(found[0])).state not in ("failed", "unknown"):
            return False
        return self._revive(conn, item)

    def _revive(self, conn: Connection, item: OutboxItem) -> bool:
        note = {name: value for name, value in (item.draft or {}).items() if name != _UNREACHABLE} or None
        if item.state == "unknown":
            note = {**(note or {}), "repeat": True, "allowed": True}
        text = columns.to_json(note, self._store.limits, what="the draft")
        return conn.run(Q.retry, (text, self._store.limits.delivery_attempts, item.id)) == 1

    def unreachable(self, platform: str, account: str, chat_id: str) -> tuple[OutboxItem, ...]:
        """What a chat did not get because it could not be written to, oldest first: items that wait for another
        attempt, and dead letters of at most `limits.retry_seconds` with attempts left.

        A dead letter gets three times the attempts of an item at most, however often its chat comes and goes.
        """
        limits, chat = self._store.limits, (platform, account, chat_id)
        waiting = map(item_of, self._rows(Q.waiting_in_chat, chat))
        failed = map(item_of, self._rows(Q.failed_in_chat, (*chat, self._store.clock() - limits.retry_seconds)))
        given_up = [
            item
            for item in failed
            if item.payload.get("kind") not in _NOT_REVIVED and item.attempts < 3 * limits.delivery_attempts
        ]
        return tuple(item for item in (*given_up, *waiting) if (item.draft or {}).get(_UNREACHABLE))

    @in_transaction
    def reachable_again(self, conn: Connection, items: Sequence[OutboxItem]) -> int:
        """Make items of `unreachable` due at once; returns how many. Items that changed meanwhile are left alone."""
        count = 0
        for item in items:
            found = conn.rows(Q.get.locked, (item.id,))
            if not found or (now := item_of(found[0])).attempts != item.attempts or now.state != item.state:
                continue
            count += conn.run(Q.due_now, (item.id,)) if now.state == "pending" else self._revive(conn, now)
        return count

    def drop(self, item_id: int, *, reason: str = "dropped by hand") -> bool:
        """Do not send the item; False when it is being sent, was sent or does not exist."""
        return self._run(Q.drop, (columns.note(reason), shared_now(self._store), item_id)) == 1

    def dead_letters(self, *, before: int | None = None, limit: int = 50) -> tuple[OutboxItem, ...]:
        return tuple(map(item_of, self._rows(Q.dead, (before if before is not None else columns.NO_LIMIT, limit))))

    def get(self, item_id: int) -> OutboxItem | None:
        return self._one(item_of, Q.get, (item_id,))

    def find(self, dedup_key: str) -> OutboxItem | None:
        return self._one(item_of, Q.by_key, (dedup_key,))

    def of_turn(self, conversation_id: ConversationId, turn_id: TurnId) -> tuple[OutboxItem, ...]:
        """The items of a turn, in order."""
        return tuple(map(item_of, self._rows(Q.of_turn, (conversation_id, turn_id))))

    def shown_as(
        self, platform: str, account: str, chat_id: str, platform_id: str, *, first: ConversationId | None = None
    ) -> OutboxItem | None:
        """The item that a message of a chat belongs to; the items of the conversation `first` are tried first."""
        params = (platform, account, chat_id, json.dumps(str(platform_id)))
        found = None if first is None else self._one(item_of, Q.shown_in, (first, *params))
        return found or self._one(item_of, Q.shown_as, params)

    def said_since(self, item: OutboxItem, *, after: int, row_id: int, but: str) -> bool:
        """Whether anybody wrote to an item's chat between the inbox rows `after` and `row_id`, or Hermes below it.

        Rows with the reason `inbox.FOR_QUESTION` and the replies to them do not count, nor does the item with the key
        `but`. What Hermes wrote after that row counts.
        """
        chat = (item.platform, item.account, item.chat_id)
        params = (item.id, *chat, but, FOR_QUESTION, *chat, after, row_id, FOR_QUESTION)
        return bool(self._rows(Q.said_since, params))

    def beginning_with(self, start: str) -> tuple[OutboxItem, ...]:
        """Items whose keys have this prefix, oldest first; reads the whole table."""
        return tuple(map(item_of, self._rows(Q.beginning_with, (len(start), start))))

    def list(self, *, state: str | None = None, before: int | None = None, limit: int = 50) -> tuple[OutboxItem, ...]:
        """Items, newest first; `before` is an id, for the next page."""
        params = (state, state, before if before is not None else columns.NO_LIMIT, limit)
        return tuple(map(item_of, self._rows(Q.list, params)))

    def owed_count(self) -> int:
        """The number of pending and sending items. The cost depends on that number, not on the size of the table."""
        return int(scalar(self._rows(Q.owed_count)))

    def dead_count(self) -> int:
        return int(scalar(self._rows(Q.dead_count)))

    def counts(self) -> dict[str, int]:
        """The number of items by state; reads the whole table."""
        return dict(self._store.engine.read(lambda conn: [(r[0], r[1]) for r in conn.rows(Q.counts)]))

    def files_to_send(self) -> set[str]:
        """The names of the stored files of items that may still be sent; reads the whole table."""
        payloads = [json.loads(row[0]) for row in self._rows(Q.with_files)]
        return {Path(file["path"]).name for payload in payloads for file in payload.get("files") or ()}

    def prune(self) -> int:
        """Remove items that were sent, dropped or left as drafts longer ago than `limits.outbox_sent_days`."""
        return self._remove_old(self._store.limits.outbox_sent_days, Q.prune_drafts, Q.prune)


def _chat(message: NewOutboxItem) -> tuple[str, str, str]:
    return message.platform, message.account, message.chat_id


def _ids(platform_ids: Sequence[str]) -> str:
    return json.dumps([str(i) for i in platform_ids])
