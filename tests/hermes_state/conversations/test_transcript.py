"""The transcript (contract §2.3)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from hermes_config.limits import Limits
from hermes_state import IntegrityError, SessionDB, SessionEnded
from hermes_state.errors import InvalidValue
from hermes_testing.clock import Clock

PICTURE = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:,AA"}}]


@pytest.fixture
def s(db: SessionDB) -> str:
    return db.create_session("s", "cli")


def contents(db: SessionDB, session_id: str = "s", **kw: Any) -> list[Any]:
    return [m["content"] for m in db.get_messages(session_id, **kw)]


def test_tool_calls_and_rows_are_counted_apart(db: SessionDB, s: str) -> None:
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(3)]
    db.append_message(s, "assistant", tool_calls=calls)
    for call in calls:
        db.append_message(s, "tool", "ok", tool_call_id=call["id"], tool_calls=["ignored"])
    row = db.get_session(s)
    assert (row["tool_call_count"], row["message_count"]) == (3, 4)


@pytest.mark.parametrize(
    "content",
    [
        "plain", "", " spaced \n", "json:[]", '["looks", "like json"]', "NUL \0 and \\0 and \\", "日本 🎌 ñ", PICTURE,
        {"a": [1]}, [],
    ],
)  # fmt: skip
def test_content_comes_back_as_it_went_in(db: SessionDB, s: str, content: Any) -> None:
    db.append_message(s, "tool", content)
    assert contents(db) == [content]
    assert [m["content"] for m in db.get_messages_as_conversation(s)] == [content]


def test_other_columns_may_hold_nul_too(db: SessionDB, s: str) -> None:
    db.append_message(s, "assistant", "x", reasoning="a\0b\\0", api_content="\0", tool_name="t")
    row = db.get_messages(s)[0]
    assert (row["reasoning"], row["api_content"], row["tool_name"]) == ("a\0b\\0", "\0", "t")
    turn = db.get_messages_as_conversation(s)[0]
    assert (turn["reasoning"], turn["api_content"]) == ("a\0b\\0", "\0")


def test_lone_surrogates_are_scrubbed_and_counted_once(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "a\ud800b", reasoning="\udfff")
    db.append_message(s, "user", [{"text": "\ud83d\ude00"}])
    assert contents(db) == ["a\ufffdb", [{"text": "😀"}]]
    assert db.get_session(s)["message_count"] == 2


def test_ten_megabytes_and_a_limit(db: SessionDB, s: str, make_db: Any) -> None:
    big = "x" * 10_000_000
    db.append_message(s, "tool", big)
    assert contents(db) == [big]
    small = make_db(limits=Limits(message_bytes=64 * 1024))
    with pytest.raises(InvalidValue, match="larger than the limit"):
        small.append_message(s, "user", "é" * 40_000)
    assert len(contents(db)) == 1


def test_times_may_be_given_in_several_forms(db: SessionDB, s: str, clock: Clock) -> None:
    moment = dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)
    for given in (5, 6.5, moment, None, "yesterday", float("nan")):
        db.append_message(s, "user", "x", timestamp=given)
    now = clock()
    assert [m["timestamp"] for m in db.get_messages(s)] == [5.0, 6.5, moment.timestamp(), now, now, now]


def test_an_unknown_session_takes_no_message(db: SessionDB) -> None:
    with pytest.raises(IntegrityError, match="nobody"):
        db.append_message("nobody", "user", "x")
    assert db.message_count() == 0


def test_a_compressed_segment_says_where_it_continues(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "x")
    child = db.ledger.rotate(s, [{"role": "user", "content": "summary"}])
    with pytest.raises(SessionEnded) as caught:
        db.append_message(s, "user", "late")
    assert caught.value.tip == child.session_id
    db.end_session(child.session_id, "cli_close")
    db.append_message(child.session_id, "user", "an ended chat that was not compressed takes rows")


def test_order_is_by_arrival_not_by_time(db: SessionDB, s: str) -> None:
    for i, when in enumerate((30, 10, 20)):
        db.append_message(s, "user", str(i), timestamp=when)
    assert contents(db) == ["0", "1", "2"]
    assert contents(db, limit=1, offset=1) == ["1"]
    assert contents(db, limit=-5) == []
    assert db.get_session(s)["last_active"] == 30


def test_several_messages_in_one_commit_or_none(db: SessionDB, s: str) -> None:
    ids = db.append_messages(s, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert ids == sorted(ids)
    with pytest.raises(KeyError):
        db.append_messages(s, [{"role": "user", "content": "c"}, {"content": "no role"}])
    assert contents(db) == ["a", "b"]


def test_a_conversation_has_only_keys_that_say_something(db: SessionDB, s: str, clock: Clock) -> None:
    db.append_message(
        s, "user", "  hi <memory-context>secret</memory-context> ", platform_message_id="77", observed=True
    )
    db.append_message(s, "assistant", "yo", finish_reason="stop", reasoning_content="", reasoning_details=[{"a": 1}])
    now = clock()
    assert db.get_messages_as_conversation(s) == [
        {"role": "user", "content": "hi", "timestamp": now, "message_id": "77", "observed": True},
        {
            "role": "assistant", "content": "yo", "timestamp": now, "finish_reason": "stop", "reasoning_content": "",
            "reasoning_details": [{"a": 1}],
        },
    ]  # fmt: skip


def test_ancestors_come_first_and_carried_over_questions_once(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "question")
    db.append_message(s, "assistant", "answer")
    db.append_message(s, "user", "again?")
    child = db.ledger.rotate(s, [{"role": "user", "content": "again?"}, {"role": "assistant", "content": "yes"}])
    turns = db.get_messages_as_conversation(child.session_id, include_ancestors=True)
    assert [t["content"] for t in turns] == ["question", "answer", "again?", "yes"]


def test_alternation_is_repaired_in_the_answer_only(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "a")
    db.append_message(s, "user", "b")
    db.append_message(s, "tool", "orphan", tool_call_id="none")
    db.append_message(s, "assistant", "c")
    shown = db.get_messages_as_conversation(s, repair_alternation=True)
    assert [(t["role"], t["content"]) for t in shown] == [("user", "a\n\nb"), ("assistant", "c")]
    assert len(db.get_messages(s)) == 4


def test_rewind_hides_and_keeps(db: SessionDB, s: str) -> None:
    ids = [db.append_message(s, role, text) for role, text in (("user", "1"), ("assistant", "2"), ("user", "3"))]
    with pytest.raises(ValueError, match="rewind target must be a 'user' message"):
        db.rewind_to_message(s, ids[1])
    with pytest.raises(ValueError, match="not part of session"):
        db.rewind_to_message(s, 999_999)
    result = db.rewind_to_message(s, ids[2])
    assert (result["rewound_count"], result["target_message"]["content"], result["new_head_id"]) == (1, "3", ids[1])
    assert result["target_message"]["active"] == 1, "as it was, which is what plug-ins of hermes-agent expect"
    assert contents(db) == ["1", "2"]
    assert contents(db, include_inactive=True) == ["1", "2", "3"]
    assert db.get_session(s)["message_count"] == 3
    assert db.get_session(s)["rewind_count"] == 1


def test_replacing_hides_the_old_rows_from_every_reader(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "old", platform_message_id="9")
    db.replace_messages(s, [{"role": "user", "content": "new"}, {"role": "assistant", "content": "ok"}])
    assert contents(db) == contents(db, include_inactive=True) == ["new", "ok"]
    row = db.get_session(s)
    assert (row["message_count"], row["preview"], db.message_count(s)) == (2, "new", 2)
    assert not db.has_platform_message_id(s, "9")
    db.clear_messages(s)
    assert (contents(db, include_inactive=True), db.get_session(s)["message_count"]) == ([], 0)


def test_replacing_live_rows_keeps_what_was_summarised(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "long ago")
    assert db.archive_and_compact(s, [{"role": "user", "content": "summary"}]) == 1
    db.replace_messages(s, [{"role": "user", "content": "fresh"}], active_only=True)
    assert contents(db) == ["fresh"]
    assert contents(db, include_inactive=True) == ["long ago", "fresh"]


def test_windows_around_a_message(db: SessionDB, s: str) -> None:
    ids = [db.append_message(s, "user" if i % 2 == 0 else "assistant", str(i)) for i in range(12)]
    db.create_session("other", "cli")
    stranger = db.append_message("other", "user", "x")
    around = db.get_messages_around(s, ids[5], window=2)
    assert [m["content"] for m in around["window"]] == ["3", "4", "5", "6", "7"]
    assert (around["messages_before"], around["messages_after"]) == (2, 2)
    assert [m["content"] for m in db.get_messages_around(s, ids[5], window=-3)["window"]] == ["5"]
    assert db.get_messages_around(s, stranger)["window"] == []
    assert db.get_messages_around(s, 10**18)["window"] == []
    view = db.get_anchored_view(s, ids[5], window=1, bookend=2)
    assert [m["content"] for m in view["bookend_start"]] == ["0", "1"]
    assert [m["content"] for m in view["window"]] == ["4", "5", "6"]
    assert [m["content"] for m in view["bookend_end"]] == ["10", "11"]


def test_recent_user_messages(db: SessionDB, s: str) -> None:
    db.append_message(s, "user", "line one\nline two " + "x" * 100)
    db.append_message(s, "assistant", "no")
    db.append_message(s, "user", PICTURE)
    shown = db.list_recent_user_messages(s)
    assert [len(m["preview"]) <= 80 for m in shown] == [True, True]
    assert [m["preview"][:13] for m in shown] == ["what is this?", "line one line"]
    assert db.list_recent_user_messages(s, limit=-1) == []


def test_the_preview_is_the_first_user_text(db: SessionDB, s: str) -> None:
    db.append_message(s, "assistant", "not this")
    db.append_message(s, "user", "first\r\nline " + "x" * 80)
    db.append_message(s, "user", "not this either")
    preview = db.get_session(s)["preview"]
    assert preview.startswith("first  line xxx")
    assert preview.endswith("...")
    assert len(preview) == 63
