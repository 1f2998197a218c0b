"""Worker: ADDRESS. Takes the lease of a conversation and begins a turn; when woken, tries everything a turn writes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.support.processes import say, wait_for_go
from tests.support.stores import transact

from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId, SessionId, SessionKey, TurnId
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem

CHAT, TURN = ConversationId("chat"), TurnId("turn_of_the_sleeper")
ROUTE = SessionKey("agent:main:telegram:dm:42")


def main(address: str) -> None:
    db = SessionDB(address)
    lease = db.leases.acquire(CHAT, holder="sleeper", ttl=0.5)
    assert lease is not None
    fence = lease.fence
    transact(
        db.turns.begin_in,
        conversation_id=CHAT,
        session_id=SessionId(CHAT),
        fence=fence,
        route=ROUTE,
        claim=1,
        turn_id=TURN,
    )
    say(f"holding {fence}")
    wait_for_go()
    final = [{"role": "assistant", "content": "too late"}]
    reply = NewOutboxItem(dedup_key="late", platform="telegram", chat_id="42", payload={"text": "too late"})
    attempt("note", lambda: transact(db.turns.note_in, TURN, {"step": 1}, fence=fence))
    attempt("effect", lambda: transact(db.effects.start_in, TURN, "c1", tool="delete", fence=fence))
    attempt("rotate", lambda: db.ledger.rotate(CHAT, final, fence=fence))
    attempt("prefix", lambda: db.prefixes.begin(CHAT, b"other bytes", reason="late", fence=fence))
    attempt("commit", lambda: transact(db.turns.commit_in, TURN, fence=fence, final=final, reply=reply))
    attempt("fail", lambda: transact(db.turns.give_up_in, TURN, "failed", fence=fence, reason="late", reply=reply))
    say("renew " + ("got it" if transact(db.leases.renew_in, lease, ttl=60) else "lost"))
    say("release " + ("got it" if db.leases.release(lease) else "lost"))
    db.close()


def attempt(what: str, write: Callable[[], object]) -> None:
    try:
        write()
        say(f"{what} written")
    except StaleFence:
        say(f"{what} refused")


if __name__ == "__main__":
    main(sys.argv[1])
