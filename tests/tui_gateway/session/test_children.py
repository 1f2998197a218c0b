"""Delegated work at a terminal: events while children work, and children of a process that was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import yaml
from tests.tui_gateway.client import StdioClient

from hermes_state import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, call, say


def text(request: ScriptedRequest) -> str:
    return str(request.messages[1]["content"])


def of(name: str) -> Any:
    return lambda request: text(request).startswith(f"task {name}") and request.messages[-1]["role"] == "user"


def parent(role: str) -> Any:
    return lambda request: not text(request).startswith("task ") and request.messages[-1]["role"] == role


TASKS = [call("delegate_task", {"tasks": [{"goal": "task a"}, {"goal": "task b"}]})]


def test_a_terminal_shows_its_children_and_the_next_one_continues_them(home: Path) -> None:
    begun, slow = Hold(), Hold()
    looks = [call("todo", {"todos": [{"id": "1", "content": "look", "status": "pending"}]})]
    with ScriptedModel(
        say(calls=TASKS, when=parent("user")),
        say(calls=looks, when=of("a"), hold=begun), say("report a", when=lambda one: text(one) == "task a"),
        say("lost", when=of("b"), hold=slow), say("report b", when=of("b")),
        say("Both.", when=parent("tool")),
    ).served() as server:  # fmt: skip
        home.mkdir(mode=0o700)
        config = {"model": server.model.settings(server.origin), "auto_title": False}
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        with StdioClient(home) as client:
            sid = client.call("session.create")["session_id"]
            client.call("prompt.submit", session_id=sid, text="go")
            assert {client.event("subagent.start", sid)["goal"] for _ in range(2)} == {"task a", "task b"}
            begun.release()
            assert client.event("subagent.tool", sid)["tool_name"] == "todo"
            done = client.event("subagent.complete", sid)
            assert (done["goal"], done["status"], done["summary"]) == ("task a", "done", "report a")
            (active,) = client.call("delegation.status", session_id=sid)["active"]
            assert active["goal"] == "task b"
            os.kill(client.process.pid, signal.SIGKILL)
            client.process.wait()
        slow.release()
        db = SessionDB(home / "state.db")
        chat = active["parent_id"]
        with StdioClient(home) as client:
            sid = client.call("session.resume", session_id=chat)["session_id"]
            assert client.call("session.recover", session_id=sid) == {"status": "streaming"}
            assert client.event("message.complete", sid)["text"] == "Both."
        told = [message["content"] for message in db.get_messages(chat) if message["role"] == "tool"]
        assert len(told) == 1 and "report a" in told[0] and "report b" in told[0]
        assert [sum(text(one) == f"task {name}" for one in server.model.requests) for name in "ab"] == [2, 2]
        db.close()
