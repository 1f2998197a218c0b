"""A conversation of the phone at the terminal: one driver, both windows, exactly once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tui_gateway.client import StdioClient

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.telegram_client import Person
from hermes_testing.telegram_server import FakeTelegram

CONFIG = {"model": "demo", "demo": {"tokens_per_second": 200}, "auto_title": False}


@pytest.fixture
def scene() -> Iterator[Scenario]:
    with Scenario(FakeTelegram(), config=CONFIG) as made:
        yield made


def begun(scene: Scenario) -> Person:
    """A phone that has said hello."""
    ada = scene.owner("ada")
    scene.start()
    ada.say("hello")
    ada.expect("demo model")
    return ada


@contextlib.contextmanager
def store(home: Path) -> Iterator[SessionDB]:
    db = SessionDB(home / "state.db")
    try:
        yield db
    finally:
        db.close()


def bot_messages(ada: Person) -> list[str]:
    return [one.text for one in ada.messages() if one.bot]


def test_what_is_typed_at_the_terminal_is_answered_in_both_places_once(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        recent = client.call("session.most_recent")["session_id"]
        here = client.call("session.resume", session_id=recent)
        sid = here["session_id"]
        assert here["driver"] == "gateway" and [one["role"] for one in here["messages"]] == ["user", "assistant"]
        assert client.call("prompt.submit", session_id=sid, text="what can you do?")["driver"] == "gateway"
        client.event("message.start", sid)
        first = client.event("message.delta", sid)["text"]
        told = client.event("message.complete", sid)
        assert told["status"] == "complete" and told["text"].startswith(first)
        deltas = [one["params"]["payload"]["text"] for one in client.frames
                  if one.get("params", {}).get("type") == "message.delta"]  # fmt: skip
        assert len(deltas) > 1 and "".join(deltas) == told["text"], "it was seen while it was made"
        assert "message.user" not in client.events(), "what was typed here is not told back"
        ada.telegram.wait(lambda: len(bot_messages(ada)) == 3, "the note of what was typed, and the answer")
        client.call("session.close", session_id=sid)
    time.sleep(0.3)
    hello, note, answer = bot_messages(ada)
    assert "(at the desk) what can you do?" in note and answer != hello
    with store(scene.home) as db:
        row = db.get_session(recent)
        assert row is not None and row["ended_at"] is None, "a viewer that leaves does not end the phone's conversation"


def test_what_the_phone_says_is_seen_at_the_terminal(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        time.sleep(0.5)  # it looks on now
        ada.say("list the files here")
        assert client.event("message.user", sid) == {"text": "list the files here", "source": "telegram"}
        started = client.event("tool.start", sid)
        assert client.event("tool.complete", sid)["tool_id"] == started["tool_id"]
        text = client.event("message.complete", sid)["text"]
        assert ada.expect(text.splitlines()[0][:20])


def test_leave_that_a_phone_s_turn_needs_can_be_given_at_the_terminal(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        time.sleep(0.5)
        ada.say("delete the folder old")
        asked = client.event("approval.request", sid)
        assert asked["command"] == "rm -r old"
        assert (
            client.call("approval.respond", session_id=sid, choice="deny", approval_id=asked["approval_id"])["resolved"]
            == 1
        )
        assert "left it alone" in client.event("message.complete", sid)["text"]
        ada.expect("left it alone")


def test_a_gateway_that_is_killed_and_comes_back_finishes_what_was_typed(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        client.call("prompt.submit", session_id=sid, text="tell me the long story")
        client.event("message.delta", sid)
        scene.kill()
        scene.start()
        told = client.event("message.complete", sid, within=60)
        assert told["status"] == "complete"
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["role"] for one in messages] == ["user", "assistant"] * 2
        assert messages[-1]["text"] == told["text"]
        ada.expect("The end. It is also written down.")
    time.sleep(0.3)
    said = bot_messages(ada)
    assert sum("The end." in text for text in said) == sum("Once, in a harbour town" in text for text in said) == 1


def test_without_a_gateway_the_terminal_answers_and_one_that_starts_later_takes_over(scene: Scenario) -> None:
    ada = begun(scene)
    assert scene.stop() == 0
    with StdioClient(scene.home) as client:
        here = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])
        sid = here["session_id"]
        assert here["driver"] == "here"
        assert client.call("prompt.submit", session_id=sid, text="what can you do?")["driver"] == "here"
        client.event("message.complete", sid)
        scene.start()
        deadline = time.monotonic() + 20
        while client.call("session.activate", session_id=sid)["driver"] != "gateway":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.call("prompt.submit", session_id=sid, text="hello again")["driver"] == "gateway"
        client.event("message.complete", sid)
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["role"] for one in messages] == ["user", "assistant"] * 3
        assert "(at the desk) hello again" in ada.chat_text()
