"""Clients that come to a conversation in the middle of something, and several at one."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.tui_gateway.client import Client, WsClient
from tests.tui_gateway.conftest import KEY, Kept, waited

from hermes_state import SessionDB
from tui_gateway import server

pytestmark = pytest.mark.slow

STORY = "tell me the long story"


def deltas(client: Client, sid: str) -> str:
    """What was streamed to this client of the session."""
    found = [frame["params"] for frame in client.frames if frame.get("method") == "event"]
    mine = [one for one in found if one["type"] == "message.delta" and one["session_id"] == sid]
    return "".join(one["payload"]["text"] for one in mine)


def test_whoever_comes_in_the_middle_of_an_answer_sees_all_of_it_once(slow_api: str) -> None:
    with WsClient(slow_api, KEY) as first:
        made = first.call("session.create")
        sid = made["session_id"]
        first.call("prompt.submit", session_id=sid, text=STORY)
        first.event("message.delta", sid)
        with WsClient(slow_api, KEY) as second:
            here = second.call("session.resume", session_id=made["stored_session_id"])
            assert here["session_id"] == sid and here["running"] and here["status"] == "streaming"
            assert [one["text"] for one in here["messages"]] == [STORY], "the prompt is stored, and shown once"
            assert here["inflight"]["user"] == ""
            said = here["inflight"]["assistant"]
            assert first.call("session.interrupt", session_id=sid)
            ends = [client.event("message.complete", sid) for client in (first, second)]
            assert ends[0] == ends[1] and ends[0]["status"] == "interrupted"
            assert said + deltas(second, sid) == deltas(first, sid), "nothing is missing and nothing is told twice"


def test_two_clients_of_one_session_hear_what_the_other_says(api: str) -> None:
    with WsClient(api, KEY) as one, WsClient(api, KEY) as two:
        made = one.call("session.create")
        sid = made["session_id"]
        one.say(sid, "hello")
        two.call("session.resume", session_id=made["stored_session_id"])
        one.call("prompt.submit", session_id=sid, text="what can you do?")
        assert two.event("message.user", sid)["text"] == "what can you do?"
        assert two.event("message.complete", sid)["text"] == one.event("message.complete", sid)["text"]
        two.call("prompt.submit", session_id=sid, text="hello again")
        assert one.event("message.user", sid)["text"] == "hello again"
        one.event("message.complete", sid)
        assert two.events().count("message.user") == one.events().count("message.user") == 1
    with WsClient(api, KEY) as three:
        assert three.call("session.resume", session_id=made["stored_session_id"])["message_count"] == 6


def test_open_questions_are_put_to_whoever_comes_and_taken_back_everywhere(api: str) -> None:
    with WsClient(api, KEY) as lost:
        made, idle = lost.call("session.create"), lost.call("session.create")
        sid = made["session_id"]
        lost.call("prompt.submit", session_id=sid, text="delete the folder old")
        asked = lost.event("approval.request", sid)
    with WsClient(api, KEY) as later:
        later.gone(idle["session_id"])
        assert later.live() == [sid], "the grace is over: a session that waits for a person stays"
    with WsClient(api, KEY) as back, WsClient(api, KEY) as other:
        for client in (back, other):
            assert client.call("session.resume", session_id=made["stored_session_id"])["status"] == "waiting"
            assert client.event("approval.request", sid)["approval_id"] == asked["approval_id"]
        back.call("approval.respond", session_id=sid, choice="deny", approval_id=asked["approval_id"])
        assert other.event("approval.closed", sid) == {"approval_id": asked["approval_id"]}
        assert other.event("message.complete", sid)["text"] == back.event("message.complete", sid)["text"]
        back.call("prompt.submit", session_id=sid, text="ask me which colour I like")
        question = other.event("clarify.request", sid)
        with WsClient(api, KEY) as late:
            late.call("session.activate", session_id=sid)
            assert late.event("clarify.request", sid) == question
        other.call("clarify.respond", request_id=question["request_id"], answer="green")
        assert back.event("clarify.expire", sid) == {"request_id": question["request_id"]}
        assert "green" in back.event("message.complete", sid)["text"]


@pytest.fixture
def store(db: SessionDB, demo_home: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(server, "_db", db)
    yield db
    server._close_all("tui_shutdown")
    waited(lambda: server._followers._thread is None)


def test_whenever_somebody_comes_answer_and_events_fit_together(store: SessionDB) -> None:
    """A window after the other opens a conversation that another one talks in without a pause."""
    talker = Kept()
    token = server._bound.set(talker)
    sid = server.handle_request({"id": 0, "method": "session.create"})["result"]["session_id"]
    said, over = [f"words {number}" for number in range(12)], threading.Event()

    def talk() -> None:
        server._bound.set(talker)
        for number, words in enumerate(said):
            server.handle_request({"id": 0, "method": "prompt.submit", "params": {"session_id": sid, "text": words}})
            waited(lambda wanted=number + 1: count(talker, "message.complete") >= wanted)
            waited(lambda: not server._sessions[sid]["running"])
        over.set()

    thread = threading.Thread(target=talk)
    thread.start()
    windows = []
    while not over.is_set():
        windows.append(Kept())
        windows[-1].asks("session.activate", session_id=sid)
        time.sleep(0.01)
    thread.join()
    server._bound.reset(token)
    assert len(windows) > 3
    for window in windows:
        waited(lambda window=window: any("result" in frame for frame in window.frames))
        at = next(number for number, frame in enumerate(window.frames) if "result" in frame)
        assert at == 0, "nothing is told before the answer"
        shown = window.frames[0]["result"]
        texts = [one["text"] for one in shown["messages"] if one["role"] == "user"]
        texts += [shown["inflight"]["user"]] if (shown["inflight"] or {}).get("user") else []
        events = [frame["params"] for frame in window.frames[1:]]
        texts += [one["payload"]["text"] for one in events if one["type"] == "message.user"]
        assert texts == said
        answers = [one for one in shown["messages"] if one["role"] == "assistant"]
        assert len(answers) + count(window, "message.complete") == len(said)


def count(window: Kept, kind: str) -> int:
    return sum(frame.get("params", {}).get("type") == kind for frame in list(window.frames))


def test_when_there_is_no_room_the_session_nobody_looks_at_goes_first(
    store: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "0")
    from hermes_config import config

    config.set_value("max_live_sessions", 3)
    owners = [Kept(), Kept(), Kept()]
    sids = []
    for owner in owners:
        token = server._bound.set(owner)
        sids.append(server.handle_request({"id": 0, "method": "session.create"})["result"]["session_id"])
        server._bound.reset(token)
    for number in (1, 0):
        server._idle_sessions.left(owners[number])
        time.sleep(0.01)
    made = server.handle_request({"id": 0, "method": "session.create"})["result"]["session_id"]
    assert set(server._sessions) == {sids[0], sids[2], made}
    monkeypatch.setenv("HERMES_TUI_SESSION_TTL_S", "0.3")
    waited(lambda: set(server._sessions) == {sids[2], made})
