"""Every method, given every kind of nonsense: an error that the document has, never a defect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.rpc_page import ERRORS

from hermes_config import config
from hermes_state import SessionDB
from tui_gateway import server
from tui_gateway.rpc.method import METHODS
from tui_gateway.wire import frames
from tui_gateway.wire.transports import Audience

NONSENSE: tuple[Any, ...] = (
    None, "", " ", "x", "/", "\ud800", "\x00\x1b[2J", "x" * 70_000, "../../etc", 0, -1, 2.5, 1e308, float("inf"),
    float("nan"), 10**30, True, False, [], [[]], {}, {"a": []}, ["x", None],
)  # fmt: skip


@pytest.fixture
def sid(demo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    db = SessionDB(demo_home / "state.db")
    monkeypatch.setattr(server, "_db", db)
    monkeypatch.setattr(server, "_stdio_transport", Audience())
    made = server.handle_request({"id": 1, "method": "session.create"})["result"]
    yield made["session_id"]
    server._close_all("tui_shutdown")
    db.close()


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"session.close"}))
def test_nonsense_is_answered(name: str, sid: str, demo_home: Path) -> None:
    method = METHODS[name]
    live = any(param.name == "session_id" for param in method.params)
    for param in method.params:
        for value in NONSENSE:
            params = {**({"session_id": sid} if live else {}), param.name: value}
            answer = server.handle_request({"id": 7, "method": name, "params": params})
            assert answer["id"] == 7
            json.loads(frames.encode(answer).encode())
            if "error" in answer:
                code = answer["error"]["code"]
                assert code in ERRORS and code != frames.CRASH, (param.name, repr(value)[:60], answer)
                assert "\n" not in answer["error"]["message"]
    config.load(demo_home)  # nothing of it has broken the configuration
