"""The protocol's document is what the code says, and all that a client has to know."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tui_gateway.client import PAGE, Client, Document, StdioClient, WsClient
from tests.tui_gateway.conftest import KEY
from tools import rpc_page
from tools.rpc_page import ERRORS, EVENTS

from tui_gateway.rpc.method import METHODS

pytestmark = pytest.mark.slow


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == rpc_page.page(), "make docs"


def test_the_page_has_every_method_and_event_and_nothing_else() -> None:
    document = Document(PAGE.read_text(encoding="utf-8"))
    assert set(document.methods) == set(METHODS)
    assert set(document.events) == set(EVENTS)
    assert {code for method in METHODS.values() for code in method.errors} <= set(ERRORS)


def hold_a_conversation(client: Client) -> None:
    """As the page tells it: five frames, an approval, and the same conversation on another day."""
    client.event("gateway.ready")
    made = client.call("session.create")
    sid = made["session_id"]
    assert client.call("prompt.submit", session_id=sid, text="what can you do?")["driver"] == "here"
    client.event("message.start", sid)
    pieces = client.event("message.delta", sid)["text"]
    complete = client.event("message.complete", sid)
    assert complete["status"] == "complete" and complete["text"].startswith(pieces)
    client.call("prompt.submit", session_id=sid, text="delete the folder old")
    asked = client.event("approval.request", sid)
    assert asked["command"] == "rm -r old" and "deny" in asked["choices"]
    assert client.call("approval.respond", session_id=sid, choice="deny") == {"resolved": 1}
    client.event("approval.closed", sid)
    assert "not run" in client.event("tool.complete", sid)["result"]
    assert "Nothing was changed" in client.event("message.complete", sid)["text"]
    assert client.call("session.usage", session_id=sid)["total"] > 0
    before = client.call("session.history", session_id=sid)
    assert client.call("session.close", session_id=sid) == {"closed": True}
    resumed = client.call("session.resume", session_id=made["stored_session_id"])
    assert resumed["messages"] == before["messages"] and resumed["session_id"] != sid
    assert client.say(resumed["session_id"], "hello")


def test_a_client_that_knows_only_the_page_talks_over_stdio(demo_home: Path, tmp_path: Path) -> None:
    with StdioClient(demo_home, cwd=tmp_path) as client:
        hold_a_conversation(client)
        assert client.end() == 0
        assert not client.errors


def test_a_client_that_knows_only_the_page_talks_over_a_websocket(api: str) -> None:
    with WsClient(api, KEY) as client:
        hold_a_conversation(client)


def test_every_method_takes_and_gives_what_the_page_says(demo_home: Path, tmp_path: Path) -> None:
    """The client checks each answer against the page."""
    (work := tmp_path / "work").mkdir()
    with StdioClient(demo_home, cwd=tmp_path) as client:
        made = client.call("session.create", cols=100, title="Kyoto", cwd=str(work), source="desk", max_turns=5)
        sid, stored = made["session_id"], made["stored_session_id"]
        for words in ("hello", "what can you do?", "hello again"):
            client.say(sid, words)
        for name in (
            "session.history", "session.title", "session.usage", "session.status", "session.save", "session.activate",
            "session.compress", "session.interrupt", "model.options", "session.undo", "terminal.resize",
        ):  # fmt: skip
            client.call(name, session_id=sid)
        assert client.call("session.title", session_id=sid, title="Osaka") == {
            "title": "Osaka", "session_key": stored, "pending": False,
        }  # fmt: skip
        assert client.call("session.branch", session_id=sid)["parent"] == stored
        assert client.call("session.list")["sessions"] and client.call("session.most_recent")["session_id"]
        assert client.call("session.active_list", current_session_id=sid)["sessions"]
        assert client.call("session.steer", session_id=sid, text="x")["status"] == "rejected"
        assert client.call("session.recover", session_id=sid) == {"status": "idle"}
        assert client.call("delegation.status", session_id=sid)["active"] == []
        assert client.call("subagent.interrupt", subagent_id="child_x") == {"status": "over"}
        client.say(sid, "run sleep 60 in the background")
        (process,) = client.call("process.list", session_id=sid)["processes"]
        assert client.call("process.kill", process_id=process["id"])["state"] == "killed"
        assert client.call("process.stop", session_id=sid) == {"killed": []}
        assert client.call("session.cwd.set", session_id=sid, cwd="~")["cwd"]
        assert client.call("approval.respond", session_id=sid) == {"resolved": 0}
        for name in ("sudo.respond", "secret.respond"):
            assert client.call(name, request_id="00000000") == {"status": "expired"}
        assert "Osaka" in client.call("slash.exec", session_id=sid, command="title")["output"]
        assert client.call("command.dispatch", session_id=sid, name="status")["type"] == "exec"
        assert client.call("command.dispatch", session_id=sid, name="retry")["type"] == "send"
        assert client.call("command.resolve", name="reset")["canonical"] == "new"
        assert client.call("complete.slash", text="/tit")["items"][0]["text"] == "/title"
        (tmp_path / "notes.md").touch()
        assert "notes.md" in client.call("complete.path", word="@no", cwd=str(tmp_path))["items"][0]["text"]
        assert client.call("config.set", key="busy", value="queue")["scope"] == "global"
        assert client.call("config.get", key="busy") == {"key": "busy", "value": "queue"}
        for name in (
            "commands.catalog", "setup.status", "setup.runtime_check", "tools.list", "toolsets.list", "skills.manage",
            "plugins.list",
        ):  # fmt: skip
            client.call(name)
        client.call("prompt.submit", session_id=sid, text="ask me which colour I like")
        client.call("clarify.respond", request_id=client.event("clarify.request", sid)["request_id"], answer="red")
        client.event("message.complete", sid)
        client.call("session.resume", session_id=stored, limit=2, details=True)
        client.call("session.close", session_id=sid)
        assert client.call("session.delete", session_id=stored) == {"deleted": True}
        assert set(client.asked.values()) == set(client.document.methods), "a method that this test does not call"
        assert client.end() == 0 and not client.errors


@pytest.mark.parametrize("name", ["session.create", "prompt.submit", "approval.respond"])
def test_what_a_client_must_send_stands_there(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"### `{name}`")[1].split("### ")[0]
    assert all(f"`{param.name}`" in part for param in METHODS[name].params)
