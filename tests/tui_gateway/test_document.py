"""The protocol's document is what the code says, and all that a client has to know."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tui_gateway.client import PAGE, Client, Document, StdioClient, WsClient
from tests.tui_gateway.conftest import KEY

from tui_gateway import page, server
from tui_gateway.events import ERRORS, EVENTS
from tui_gateway.methods import METHODS


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.page(), "make docs"


def test_the_page_has_every_method_and_event_and_nothing_else() -> None:
    document = Document(PAGE.read_text(encoding="utf-8"))
    assert set(document.methods) == set(METHODS) == set(server._methods)
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


@pytest.mark.parametrize("name", ["session.create", "prompt.submit", "approval.respond"])
def test_what_a_client_must_send_stands_there(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"### `{name}`")[1].split("### ")[0]
    assert all(f"`{param.name}`" in part for param in METHODS[name].params)
