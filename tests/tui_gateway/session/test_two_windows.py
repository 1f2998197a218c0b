"""Two windows on one conversation, each with a process of its own and no gateway between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tui_gateway.client import RpcFailed, StdioClient
from tests.tui_gateway.conftest import CONFIG, Kept, waited

from hermes_state import SessionDB
from tui_gateway import server

pytestmark = pytest.mark.slow


def told(frames: list[dict[str, Any]], sid: str) -> list[str]:
    """What a screen shows of it: `> words` of a person, the answers as they were streamed, how a turn ended."""
    shown: list[str] = []
    for one in (frame["params"] for frame in frames if frame.get("method") == "event"):
        if one.get("session_id") != sid:
            continue
        kind, payload = one["type"], one.get("payload") or {}
        if kind == "message.user":
            shown.append(f"> {payload['text']}")
        elif kind == "message.start":
            shown += [""] if payload.get("elsewhere") else ["> own", ""]
        elif kind == "message.delta":
            shown[-1] += payload["text"]
        elif kind == "message.complete":
            shown.append(payload["status"])
    return shown


@pytest.fixture
def looker(demo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """A client of a server in this process."""
    db = SessionDB(demo_home / "state.db")
    monkeypatch.setattr(server, "_db", db)
    yield Kept()
    server._close_all("tui_shutdown")
    waited(lambda: server._followers._thread is None)
    db.close()


def test_turns_that_pass_between_two_looks_are_told_one_after_the_other(looker: Kept, demo_home: Path) -> None:
    with StdioClient(demo_home) as talker:
        made = talker.call("session.create")
        talker.say(made["session_id"], "hello")
        looker.asks("session.resume", session_id=made["stored_session_id"])
        waited(lambda: bool(looker.frames))
        sid = looker.frames[0]["result"]["session_id"]
        with server._sessions[sid]["looking"]:  # the machine is busy: nobody comes to look
            answers = [talker.say(made["session_id"], f"what is {number}+{number}?") for number in (4, 5)]
        waited(lambda: told(looker.frames, sid).count("complete") == 2)
    assert told(looker.frames, sid) == [
        "> what is 4+4?", answers[0], "complete", "> what is 5+5?", answers[1], "complete",
    ]  # fmt: skip


STORY = "tell me the long story"
Pair = tuple[StdioClient, str, StdioClient, str]


@pytest.fixture
def pair(demo_home: Path) -> Iterator[Pair]:
    """Two processes at one conversation: the first one has been asked for the story, and the second one knows."""
    (demo_home / "config.yaml").write_text(CONFIG.replace("tokens_per_second: 0", "tokens_per_second: 40"))
    with StdioClient(demo_home) as one, StdioClient(demo_home) as two:
        made = one.call("session.create")
        here = made["session_id"]
        one.say(here, "hello")
        there = two.call("session.resume", session_id=made["stored_session_id"])["session_id"]
        one.call("prompt.submit", session_id=here, text=STORY)
        one.event("message.delta", here)
        two.event("message.start", there)
        yield one, here, two, there


def test_a_prompt_behind_another_window_s_turn_begins_when_that_has_ended(pair: Pair) -> None:
    one, here, two, there = pair
    assert two.call("prompt.submit", session_id=there, text="what is 6+6?")["status"] == "queued"
    assert "yours is next" in two.event("status.update", there)["text"]
    two.call("config.set", key="yolo", value=True, session_id=there)  # it will have another agent
    one.call("session.interrupt", session_id=here)
    for _ in range(2):
        two.event("message.complete", there)
    cut = told(two.frames, there)[1]
    assert told(two.frames, there) == [f"> {STORY}", cut, "interrupted", "> own", "6+6 = 12", "complete"]
    assert one.event("message.user", here)["text"] == "what is 6+6?"
    one.event("message.complete", here)
    assert told(one.frames, here)[-4:] == ["interrupted", "> what is 6+6?", "6+6 = 12", "complete"]
    mine, theirs = (client.call("session.history", session_id=sid) for client, sid in ((one, here), (two, there)))
    assert mine == theirs and [row["role"] for row in mine["messages"]] == ["user", "assistant"] * 3


def test_a_conversation_is_not_deleted_under_another_window_s_turn(pair: Pair) -> None:
    one, here, two, there = pair
    stored = two.call("session.title", session_id=there)["session_key"]
    two.call("session.close", session_id=there)
    with pytest.raises(RpcFailed, match=r"a turn is running .* hermes turns cancel"):
        two.call("session.delete", session_id=stored)
    one.call("session.interrupt", session_id=here)
    assert one.event("message.complete", here)["status"] == "interrupted"
    assert one.say(here, "what is 7+7?") == "7+7 = 14"


def test_a_prompt_that_waits_can_be_taken_back(pair: Pair) -> None:
    one, here, two, there = pair
    two.call("prompt.submit", session_id=there, text="what is 6+6?")
    assert "yours is next" in two.event("status.update", there)["text"]
    two.call("session.interrupt", session_id=there)
    assert "stop it there" in two.event("status.update", there)["text"]
    one.call("session.interrupt", session_id=here)
    two.event("message.complete", there)
    assert two.say(there, "what is 7+7?") == "7+7 = 14"
    said = [row["text"] for row in two.call("session.history", session_id=there)["messages"] if row["role"] == "user"]
    assert said == ["hello", STORY, "what is 7+7?"]
