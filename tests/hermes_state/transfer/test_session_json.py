"""Sessions out of one store and into another, or into the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.stores import EngineName, TestStores

from hermes_config.limits import Limits
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

pytestmark = pytest.mark.slow

NOTHING = {"imported": 0, "skipped": 0, "detached": 0, "imported_ids": [], "skipped_ids": []}


@pytest.fixture
def other(engine: EngineName, stores: TestStores, clock: Clock) -> Iterator[SessionDB]:
    """A second, empty store."""
    address = stores.fresh(engine)
    db = SessionDB(address, clock=clock)
    yield db
    db.close()
    stores.discard(address)


def talk(db: SessionDB, session_id: str, *texts: str, source: str = "cli", **fields: Any) -> None:
    db.create_session(session_id, source, **fields)
    for text in texts or (f"words of {session_id}",):
        db.append_message(session_id, "user", text)


def exported_sessions(db: SessionDB) -> list[dict[str, Any]]:
    ids = db.engine.read(lambda conn: conn.rows("SELECT id FROM sessions ORDER BY started_at, id"))
    return [found for (one,) in ids if (found := db.export_session(one)) is not None]


def everything(db: SessionDB) -> str:
    return json.dumps(exported_sessions(db), sort_keys=True)


def test_a_session_comes_back_as_it_was(db: SessionDB, other: SessionDB, clock: Clock) -> None:
    talk(db, "s", "hello 大\0别山", model="m", model_config={"a": 1}, cwd="/w", system_prompt="Be kind.")
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    db.append_message("s", "assistant", [{"type": "text", "text": "part"}], tool_calls=calls, reasoning="why\0")
    db.append_message("s", "tool", "result", tool_call_id="1", tool_name="f", timestamp=clock() + 5)
    db.set_session_title("s", "Über alles")
    db.update_token_counts("s", 10, 5, model="m", api_call_count=2, estimated_cost_usd=0.5)
    db.end_session("s", "cli_close")
    exported = db.export_session("s")
    assert exported is not None and len(exported["messages"]) == 3
    payload = json.loads(json.dumps([exported]))  # it is plain JSON
    clock.advance(1000)
    assert other.import_sessions(payload) == {**NOTHING, "ok": True, "imported": 1, "imported_ids": ["s"], "errors": []}
    assert other.get_messages_as_conversation("s") == db.get_messages_as_conversation("s")
    again = other.export_session("s")
    assert again is not None
    for message in (*exported.pop("messages"), *again.pop("messages")):
        message.pop("id")
    assert again == exported
    assert [s["title"] for s in other.list_sessions_rich()] == ["Über alles"]


def test_unknown_and_impossible_sessions_cannot_be_exported(db: SessionDB) -> None:
    for bad in ("nobody", "x" * 10_000, "a\0b", "\ud800", ""):
        assert db.export_session(bad) is None


def test_taken_back_words_stay_behind_and_hidden_rows_stay_hidden(db: SessionDB, other: SessionDB) -> None:
    talk(db, "s", "kept", "taken back")
    db.rewind_to_message("s", db.get_messages("s")[1]["id"])
    exported = db.export_session("s")
    assert exported is not None and [m["content"] for m in exported["messages"]] == ["kept"]
    exported["messages"] = db.get_messages("s", include_inactive=True)
    assert other.import_sessions([exported])["ok"]
    assert [m["content"] for m in other.get_messages("s")] == ["kept"]
    assert [m["active"] for m in other.get_messages("s", include_inactive=True)] == [1, 0]


def test_a_lineage_is_one_conversation_again(db: SessionDB, other: SessionDB, clock: Clock) -> None:
    talk(db, "a")
    for parent, child in (("a", "b"), ("b", "c")):
        clock.advance(1)
        db.end_session(parent, "compression")
        talk(db, child, parent_session_id=parent)
    result = other.import_sessions(exported_sessions(db)[::-1])  # in any order
    assert (result["ok"], result["imported"], result["detached"]) == (True, 3, 0)
    assert other.get_compression_lineage("a") == ["a", "b", "c"]
    assert [s["id"] for s in other.list_sessions_rich()] == ["c"]


def test_what_is_there_already_is_skipped_untouched(db: SessionDB) -> None:
    talk(db, "s", "original")
    exported = db.export_session("s")
    assert exported is not None
    db.append_message("s", "user", "newer")
    talk(db, "holder")
    db.set_session_title("holder", "Taken")
    result = db.import_sessions([exported, {**exported, "id": "copy", "title": "Taken"}])
    assert (result["imported_ids"], result["skipped_ids"]) == (["copy"], ["s"])
    assert [m["content"] for m in db.get_messages("s")] == ["original", "newer"]
    assert db.get_session_title("copy") is None
    assert db.get_session_title("holder") == "Taken"


def test_parents_that_are_missing_or_go_in_circles_are_let_go(db: SessionDB) -> None:
    result = db.import_sessions(
        [
            {"id": "lost", "parent_session_id": "nobody"},
            {"id": "self", "parent_session_id": "self"},
            {"id": "one", "parent_session_id": "two"},
            {"id": "two", "parent_session_id": "three"},
            {"id": "three", "parent_session_id": "one"},
            {"id": "odd", "parent_session_id": 7},
        ]
    )
    assert (result["ok"], result["imported"], result["detached"]) == (True, 6, 4)
    parents = {s["id"]: s["parent_session_id"] for s in exported_sessions(db)}
    assert sum(parents[name] is None for name in ("one", "two", "three")) == 1


def test_an_import_cannot_take_over_a_conversation_that_goes_on_here(db: SessionDB, clock: Clock) -> None:
    talk(db, "root")
    db.end_session("root", "compression")
    talk(db, "tip", parent_session_id="root")
    clock.advance(100)
    result = db.import_sessions([{"id": "intruder", "parent_session_id": "root", "messages": [{"role": "user"}]}])
    assert result["detached"] == 1
    assert db.get_compression_tip("root") == "tip"


def test_a_lost_continuation_can_be_brought_back(db: SessionDB) -> None:
    talk(db, "root")
    db.end_session("root", "compression")
    db.import_sessions([{"id": "tip", "parent_session_id": "root", "messages": [{"role": "user", "content": "x"}]}])
    assert db.get_compression_tip("root") == "tip"


def test_where_it_came_from_is_dropped(db: SessionDB, other: SessionDB) -> None:
    peer = {"user_id": "42", "session_key": "k", "chat_id": "42", "chat_type": "dm", "thread_id": "7"}
    talk(db, "s", source="telegram", **peer)
    pending = "UPDATE sessions SET handoff_state = 'pending', handoff_platform = 'slack' WHERE id = 's'"
    db._execute_write(lambda conn: conn.run(pending))
    exported = db.export_session("s")
    assert exported is not None
    other.import_sessions([exported])
    row = other.get_session("s")
    assert row is not None and row["source"] == "telegram"
    dropped = (*peer, "origin_json", "display_name", "handoff_state", "handoff_platform")
    assert {name: row[name] for name in dropped} == dict.fromkeys(dropped)
    assert other.list_gateway_sessions() == []
    owner = other.engine.read(lambda conn: conn.rows("SELECT owner_id FROM conversations"))
    assert owner == [("owner",)]


GOOD: dict[str, Any] = {"id": "good", "messages": [{"role": "user", "content": "hi"}]}
BAD: list[Any] = [
    "text",
    None,
    {},
    {"id": ""},
    {"id": 7},
    {"id": "x" * 10_000},
    {"id": "a\0b"},
    {"id": "good"},  # twice
    {"id": "s", "messages": "none"},
    {"id": "s", "messages": ["text"]},
    {"id": "s", "messages": [{"content": "no role"}]},
    {"id": "s", "messages": [{"role": "root"}]},
    {"id": "s", "messages": [{"role": ["user"]}]},
    {"id": "s", "messages": [{"role": "user", "token_count": "many"}]},
    {"id": "s", "messages": [{"role": "user", "reasoning": {"a": 1}}]},
    {"id": "s", "messages": [{"role": "user", "content": {"a", "set"}}]},
    {"id": "s", "title": "t" * 101},
    {"id": "s", "title": 5},
    {"id": "s", "model_config": [1]},
    {"id": "s", "started_at": "yesterday"},
    {"id": "s", "started_at": float("nan")},
    {"id": "s", "input_tokens": 10**30},
]


@pytest.mark.parametrize("bad", BAD, ids=[repr(b)[:40] for b in BAD])
def test_one_bad_session_and_nothing_is_stored(db: SessionDB, bad: Any) -> None:
    talk(db, "before")
    was = everything(db)
    result = db.import_sessions([copy.deepcopy(GOOD), bad])
    assert {**result, "errors": 1} == {**NOTHING, "ok": False, "errors": 1}
    (error,) = result["errors"]
    assert error["index"] == 1 and error["error"] and "\n" not in error["error"]
    assert everything(db) == was


def test_nesting_without_end_is_refused(db: SessionDB) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert (
        "deeply"
        in db.import_sessions([{"id": "s", "messages": [{"role": "user", "content": deep}]}])["errors"][0]["error"]
    )


def test_what_is_no_list_is_refused(db: SessionDB) -> None:
    assert db.import_sessions({"id": "s"})["ok"] is False  # type: ignore[arg-type]
    assert db.import_sessions([])["ok"] is True


def test_every_bound_holds_at_its_number(make_db: Callable[..., SessionDB]) -> None:
    db = make_db(
        limits=Limits(
            import_call_sessions=3, import_session_messages=4, import_call_messages=6, import_session_bytes=2048,
            import_call_bytes=4096,
        )
    )  # fmt: skip

    def sessions(count: int, messages: int, text: str = "x") -> list[dict[str, Any]]:
        said = [{"role": "user", "content": text}] * messages
        return [{"id": f"s{n}", "messages": said} for n in range(count)]

    for over in (
        sessions(4, 0), sessions(1, 5), sessions(2, 4), sessions(1, 1, "x" * 2048), sessions(3, 1, "x" * 1500),
    ):  # fmt: skip
        assert db.import_sessions(over)["ok"] is False
    assert exported_sessions(db) == []
    assert db.import_sessions(sessions(3, 2))["imported"] == 3


def test_the_bounds_are_those_of_the_contract() -> None:
    bounds = Limits()
    assert (bounds.import_call_sessions, bounds.import_session_messages, bounds.import_call_messages) == (
        500,
        10_000,
        50_000,
    )
    assert (bounds.import_session_bytes, bounds.import_call_bytes) == (5 * 2**20, 25 * 2**20)


def test_hostile_texts_are_opaque(db: SessionDB) -> None:
    odd = "it's; DROP TABLE messages; -- %_ ../../x"
    record = {"id": odd, "source": "x\0y", "model": "\ud800", "messages": [{"role": "user", "content": "a\0\ud800"}]}
    assert db.import_sessions([record])["ok"]
    assert [m["content"] for m in db.get_messages(odd)] == ["a\0\ufffd"]
    row = db.get_session(odd)
    assert row is not None and (row["source"], row["model"]) == ("xy", "\ufffd")
