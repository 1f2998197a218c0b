"""Routes as other tools save and load them, and the session behind a chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

DM = "agent:main:telegram:dm:42"


def entry(session_id: str, **more: Any) -> str:
    return json.dumps({"session_key": DM, "session_id": session_id, "display_name": "Ann — 大", **more})


def points_at(db: SessionDB, key: str) -> str | None:
    rows = db.engine.read(lambda conn: conn.rows("SELECT session_id FROM routes WHERE session_key = ?", (key,)))
    found: str | None = rows[0][0]
    return found


def test_entries_come_back_byte_for_byte(db: SessionDB) -> None:
    entries = {DM: entry("s1"), "agent:main:cli": entry("s2", suspended=True)}
    db.replace_gateway_routing_entries(entries)
    assert db.load_gateway_routing_entries() == entries
    db.save_gateway_routing_entry(DM, entry("s3"))
    assert db.load_gateway_routing_entries()[DM] == entry("s3")
    db.replace_gateway_routing_entries({DM: entry("s4")})
    assert db.load_gateway_routing_entries() == {DM: entry("s4")}
    db.delete_gateway_routing_entries([DM, "unknown"])
    assert db.load_gateway_routing_entries() == {}


def test_the_route_says_where_it_leads_whatever_the_entry_remembers(db: SessionDB) -> None:
    db.save_gateway_routing_entry(DM, entry("before"))
    db._execute_write(lambda conn: conn.run("UPDATE routes SET session_id = 'after'"))  # as a rotation does
    loaded = json.loads(db.load_gateway_routing_entries()[DM])
    assert loaded == {**json.loads(entry("before")), "session_id": "after"}


@pytest.mark.parametrize(
    "broken", ["{not json", "[]", "null", '"text"', '{"session_id": 7}', '{"session_id": "a\\u0000"}']
)
def test_a_broken_entry_is_kept_and_leads_nowhere(db: SessionDB, broken: str) -> None:
    db.replace_gateway_routing_entries({DM: broken, "good": entry("s")})
    assert db.load_gateway_routing_entries() == {DM: broken, "good": entry("s")}
    assert points_at(db, DM) is None
    assert points_at(db, "good") == "s"


def test_a_folder_counts_by_its_name_so_a_home_can_be_moved(db: SessionDB) -> None:
    db.save_gateway_routing_entry(DM, entry("s"), scope="/home/old/.hermes/sessions")
    assert DM in db.load_gateway_routing_entries(scope="/srv/new/sessions/")
    assert DM in db.load_gateway_routing_entries(scope=r"C:\hermes\sessions")
    assert db.load_gateway_routing_entries(scope="other") == {}
    db.replace_gateway_routing_entries({}, scope="other")
    db.delete_gateway_routing_entries([DM])
    assert DM in db.load_gateway_routing_entries(scope="sessions")


def test_saving_the_same_again_does_not_make_a_route_look_used(db: SessionDB, clock: Clock) -> None:
    db.replace_gateway_routing_entries({"a": entry("1"), "b": entry("2")})
    was = clock()
    clock.advance(100)
    db.replace_gateway_routing_entries({"a": entry("1"), "b": entry("3")})
    times = db.engine.read(lambda conn: conn.rows("SELECT updated_at FROM routes ORDER BY session_key"))
    assert times == [(was,), (was + 100,)]


def test_keys_are_opaque_and_impossible_ones_are_refused_whole(db: SessionDB) -> None:
    odd = "k'; DROP TABLE routes; -- %_ ../../x 大"
    db.save_gateway_routing_entry(odd, entry("s\ud800"))
    assert list(db.load_gateway_routing_entries()) == [odd]
    for bad in ("x" * 10_000, "a\0b", "\ud800", ""):
        with pytest.raises(InvalidValue):
            db.replace_gateway_routing_entries({"fine": entry("s"), bad: entry("s")})
        assert db.delete_gateway_routing_entries([bad]) == 0
    assert list(db.load_gateway_routing_entries()) == [odd]


def chat(db: SessionDB, session_id: str, *, source: str = "telegram", message: bool = True, **peer: Any) -> None:
    db.create_session(session_id, source, **peer)
    if message:
        db.append_message(session_id, "user", "hello")


def test_the_newest_session_of_every_place(db: SessionDB, clock: Clock) -> None:
    for session_id, key, source in (
        ("old", "k1", "telegram"), ("new", "k1", "telegram"), ("gone", "k2", "telegram"), ("other", "k3", "slack"),
    ):  # fmt: skip
        clock.advance(10)
        chat(db, session_id, source=source, session_key=key, chat_id=key)
    chat(db, "terminal", source="cli")
    db.end_session("old", "session_reset")
    db.end_session("gone", "session_reset")
    ids = [row["id"] for row in db.list_gateway_sessions()]
    assert ids == ["other", "new"]
    assert [row["id"] for row in db.list_gateway_sessions("telegram")] == ["new"]
    assert [row["id"] for row in db.list_gateway_sessions(active_only=False)] == ["other", "gone", "new"]
    assert db.list_gateway_sessions("telegram' OR '1'='1") == []


def test_a_lost_route_finds_its_session_by_key_then_by_peer(db: SessionDB, clock: Clock) -> None:
    peer = {"user_id": "42", "chat_id": "42", "chat_type": "dm", "thread_id": None}
    chat(db, "first", session_key="k", **peer)
    clock.advance(1)
    chat(db, "closed", session_key="k", **peer)
    db.end_session("closed", "agent_close")
    clock.advance(1)
    chat(db, "reset", session_key="k", **peer)
    db.end_session("reset", "session_reset")
    clock.advance(1)
    chat(db, "empty", session_key="k", message=False, **peer)

    def latest(**changed: Any) -> str | None:
        row = db.find_latest_gateway_session_for_peer(**{"source": "telegram", "session_key": "k", **peer, **changed})
        return None if row is None else row["id"]

    assert latest() == "closed"  # newest that is live or ended by accident, and has messages
    assert latest(session_key="renamed") == "closed"  # same person, same place
    assert latest(session_key="renamed", user_id="43") is None
    assert latest(session_key="renamed", thread_id="7") is None
    assert latest(session_key="renamed", user_id=None, chat_id=None, chat_type=None) is None
    assert latest(source="slack") is None
    assert latest(session_key=None) is None
    assert latest(session_key="x" * 10_000) is None


def test_a_chat_leads_to_its_live_session_through_compressions(db: SessionDB, clock: Clock) -> None:
    chat(db, "a", session_key="k", chat_id="-100", user_id="42", thread_id="7")
    assert db.find_session_by_origin("telegram", "-100") == "a"
    assert db.find_session_by_origin("telegram", "-100", thread_id="7", user_id="42") == "a"
    assert db.find_session_by_origin("telegram", "-100", thread_id="8") is None
    assert db.find_session_by_origin("slack", "-100") is None
    db.end_session("a", "compression")
    db.create_session("b", "telegram", parent_session_id="a")
    assert db.find_session_by_origin("telegram", "-100") == "b"
    db.end_session("b", "session_reset")
    assert db.find_session_by_origin("telegram", "-100") is None


def test_a_room_where_several_people_have_a_session_needs_a_name(db: SessionDB) -> None:
    chat(db, "ann", session_key="k1", chat_id="-100", user_id="1")
    chat(db, "bob", session_key="k2", chat_id="-100", user_id="2")
    assert db.find_session_by_origin("telegram", "-100") is None
    assert db.find_session_by_origin("telegram", "-100", user_id="2") == "bob"
