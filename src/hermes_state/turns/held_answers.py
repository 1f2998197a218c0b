"""Held answers: outbox items that wait in state `held` until the owner sends, edits or drops them.

A decision is one compare-and-set, so of two people (or two presses of a button) one decides. An edited or dropped
answer leaves a note for the model in the same transaction; the commit that opens the next turn of the conversation
takes the note into that turn's message, so the model reads it once, and no earlier byte of its context changes.

The answers of a chat keep their order: while one is held, later ones are held too, and the oldest is decided first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hermes_config import accounts
from hermes_state import columns
from hermes_state.ids import ConversationId, PersonId
from hermes_state.storage.base import Connection, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns import outbox
from hermes_state.turns.leases import shared_now
from hermes_state.turns.outbox import OutboxItem

Q = Queries("held_answers", columns=outbox.item_of.columns)

HeldChoice = Literal["send", "edit", "drop"]
_BEGINNING = 80


@dataclass(frozen=True, slots=True)
class HeldDecision:
    """What a decision did."""

    outcome: Literal["sent", "edited", "dropped", "not held", "older first", "is a file"]
    item: OutboxItem | None = None
    older: int = 0
    """For `older first`: the item that has to be decided before."""


class HeldAnswers(StorePart):
    """Holds chats, and decides about held answers."""

    def is_held(self, listed: Collection[str], platform: str, chat_id: str) -> bool:
        """Whether a new answer to this chat waits for the owner. `listed`: the setting `delivery.hold`.

        It is read for each turn: another process may have been told just now.
        """
        chat = (platform, chat_id)
        by_hand, waiting = self._rows(Q.chat, (*chat, *chat))[0]
        return bool(waiting) or (bool(by_hand) if by_hand is not None else is_listed(listed, platform, chat_id))

    def hold_chat(self, platform: str, chat_id: str, held: bool, *, by: PersonId | None) -> None:
        columns.outside_key(platform=platform, chat_id=chat_id)
        self._run(Q.hold_chat, (platform, chat_id, int(held), by, self._store.clock()))

    def chats(self) -> tuple[tuple[str, str, bool], ...]:
        """(platform, chat, whether it is held) of every chat that somebody decided about by hand."""
        return tuple((platform, chat_id, bool(held)) for platform, chat_id, held in self._rows(Q.chats))

    def list(self, *, after: int = 0, limit: int = 100) -> tuple[OutboxItem, ...]:
        """Held answers, oldest first; `after` is an id, for the next page."""
        return tuple(map(outbox.item_of, self._rows(Q.list, (after, limit))))

    def count(self) -> int:
        return int(scalar(self._rows(Q.count)))

    @in_transaction
    def decide(self, conn: Connection, item_id: int, choice: HeldChoice, *, by: str, text: str = "") -> HeldDecision:
        """Send, edit (with `text`) or drop a held answer. `by`: the name of the person, for the receipt."""
        found = conn.rows(outbox.Q.get.locked, (item_id,))
        item = outbox.item_of(found[0]) if found else None
        if item is None or item.state != "held":
            return HeldDecision("not held", item)
        if choice == "edit" and item.payload.get("files"):
            return HeldDecision("is a file", item)
        if choice != "drop":
            older = scalar(conn.rows(Q.older, (item.platform, item.chat_id, item.id)))
            if older is not None:
                return HeldDecision("older first", item, int(older))
        original, now = str(item.payload.get("text") or ""), shared_now(self._store)
        held = {"by": by, "did": choice} | ({"original": original} if choice == "edit" else {})
        payload = {**item.payload, "held": held} | ({"text": text} if choice == "edit" else {})
        stored = columns.to_json(payload, self._store.limits, what="the answer")
        if choice == "drop":
            done = conn.run(Q.drop, (stored, columns.note(f"dropped by {by}"), now, item_id))
        else:
            done = conn.run(Q.release, (stored, item_id))
        if not done:
            return HeldDecision("not held", item)
        if choice != "send" and (conversation := _reader(conn, item)) is not None:
            conn.run(Q.note, (conversation, _note(choice, original, text), self._store.clock()))
        outcome: Literal["sent", "edited", "dropped"] = (
            "dropped" if choice == "drop" else "edited" if choice == "edit" else "sent"
        )
        return HeldDecision(outcome, item)

    def prune(self) -> int:
        """Remove notes for conversations in which nobody wrote for `limits.outbox_sent_days`."""
        return self._remove_old(self._store.limits.outbox_sent_days, Q.prune)


def _reader(conn: Connection, item: OutboxItem) -> str | None:
    """The conversation that learns of a decision: that of the answer; of a job's message, that of its chat, as a
    job's own conversation has no later turn."""
    if item.turn_id is not None:
        chat = scalar(conn.rows(Q.chat_of_turn, (item.turn_id,)))
    else:
        chat = scalar(conn.rows(Q.chat_of_message, (item.platform, item.account, item.chat_id, item.dedup_key)))
    return item.conversation_id if chat is None else str(chat)


def is_listed(listed: Collection[str], platform: str, chat_id: str) -> bool:
    return not {f"{platform}:{chat_id}", *accounts.names(platform)}.isdisjoint(listed)


def with_notes(conn: Connection, conversation_id: ConversationId, user: Mapping[str, Any]) -> Mapping[str, Any]:
    """The user's row of a turn that begins, with the notes that the model has not read; they are removed with it."""
    notes = [note for _, note in sorted(conn.rows(Q.take_notes, (conversation_id,)))]
    if not notes:
        return user
    said = user.get("api_content") or columns.text_of(user.get("content"))
    return {**user, "api_content": "\n\n".join([*notes, str(said)])}


def _note(choice: HeldChoice, original: str, text: str) -> str:
    line = " ".join(original.split())
    begins = f"“{line[:_BEGINNING]}…”" if len(line) > _BEGINNING else f"“{line}”"
    if choice == "drop":
        return f"[Your answer {begins} was not sent: the owner dropped it. The person has not seen it.]"
    return f"[The owner changed your answer {begins} before it was sent. The person read this instead:]\n{text}"
