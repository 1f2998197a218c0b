"""The server at `/api/ws`: who is let in, and what becomes of sessions whose connection ends."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.tui_gateway.client import WITHIN, RpcFailed, WsClient
from tests.tui_gateway.conftest import CLIENT_KEY, KEY, said
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from gateway.api.auth import key_id
from hermes_state import SessionDB

pytestmark = pytest.mark.slow


def test_strangers_are_not_let_in(api: str) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    for path, options in (
        ("", {}),
        ("", {"additional_headers": {"authorization": "Bearer wrong"}}),
        ("?token=wrong", {}),
        ("", {"subprotocols": ["hermes.v1", "bearer.wrong"]}),
        ("", {"additional_headers": headers, "origin": "https://evil.example"}),
    ):
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://{api}/api/ws{path}", **options):
            pass
        assert refused.value.response.status_code == 403
    host, port = api.split(":")
    named = socket.create_connection((host, int(port)))
    with pytest.raises(InvalidStatus), connect("ws://evil.example/api/ws", sock=named, additional_headers=headers):
        pass
    assert httpx2.get(f"http://{api}/api/ws", headers=headers).status_code == 404


def test_a_client_key_is_refused_with_the_command_that_makes_the_other_kind(api: str) -> None:
    for path, options in (
        ("", {"additional_headers": {"authorization": f"Bearer {CLIENT_KEY}"}}),
        (f"?token={CLIENT_KEY}", {}),
        ("", {"subprotocols": ["hermes.v1", f"bearer.{CLIENT_KEY}"]}),
    ):
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://{api}/api/ws{path}", **options):
            pass
        error = json.loads(refused.value.response.body or b"")["error"]
        assert (refused.value.response.status_code, error["code"]) == (403, "owner_key_needed")
        assert "hermes api key --role owner" in error["message"]
    bearer = {"authorization": f"Bearer {CLIENT_KEY}"}
    assert httpx2.get(f"http://{api}/v1/models", headers=bearer).status_code == 200, "it is a key all the same"


def test_an_owner_key_that_was_shut_out_by_hand_opens_no_terminal(api: str, demo_home: Path) -> None:
    with connect(f"ws://{api}/api/ws?token={KEY}"):
        pass
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        db.pairings.revoke(platform="api_server", native_id=key_id(KEY))
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{api}/api/ws?token={KEY}"):
        pass
    assert refused.value.response.status_code == 403


def test_the_key_may_come_from_a_browser(api: str) -> None:
    with connect(f"ws://{api}/api/ws?token={KEY}") as opened:
        assert json.loads(opened.recv(5))["params"]["type"] == "gateway.ready"
    with connect(f"ws://{api}/api/ws", subprotocols=["hermes.v1", f"bearer.{KEY}"]) as opened:  # type: ignore[list-item]
        assert opened.subprotocol == "hermes.v1"
        assert json.loads(opened.recv(5))["params"]["type"] == "gateway.ready"


def test_what_is_no_request_is_answered(api: str) -> None:
    with WsClient(api, KEY) as client:
        client.event("gateway.ready")
        client.send("{no json")
        assert client._take(5)["error"]["code"] == -32700
        client.socket.send(b'{"id": 7, "method": "commands.catalog"}')
        assert client._take(5)["id"] == 7
        with pytest.raises(RpcFailed) as failed:
            client.call("session.history", session_id="nobody")
        assert failed.value.code == 4001


def test_a_frame_that_is_too_large_ends_its_connection_alone(api: str) -> None:
    with WsClient(api, KEY) as other, connect(f"ws://{api}/api/ws?token={KEY}") as opened:
        opened.send('{"id": 1, "method": "complete.slash", "params": {"text": "' + "x" * (17 * 1024 * 1024))
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                opened.recv(10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        assert other.call("commands.catalog")["pairs"]


def test_sessions_of_a_lost_connection_are_closed_or_found_again(api: str, demo_home: Path) -> None:
    with WsClient(api, KEY) as client:
        closing = client.call("session.create", close_on_disconnect=True)
        left, kept = client.call("session.create"), client.call("session.create")
        for made in (closing, kept):
            client.say(made["session_id"], "hello")
    with WsClient(api, KEY) as client:
        found = client.call("session.resume", session_id=kept["stored_session_id"])
        assert found["session_id"] == kept["session_id"], "it was parked"
        client.gone(left["session_id"])
        assert client.live() == [kept["session_id"]], "the grace is over, and somebody came back for this one"
    with WsClient(api, KEY) as client:
        client.gone(kept["session_id"])
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        assert _end(db, closing) == "ws_disconnect"
        assert _end(db, kept) == "ws_orphan_reap"


def _end(db: SessionDB, made: dict[str, Any]) -> str:
    """Why it has ended; that is stored a moment after it is gone from the list."""
    deadline = time.monotonic() + WITHIN
    while (reason := (db.get_session(made["stored_session_id"]) or {})["end_reason"]) is None:
        assert time.monotonic() < deadline, "its end is not stored"
        time.sleep(0.05)
    return str(reason)


def test_whoever_resumes_and_is_gone_at_once_leaves_nothing_live(api: str) -> None:
    with WsClient(api, KEY) as client:
        made = client.call("session.create", close_on_disconnect=True)
        client.say(made["session_id"], "hello")
    asked = {"id": 1, "method": "session.resume", "params": {"session_id": made["stored_session_id"]}}
    for _ in range(4):
        with connect(f"ws://{api}/api/ws?token={KEY}") as hasty:
            hasty.send(json.dumps(asked))
            hasty.socket.shutdown(socket.SHUT_RDWR)
    with WsClient(api, KEY) as client:
        for sid in client.live():
            client.gone(sid)


def test_a_turn_that_is_put_down_says_nothing_of_itself_where_the_gateway_runs(slow_api: str, demo_home: Path) -> None:
    with WsClient(slow_api, KEY) as client:
        sid = client.call("session.create", close_on_disconnect=True)["session_id"]
        client.call("prompt.submit", session_id=sid, text="tell me the long story")
        client.event("message.delta", sid)
    deadline = time.monotonic() + WITHIN
    while "a turn was released" not in (shown := said(demo_home).read_text(encoding="utf-8")):
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    assert "jsonrpc" not in shown and "Traceback" not in shown


def test_frames_of_two_clients_do_not_mix_and_keep_their_order(api: str) -> None:
    with WsClient(api, KEY) as one, WsClient(api, KEY) as two:
        mine, theirs = (client.call("session.create")["session_id"] for client in (one, two))
        one.call("prompt.submit", session_id=mine, text="tell me the long story")
        two.call("prompt.submit", session_id=theirs, text="what can you do?")
        told = one.event("message.complete", mine)["text"]
        two.event("message.complete", theirs)
        for client, sid in ((one, mine), (two, theirs)):
            events = [frame["params"] for frame in client.frames if frame.get("method") == "event"][1:]
            assert {event["session_id"] for event in events} == {sid}
        deltas = [frame["params"]["payload"]["text"] for frame in one.frames
                  if frame.get("params", {}).get("type") == "message.delta"]  # fmt: skip
        assert "".join(deltas) == told
