"""Held answers: one decision each, in the order of the chat, and the model learns of it once."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.stores import transact

from hermes_state.ids import ConversationId, SessionId
from hermes_state.session_db import SessionDB
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem


def held(
    db: SessionDB, key: str, *, chat: str = "42", text: str = "five", talk: str = "c1", **more: bool
) -> OutboxItem:
    return db.outbox.enqueue(
        NewOutboxItem(
            dedup_key=key, platform="telegram", chat_id=chat, payload={"text": text, "kind": "answer"},
            conversation_id=ConversationId(talk), held=more.get("held", True), sender="me",
        )
    )  # fmt: skip


def state(db: SessionDB, item: OutboxItem) -> str:
    found = db.outbox.get(item.id)
    assert found is not None
    return found.state


def test_a_held_answer_is_not_due_and_blocks_no_notice(db: SessionDB) -> None:
    first, notice = held(db, "a"), held(db, "n", held=False)
    assert (first.state, notice.state, db.outbox.next_due()) == ("held", "sending", None)
    assert db.outbox.owed_count() == 1 and db.outbox.counts() == {"held": 1, "sending": 1}
    assert db.held_answers.decide(first.id, "send", by="Ada").outcome == "sent"
    assert state(db, first) == "pending"
    assert transact(db.outbox.sent_in, notice, platform_ids=["1"])
    assert [item.id for item in transact(db.outbox.claim_due_in, sender="me")] == [first.id]


def test_the_oldest_answer_of_a_chat_is_decided_first_but_any_can_be_dropped(db: SessionDB) -> None:
    first, second, other = held(db, "a"), held(db, "b"), held(db, "c", chat="43")
    refused = db.held_answers.decide(second.id, "edit", by="Ada", text="six")
    assert (refused.outcome, refused.older) == ("older first", first.id)
    assert db.held_answers.decide(other.id, "send", by="Ada").outcome == "sent"
    assert db.held_answers.decide(second.id, "drop", by="Ada").outcome == "dropped"
    assert [item.id for item in db.held_answers.list()] == [first.id]


def test_of_many_who_decide_at_once_one_does(db: SessionDB) -> None:
    item, outcomes = held(db, "a"), list[str]()
    choices = ("send", "edit", "drop") * 4

    def decide(choice: str) -> None:
        outcomes.append(db.held_answers.decide(item.id, choice, by=choice, text="six").outcome)  # type: ignore[arg-type]

    threads = [threading.Thread(target=decide, args=(choice,)) for choice in choices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decided = [one for one in outcomes if one != "not held"]
    assert len(decided) == 1 and len(outcomes) == len(choices)
    found = db.outbox.get(item.id)
    assert found is not None
    word = {"sent": "send", "edited": "edit", "dropped": "drop"}[decided[0]]
    assert found.payload["held"]["by"] == word and found.state == ("dropped" if word == "drop" else "pending")


def test_a_chat_is_held_by_the_setting_or_by_hand_and_while_an_answer_waits(db: SessionDB) -> None:
    asked = db.held_answers.is_held
    assert not asked((), "telegram", "42") and asked(("telegram",), "telegram", "42")
    assert asked(("telegram:42",), "telegram", "42") and not asked(("telegram:4",), "telegram", "42")
    db.held_answers.hold_chat("telegram", "42", False, by=None)
    assert not asked(("telegram",), "telegram", "42"), "by hand counts above the setting"
    item = held(db, "a")
    assert asked((), "telegram", "42"), "later answers keep the order"
    db.held_answers.decide(item.id, "drop", by="Ada")
    assert not asked((), "telegram", "42")
    db.held_answers.hold_chat("telegram", "42", True, by=None)
    assert asked((), "telegram", "42") and db.held_answers.chats() == (("telegram", "42", True),)


def test_an_answer_that_the_chat_shows_already_is_not_held_back(db: SessionDB) -> None:
    new = NewOutboxItem(dedup_key="a", platform="telegram", chat_id="42", payload={"text": ""})
    draft = transact(db.outbox.draft_in, new)
    assert transact(db.outbox.progress_in, draft, platform_ids=["7"])
    shown = held(db, "a")
    assert (shown.state, shown.platform_ids, shown.payload["text"]) == ("pending", ("7",), "five")
    transact(db.outbox.draft_in, NewOutboxItem(dedup_key="b", platform="telegram", chat_id="42", payload={"text": ""}))
    assert held(db, "b").state == "held", "a draft that nobody saw"


def test_the_next_turn_reads_what_was_changed_and_no_later_one(db: SessionDB) -> None:
    session = SessionId(db.create_session("s1", "telegram"))
    for key, choice in (("a", "edit"), ("b", "drop"), ("c", "send")):
        item = held(db, key, text=f"I wrote {key}", talk=session)
        db.held_answers.decide(item.id, choice, by="Ada", text="six")  # type: ignore[arg-type]

    async def turn(text: str) -> str:
        journal = await Journal.open(db, session, holder="h", ttl=60, user={"role": "user", "content": text})
        assert journal is not None and journal.begun is not None
        await journal.commit({"role": "assistant", "content": "ok"})
        return str(journal.begun.row.get("api_content") or "")

    first = asyncio.run(turn("thanks"))
    assert "“I wrote a”" in first and "six" in first and "“I wrote b” was not sent" in first
    assert "I wrote c" not in first and first.endswith("\n\nthanks")
    assert asyncio.run(turn("and now?")) == ""
    stored = db.get_messages(session)
    assert stored[0]["content"] == "thanks" and stored[0]["api_content"] == first


def test_a_list_pages(db: SessionDB) -> None:
    items = [held(db, key, chat=key) for key in "abc"]
    first = db.held_answers.list(limit=2)
    assert [*first, *db.held_answers.list(after=first[-1].id, limit=2)] == items


_HOLD = """
import sys
from pathlib import Path
from hermes_state.session_db import SessionDB
SessionDB(Path(sys.argv[1])).held_answers.hold_chat("telegram", "42", sys.argv[2] == "on", by=None)
"""


def test_a_chat_that_another_process_holds_is_held_here(tmp_path: Path) -> None:
    with contextlib.closing(SessionDB(tmp_path / "state.db")) as db:
        for held_there in ("on", "off", "on"):
            assert db.held_answers.is_held((), "telegram", "42") is (held_there == "off")
            subprocess.run(
                [sys.executable, "-c", _HOLD, str(tmp_path / "state.db"), held_there], check=True, timeout=60
            )
        assert db.held_answers.is_held((), "telegram", "42")
