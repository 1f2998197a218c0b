"""From a message to its conversation: begun, found again, begun anew, never mixed up. Both engines."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from gateway.config import GatewayConfig, Platform, SessionResetPolicy
from gateway.session import AsyncSessionStore, SessionSource, SessionStore
from hermes_state import SessionDB
from hermes_state.errors import SessionNotFound
from hermes_testing.clock import Clock

KEY = "agent:main:telegram:dm:42"
MakeStore = Callable[..., SessionStore]
IDLE = SessionResetPolicy(mode="idle", idle_minutes=30)


def dm(chat: str = "42", **more: object) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, chat, chat_name="Ana", user_id=chat, user_name="Ana", **more)  # type: ignore[arg-type]


@pytest.fixture
def make_store(db: SessionDB, tmp_path: Path):
    made: list[SessionStore] = []

    def make(rule: SessionResetPolicy | None = None, **settings: object) -> SessionStore:
        config = GatewayConfig(default_reset_policy=rule or SessionResetPolicy(), **settings)  # type: ignore[arg-type]
        store = SessionStore(tmp_path / "sessions", config, db=db)
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> SessionStore:
    return make_store()


def talk(db: SessionDB, session_id: str) -> None:
    db.append_message(session_id, "user", "hello")
    db.append_message(session_id, "assistant", "hi")


def test_the_first_message_opens_a_conversation_and_the_second_goes_on_in_it(
    store: SessionStore, db: SessionDB
) -> None:
    first = store.resolve(dm())
    assert first.created and first.reset_reason is None
    again = store.resolve(dm())
    assert not again.created and again.handle == first.handle
    row = db.get_session(first.handle.session_id)
    assert row is not None
    assert (row["source"], row["session_key"], row["chat_id"], row["user_id"]) == ("telegram", KEY, "42", "42")
    entry = store._entries[KEY]
    assert (entry.session_id, entry.display_name, entry.platform) == (row["id"], "Ana", Platform.TELEGRAM)
    assert entry.origin == dm()


def test_a_quiet_route_is_read_once_and_written_never(
    store: SessionStore, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.resolve(dm())
    reads: list[int] = []
    read = db.engine.read

    def counted(fn, **options):
        reads.append(1)
        return read(fn, **options)

    def refuse(fn, **options):
        raise AssertionError("nothing is to be written")

    monkeypatch.setattr(db.engine, "read", counted)
    monkeypatch.setattr(db.engine, "write", refuse)
    store.resolve(dm())
    assert len(reads) == 1


def test_many_at_once_open_one_conversation(store: SessionStore, db: SessionDB) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(store.resolve(dm()).handle.session_id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert db.session_count() == 1


def test_on_an_event_loop_too(store: SessionStore, db: SessionDB) -> None:
    async def run() -> None:
        waiting = AsyncSessionStore(store)
        found = await asyncio.gather(*(waiting.resolve(dm(str(n % 5))) for n in range(40)))
        assert len({one.handle.session_id for one in found}) == 5
        assert sum(one.created for one in found) == 5
        assert await waiting.peek_session_id("agent:main:telegram:dm:0") == found[0].handle.session_id

    asyncio.run(run())


# -- the reset rule ------------------------------------------------------------------------------------------------


def test_after_a_pause_the_conversation_begins_anew(make_store: MakeStore, db: SessionDB, clock: Clock) -> None:
    """Scenario 25."""
    store = make_store(IDLE)
    old = store.get_or_create_session(dm()).session_id
    talk(db, old)
    store.update_session(KEY, last_prompt_tokens=900)
    clock.advance(3600)
    found = store.resolve(dm())
    assert (found.created, found.reset_reason, found.previous) == (True, "idle", old)
    entry = store.get_or_create_session(dm())
    assert entry.session_id == found.handle.session_id != old
    assert (entry.was_auto_reset, entry.auto_reset_reason, entry.reset_had_activity) == (True, "idle", True)
    assert entry.last_prompt_tokens == 0
    ended = db.get_session(old)
    assert ended is not None and ended["end_reason"] == "idle"


def test_a_chat_that_used_nothing_had_no_activity(make_store: MakeStore, clock: Clock) -> None:
    """Scenario 25."""
    store = make_store(IDLE)
    store.get_or_create_session(dm())
    clock.advance(3600)
    entry = store.get_or_create_session(dm())
    assert entry.was_auto_reset and not entry.reset_had_activity


@pytest.mark.parametrize("saved", [True, False])
def test_a_time_that_a_caller_writes_into_an_entry_counts(make_store: MakeStore, clock: Clock, saved: bool) -> None:
    """Scenario 25, as tests and tools of hermes-agent play it."""
    store = make_store(IDLE)
    first = store.get_or_create_session(dm())
    first.updated_at = datetime.fromtimestamp(clock() - 3600)
    if saved:
        store._save()
    assert store._should_reset(first, dm()) == "idle"
    second = store.get_or_create_session(dm())
    assert second.auto_reset_reason == "idle" and second.session_id != first.session_id
    assert store._should_reset(second, dm()) is None


def test_who_holds_the_entry_of_a_conversation_that_was_left_still_sees_it(store: SessionStore, db: SessionDB) -> None:
    first = store.get_or_create_session(dm())
    old = first.session_id
    second = store.reset_session(KEY)
    assert second is not None and second is store._entries[KEY] is not first and first.session_id == old
    first.display_name = "too late"
    store._save()
    assert store._entries[KEY].display_name == "Ana"
    third = store.get_or_create_session(dm(), force_new=True)
    assert len({first.session_id, second.session_id, third.session_id}) == 3
    fourth = store.switch_session(KEY, old)
    assert fourth is not None and fourth is not third and fourth.session_id == old != third.session_id


def test_messages_count_as_use_though_the_route_is_not_written(
    make_store: MakeStore, db: SessionDB, clock: Clock
) -> None:
    store = make_store(IDLE)
    first = store.resolve(dm()).handle.session_id
    for _ in range(4):
        clock.advance(20 * 60)
        assert store.resolve(dm()).handle.session_id == first
        db.append_message(first, "user", "still here")
    clock.advance(31 * 60)
    assert store.resolve(dm()).reset_reason == "idle"


def test_a_route_that_was_compressed_meanwhile_is_healed_and_judged(
    make_store: MakeStore, db: SessionDB, clock: Clock
) -> None:
    """Weak points 1 and 3 of the reference: a heal never skips the rule, and never loses the conversation."""
    store = make_store(IDLE)
    first = store.resolve(dm()).handle.session_id
    talk(db, first)
    child = db.ledger.rotate(first, [{"role": "user", "content": "[summary]"}]).session_id
    # As a home looks after a crash of the reference between rotation and save.
    db.save_gateway_routing_entry(KEY, json.dumps({"session_id": first}), scope="sessions")
    assert store.resolve(dm()).handle.session_id == child
    db.save_gateway_routing_entry(KEY, json.dumps({"session_id": first}), scope="sessions")
    clock.advance(5 * 3600)
    found = store.resolve(dm())
    assert (found.reset_reason, found.previous) == ("idle", child)


def test_the_daily_hour_is_the_persons(make_store: MakeStore, db: SessionDB, clock: Clock) -> None:
    tokyo, new_york = dm("1"), dm("2")
    for source, zone in ((tokyo, "Asia/Tokyo"), (new_york, "America/New_York")):
        person = db.people.ensure(platform="telegram", native_id=source.chat_id)
        db.people.set_zone(person.id, zone)
    store = make_store(SessionResetPolicy(mode="daily", at_hour=4), timezone="Europe/Berlin")
    clock.advance(1782950400.0 - clock())  # 2026-07-02 00:00 UTC: 09:00 in Tokyo, 20:00 in New York
    clock.advance(-7 * 3600)
    store.resolve(tokyo), store.resolve(new_york)
    clock.advance(7 * 3600)
    assert store.resolve(tokyo).reset_reason == "daily"
    assert store.resolve(new_york).reset_reason is None


def test_a_running_process_keeps_the_conversation(db: SessionDB, tmp_path: Path, clock: Clock) -> None:
    asked: list[str] = []

    def running(key: str) -> bool:
        asked.append(key)
        return True

    store = SessionStore(tmp_path / "sessions", GatewayConfig(default_reset_policy=IDLE), running, db=db)
    first = store.resolve(dm())
    clock.advance(10_000)
    assert store.resolve(dm()).handle == first.handle
    assert set(asked) == {KEY}
    assert not store._is_session_expired(store._entries[KEY])
    store.close()


def test_a_stopped_chat_begins_anew_whatever_the_rule(store: SessionStore) -> None:
    first = store.resolve(dm()).handle.session_id
    assert store.suspend_session(KEY)
    assert not store.mark_resume_pending(KEY)
    found = store.resolve(dm())
    assert (found.reset_reason, found.previous) == ("suspended", first)
    assert not store._entries[KEY].suspended
    assert not store.suspend_session("agent:main:telegram:dm:nobody")


# -- moved by hand ---------------------------------------------------------------------------------------------------


def test_new_begins_anew_at_the_same_place_and_is_seen_once(store: SessionStore, db: SessionDB, clock: Clock) -> None:
    """Scenario 26."""
    old = store.get_or_create_session(dm()).session_id
    talk(db, old)
    store.set_model_override(KEY, {"model": "m", "api_key": "SECRET"})
    fresh = store.reset_session(KEY)
    assert fresh is not None and fresh.session_id != old
    assert fresh.is_fresh_reset and fresh.origin == dm() and fresh.model_override is None
    assert db.get_session(old)["end_reason"] == "session_reset"  # type: ignore[index]
    row = db.get_session(fresh.session_id)
    assert row is not None and (row["chat_id"], row["source"]) == ("42", "telegram")
    clock.advance(5)
    found = store.resolve(dm())
    assert (found.created, found.handle.session_id) == (False, fresh.session_id)
    assert not store._entries[KEY].was_auto_reset
    assert store.reset_session("agent:main:telegram:dm:nobody") is None


def test_switching_opens_what_had_ended(store: SessionStore, db: SessionDB) -> None:
    """Scenario 27."""
    target = db.create_session("earlier", "telegram", user_id="42", chat_type="dm")
    db.end_session(target, "user_exit")
    old = store.get_or_create_session(dm()).session_id
    entry = store.switch_session(KEY, target)
    assert entry is not None and entry.session_id == target
    assert db.get_session(target)["ended_at"] is None  # type: ignore[index]
    assert db.get_session(old)["end_reason"] == "session_switch"  # type: ignore[index]
    assert store.switch_session(KEY, target) is entry
    assert store.resolve(dm()).handle.session_id == target
    assert store.switch_session("agent:main:telegram:dm:nobody", target) is None
    with pytest.raises(SessionNotFound):
        store.switch_session(KEY, "no such session")


def test_force_new_begins_anew_without_a_notice(store: SessionStore) -> None:
    old = store.get_or_create_session(dm()).session_id
    entry = store.get_or_create_session(dm(), force_new=True)
    assert entry.session_id != old and not entry.was_auto_reset


def test_a_conversation_that_was_ended_elsewhere_is_not_gone_on_with_silently(
    store: SessionStore, db: SessionDB
) -> None:
    """Scenario 28."""
    old = store.resolve(dm()).handle.session_id
    db.end_session(old, "user_exit")
    found = store.resolve(dm())
    assert (found.created, found.reset_reason, found.previous) == (True, "user_exit", old)
    assert not store._entries[KEY].was_auto_reset


def test_an_end_by_accident_is_taken_back(store: SessionStore, db: SessionDB) -> None:
    """Weak point 2: nothing that hung on the route is lost."""
    old = store.resolve(dm()).handle.session_id
    store.set_model_override(KEY, {"model": "m"})
    db.end_session(old, "agent_close")
    assert store.resolve(dm()).handle.session_id == old
    assert db.get_session(old)["ended_at"] is None  # type: ignore[index]
    assert store.get_model_override(KEY) == {"model": "m"}


# -- lost and found ----------------------------------------------------------------------------------------------


def test_a_pruned_route_finds_its_conversation_when_the_person_returns(
    store: SessionStore, db: SessionDB, clock: Clock
) -> None:
    old = store.resolve(dm()).handle.session_id
    talk(db, old)
    tip = db.ledger.rotate(old, [{"role": "user", "content": "[summary]"}]).session_id
    clock.advance(100 * 86_400)
    assert store.prune_old_entries(90) == 1
    assert KEY not in store._entries
    found = store.resolve(dm())
    assert (found.created, found.handle.session_id, found.handle.conversation_id) == (False, tip, old)
    assert store._entries[KEY].origin == dm()


def test_the_rule_is_asked_of_what_was_found_again(make_store: MakeStore, db: SessionDB, clock: Clock) -> None:
    store = make_store(IDLE)
    old = store.resolve(dm()).handle.session_id
    talk(db, old)
    clock.advance(100 * 86_400)
    store.prune_old_entries(90)
    found = store.resolve(dm())
    assert (found.reset_reason, found.previous) == ("idle", old)


def test_a_conversation_that_was_reset_is_not_found_again(store: SessionStore, db: SessionDB, clock: Clock) -> None:
    old = store.get_or_create_session(dm()).session_id
    talk(db, old)
    store.reset_session(KEY)
    clock.advance(100 * 86_400)
    store.prune_old_entries(90)
    assert store.resolve(dm()).handle.session_id != old


def group(user: str, thread: str | None = None) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, "-1", chat_type="group", user_id=user, thread_id=thread)


def test_routes_of_older_homes_are_found_under_their_own_place_only(store: SessionStore, db: SessionDB) -> None:
    """The reference gave the group's topic 7 and its member 7 one key; it belonged to whom its origin names."""
    theirs = "agent:main:telegram:group:-1:7"
    db.create_session("topic chat", "telegram", session_key=theirs)
    entry = {
        "session_key": theirs, "session_id": "topic chat", "created_at": "2026-01-01T00:00:00",
        "updated_at": "2026-01-01T00:00:00", "origin": group("42", "7").to_dict(), "display_name": "Forum",
    }  # fmt: skip
    db.save_gateway_routing_entry(theirs, json.dumps(entry), scope="sessions")
    found = store.resolve(group("42", "7"))
    assert (found.created, found.handle.session_id) == (False, "topic chat")
    assert store._entries["agent:main:telegram:group:-1:%thread:7"].display_name == "Forum"
    assert theirs not in store._entries
    member = store.resolve(group("7"))
    assert member.created and member.handle.session_id != "topic chat"


def test_an_older_key_of_nobody_in_particular_is_left_alone(store: SessionStore, db: SessionDB) -> None:
    theirs = "agent:main:telegram:group:-1:7"
    db.save_gateway_routing_entry(theirs, json.dumps({"session_id": "somebody's"}), scope="sessions")
    assert store.resolve(group("42", "7")).created
    assert theirs in store._entries


def test_a_route_may_name_a_session_that_is_not_stored_yet(store: SessionStore, db: SessionDB) -> None:
    db.save_gateway_routing_entry(KEY, json.dumps({"session_id": "from a file"}), scope="sessions")
    assert store._entries[KEY].session_id == "from a file"
    assert store.resolve(dm()).handle.session_id == "from a file"
    assert db.get_session("from a file") is not None


# -- expiry --------------------------------------------------------------------------------------------------------


def test_what_is_due_is_told_once_and_the_next_message_says_why(
    make_store: MakeStore, db: SessionDB, clock: Clock
) -> None:
    store = make_store(reset_by_type={"dm": IDLE})
    old = store.resolve(dm()).handle.session_id
    db.append_message(old, "user", "hello")
    store.resolve(group("1"))
    assert store.due_entries() == []
    clock.advance(3600)
    due = store.due_entries()
    assert [entry.session_key for entry in due] == [KEY]
    assert store._is_session_expired(due[0]) and store.is_session_finalizable(due[0])
    assert not store.is_session_finalizable(store._entries["agent:main:telegram:group:-1:1"])
    store.set_expiry_finalized(due[0])
    assert store.due_entries() == []
    row = db.get_session(old)
    assert row is not None and (row["end_reason"], row["expiry_finalized"]) == ("session_reset", 1)
    found = store.resolve(dm())
    assert (found.reset_reason, found.previous) == ("idle", old)
    assert not store._entries[KEY].expiry_finalized


def test_whoever_comes_back_while_it_is_being_closed_keeps_the_conversation(
    make_store: MakeStore, db: SessionDB, clock: Clock
) -> None:
    store = make_store(IDLE)
    first = store.resolve(dm()).handle.session_id
    clock.advance(3600)
    (due,) = store.due_entries()
    db.append_message(first, "user", "wait, I am here")  # from a terminal, say
    assert not store.set_expiry_finalized(due)
    assert not due.expiry_finalized
    assert store.resolve(dm()).handle.session_id == first
    clock.advance(3600)
    (due,) = store.due_entries()
    second = store.resolve(dm()).handle.session_id
    assert second != first
    assert not store.set_expiry_finalized(due)
    assert not store._entries[KEY].expiry_finalized
    assert db.get_session(second)["ended_at"] is None  # type: ignore[index]


def test_without_a_rule_nothing_is_looked_for(store: SessionStore, clock: Clock) -> None:
    store.resolve(dm())
    clock.advance(10**8)
    assert store.due_entries() == []
    assert not store._is_session_expired(store._entries[KEY])


# -- after a restart -------------------------------------------------------------------------------------------------


def test_marks_of_a_restart(store: SessionStore, clock: Clock) -> None:
    for chat in ("1", "2", "3"):
        store.resolve(dm(chat))
        clock.advance(100)
    store.suspend_session("agent:main:telegram:dm:2")
    assert store.suspend_recently_active(250) == 1
    entry = store._entries["agent:main:telegram:dm:3"]
    assert (entry.resume_pending, entry.resume_reason) == (True, "restart_interrupted")
    assert store.suspend_recently_active(250) == 0
    assert store.clear_resume_pending(entry.session_key) and not store.clear_resume_pending(entry.session_key)


def test_a_restart_that_is_long_past_is_not_taken_up(make_store: MakeStore, db: SessionDB, clock: Clock) -> None:
    store = make_store(SessionResetPolicy(mode="idle", idle_minutes=100_000), resume_window=60.0)
    store.resolve(dm())
    assert store.mark_resume_pending(KEY)
    clock.advance(59)
    assert store.resolve(dm()).reset_reason is None
    clock.advance(10)
    assert store.resolve(dm()).reset_reason == "resume_pending_expired"
