"""`hermes config` and secrets: what is shown covers them, and what is set goes where they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_config import config
from tui_gateway import server

from .conftest import Run

PLANTED = {
    "GITHUB_PAT": "ghp_canary0123456789abcdefghij",
    "model": {
        "default": "demo",
        "base_url": "http://bob:canary1x@127.0.0.1:9/v1",
        "headers": {"Authorization": "Bearer sk-ant-api03-canary0123456789", "X-Team": "blue"},
    },
    "mcp_servers": {"hub": {"args": ["--as", "sk-proj-canary0123456789abcd"], "env": {"dbpassword": "canary pass"}}},
    "secrets": {"alice": "canary of alice"},
    "door": {"password": 83719201, "key": "canary-key-7"},
    "shop": {"token_rates": 1000, "tokens": "many"},
}


@pytest.fixture
def planted(home: Path) -> None:
    for key, value in PLANTED.items():
        config.set_value(key, value)


def _over_rpc() -> Any:
    answer = server.handle_request({"jsonrpc": "2.0", "id": 1, "method": "config.get", "params": {"key": "full"}})
    assert answer is not None
    return answer["result"]["value"]


@pytest.mark.usefixtures("planted")
def test_the_command_and_the_protocol_show_the_same_and_no_secret(run: Run) -> None:
    shown = run("config", "show", "--json").data
    assert shown == _over_rpc()
    assert shown["model"]["base_url"] == "http://bob:[secret]@127.0.0.1:9/v1"
    assert shown["model"]["headers"] == {"Authorization": "[secret]", "X-Team": "blue"}
    assert shown["mcp_servers"]["hub"]["args"] == ["--as", "[secret]"]
    assert shown["shop"] == PLANTED["shop"], "a number of tokens is none"
    said = run("config", "show").out + str(shown)
    assert "canary" not in said and "83719201" not in said


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "key", ["GITHUB_PAT", "model.headers.Authorization", "secrets.alice", "door.password", "door.key"]
)
def test_one_key_of_it_is_covered_as_well(run: Run, key: str) -> None:
    assert run("config", "get", key).out == "[secret]\n"


@pytest.mark.parametrize("key", ["budget.day.usd", "session_reset.mode", "agent.reasoning_effort"])
def test_a_key_that_was_put_into_the_wrong_place_is_not_quoted(run: Run, home: Path, key: str) -> None:
    said = run("config", "set", key, "sk-proj-canary0123456789abcd")
    assert "canary" not in said.out + said.err
    for verb in ("check", "show"):
        said = run("config", verb)
        assert "canary" not in said.out + said.err


@pytest.mark.usefixtures("planted")
def test_a_stored_direction_mark_does_not_reach_the_terminal(run: Run) -> None:
    config.set_value("note", {"text": "abc\u202edef"})
    assert "\u202e" not in run("config", "show").out
