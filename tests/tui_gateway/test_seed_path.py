"""The names that the specification's tests touch are on the way of every real turn, and behave there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_cli import plugins
from hermes_state import SessionDB
from tui_gateway import server
from tui_gateway.session.live_session import LiveSession
from tui_gateway.wire.frames import Frame

LONG = "A long remark about the harbour, the lamp and the ledger. " * 20


class Frames:
    """A client in this process."""

    def __init__(self) -> None:
        self.seen: list[Frame] = []

    def write(self, frame: Frame) -> bool:
        self.seen.append(frame)
        return True

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        token = server._bound.set(self)
        try:
            answer = server.handle_request({"id": 1, "method": method, "params": params})
        finally:
            server._bound.reset(token)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def completed(self, count: int) -> None:
        until = time.monotonic() + 20
        while sum(one.get("params", {}).get("type") == "message.complete" for one in self.seen) < count:
            assert time.monotonic() < until, self.seen
            time.sleep(0.01)


@pytest.fixture
def client(db: SessionDB, demo_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frames]:
    monkeypatch.setattr(server, "_db", db)
    yield Frames()
    server._close_all("tui_shutdown")
    until = time.monotonic() + 5
    while server._followers._thread is not None and time.monotonic() < until:
        time.sleep(0.02)


def test_a_real_turn_compression_and_end_go_through_them(
    client: Frames, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    hooks: list[tuple[str, Any]] = []

    def noting(name: str) -> Callable[..., Any]:
        real = vars(server)[name]

        def note(*args: Any, **more: Any) -> Any:
            entered.append(name)
            return real(*args, **more)

        return note

    names = (
        "_emit", "_get_db", "_sync_session_key_after_compress", "_finalize_session", "_notify_session_boundary",
        "make_stream_renderer", "render_message", "write_json",
    )  # fmt: skip
    for name in names:
        monkeypatch.setattr(server, name, noting(name))
    monkeypatch.setattr(plugins, "invoke_hook", lambda name, **facts: hooks.append((name, facts)))
    said = [{"role": ("user", "assistant")[at % 2], "content": f"{at}: {LONG}"} for at in range(40)]
    made = client.call("session.create", messages=said)
    sid, first = made["session_id"], made["stored_session_id"]
    client.call("prompt.submit", session_id=sid, text="hello")
    client.completed(1)
    assert db.message_count(first) == 42
    done = client.call("session.compress", session_id=sid)
    assert done["status"] == "compressed" and done["after_messages"] < done["before_messages"]
    key = server._sessions[sid]["session_key"]
    assert key != first and db.get_compression_tip(first) == key, "the session's key followed the conversation"
    history = client.call("session.history", session_id=sid)["messages"]
    assert len([one for one in history if one["role"] != "system"]) == 42, "all that was said is still shown, once"
    assert client.call("session.close", session_id=sid) == {"closed": True}
    row = db.get_session(key)
    assert row is not None and row["end_reason"] == "tui_close"
    assert set(names) <= set(entered)
    finalized = [facts for name, facts in hooks if name == "on_session_finalize"]
    assert finalized == [{"session_id": key, "platform": "tui"}]


def test_a_turn_has_one_thread_and_nobody_waits_for_it(client: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    class Noted(threading.Thread):
        def __init__(self, **more: Any) -> None:
            started.append(more)
            super().__init__(**more)

        def join(self, timeout: float | None = None) -> None:
            raise AssertionError("a turn's thread is never joined")

    sid = client.call("session.create")["session_id"]
    server._sessions[sid]["agent_ready"].wait(10)
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, server.threading, "Thread", threading.Thread)
        server.threading.Thread = Noted  # type: ignore[misc]
        client.call("prompt.submit", session_id=sid, text="hello")
        client.completed(1)
    ours = [one for one in started if "args" not in one]  # the workers of asyncio have some
    assert [set(one) for one in ours] == [{"target", "daemon"}]


def test_what_is_wished_while_the_agent_is_made_counts(
    client: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go_on, real = threading.Event(), threading.Event(), LiveSession.build

    def slow(place: LiveSession) -> AIAgent:
        agent = real(place)
        made.set()
        go_on.wait(10)
        return agent

    monkeypatch.setattr(LiveSession, "build", slow)
    chosen = tmp_path / "chosen"
    (chosen / "old").mkdir(parents=True)
    sid = client.call("session.create")["session_id"]
    assert made.wait(10)
    client.call("config.set", key="yolo", value=True, session_id=sid)
    client.call("session.cwd.set", cwd=str(chosen), session_id=sid)
    go_on.set()
    client.call("prompt.submit", session_id=sid, text="delete the folder old")
    client.completed(1)
    assert not (chosen / "old").exists(), "it worked in the folder that was chosen"
    assert "approval.request" not in [one.get("params", {}).get("type") for one in client.seen]


def test_closing_twice_ends_once(client: Frames, db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(plugins, "invoke_hook", lambda name, **facts: told.append(name))
    made = client.call("session.create")
    session = server._sessions[made["session_id"]]
    server._finalize_session(session)
    server._finalize_session(session)
    server._finalize_session(None)
    assert told.count("on_session_finalize") == 1
    assert db.get_session(made["stored_session_id"]) is None, "nothing was said: nothing is stored"


def test_a_store_that_cannot_be_opened_is_said_and_tried_again(
    client: Frames, db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_db", None)
    (home / "a file").touch()
    monkeypatch.setenv("HERMES_DATABASE_URL", f"sqlite:///{home}/a file/state.db")
    answer = server.handle_request({"id": 1, "method": "session.list"})
    assert answer["error"]["code"] == 5001 and answer["error"]["message"].startswith("state.db unavailable")
    monkeypatch.setattr(server, "_db", db)
    assert client.call("session.list") == {"sessions": []}
