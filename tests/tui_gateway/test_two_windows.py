"""Two windows on one conversation, each with a process of its own and no gateway between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tui_gateway.client import StdioClient
from tests.tui_gateway.test_joining import Kept, waited

from hermes_state import SessionDB
from tui_gateway import server


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
    waited(lambda: server._looker._thread is None)
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


SLOW = "be slow 1"


@pytest.fixture
def pair(demo_home: Path) -> Iterator[tuple[StdioClient, str, StdioClient, str]]:
    """Two processes at one conversation, in which something was said."""
    with StdioClient(demo_home) as one, StdioClient(demo_home) as two:
        made = one.call("session.create")
        one.say(made["session_id"], "hello")
        sid = two.call("session.resume", session_id=made["stored_session_id"])["session_id"]
        yield one, made["session_id"], two, sid


def test_a_prompt_behind_another_window_s_turn_begins_when_that_has_ended(
    pair: tuple[StdioClient, str, StdioClient, str],
) -> None:
    one, first, two, second = pair
    one.call("prompt.submit", session_id=first, text=SLOW)
    two.event("message.start", second)
    assert two.call("prompt.submit", session_id=second, text="what is 6+6?")["status"] == "queued"
    assert "yours is next" in two.event("status.update", second)["text"]
    slow = two.event("message.complete", second)["text"]
    assert two.event("message.complete", second)["text"] == "6+6 = 12"
    assert told(two.frames, second) == [f"> {SLOW}", slow, "complete", "> own", "6+6 = 12", "complete"]
    one.event("message.complete", first)
    assert one.event("message.user", first)["text"] == "what is 6+6?"
    one.event("message.complete", first)
    assert told(one.frames, first)[-3:] == ["> what is 6+6?", "6+6 = 12", "complete"]


def test_a_prompt_that_waits_can_be_taken_back(pair: tuple[StdioClient, str, StdioClient, str]) -> None:
    one, first, two, second = pair
    one.call("prompt.submit", session_id=first, text=SLOW)
    two.event("message.start", second)
    two.call("prompt.submit", session_id=second, text="what is 6+6?")
    two.call("session.interrupt", session_id=second)
    assert two.event("message.complete", second)["status"] == "complete", "the other window's turn is not ours to stop"
    assert two.say(second, "what is 7+7?") == "7+7 = 14"
    said = [one["text"] for one in two.call("session.history", session_id=second)["messages"] if one["role"] == "user"]
    assert said == ["hello", SLOW, "what is 7+7?"]
