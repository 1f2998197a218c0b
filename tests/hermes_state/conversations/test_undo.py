"""Undo takes back whole turns; redo brings back exactly what the last undo took, as long as nothing was said since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.errors import ConversationHeld, SessionEnded, SessionNotFound
from hermes_state.session_db import SessionDB


def nothing(content: Any) -> bool:
    return False


def talk(db: SessionDB, session: str, *said: str) -> None:
    for text in said:
        db.append_message(session, "user", text)
        db.append_message(session, "assistant", f"re {text}")


def texts(db: SessionDB, session: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session) if row["role"] == "user"]


@pytest.fixture
def chat(db: SessionDB) -> str:
    session = db.ledger.open(source="cli").session_id
    talk(db, session, "one", "two", "three")
    return session


def test_a_turn_is_taken_back_and_brought_again(
    db: SessionDB, chat: str, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    before = db.live_state(chat)
    undone = db.undo.take_back(chat, stays=nothing)
    assert undone is not None and (undone.turns, undone.rows, undone.content) == (1, 2, "three")
    assert texts(db, chat) == ["one", "two"]
    db = reopen(db)
    assert db.undo.bring_back(chat) == 1
    assert texts(db, chat) == ["one", "two", "three"]
    assert db.live_state(chat) != before, "whoever keeps the transcript must notice that something happened"
    assert db.undo.bring_back(chat) == 0


def test_several_undos_come_back_one_by_one(db: SessionDB, chat: str) -> None:
    db.undo.take_back(chat, stays=nothing)
    db.undo.take_back(chat, stays=nothing)
    assert texts(db, chat) == ["one"]
    assert db.undo.bring_back(chat) == 1 and texts(db, chat) == ["one", "two"]
    assert db.undo.bring_back(chat) == 1 and texts(db, chat) == ["one", "two", "three"]
    assert db.undo.bring_back(chat) == 0


def test_more_turns_than_there_are(db: SessionDB, chat: str) -> None:
    undone = db.undo.take_back(chat, 50, stays=nothing)
    assert undone is not None and (undone.turns, undone.content) == (3, "one")
    assert texts(db, chat) == [] and db.undo.take_back(chat, stays=nothing) is None
    assert db.undo.bring_back(chat) == 3


def test_what_was_not_said_does_not_come_back_into_what_was(db: SessionDB, chat: str) -> None:
    db.undo.take_back(chat, 2, stays=nothing)
    talk(db, chat, "other")
    assert db.undo.bring_back(chat) == 0, "the conversation has gone on"
    db.undo.take_back(chat, 2, stays=nothing)
    assert texts(db, chat) == []
    assert db.undo.bring_back(chat) == 2
    assert texts(db, chat) == ["one", "other"], "the rows in between were taken back by an earlier undo"
    assert db.undo.bring_back(chat) == 0


def test_rows_of_one_turn_are_one_turn_and_what_was_overheard_is_none(db: SessionDB, chat: str) -> None:
    db.append_message(chat, "user", "part 1", turn_id="turn_x")
    db.append_message(chat, "user", "part 2", turn_id="turn_x")
    db.append_message(chat, "user", "chatter", observed=True)
    undone = db.undo.take_back(chat, stays=nothing)
    assert undone is not None and (undone.turns, undone.content) == (1, "part 1")
    assert texts(db, chat) == ["one", "two", "three"]


def test_an_undo_does_not_reach_beyond_what_stays(db: SessionDB, chat: str) -> None:
    undone = db.undo.take_back(chat, 3, stays=lambda content: content == "one")
    assert undone is not None and undone.turns == 2
    assert texts(db, chat) == ["one"]
    assert db.undo.take_back(chat, stays=lambda content: content == "one") is None


def test_a_running_turn_is_left_alone(db: SessionDB, chat: str) -> None:
    lease = db.leases.acquire(db.get_conversation_root(chat), holder="a turn", ttl=60)
    assert lease is not None
    with pytest.raises(ConversationHeld):
        db.undo.take_back(chat, stays=nothing)
    assert texts(db, chat) == ["one", "two", "three"]
    db.leases.release(lease)
    assert db.undo.take_back(chat, stays=nothing) is not None
    again = db.leases.acquire(lease.conversation_id, holder="a turn", ttl=60)
    assert again is not None, "the undo has given the conversation back"


def test_only_the_newest_segment_can_be_changed(db: SessionDB, chat: str) -> None:
    child = db.ledger.rotate(chat, [{"role": "user", "content": "summary"}]).session_id
    with pytest.raises(SessionEnded) as ended:
        db.undo.take_back(chat, stays=nothing)
    assert ended.value.tip == child
    with pytest.raises(SessionNotFound):
        db.undo.bring_back("nobody")
