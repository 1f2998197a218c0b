"""The prefix stays byte-identical until an announced event, in whichever process; a moved byte is seen and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.plain_wire import ENDPOINT, PlainWire
from tests.support.stores import transact

from hermes_agent.models.base import Endpoint, Message, ToolSpec
from hermes_agent.prompt.prefix import Checked, Watch, ensure
from hermes_agent.prompt.transcript import EncodedTranscript
from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId, SessionId
from hermes_state.session_db import SessionDB
from hermes_state.turns.leases import Lease

C, S = ConversationId("c"), SessionId("c")
TOOLS: list[ToolSpec] = [{"name": "look", "description": "部署", "parameters": {"z": 1, "a": {"type": "string"}}}]


class Text:
    """What would be rendered now; counts how often it was."""

    def __init__(self, system: str = "You are Hermes.", tools: Sequence[ToolSpec] = TOOLS) -> None:
        self.system, self.tools, self.asked = system, tools, 0

    def __call__(self) -> tuple[str, Sequence[ToolSpec]]:
        self.asked += 1
        return self.system, self.tools


class Chat:
    """One conversation in one process: what a turn does with prefix, bytes and watch."""

    def __init__(self, db: SessionDB, text: Text, *, wire: PlainWire | None = None, reason: str | None = None) -> None:
        self.db = db
        if db.get_session(S) is None:
            db.create_session(S, "cli")
        self.prefix = ensure(db, C, text, reason=reason)
        self.conversation = EncodedTranscript(db, S, wire or PlainWire(), self.prefix)
        self.watch = Watch.load(db, C)

    def turn(self, text: str, endpoint: Endpoint = ENDPOINT) -> Checked:
        lease = self.db.leases.acquire(C, holder="test", ttl=30)
        assert lease is not None
        work = transact(
            self.db.turns.begin_in, conversation_id=C, session_id=self.conversation.session_id, fence=lease.fence
        )
        assert work is not None
        self.db.append_message(self.conversation.session_id, "user", text)
        self.conversation.refresh()
        checked = self.watch.check(self.conversation.body(endpoint), endpoint)
        self.db.append_message(self.conversation.session_id, "assistant", f"you said {text}")
        asyncio.run(self._save(lease, work.turn.id))
        transact(self.db.turns.commit_in, work.turn.id, fence=lease.fence)
        self.db.leases.release(lease)
        self.db.clock.advance(1)  # type: ignore[attr-defined]
        return checked

    async def _save(self, lease: Lease, turn_id: Any) -> None:
        await self.watch.save(turn_id, fence=lease.fence)


def kinds(chat: Chat, *texts: str) -> list[str]:
    return [chat.turn(text).kind for text in texts]


def test_the_stored_prefix_is_used_whatever_changed_since(
    db: SessionDB, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    first = ensure(db, C, Text())
    changed = Text("You are somebody else.", [])
    again = ensure(db, C, changed)
    assert (again.content.system, again.content.tools, again.epoch) == ("You are Hermes.", tuple(TOOLS), 1)
    assert list(again.content.tools[0]["parameters"]) == ["z", "a"], "schemas keep the order they were written in"
    assert again.content is first.content, "equal prefixes are one object in memory"
    del first, again
    kept = ensure(reopen(db), C, changed)
    assert (kept.content.system, kept.content.tools, kept.epoch) == ("You are Hermes.", tuple(TOOLS), 1)
    assert changed.asked == 0


def test_a_new_epoch_needs_a_reason(db: SessionDB) -> None:
    ensure(db, C, Text())
    same = ensure(db, C, Text(), reason="compression")
    assert same.epoch == 1, "nothing moved"
    other = ensure(db, C, Text("You are terse."), reason="personality")
    assert (other.content.system, other.epoch) == ("You are terse.", 2)
    assert [e.reason for e in db.prefixes.epochs(C)] == ["first use", "personality"]


def test_a_turn_that_lost_its_lease_begins_no_epoch(db: SessionDB) -> None:
    ensure(db, C, Text())
    with pytest.raises(StaleFence):
        ensure(db, C, Text("late"), reason="model switch", fence=7)
    assert ensure(db, C, Text()).content.system == "You are Hermes."


def test_text_that_is_no_unicode_is_stored_and_used_alike(db: SessionDB) -> None:
    first = ensure(db, C, Text("half \ud800 pair"))
    assert first.content.system == "half ? pair" == ensure(db, C, Text()).content.system


def test_two_conversations_share_one_head(db: SessionDB) -> None:
    one, two = ensure(db, C, Text()), ensure(db, ConversationId("d"), Text())
    wire = PlainWire()
    assert one.content.head(wire, ENDPOINT) is two.content.head(wire, replace(ENDPOINT))
    assert one.content.head(wire, replace(ENDPOINT, model="other")) != one.content.head(wire, ENDPOINT)


def test_requests_extend_each_other_through_a_restart(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    assert kinds(Chat(db, Text()), "one", "two", "three") == ["first", "extends", "extends"]
    db = reopen(db)
    later = Chat(db, Text("SOUL.md was edited meanwhile"))
    assert kinds(later, "four", "five") == ["extends", "extends"]
    later.conversation = EncodedTranscript(db, S, PlainWire(), later.prefix)
    assert kinds(later, "six") == ["extends"]
    assert db.prefixes.break_count() == 0


def test_a_moved_byte_is_a_counted_break_and_the_watch_goes_on(
    db: SessionDB, reopen: Callable[[SessionDB], SessionDB], caplog: pytest.LogCaptureFixture
) -> None:
    class Drifting(PlainWire):
        def fragments(self, messages: Sequence[Message]) -> list[bytes]:
            return [fragment.replace(b"you said", b"You said") for fragment in super().fragments(messages)]

    kinds(Chat(db, Text()), "one", "two")
    db = reopen(db)
    drifted = Chat(db, Text(), wire=Drifting())
    checked = drifted.turn("three")
    assert checked == ("broke", "an earlier message is rendered differently")
    assert kinds(drifted, "four") == ["extends"], "one break, not one a request"
    stored = "SELECT epoch, reason, expected <> seen FROM prefix_breaks"
    assert db.engine.read(lambda conn: conn.rows(stored)) == [(1, checked.reason, True)]
    assert db.prefixes.break_count(C) == db.prefixes.break_count() == 1
    assert "prefix_broke" in caplog.text


def test_a_head_that_moves_inside_an_epoch_is_a_break(db: SessionDB) -> None:
    class Forgetful(PlainWire):
        def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
            return super().head(endpoint, system, [])

    kinds(Chat(db, Text("only here")), "one")
    moved = Forgetful()
    moved.name = "plain/1 "
    chat = Chat(db, Text(), wire=moved)
    moved.name = "plain/1"  # what a changed renderer that forgot its version would do
    chat.prefix.content._heads.clear()
    assert chat.turn("two") == ("broke", "system text, tools or options moved inside an epoch")


def test_a_message_lost_from_the_middle_is_a_break(db: SessionDB) -> None:
    kinds(Chat(db, Text()), "one", "two", "three")
    lost = db.list_recent_user_messages(S)[1]["id"]
    db.engine.write(lambda conn: conn.run("DELETE FROM messages WHERE id = ?", (lost,)))
    checked = Chat(db, Text()).turn("four")
    assert checked.kind == "broke" and "missing" in checked.reason
    assert db.prefixes.break_count() == 1


def test_announced_events_are_no_breaks(db: SessionDB) -> None:
    chat = Chat(db, Text())
    kinds(chat, "one", "two")
    chat.watch.announce("reasoning effort changed")
    assert chat.turn("three") == ("announced", "reasoning effort changed")
    new_epoch = Chat(db, Text("You are terse."), reason="personality")
    assert new_epoch.turn("four") == ("announced", "a new epoch")
    first_of_two = db.list_recent_user_messages(S)[1]["id"]
    db.rewind_to_message(S, first_of_two)
    assert new_epoch.turn("three again") == ("announced", "the transcript was edited")
    child = db.ledger.rotate(S, [{"role": "user", "content": "what happened so far"}]).session_id
    new_epoch.conversation = EncodedTranscript(db, child, PlainWire(), new_epoch.prefix)
    assert new_epoch.turn("five") == ("announced", "a new segment")
    assert kinds(new_epoch, "six") == ["extends"]
    assert db.prefixes.break_count() == 0


def test_an_undo_while_nobody_was_running_is_no_break(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    kinds(Chat(db, Text()), "one", "two")
    db.rewind_to_message(S, db.list_recent_user_messages(S)[0]["id"])
    db = reopen(db)
    assert Chat(db, Text()).turn("two, better") == ("announced", "the transcript was edited")


def test_a_fallback_model_has_a_track_of_its_own(db: SessionDB) -> None:
    chat, other = Chat(db, Text()), replace(ENDPOINT, model="spare-1")
    assert chat.turn("one").kind == "first"
    assert chat.turn("two", other).kind == "first"
    assert [chat.turn("three").kind, chat.turn("four", other).kind] == ["extends", "extends"]


def test_a_break_waits_for_the_next_save(db: SessionDB) -> None:
    """A model that cannot be reached must not hide a break: it is recorded with the next step that is stored."""
    chat = Chat(db, Text())
    kinds(chat, "one")
    chat.conversation.refresh()
    good = chat.conversation.body(ENDPOINT)
    chat.watch.check(good, ENDPOINT)
    bad = good._replace(content=good.content.replace(b"you said one", b"You said one"))
    assert chat.watch.check(bad, ENDPOINT).kind == "broke"
    assert db.prefixes.break_count(C) == 0
    kinds(chat, "two")
    assert db.prefixes.break_count(C) == 2, "away and back again"


def test_a_note_of_another_version_is_left_aside(db: SessionDB) -> None:
    chat = Chat(db, Text())
    kinds(chat, "one")
    lease = db.leases.acquire(C, holder="test", ttl=30)
    assert lease is not None
    work = transact(db.turns.begin_in, conversation_id=C, session_id=S, fence=lease.fence)
    assert work is not None
    transact(
        db.turns.note_in, work.turn.id, {"sent": {"plain/1 test plain-1": ["something", "else"]}}, fence=lease.fence
    )
    transact(db.turns.commit_in, work.turn.id, fence=lease.fence)
    db.leases.release(lease)
    assert kinds(Chat(db, Text()), "two") == ["first"]
