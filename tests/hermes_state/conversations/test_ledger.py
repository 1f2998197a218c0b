"""The verbs that move whole conversations: each is one transaction."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.conftest import OpenStore
from tests.support.stores import TestStores

from hermes_state import HeadMoved, SessionDB, SessionEnded, SessionNotFound
from hermes_state.conversations.ledger import Resolved, RouteState
from hermes_state.errors import ConversationHeld, IdTaken, StaleFence
from hermes_state.ids import ConversationId, PersonId, SessionId
from hermes_state.storage.base import Connection
from hermes_testing.clock import Clock

KEY = "agent:main:telegram:dm:42"
SUMMARY = [{"role": "user", "content": "[summary]"}, {"role": "assistant", "content": "go on"}]
PEER = {"user_id": "42", "chat_id": "42", "chat_type": "dm", "display_name": "Ana"}


@pytest.fixture
def chat(db: SessionDB) -> SessionId:
    """A conversation on a route, with a title and two messages."""
    handle = db.ledger.open(source="telegram", route=KEY, fields=PEER, owner=PersonId("ana"))
    db.append_message(handle.session_id, "user", "hello")
    db.append_message(handle.session_id, "assistant", "hi")
    db.set_session_title(handle.session_id, "Kyoto")
    return handle.session_id


def conversation(db: SessionDB, conversation_id: str) -> dict[str, Any]:
    rows = db.engine.read(
        lambda conn: conn.execute("SELECT * FROM conversations WHERE id = ?", (conversation_id,)).dicts()
    )
    return rows[0]


def led_to(db: SessionDB, key: str = KEY) -> str:
    found = db.engine.write(db.ledger.resolving(key))
    assert found is not None
    return found.handle.session_id


def test_rotation_moves_everything_at_once(db: SessionDB, chat: SessionId, clock: Clock) -> None:
    db.ledger.switch("agent:main:telegram:group:-1", chat)  # a second place on the same conversation
    clock.advance(5)
    db.update_system_prompt(chat, "be kind")
    child = db.ledger.rotate(chat, SUMMARY)
    parent, row = db.get_session(chat), db.get_session(child.session_id)
    assert (parent["end_reason"], parent["title"], parent["listed"]) == ("compression", None, 0)
    assert (row["title"], row["parent_session_id"], row["root_id"]) == ("Kyoto", chat, chat)
    assert {name: row[name] for name in PEER} == PEER
    assert (row["session_key"], row["source"], row["system_prompt"]) == (KEY, "telegram", "be kind")
    assert (row["message_count"], row["preview"]) == (2, "hello")
    assert led_to(db) == led_to(db, "agent:main:telegram:group:-1") == child.session_id
    assert child.conversation_id == chat
    assert conversation(db, chat)["tip_id"] == child.session_id
    assert conversation(db, chat)["owner_id"] == "ana"
    assert [m["content"] for m in db.get_messages(child.session_id)] == ["[summary]", "go on"]
    listed = db.list_sessions_rich(order_by_last_active=True)
    assert [(r["id"], r["title"], r["_lineage_root_id"]) for r in listed] == [(child.session_id, "Kyoto", chat)]


def test_fifty_rotations_are_one_conversation_with_one_title(db: SessionDB, chat: SessionId) -> None:
    tip = chat
    for _ in range(50):
        tip = db.ledger.rotate(tip, SUMMARY).session_id
    assert db.get_session_title(tip) == "Kyoto"
    assert db.session_count(exclude_children=True) == 1
    assert len(db.get_compression_lineage(chat)) == 51
    assert db.get_compression_tip(chat) == db.resolve_resume_session_id(chat) == tip
    assert db.get_conversation_root(tip) == chat


def test_a_segment_is_compressed_once(db: SessionDB, chat: SessionId) -> None:
    child = db.ledger.rotate(chat, SUMMARY)
    with pytest.raises(SessionEnded) as caught:
        db.ledger.rotate(chat, SUMMARY)
    assert caught.value.tip == child.session_id
    assert db.get_compression_lineage(chat) == [chat, child.session_id]


def test_a_message_that_came_in_meanwhile_stops_the_rotation(db: SessionDB, chat: SessionId) -> None:
    head = db.get_messages(chat)[-1]["id"]
    db.append_message(chat, "user", "wait, one more thing")
    with pytest.raises(HeadMoved):
        db.ledger.rotate(chat, SUMMARY, expected_head=head)
    assert db.get_session(chat)["ended_at"] is None
    assert db.session_count() == 1


def test_a_failing_rotation_changes_nothing(db: SessionDB, chat: SessionId) -> None:
    db.create_session("taken", "cli")
    before = db.get_session(chat)
    with pytest.raises(IdTaken):
        db.ledger.rotate(chat, SUMMARY, new_id="taken")
    assert db.get_session(chat) == before
    assert led_to(db) == chat
    assert db.message_count("taken") == 0


def test_a_stale_fence_moves_nothing(db: SessionDB, chat: SessionId, clock: Clock) -> None:
    old = db.leases.acquire(ConversationId(chat), holder="one", ttl=60)
    assert old is not None
    clock.advance(61)
    new = db.leases.acquire(ConversationId(chat), holder="two", ttl=60)
    assert new is not None
    assert new.fence > old.fence
    with pytest.raises(StaleFence):
        db.ledger.rotate(chat, SUMMARY, fence=old.fence)
    assert db.get_session(chat)["ended_at"] is None
    assert db.ledger.rotate(chat, SUMMARY, fence=new.fence).conversation_id == chat


def test_resolve_heals_to_the_tip_before_anything_else(db: SessionDB, chat: SessionId) -> None:
    """A crash between rotation and saving the index leaves a route on the parent in homes of the reference."""
    child = db.ledger.rotate(chat, SUMMARY)
    db._execute_write(lambda conn: conn.run("UPDATE routes SET session_id = ?", (chat,)))
    seen: list[str] = []
    found = db.engine.write(db.ledger.resolving(KEY, reset=lambda state: seen.append(state.session["id"])))
    assert found is not None
    assert found.handle.session_id == child.session_id
    assert seen == [child.session_id]


def test_the_reset_rule_is_asked_in_the_same_transaction(db: SessionDB, chat: SessionId, clock: Clock) -> None:
    clock.advance(7200)
    found = db.engine.write(
        db.ledger.resolving(KEY, reset=lambda state: "idle" if clock() - state.updated_at > 3600 else None)
    )
    assert found is not None
    assert (found.created, found.reset_reason, found.previous) == (True, "idle", chat)
    new = db.get_session(found.handle.session_id)
    assert {name: new[name] for name in PEER} == PEER
    assert db.get_session(chat)["end_reason"] == "idle"
    origin = conversation(db, found.handle.conversation_id)
    assert (origin["origin_kind"], origin["origin_session_id"], origin["owner_id"]) == ("reset", chat, "ana")


def test_resolve_opens_a_conversation_only_when_told_to(db: SessionDB) -> None:
    assert db.engine.write(db.ledger.resolving("agent:main:telegram:dm:9")) is None
    assert db.session_count() == 0
    found = db.engine.write(db.ledger.resolving("agent:main:telegram:dm:9", source="telegram", fields={"user_id": "9"}))
    assert found is not None
    assert found.created
    assert led_to(db, "agent:main:telegram:dm:9") == found.handle.session_id


def test_an_accident_is_reopened_and_a_real_end_is_not(db: SessionDB, chat: SessionId) -> None:
    db.end_session(chat, "agent_close")
    assert led_to(db) == chat
    assert db.get_session(chat)["ended_at"] is None
    db.end_session(chat, "session_reset")
    assert db.engine.write(db.ledger.resolving(KEY)) is None
    found = db.engine.write(db.ledger.resolving(KEY, source="telegram"))
    assert found is not None
    assert found.previous == chat


def test_a_route_to_a_session_without_a_row_makes_it_at_first_use(db: SessionDB) -> None:
    db._execute_write(
        lambda conn: conn.run(
            "INSERT INTO routes (session_key, session_id, entry_json, updated_at) VALUES (?, 'old-index', '{}', 1)",
            (KEY,),
        )
    )
    assert db.engine.write(db.ledger.resolving(KEY)) is None
    found = db.engine.write(db.ledger.resolving(KEY, source="telegram"))
    assert found is not None
    assert found.handle.session_id == "old-index"


def test_a_branch_is_a_conversation_of_its_own(db: SessionDB, chat: SessionId) -> None:
    branch = db.ledger.branch(chat, title="Osaka instead")
    assert branch.conversation_id == branch.session_id != chat
    said = [m["content"] for m in db.get_messages(chat)]
    assert [m["content"] for m in db.get_messages(branch.session_id)] == said and len(said) > 1
    row = db.get_session(branch.session_id)
    assert (row["message_count"], row["parent_session_id"], row["title"]) == (len(said), chat, "Osaka instead")
    assert db.get_session(chat)["ended_at"] is None
    assert led_to(db) == chat
    db.ledger.rotate(chat, SUMMARY)
    assert db.get_compression_tip(branch.session_id) == branch.session_id
    assert {r["title"] for r in db.list_sessions_rich()} == {"Kyoto", "Osaka instead"}
    assert conversation(db, branch.session_id)["owner_id"] == "ana"


def test_branching_on_a_route_takes_the_route_along(db: SessionDB, chat: SessionId) -> None:
    branch = db.ledger.branch(chat, route=KEY)
    assert led_to(db) == branch.session_id
    assert db.get_session(chat)["end_reason"] == "session_switch"


def test_a_taken_title_stops_the_branch_whole(db: SessionDB, chat: SessionId) -> None:
    with pytest.raises(ValueError, match="already in use"):
        db.ledger.branch(chat, title="Kyoto")
    assert db.session_count() == 1


def test_switching_away_and_back(db: SessionDB, chat: SessionId) -> None:
    db.create_session("other", "cli")
    db.append_message("other", "user", "x")
    tip = db.ledger.rotate("other", SUMMARY).session_id
    assert db.ledger.switch(KEY, "other").session_id == tip
    assert (led_to(db), db.get_session(chat)["end_reason"]) == (tip, "session_switch")
    assert db.ledger.switch(KEY, chat).session_id == chat
    assert db.get_session(chat)["ended_at"] is None


def test_leaving_a_conversation_that_another_route_is_on_does_not_end_it(db: SessionDB, chat: SessionId) -> None:
    db.ledger.switch("agent:main:slack:channel:C", chat)
    result = db.ledger.reset(KEY)
    assert result.previous == chat
    assert db.get_session(chat)["ended_at"] is None
    assert led_to(db, "agent:main:slack:channel:C") == chat
    assert led_to(db) == result.handle.session_id


def test_a_conversation_goes_along_to_the_new_id_of_its_chat_once(db: SessionDB, chat: SessionId, clock: Clock) -> None:
    new, fields = "agent:main:telegram:group:-100", {"chat_id": "-100", "chat_type": "group"}
    tip = db.ledger.rotate(chat, SUMMARY).session_id
    assert db.ledger.take_along(KEY, new, fields=fields)
    assert led_to(db, new) == led_to(db) == tip
    for segment in (chat, tip):
        row = db.get_session(segment)
        assert row is not None and (row["session_key"], row["chat_id"]) == (new, "-100")
    own = db.ledger.reset(new).handle.session_id
    assert not db.ledger.take_along(KEY, new, fields=fields), "said again: what is there now stays"
    assert led_to(db, new) == own
    assert not db.ledger.take_along("agent:main:telegram:group:-7", "agent:main:telegram:group:-8", fields=fields)


def test_a_conversation_that_a_route_only_resumed_keeps_its_chat(db: SessionDB, chat: SessionId) -> None:
    there, new = "agent:main:telegram:group:-1", "agent:main:telegram:group:-100"
    db.ledger.switch(there, chat)
    assert db.ledger.take_along(there, new, fields={"chat_id": "-100"})
    row = db.get_session(chat)
    assert led_to(db, new) == chat and row is not None and (row["session_key"], row["chat_id"]) == (KEY, "42")


def test_end_and_reopen_act_on_the_newest_segment(db: SessionDB, chat: SessionId) -> None:
    child = db.ledger.rotate(chat, SUMMARY)
    assert db.ledger.end(chat, "cli_close") is True
    assert db.get_session(child.session_id)["end_reason"] == "cli_close"
    assert db.ledger.reopen(chat).session_id == child.session_id
    assert db.get_session(child.session_id)["ended_at"] is None
    assert db.get_session(chat)["end_reason"] == "compression"


def test_deleting_a_conversation_takes_all_its_segments_and_routes(db: SessionDB, chat: SessionId) -> None:
    branch = db.ledger.branch(chat)
    child = db.ledger.rotate(chat, SUMMARY)
    assert db.ledger.delete(child.session_id) == 2
    assert db.get_session(chat) is None
    assert db.get_session(child.session_id) is None
    assert db.engine.write(db.ledger.resolving(KEY)) is None
    assert db.get_session(branch.session_id)["parent_session_id"] is None
    assert db.message_count() == 2


def test_unknown_sessions_are_named(db: SessionDB) -> None:
    verbs = (
        lambda: db.ledger.rotate("nobody", SUMMARY),
        lambda: db.ledger.branch("nobody"),
        lambda: db.ledger.switch(KEY, "nobody"),
        lambda: db.ledger.reopen("nobody"),
    )
    for verb in verbs:
        with pytest.raises(SessionNotFound, match="nobody"):
            verb()
    assert db.engine.write(db.ledger.resolving(KEY)) is None


def test_two_processes_that_open_a_place_at_once_open_one_conversation(make_db: OpenStore) -> None:
    one, other = make_db(), make_db()
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    looked, found = threading.Event(), []

    def seen(why: str | None, before: RouteState | None) -> dict[str, Any]:
        looked.set()  # it found nothing, and is about to open
        return {}

    def follow() -> None:
        found.append(other.engine.write(other.ledger.resolving(KEY, source="api_server", fresh=seen, said=said)))

    second = threading.Thread(target=follow)

    def run(conn: Connection) -> Resolved | None:
        opened = one.ledger.resolving(KEY, source="api_server", said=said)(conn)
        second.start()
        if one.engine.dialect == "postgresql":  # SQLite lets nobody in meanwhile
            assert looked.wait(10)
        return opened

    first = one._execute_write(run)
    second.join(30)
    assert first.created and not found[0].created and found[0].handle == first.handle
    assert [row["id"] for row in one.list_sessions_rich(include_children=True)] == [first.handle.session_id]
    row = one.get_session(first.handle.session_id)
    assert (row["message_count"], row["preview"], row["session_key"]) == (2, "hello", KEY)
    assert [m["content"] for m in one.get_messages(first.handle.session_id)] == ["hello", "hi"]


def test_a_place_that_leads_somewhere_begins_with_nothing_and_is_not_turned_when_only_a_new_one_may_be(
    db: SessionDB, chat: SessionId
) -> None:
    other = db.ledger.open(source="telegram").session_id
    db.ledger.switch(KEY, other, only_new=True)
    again = db.engine.write(db.ledger.resolving(KEY, source="telegram", said=SUMMARY))
    assert again is not None and again.handle.session_id == chat
    assert [m["content"] for m in db.get_messages(chat)] == ["hello", "hi"]
    db.ledger.switch("agent:main:telegram:dm:43", other, only_new=True)
    assert led_to(db, "agent:main:telegram:dm:43") == other


def test_a_reset_ends_the_newest_segment_of_a_route_that_was_left_on_an_older_one(db: SessionDB) -> None:
    """As low-level calls and old homes leave it."""
    db.create_session("old", "telegram", session_key=KEY)
    db.create_session("new", "telegram", session_key=KEY, parent_session_id="old")
    db.end_session("old", "compression")
    for move, reason in (
        (lambda: db.ledger.reset(KEY), "session_reset"),
        (lambda: db.ledger.branch("new", route=KEY), "session_switch"),
    ):
        db.reopen_session("new")
        db.save_gateway_routing_entry(KEY, json.dumps({"session_id": "old"}))
        move()
        assert db.get_session("new")["end_reason"] == reason


@pytest.mark.parametrize("verb", ["rotate", "uncompress", "undo", "delete"])
def test_a_verb_locks_the_lease_before_the_session(stores: TestStores, verb: str) -> None:
    """As turns do: two that lock in different orders would wait for each other."""
    address = stores.postgresql()
    with closing(SessionDB(address)) as db, psycopg.connect(address) as turn:
        chat = db.ledger.open(source="cli")
        lease = db.leases.acquire(chat.conversation_id, holder="a turn", ttl=60)
        assert lease is not None
        db.append_message(chat.session_id, "user", "hello")
        summary = [{"role": "user", "content": "summary"}]
        if verb == "uncompress":
            chat = db.ledger.rotate(chat.session_id, summary)
        verbs: dict[str, Callable[[], object]] = {
            "rotate": lambda: db.ledger.rotate(chat.session_id, summary, fence=lease.fence),
            "uncompress": lambda: db.ledger.uncompress(chat.session_id),
            "undo": lambda: db.undo.take_back(chat.session_id, stays=lambda said: False),
            "delete": lambda: db.delete_sessions([chat.session_id]),
        }
        turn.execute("SELECT 1 FROM leases WHERE conversation_id = %s FOR UPDATE", (chat.conversation_id,))
        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(verbs[verb])
            waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            while not turn.execute(waits).fetchone() and not done.done():
                time.sleep(0.01)
            assert not done.done()
            turn.execute("SELECT 1 FROM sessions WHERE id = %s FOR UPDATE NOWAIT", (chat.session_id,))
            turn.rollback()
            if verb != "rotate":
                with pytest.raises(ConversationHeld):
                    done.result()
            else:
                done.result()
