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
            shown.append("")
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
