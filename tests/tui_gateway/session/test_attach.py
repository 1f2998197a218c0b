"""A conversation of the phone at the terminal: one driver, both windows, exactly once."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tui_gateway.client import StdioClient, WsClient

from gateway import status
from gateway.api import auth
from hermes_state import SessionDB
from hermes_state.turns.inbox import local_route
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"model": "demo", "demo": {"tokens_per_second": 200}, "auto_title": False}


@pytest.fixture
def scene() -> Iterator[Scenario]:
    with Scenario(FakeTelegram(flood=OFF), config=CONFIG) as made:
        yield made


def begun(scene: Scenario) -> FakePerson:
    """A phone that has said hello."""
    ada = scene.owner("ada")
    scene.start()
    ada.say("hello")
    ada.expect("demo model")
    return ada


def api_of(scene: Scenario) -> tuple[str, str]:
    """(address, owner key) of the scene's API server."""
    scene.wait(lambda: bool(status.read_status(scene.home).api), "the API's start")
    return status.read_status(scene.home).api, auth.make(scene.home, "owner")


@contextlib.contextmanager
def store(home: Path) -> Iterator[SessionDB]:
    db = SessionDB(home / "state.db")
    try:
        yield db
    finally:
        db.close()


def bot_messages(ada: FakePerson) -> list[str]:
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
    assert "(from the terminal) what can you do?" in note and answer != hello
    with store(scene.home) as db:
        row = db.get_session(recent)
        assert row is not None and row["ended_at"] is None, "a viewer that leaves does not end the phone's conversation"


def test_edit_and_resend_at_the_terminal_takes_back_what_the_phone_said(scene: Scenario) -> None:
    begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        sent = client.call("prompt.submit", session_id=sid, text="what can you do?", truncate_before_user_ordinal=0)
        assert sent["driver"] == "gateway"
        client.event("message.complete", sid)
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["text"] for one in messages if one["role"] == "user"] == ["what can you do?"]


def test_what_the_phone_says_is_seen_at_the_terminal(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        ada.say("list the files here")
        assert client.event("message.user", sid) == {"text": "list the files here", "source": "telegram"}
        started = client.event("tool.start", sid)
        assert client.event("tool.complete", sid)["tool_id"] == started["tool_id"]
        text = client.event("message.complete", sid)["text"]
        assert ada.expect(text.splitlines()[0][:20])
        client.call("prompt.submit", session_id=sid, text="what is 2 + 3?")
        client.event("message.complete", sid)
        said = client.call("session.history", session_id=sid)["messages"]
        sources = {one["text"]: one.get("source") for one in said if one["role"] == "user"}
        assert sources == {"hello": "telegram", "list the files here": "telegram", "what is 2 + 3?": None}


def test_a_phone_that_turns_to_another_conversation_is_told_of(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        ada.say("/new")
        assert "the chat now has another conversation" in client.event("status.update", sid)["text"]
        assert client.event("session.info", sid)["driver"] == "here"
        assert client.call("prompt.submit", session_id=sid, text="hello again")["driver"] == "here"
        client.event("message.complete", sid)
        assert "hello again" not in ada.chat_text()


def test_leave_that_a_phone_s_turn_needs_can_be_given_at_the_terminal(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        ada.say("delete the folder old")
        asked = client.event("approval.request", sid)
        assert asked["command"] == "rm -r old"
        assert (
            client.call("approval.respond", session_id=sid, choice="deny", approval_id=asked["approval_id"])["resolved"]
            == 1
        )
        assert "left it alone" in client.event("message.complete", sid)["text"]
        ada.expect("left it alone")


def test_a_question_for_which_the_phone_s_turn_waits_is_answered_at_a_terminal_that_is_opened_later() -> None:
    model = ScriptedModel(say(calls=[call("terminal", {"command": "rm -rf old"})]), say("It is gone."))
    config = {"auto_title": False, "approvals": {"timeout": 1}}
    with Scenario(FakeTelegram(flood=OFF), model, config=config, seconds=60.0) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("tidy up")
        ada.expect("stays open for 24h")
        with StdioClient(scene.home) as client:
            recent = client.call("session.most_recent")["session_id"]
            opened = client.call("session.resume", session_id=recent)
            assert not opened["running"], "a turn that waits does not run"
            sid = opened["session_id"]
            asked = client.event("approval.request", sid)
            answer = {"choice": "once", "approval_id": asked["approval_id"]}
            assert client.call("approval.respond", session_id=sid, **answer)["resolved"] == 1
            client.event("message.start", sid, within=10)
            assert client.event("message.complete", sid)["text"] == "It is gone."
        assert [one.text for one in ada.replies()].count("It is gone.") == 1


def test_a_turn_that_is_put_down_ends_at_the_terminal_and_its_question_stays() -> None:
    remove = call("terminal", {"command": "rm -rf old"})
    model = ScriptedModel(say("Hello."), say("I tidy up.", calls=[remove]), say("I left it."))
    config = {"auto_title": False, "approvals": {"timeout": 1}}
    with Scenario(FakeTelegram(flood=OFF), model, config=config) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("Hello.")
        with StdioClient(scene.home) as client:
            recent = client.call("session.most_recent")["session_id"]
            sid = client.call("session.resume", session_id=recent)["session_id"]
            ada.say("tidy up")
            asked = client.event("approval.request", sid)
            ended = client.event("message.complete", sid)
            assert (ended["status"], ended["text"]) == ("complete", ""), "what it said before its call is shown already"
            assert "approval.closed" not in client.events()
            ada.say(f"/deny {asked['approval_id']}")
            assert client.event("approval.closed", sid) == {"approval_id": asked["approval_id"]}
            assert client.event("message.complete", sid)["text"] == "I left it."


@pytest.mark.parametrize(("choice", "left"), [("task", []), ("session", ["conversation"])])
def test_an_answer_at_the_terminal_is_a_grant_with_an_end(scene: Scenario, choice: str, left: list[str]) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        ada.say("delete the folder old")
        asked = client.event("approval.request", sid)
        assert asked["choices"] == ["task", "once", "session", "always", "deny"]
        assert asked["labels"]["task"] == "This command for this task" and "inside" in asked["sandbox"]
        assert asked["measure"].startswith("9 characters, hash ")
        client.call("approval.respond", session_id=sid, choice=choice, approval_id=asked["approval_id"])
        client.event("message.complete", sid)
        ada.expect("rm -r old ended")
        grants = json.loads(scene.hermes("approvals", "list", "--json"))
        assert [one["span"] for one in grants] == left and all(one["granted_by"] for one in grants)


def test_a_question_of_the_model_is_seen_at_the_terminal_and_answered_there(scene: Scenario) -> None:
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        client.call("prompt.submit", session_id=sid, text="ask me which colour I like")
        asked = client.event("notification.show", sid)
        assert asked["kind"] == "question"
        ada.expect(asked["text"].splitlines()[0])
        client.call("prompt.submit", session_id=sid, text="green")
        assert "green" in client.event("message.complete", sid)["text"]


STORY, END = "tell me the long story", "The end. It is also written down."


def test_a_gateway_that_is_killed_under_both_directions_answers_each_once_in_both_places(scene: Scenario) -> None:
    scene.config["demo"] = {"tokens_per_second": 500}
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        client.call("prompt.submit", session_id=sid, text=STORY)
        client.event("message.delta", sid)
        ada.telegram.wait(lambda: bot_messages(ada)[-1].startswith("Once"), "the beginning of the first one")
        killed_under_it(scene)
        told = [client.event("message.complete", sid, within=60)]
        ada.expect(END)
        ada.say(f"{STORY} again")
        assert client.event("message.user", sid) == {"text": f"{STORY} again", "source": "telegram"}
        ada.telegram.wait(lambda: bot_messages(ada)[-1].startswith("Once"), "the beginning of the second one")
        killed_under_it(scene)
        told.append(client.event("message.complete", sid, within=60))
        assert [one["status"] for one in told] == ["complete", "complete"]
        ada.telegram.wait(lambda: said_of(ada, END) == 2, "the end of the second one")
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["role"] for one in messages] == ["user", "assistant"] * 3
        assert [one["text"] for one in messages[3::2]] == [one["text"] for one in told]
        time.sleep(0.3)
        assert client.events().count("message.complete") == 2 and client.events().count("message.user") == 1
    assert said_of(ada, "The end.") == said_of(ada, "Once, in a harbour town") == 2
    with store(scene.home) as db:
        assert db.inbox.counts() == {"answered": 3}


def killed_under_it(scene: Scenario) -> None:
    """With -9, while an answer is being made."""
    scene.kill()
    scene.start()


def said_of(ada: FakePerson, words: str) -> int:
    return sum(words in text for text in bot_messages(ada))


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
        assert "(from the terminal) hello again" in ada.chat_text()


def test_what_a_gateway_left_and_the_terminal_finished_is_still_owed_to_the_phone(scene: Scenario) -> None:
    scene.config["demo"] = {"tokens_per_second": 100}
    ada = begun(scene)
    with store(scene.home) as db:
        scene.wait(lambda: db.outbox.counts() == {"sent": 1}, "the end of the greeting")
    ada.say(STORY)
    ada.expect("harbour town")
    scene.kill()
    scene.hermes("config", "set", "demo.tokens_per_second", "0")
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        assert client.call("prompt.submit", session_id=sid, text="what is 30+1?")["driver"] == "here"
        assert END in client.event("message.complete", sid, within=60)["text"]
        assert client.event("message.complete", sid)["text"] == "30+1 = 31"
        texts = [one["text"] for one in client.call("session.history", session_id=sid)["messages"]]
        assert END in texts[3] and texts[-1] == "30+1 = 31"
        with store(scene.home) as db:
            # Two messages of the chat, and the terminal's prompt.
            assert db.inbox.counts() == {"answered": 3} and db.outbox.counts() == {"sent": 1, "pending": 1}
            assert [turn.reason for turn in db.turns.list()] == [None] * 3, "nobody chose not to answer"
        scene.config["demo"] = {"tokens_per_second": 0}
        scene.start()
        ada.expect(END)
    assert said_of(ada, "Once, in a harbour town") == 1, "edited, not sent twice"
    assert said_of(ada, "31") == 0, "what was asked at the desk was answered there"


def test_a_prompt_that_a_lost_terminal_left_is_answered_by_the_gateway_that_drives_by_now(scene: Scenario) -> None:
    begun(scene)
    with StdioClient(scene.home) as client, store(scene.home) as db:
        stored = client.call("session.most_recent")["session_id"]
        root, gone = db.get_conversation_root(stored), f"{socket.gethostname()}/999999999/1/ab"
        row = db.inbox.accept(
            platform="local", chat_id=root, message_id="local:1", route=local_route(root),
            payload={"text": "what is 30+1?", "holder": gone},
        ).row  # fmt: skip
        state = client.call("session.resume", session_id=stored)
        assert state["driver"] == "gateway" and not state["waiting"]
        sid = state["session_id"]
        scene.wait(
            lambda: client.call("session.history", session_id=sid)["messages"][-1]["text"] == "30+1 = 31", "the answer"
        )  # fmt: skip
        assert [(one.state, one.reason) for one in [db.inbox.get(row.id)] if one is not None] == [
            ("superseded", "handed to the gateway")
        ]


def test_a_turn_that_the_gateway_left_is_seen_to_its_end_before_what_is_said_next(scene: Scenario) -> None:
    scene.config["demo"] = {"tokens_per_second": 500}
    ada = begun(scene)
    with StdioClient(scene.home) as client:
        sid = client.call("session.resume", session_id=client.call("session.most_recent")["session_id"])["session_id"]
        ada.say(STORY)
        client.event("message.delta", sid)
        scene.kill()
        assert "the gateway has ended" in client.event("status.update", sid)["text"]
        left = client.event("session.info", sid)
        assert left["driver"] == "here" and not left["running"]
        assert client.call("prompt.submit", session_id=sid, text="what is 50+1?")["status"] == "queued"
        story = client.event("message.complete", sid, within=60)
        assert story["status"] == "complete" and END in story["text"]
        seen = "".join(one["params"]["payload"]["text"] for one in client.frames
                       if one.get("params", {}).get("type") == "message.delta")  # fmt: skip
        assert seen == story["text"], "it went on where it stood"
        assert client.event("message.complete", sid)["text"] == "50+1 = 51"
        time.sleep(0.3)
        assert client.call("session.activate", session_id=sid)["status"] == "idle"
        assert client.events().count("message.complete") == client.events().count("message.start") == 2


def test_words_that_wait_by_a_command_are_told_as_one_s_own_where_they_were_typed(scene: Scenario) -> None:
    scene.config["api_server"] = {"enabled": True, "port": 0}
    begun(scene)
    with WsClient(*api_of(scene)) as one, WsClient(*api_of(scene)) as other:
        recent = one.call("session.most_recent")["session_id"]
        sid, there = (client.call("session.resume", session_id=recent)["session_id"] for client in (one, other))
        for command in ("/queue what is 2 + 3?", "/steer what is 4 + 5?"):  # nothing runs that could be steered
            words = command.partition(" ")[2]
            one.call("slash.exec", session_id=sid, command=command)
            here, elsewhere = one.event("message.user", sid), other.event("message.user", there)
            assert here["text"] == elsewhere["text"] == words
            assert here.get("own") is True and "own" not in elsewhere
            assert one.event("message.complete", sid)["text"] == other.event("message.complete", there)["text"]
        assert one.events().count("message.user") == other.events().count("message.user") == 2


def test_two_terminals_and_a_phone_agree(scene: Scenario) -> None:
    scene.config["api_server"] = {"enabled": True, "port": 0}
    ada = begun(scene)
    with StdioClient(scene.home) as pipe, WsClient(*api_of(scene)) as socket:
        recent = pipe.call("session.most_recent")["session_id"]
        clients = {client: client.call("session.resume", session_id=recent)["session_id"] for client in (pipe, socket)}
        said = ("from the pipe: hello", "from the socket: hello", "from the phone: hello")
        assert pipe.call("prompt.submit", session_id=clients[pipe], text=said[0])["driver"] == "gateway"
        assert socket.event("message.user", clients[socket])["text"] == said[0]
        done = [client.event("message.complete", sid)["text"] for client, sid in clients.items()]
        assert socket.call("prompt.submit", session_id=clients[socket], text=said[1])["driver"] == "gateway"
        assert pipe.event("message.user", clients[pipe])["text"] == said[1]
        done += [client.event("message.complete", sid)["text"] for client, sid in clients.items()]
        ada.say(said[2])
        for client, sid in clients.items():
            assert client.event("message.user", sid)["text"] == said[2]
        done += [client.event("message.complete", sid)["text"] for client, sid in clients.items()]
        assert done[0::2] == done[1::2]
        histories = [client.call("session.history", session_id=sid)["messages"] for client, sid in clients.items()]
        assert histories[0] == histories[1]
        assert [one["text"] for one in histories[0] if one["role"] == "user"] == ["hello", *said]
        assert [one["role"] for one in histories[0]] == ["user", "assistant"] * 4
    with store(scene.home) as db:
        assert db.inbox.counts() == {"answered": 4}
