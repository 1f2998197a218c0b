"""Sessions whose client is gone, however it went: none stays live for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tui_gateway import server
from tui_gateway.wire.frame_queue import FrameQueue
from tui_gateway.wire.frames import Frame


class Connection:
    """A client whose connection may end, as a WebSocket's: first nothing more gets out, then the server is told."""

    def __init__(self) -> None:
        self._outgoing = FrameQueue(lambda: None, most_bytes=1 << 20)

    def write(self, frame: Frame) -> bool:
        return self._outgoing.put(frame)

    def cut(self) -> None:
        self._outgoing.close()

    def end(self) -> None:
        self.cut()
        server._idle_sessions.left(self)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        answer = server.dispatch({"id": 1, "method": method, "params": params}, self)
        assert answer is not None and "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result


@pytest.fixture
def db(demo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionDB]:
    store = SessionDB(demo_home / "state.db")
    monkeypatch.setattr(server, "_db", store)
    monkeypatch.setenv("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "0.2")
    yield store
    server._close_all("tui_shutdown")
    waited(lambda: server._followers._thread is None)
    store.close()


def waited(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 15
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return true()


@pytest.mark.parametrize("close_on_disconnect", [True, False])
def test_a_session_that_tells_something_while_its_connection_ends_goes_with_it(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch, *, close_on_disconnect: bool
) -> None:
    if close_on_disconnect:
        monkeypatch.setenv("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "600")
    client = Connection()
    sid = client.call("session.create", close_on_disconnect=close_on_disconnect)["session_id"]
    client.cut()
    server._emit("message.delta", sid, {"text": "said to nobody"})
    server._idle_sessions.left(client)
    assert waited(lambda: sid not in server._sessions)


def test_a_client_that_was_gone_before_it_was_answered_leaves_no_session_behind(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "600")
    db.create_session("20261115_110000_abcdef", "tui")
    db.append_message("20261115_110000_abcdef", "user", "hello")
    early = Connection()
    early.end()
    server.serve({"id": 1, "method": "session.create"}, early)
    server.serve({"id": 2, "method": "session.resume", "params": {"session_id": "20261115_110000_abcdef"}}, early)
    assert waited(lambda: len(server._sessions) == 2), "both were opened"
    monkeypatch.setenv("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "0.2")
    assert waited(lambda: not server._sessions)
