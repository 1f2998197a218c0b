"""Workload: two messages come in, one is answered with the help of a tool, one fails; the replies go out."""

from __future__ import annotations

from tests.support.stores import transact
from tests.support.sweep import Journal

from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey, TurnId
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem

CHAT = ConversationId("chat")
SEGMENT = SessionId("chat")
ROUTE = SessionKey("agent:main:telegram:dm:42")
ADA = PersonId("person_ada")


def work(db: SessionDB, journal: Journal) -> None:
    do = journal.do
    do("open", lambda: db.ledger.open(source="telegram", route=ROUTE, session_id=SEGMENT))
    for message in ("m1", "m2"):
        do(f"accept {message}", accept, db, message)
        journal.effect(f"the platform hears that we have {message}")
    do("accept m1 again", lambda: accept(db, "m1"))
    lease = do("acquire", lambda: db.leases.acquire(CHAT, holder="one", ttl=600))
    answer(db, journal, lease.fence)
    do("renew", lambda: transact(db.leases.renew_in, lease, ttl=600))
    failing = TurnId("turn_2")
    do("second turn", lambda: begin(db, failing, lease.fence))
    sorry = NewOutboxItem(dedup_key="turn_2", platform="telegram", chat_id="42", payload={"text": "sorry"})
    do(
        "fail",
        lambda: transact(
            db.turns.give_up_in, failing, "failed", fence=lease.fence, reason="the model is away", reply=sorry
        ),
    )
    do("release", lambda: db.leases.release(lease))
    for number in (1, 2):
        (item,) = do(f"claim {number}", lambda: transact(db.outbox.claim_due_in, sender="deliverer"))
        journal.effect(f"chat 42 gets {item.dedup_key}")
        if number == 1:
            do("sent", transact, db.outbox.sent_in, item, platform_ids=["900"])
        else:
            do("put off", transact, db.outbox.put_off_in, item, seconds=30, error="flood")


def answer(db: SessionDB, journal: Journal, fence: int) -> None:
    turn = TurnId("turn_1")
    journal.do("begin", lambda: begin(db, turn, fence))
    journal.do("user text", lambda: db.append_message(SEGMENT, "user", "delete old", turn_id=turn))
    asked = journal.do("ask", lambda: ask(db, turn))
    journal.do("allow", lambda: db.approvals.decide(asked.id, "once", approver_id=ADA))
    journal.do("spend", lambda: spend(db, turn))
    journal.do("mark start", lambda: transact(db.effects.start_in, turn, "c1", tool="delete", fence=fence))
    journal.effect("the tool deletes")
    journal.do("mark finish", lambda: transact(db.effects.finish_in, turn, "c1", fence=fence, result="ok"))
    prefix = b"you are Hermes"
    journal.do("prefix", lambda: db.prefixes.begin(CHAT, prefix, reason="start", fence=fence))
    final = [{"role": "assistant", "content": "deleted"}]
    reply = NewOutboxItem(dedup_key="turn_1", platform="telegram", chat_id="42", payload={"text": "deleted"})
    journal.do("commit", lambda: transact(db.turns.commit_in, turn, fence=fence, final=final, reply=reply))


def accept(db: SessionDB, message: str) -> object:
    payload = {"text": message}
    return db.inbox.accept(platform="telegram", chat_id="42", message_id=message, route=ROUTE, payload=payload)


def begin(db: SessionDB, turn: TurnId, fence: int) -> object:
    return transact(
        db.turns.begin_in, conversation_id=CHAT, session_id=SEGMENT, fence=fence, route=ROUTE, claim=1, turn_id=turn
    )


def ask(db: SessionDB, turn: TurnId) -> object:
    call = {"tool": "delete", "path": "old"}
    return db.approvals.ask(
        conversation_id=CHAT, turn_id=turn, call_hash="h1", call=call, requester_id=ADA, approver_id=ADA, seconds=60
    )


def spend(db: SessionDB, turn: TurnId) -> object:
    return db.approvals.spend(conversation_id=CHAT, turn_id=turn, call_hash="h1", person_id=ADA)


def check(db: SessionDB, effects: list[str]) -> list[str]:
    """What happened outside is known inside: so it is neither forgotten nor done again."""
    complaints = []
    accepted = {row.message_id for row in db.inbox.list()}
    marks = db.engine.read(lambda conn: conn.rows("SELECT call_id FROM effects WHERE turn_id = 'turn_1'"))
    tried = {item.dedup_key for item in db.outbox.list() if item.attempts > 0}
    for effect in effects:
        what = effect.split()[-1]
        if effect.startswith("the platform") and what not in accepted:
            complaints.append(f"{effect}, but there is no inbox row")
        if effect.startswith("the tool") and not marks:
            complaints.append(f"{effect}, but no mark says that it started")
        if effect.startswith("chat 42 gets") and what not in tried:
            complaints.append(f"{effect}, but it waits to be sent again")
    return complaints
