"""A lease holder that is stopped (SIGSTOP) and wakes up late writes nothing; whoever took over is not disturbed."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.processes import Worker
from tests.support.stores import transact
from tests.support.sweep import content

from hermes_state.ids import ConversationId, SessionKey, TurnId
from hermes_state.session_db import SessionDB

SLEEPER = Path(__file__).parent / "workers" / "sleepy_holder.py"
CHAT, ROUTE = ConversationId("chat"), SessionKey("agent:main:telegram:dm:42")
ATTEMPTS = ("note", "effect", "rotate", "prefix", "commit", "fail")


def test_a_stopped_holder_wakes_up_to_nothing(address: str | Path) -> None:
    db = SessionDB(address)
    db.ledger.open(source="telegram", route=ROUTE, session_id=CHAT)
    db.inbox.accept(platform="telegram", chat_id="42", message_id="1", route=ROUTE, payload={"text": "hi"})
    with Worker(SLEEPER, address) as sleeper:
        fence = int(sleeper.line().removeprefix("holding "))
        sleeper.freeze()
        while (lease := db.leases.acquire(CHAT, holder="successor", ttl=60)) is None:
            time.sleep(0.05)
        assert lease.fence > fence
        (left_behind,) = db.turns.running()
        work = transact(db.turns.resume_in, left_behind.id, fence=lease.fence)
        assert [row.message_id for row in work.inbox] == ["1"]
        db.append_message(CHAT, "user", "by the successor", turn_id=work.turn.id)

        before = content(db)
        sleeper.thaw()
        sleeper.go()
        assert sleeper.finish() == [*(f"{what} refused" for what in ATTEMPTS), "renew lost", "release lost"]
        assert content(db) == before
    transact(db.turns.commit_in, TurnId(work.turn.id), fence=lease.fence, reason="nothing to say")
    assert [row["content"] for row in db.get_messages(CHAT)] == ["by the successor"]
    db.close()
