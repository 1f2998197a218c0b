"""A conversation's bytes: appended to or loaded, in this process or another, they are the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.plain_wire import ENDPOINT, PlainWire, call

from hermes_agent.models.base import Wire
from hermes_agent.models.provider_table import wire_for
from hermes_agent.prompt.prefix import PromptPrefix, ensure
from hermes_agent.prompt.transcript import EncodedTranscript
from hermes_state.errors import SessionNotFound
from hermes_state.ids import ConversationId, SessionId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

S = SessionId("s")
WIRE = PlainWire()


@pytest.fixture
def prefix(db: SessionDB) -> PromptPrefix:
    db.create_session(S, "cli")
    return ensure(
        db, ConversationId("s"), lambda: ("You are Hermes.", [{"name": "look", "description": "", "parameters": {}}])
    )


def conversation(db: SessionDB, prefix: PromptPrefix) -> EncodedTranscript:
    return EncodedTranscript(db, S, WIRE, prefix)


def say(db: SessionDB, *messages: dict[str, Any]) -> list[int]:
    return db.append_messages(S, messages)


def own(db: SessionDB, known: EncodedTranscript, *messages: dict[str, Any]) -> None:
    """Write and tell, as a turn does."""
    stamped = [{"timestamp": db.clock(), **message} for message in messages]
    known.append(stamped, db.append_messages(S, stamped))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [call(i) for i in ids]}


def result(call_id: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id, "tool_name": "look"}


def shown(known: EncodedTranscript) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(known.body(ENDPOINT).content)["messages"]
    return messages


def test_own_appends_give_the_bytes_a_fresh_load_gives(db: SessionDB, prefix: PromptPrefix, clock: Clock) -> None:
    known = conversation(db, prefix)
    assert shown(known) == []
    before = known.body(ENDPOINT)
    for batch in (
        [user("  list the files  ")],
        [step("c1", "c2")],
        [result("c2"), result("c1", "部署")],
        [answer("done")],
    ):
        clock.advance(0.123456)
        own(db, known, *batch)
        body = known.body(ENDPOINT)
        assert body.content == conversation(db, prefix).body(ENDPOINT).content
        if batch[0]["role"] != "assistant" or not batch[0].get("tool_calls"):  # a request goes out at a complete step
            assert body.content.startswith(before.content[: len(before.content) - before.tail])
            before = body
    assert known.is_current() and body.head_id == db.get_messages(S)[-1]["id"] and body.rows == 5


def test_what_was_sent_stays_what_was_sent(db: SessionDB, prefix: PromptPrefix) -> None:
    """What the model alone was shown is part of the row, and a text with rough edges is the same after a reload."""
    known = conversation(db, prefix)
    shown(known)
    own(db, known, {**user("hi"), "api_content": "hi\n\n[it is noon]"}, answer("\ud800 half\0nul "))
    assert [m["text"] for m in shown(known)] == ["hi\n\n[it is noon]", "� half\0nul"]
    assert known.body(ENDPOINT).content == conversation(db, prefix).body(ENDPOINT).content


def test_messages_without_their_time_are_read_back(db: SessionDB, prefix: PromptPrefix, clock: Clock) -> None:
    known = conversation(db, prefix)
    shown(known)
    message = user("hi")
    ids = say(db, message)
    clock.advance(5)
    known.append([message], ids)
    assert known.body(ENDPOINT).content == conversation(db, prefix).body(ENDPOINT).content


def test_what_somebody_else_wrote_is_taken_in(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    say(db, user("one"))
    assert known.refresh() and not known.refresh()
    say(db, answer("two"), user("three"))
    assert not known.is_current()
    assert known.refresh() and known.is_current()
    assert [m["text"] for m in shown(known)] == ["one", "two", "three"]


def test_a_row_that_slipped_in_before_ours_is_found(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    shown(known)
    say(db, user("theirs"))
    own(db, known, answer("ours"))
    assert not known.is_current() and known.refresh()
    assert [m["text"] for m in shown(known)] == ["theirs", "ours"]


def test_undo_and_rewrites_are_noticed(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    ids = say(db, user("one"), answer("two"), user("three"), answer("four"))
    assert len(shown(known)) == 4
    db.rewind_to_message(S, ids[2])
    assert known.refresh() and [m["text"] for m in shown(known)] == ["one", "two"]
    say(db, user("three, differently"))
    assert known.refresh() and len(shown(known)) == 3
    db.replace_messages(S, [user("a"), answer("b"), user("c")])
    assert known.refresh() and [m["text"] for m in shown(known)] == ["a", "b", "c"]
    assert known.body(ENDPOINT).content == conversation(db, prefix).body(ENDPOINT).content


def test_a_segment_that_was_compressed_elsewhere_is_not_current(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    say(db, user("one"))
    shown(known)
    db.ledger.rotate(S, [user("summary")])
    assert not known.is_current()
    known.refresh()
    assert not known.is_current()


def test_a_result_stands_behind_its_call_whatever_was_said_meanwhile(db: SessionDB, prefix: PromptPrefix) -> None:
    """In a group people go on talking while a tool runs."""
    known = conversation(db, prefix)
    shown(known)
    own(db, known, user("look"), step("c1"), {**user("me too"), "observed": True}, result("c1", "seen"))
    own(db, known, answer("here"))
    told = [m.get("text") or m.get("result") for m in shown(known)]
    assert told == ["look", None, "seen", "me too", "here"]
    assert known.body(ENDPOINT).content == conversation(db, prefix).body(ENDPOINT).content


def test_released_bytes_come_back_the_same(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    say(db, user("one"), answer("two" * 1000))
    body = known.body(ENDPOINT)
    assert known.nbytes > 3000
    again = conversation(db, prefix)
    assert again.nbytes == 0
    assert again.body(ENDPOINT).content == body.content


def test_a_session_that_is_gone_is_said_in_one_line(db: SessionDB, prefix: PromptPrefix) -> None:
    known = EncodedTranscript(db, SessionId("nope"), WIRE, prefix)
    with pytest.raises(SessionNotFound, match="nope"):
        known.body(ENDPOINT)
    assert not known.is_current()


def test_the_estimate_follows_what_the_provider_counted(db: SessionDB, prefix: PromptPrefix) -> None:
    known = conversation(db, prefix)
    say(db, user("words " * 2000))
    body = known.body(ENDPOINT)
    assert 2_000 < known.estimate_tokens(ENDPOINT) < 6_000
    known.measured(body, ENDPOINT, 2_100)
    assert known.estimate_tokens(ENDPOINT) == 2_100
    own(db, known, answer("words " * 1000))
    assert 2_900 < known.estimate_tokens(ENDPOINT) < 3_500
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    own(db, known, {"role": "user", "content": [picture]})
    assert known.estimate_tokens(ENDPOINT) < 6_000


WIRES: list[Wire] = [WIRE, wire_for(ENDPOINT), wire_for(replace(ENDPOINT, wire="anthropic"))]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.name))
def test_the_bytes_are_those_of_the_whole_transcript(db: SessionDB, prefix: PromptPrefix, wire: Wire) -> None:
    say(
        db,
        user("one"),
        step("c1", "c2"),
        result("c2"),
        result("c1"),
        step("c3"),
        result("c3"),
        answer("so"),
        user("on"),
    )
    known = EncodedTranscript(db, S, wire, prefix)
    whole = wire.join(
        prefix.content.head(wire, ENDPOINT).content, wire.fragments(db.live_rows(S).messages), wire.ending(ENDPOINT)
    )
    assert known.body(ENDPOINT).content == whole


@pytest.mark.parametrize("wire", WIRES[1:], ids=lambda wire: str(wire.name))
def test_rows_that_say_nothing_to_a_model_do_not_hide_who_spoke_last(
    db: SessionDB, prefix: PromptPrefix, wire: Wire
) -> None:
    say(db, user("one"), answer("two"), {"role": "session_meta", "content": "x"})
    assert json.loads(EncodedTranscript(db, S, wire, prefix).body(ENDPOINT).content)["messages"][-1]["role"] == "user"


ROWS = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=5)),
        st.builds(answer, st.text(max_size=5)),
        st.builds(step, st.sampled_from("abc"), st.sampled_from("def")),
        st.builds(result, st.sampled_from("abcdef")),
        st.just({"role": "session_meta", "content": "x"}),
    ),
    max_size=12,
)


@given(ROWS, st.lists(st.integers(1, 4)), st.sampled_from(WIRES))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_transcript_in_any_portions(
    db: SessionDB, rows: list[dict[str, Any]], portions: list[int], wire: Wire
) -> None:
    name = db.ledger.open(source="cli").session_id
    prefix = ensure(db, ConversationId(name), lambda: ("x", []))
    known = EncodedTranscript(db, name, wire, prefix)
    known.body(ENDPOINT)
    left = list(rows)
    for size in [*portions, len(left)]:
        batch = [{"timestamp": float(len(left)), **row} for row in left[:size]]
        del left[:size]
        known.append(batch, db.append_messages(name, batch))
        body = known.body(ENDPOINT)
        assert known.is_current()
        assert body.content == EncodedTranscript(db, name, wire, prefix).body(ENDPOINT).content
        assert json.loads(body.content)
