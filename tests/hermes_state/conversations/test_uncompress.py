"""Undoing a compression: the segment before goes on as if nothing had been, with everything said since."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.stores import transact

from hermes_state import SessionDB, SessionEnded, SessionNotFound
from hermes_state.conversations.ledger import Handle
from hermes_state.errors import ConversationHeld, InvalidValue
from hermes_state.ids import SessionId
from hermes_state.maintenance import check
from hermes_testing.clock import Clock

KEY = "agent:main:telegram:dm:42"
OTHER = "agent:main:telegram:group:-1"
CALL = [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}]


def text(db: SessionDB, session_id: str) -> list[str | None]:
    return [message["content"] for message in db.get_messages(session_id)]


@pytest.fixture
def chat(db: SessionDB) -> SessionId:
    handle = db.ledger.open(source="telegram", route=KEY)
    db.ledger.switch(OTHER, handle.session_id)
    db.append_messages(handle.session_id, [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}])
    db.set_session_title(handle.session_id, "Kyoto")
    return handle.session_id


@pytest.fixture
def compressed(db: SessionDB, chat: SessionId, clock: Clock) -> Handle:
    """Compressed, and talked in since."""
    clock.advance(10)
    child = db.ledger.rotate(chat, [{"role": "user", "content": "[summary]"}, {"role": "assistant", "content": "two"}])
    clock.advance(10)
    db.append_message(child.session_id, "user", "three", platform_message_id="m3", api_content="three, in March")
    db.append_message(child.session_id, "assistant", "", tool_calls=CALL)
    db.append_message(child.session_id, "tool", "done", tool_call_id="c1", tool_name="t")
    return child


def test_everything_goes_back_and_nothing_said_since_is_lost(
    db: SessionDB, chat: SessionId, compressed: Handle, clock: Clock, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    db.update_session_model(compressed.session_id, "another")
    undone = db.ledger.uncompress(compressed.session_id)
    assert (undone.handle, undone.brought) == (Handle(compressed.conversation_id, chat), 3)
    db = reopen(db)
    assert text(db, chat) == ["one", "two", "three", "", "done"]
    third = db.get_messages(chat)[2]
    assert (third["platform_message_id"], third["api_content"]) == ("m3", "three, in March")
    row = db.get_session(chat)
    assert row is not None
    assert (row["title"], row["ended_at"], row["end_reason"], row["model"]) == ("Kyoto", None, None, "another")
    assert (row["message_count"], row["tool_call_count"], row["last_active"]) == (5, 1, clock())
    for key in (KEY, OTHER):
        found = db.engine.write(db.ledger.resolving(key))
        assert found is not None and found.handle.session_id == chat
    assert db.get_compression_lineage(chat) == [chat]
    listed = db.list_sessions_rich(order_by_last_active=True)
    assert [(r["id"], r["title"]) for r in listed] == [(chat, "Kyoto")]
    assert not [found for found in check.check(db) if not found.note]


def test_the_segment_that_was_set_aside_leads_back(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    aside = compressed.session_id
    db.ledger.uncompress(aside)
    assert db.get_session(aside)["end_reason"] == "uncompressed"  # type: ignore[index]
    assert text(db, aside) == []
    assert db.get_compression_tip(aside) == chat
    assert db.resolve_resume_session_id(aside) == db.resolve_resume_session_id(chat) == chat
    with pytest.raises(SessionEnded) as caught:
        db.append_message(aside, "user", "where am I?")
    assert caught.value.tip == chat
    assert {found["session_id"] for found in db.search_messages("three")} == {chat}


def test_it_can_be_compressed_again_and_undone_again(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    db.ledger.uncompress(compressed.session_id)
    again = db.ledger.rotate(chat, [{"role": "user", "content": "[summary 2]"}])
    assert db.get_compression_tip(compressed.session_id) == db.get_compression_tip(chat) == again.session_id
    assert db.get_compression_lineage(chat) == [chat, again.session_id]
    db.append_message(again.session_id, "user", "four")
    db.ledger.end(chat, "session_reset")
    db.ledger.uncompress(again.session_id)
    assert text(db, chat) == ["one", "two", "three", "", "done", "four"]
    assert db.get_session(chat)["end_reason"] == "session_reset"  # type: ignore[index]
    assert not [found for found in check.check(db) if not found.note]


def test_the_newest_compression_is_undone_first(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    newest = db.ledger.rotate(compressed.session_id, [{"role": "user", "content": "[summary 2]"}])
    with pytest.raises(InvalidValue, match="compressed again") as caught:
        db.ledger.uncompress(compressed.session_id)
    assert newest.session_id in caught.value.hint
    db.ledger.uncompress(newest.session_id)
    db.ledger.uncompress(compressed.session_id)
    assert text(db, chat) == ["one", "two", "three", "", "done"]
    assert db.get_compression_tip(newest.session_id) == chat


def test_a_running_turn_is_not_pulled_out_from_under(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    lease = db.leases.acquire(compressed.conversation_id, holder="p1", ttl=60)
    assert lease is not None
    with pytest.raises(ConversationHeld):
        db.ledger.uncompress(compressed.session_id)
    work = transact(
        db.turns.begin_in,
        conversation_id=compressed.conversation_id,
        session_id=compressed.session_id,
        fence=lease.fence,
    )
    db.leases.release(lease)  # its process is gone, and somebody will take it up
    with pytest.raises(ConversationHeld):
        db.ledger.uncompress(compressed.session_id)
    assert work is not None and text(db, chat) == ["one", "two"]
    lease = db.leases.acquire(compressed.conversation_id, holder="p2", ttl=60)
    assert lease is not None
    transact(db.turns.give_up_in, work.turn.id, "cancelled", fence=lease.fence, reason="stopped")
    db.leases.release(lease)
    assert db.ledger.uncompress(compressed.session_id).handle.session_id == chat


def test_what_cannot_be_undone_is_left_alone(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    with pytest.raises(InvalidValue, match="not made by a compression"):
        db.ledger.uncompress(db.ledger.branch(compressed.session_id).session_id)
    with pytest.raises(SessionNotFound):
        db.ledger.uncompress("nobody")
    first = db.get_messages(compressed.session_id)[0]
    db.rewind_to_message(compressed.session_id, first["id"])
    with pytest.raises(InvalidValue, match="undone or edited"):
        db.ledger.uncompress(compressed.session_id)
    back = "UPDATE messages SET active = 1 WHERE session_id = ? AND id >= ?"
    db._execute_write(lambda conn: conn.run(back, (compressed.session_id, first["id"])))
    db.create_session("old", "cli")
    db.create_session("new", "cli", parent_session_id="old")
    db.end_session("old", "compression")  # as another program does it
    with pytest.raises(InvalidValue, match="cannot be told apart"):
        db.ledger.uncompress("new")
    db.ledger.uncompress(compressed.session_id)
    with pytest.raises(InvalidValue, match="already undone"):
        db.ledger.uncompress(compressed.session_id)
    assert text(db, chat) == ["one", "two", "three", "", "done"]


def test_it_is_not_compressed_again_by_itself_at_once(
    db: SessionDB, chat: SessionId, compressed: Handle, clock: Clock
) -> None:
    db.ledger.uncompress(compressed.session_id)
    assert db.get_compression_failure_cooldown(chat)
    clock.advance(3_601)
    assert db.get_compression_failure_cooldown(chat) is None


def test_only_one_of_two_undoes_it(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    outcomes: list[str] = []

    def attempt() -> None:
        try:
            outcomes.append(db.ledger.uncompress(compressed.session_id).handle.session_id)
        except (InvalidValue, ConversationHeld):
            outcomes.append("refused")

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == sorted([chat, "refused", "refused", "refused"])
    assert text(db, chat) == ["one", "two", "three", "", "done"]


def test_what_was_set_aside_goes_with_the_conversation(db: SessionDB, chat: SessionId, compressed: Handle) -> None:
    db.ledger.uncompress(compressed.session_id)
    db.ledger.rotate(chat, [{"role": "user", "content": "again"}])
    db.ledger.delete(chat)
    left = db.engine.read(lambda conn: conn.rows("SELECT count(*) FROM messages")[0][0])
    marks = db.engine.read(lambda conn: conn.rows("SELECT count(*) FROM state_meta WHERE key LIKE 'carried:%'")[0][0])
    assert (left, marks, db.get_session(compressed.session_id)) == (0, 0, None)
