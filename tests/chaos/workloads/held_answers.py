"""Workload: three answers are held; one is sent, one changed, one dropped; the model reads the notes."""

from __future__ import annotations

from typing import Literal

from tests.support.stores import transact
from tests.support.sweep import Journal

from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB
from hermes_state.turns import held_answers
from hermes_state.turns.outbox import NewOutboxItem

CHAT = ConversationId("chat")
CHOICES: tuple[Literal["send", "edit", "drop"], ...] = ("send", "edit", "drop")


def work(db: SessionDB, journal: Journal) -> None:
    do = journal.do
    do("hold", lambda: db.held_answers.hold_chat("telegram", "42", True, by=None))
    items = [do(f"owe {choice}", hold, db, choice) for choice in CHOICES]
    for item, choice in zip(items, CHOICES, strict=True):
        do(choice, decide, db, item.id, choice)
        do(f"{choice} again", decide, db, item.id, choice)
    for number in (1, 2):
        (item,) = do(f"claim {number}", lambda: transact(db.outbox.claim_due_in, sender="deliverer"))
        journal.effect(f"chat 42 gets {item.payload['text']}")
        do(f"sent {number}", transact, db.outbox.sent_in, item, platform_ids=[str(900 + number)])
    do("the next turn reads the notes", read_notes, db)


def hold(db: SessionDB, key: str) -> object:
    payload = {"text": f"to {key}", "kind": "answer"}
    new = NewOutboxItem(
        dedup_key=key, platform="telegram", chat_id="42", payload=payload, conversation_id=CHAT, held=True, trace_id="t"
    )
    return db.outbox.enqueue(new)


def decide(db: SessionDB, item_id: int, choice: Literal["send", "edit", "drop"]) -> object:
    return db.held_answers.decide(item_id, choice, by="Ada", text="other")


def read_notes(db: SessionDB) -> object:
    return db.engine.write(lambda conn: held_answers.with_notes(conn, CHAT, {"content": "next"}))


def check(db: SessionDB, effects: list[str]) -> list[str]:
    """The chat gets only what was decided, and a changed or dropped answer has its note until the model reads it."""
    items = {item.dedup_key: item for item in db.outbox.list()}
    notes = db.engine.read(lambda conn: conn.rows("SELECT note FROM answer_changes"))
    decided = [key for key in ("edit", "drop") if key in items and items[key].state != "held"]
    complaints = []
    if len(notes) not in ((len(decided), 0) if len(effects) == 2 else (len(decided),)):
        complaints.append(f"{decided} were decided, and there are {len(notes)} notes")
    for effect, key in zip(effects, ("send", "edit"), strict=False):
        if items[key].attempts == 0:
            complaints.append(f"{effect}, but it waits to be sent again")
    if effects not in ([], ["chat 42 gets to send"], ["chat 42 gets to send", "chat 42 gets other"]):
        complaints.append(f"the chat got {effects}")
    return complaints
