"""`hermes approvals`: what stands is seen, and can be taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_state.approvals import Verdict
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, TurnId


@pytest.fixture
def granted(db: SessionDB, named_store: str | Path, home: Path) -> dict[str, str]:
    """Three answers of the owner's and one of Bea's, by what they allow."""
    home.mkdir()
    handle = db.ledger.open(source="cli")
    db.append_message(handle.session_id, "user", "tidy up")
    db.set_session_title(handle.session_id, "Tidying")
    lease = db.leases.acquire(handle.conversation_id, holder="test", ttl=60)
    assert lease is not None
    work = db.turns.begin(conversation_id=handle.conversation_id, session_id=handle.session_id, fence=lease.fence)

    def answer(what: str, verdict: Verdict, who: PersonId) -> str:
        asked = db.approvals.ask(
            conversation_id=ConversationId(handle.conversation_id), turn_id=TurnId(work.turn.id), call_hash=f"h-{what}",
            call={"kind": "command", "text": what}, requester_id=who, approver_id=who, seconds=60,
        )  # fmt: skip
        assert db.approvals.decide(asked.id, verdict, approver_id=who)
        return asked.id

    bea = db.people.ensure(platform="telegram", native_id="1", display_name="Bea").id
    return {
        "always": answer("rm -r old", "always", LOCAL_OWNER),
        "session": answer("git push", "session", LOCAL_OWNER),
        "once": answer("make install", "once", LOCAL_OWNER),
        "bea": answer("rm -r hers", "always", bea),
        "who": bea,
    }


def test_what_stands_is_listed_and_nothing_else(granted: dict[str, str], run: Any) -> None:
    shown = run("approvals", "list").out
    assert "rm -r old" in shown and "everywhere" in shown
    assert "git push" in shown and "Tidying" in shown
    assert "make install" not in shown and "hers" not in shown
    rows = run("approvals", "list", "--json").data
    assert {row["id"]: row["scope"] for row in rows} == {granted["always"]: "always", granted["session"]: "session"}
    assert "rm -r hers" in run("approvals", "list", "--person", granted["who"]).out


def test_what_is_taken_back_allows_nothing_any_more(db: SessionDB, granted: dict[str, str], run: Any) -> None:
    here = db.approvals.get(granted["always"])
    assert here is not None
    where = {"conversation_id": here.conversation_id, "call_hash": "h-rm -r old", "person_id": LOCAL_OWNER}
    assert db.approvals.standing(**where) is not None
    assert run("approvals", "revoke", granted["always"]).out == "Taken back: rm -r old\n"
    assert db.approvals.standing(**where) is None
    assert "rm -r old" not in run("approvals", "list").out


def test_only_what_stands_can_be_taken_back(granted: dict[str, str], run: Any) -> None:
    for wanted in ("nothing", "", granted["once"], granted["bea"]):
        assert "is no standing approval" in run("approvals", "revoke", wanted).err
    assert "fits several" in run("approvals", "revoke", "ask_").err
    assert run("approvals", "revoke", granted["bea"], "--person", granted["who"]).code == 0
    run("approvals", "revoke", granted["always"])
    run("approvals", "revoke", granted["session"])
    assert "Nothing is approved for good" in run("approvals", "list").out
