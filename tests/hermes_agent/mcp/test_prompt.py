"""An agent beside MCP servers: the prompt stays as it is, and without a server nothing is imported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hermes_agent.mcp.test_connections import small

from hermes_agent import AIAgent
from hermes_agent.mcp import source
from hermes_config import config
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow


@pytest.fixture
def servers(home: Path) -> Iterator[config.Config]:
    config.set_value("auto_title", False)
    for name in ("a", "b"):
        config.set_value(("mcp_servers", name), small())
    loaded = config.load()
    source.use(loaded, connect=True)
    until_there("mcp__a__only_in_1")
    until_there("mcp__b__only_in_1")
    yield loaded
    assert source._shared is not None
    source._shared.use(config.of(home, {}))


def until_there(name: str) -> None:
    """Wait until a server has told that it has this tool."""
    deadline = time.monotonic() + 60
    while source._shared is None or name not in [one.name for one in source._shared.tools()]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_restart_of_a_server_moves_the_prompt(
    servers: config.Config, db: SessionDB, request: pytest.FixtureRequest
) -> None:
    """Each turn finds a tool of the newest start, calls it, and ends the server, which comes back with other tools."""
    restarts = 50 if request.config.getoption("--long") else 4
    prompts = set()
    agent = None
    for number in range(1, restarts + 1):
        steps = [
            call("find_tool", {"query": f"only in {number}"}),
            call("use_tool", {"name": f"mcp__a__only_in_{number}", "arguments": {}}),
            call("use_tool", {"name": "mcp__a__exit", "arguments": {}}),
        ]
        with ScriptedModel(*(say(calls=[one]) for one in steps), say("Done.")) as model:
            session = None if agent is None else agent.session_id
            agent = AIAgent(
                session_db=db, config=servers, endpoint=model.endpoint(), session_id=session, yolo=True
            )  # fmt: skip
            assert asyncio.run(agent.arun_conversation("Do it."))["final_response"] == "Done."
            sent = [json.loads(one.body) for one in model.requests]
        prompts |= {json.dumps([one["messages"][0], one["tools"]]) for one in sent}
        results = [str(one["content"]) for one in sent[-1]["messages"] if one["role"] == "tool"][-3:]
        assert f"mcp__a__only_in_{number}" in results[0]
        assert f"only_in_{number} in start {number}" in results[1]
        assert "ended during the call" in results[2]
        until_there(f"mcp__a__only_in_{number + 1}")
    assert len(prompts) == 1
    assert "mcp__" not in next(iter(prompts))
    assert db.prefixes.break_count() == 0


def test_the_first_search_waits_for_a_server_that_was_never_connected(home: Path, db: SessionDB) -> None:
    """As in a home that was just imported, in the first turn of a terminal; `b` cannot be started."""
    config.set_value("auto_title", False)
    config.set_value(("mcp_servers", "a"), small())
    config.set_value(("mcp_servers", "b"), {"command": "no-such-program"})
    steps = [
        call("find_tool", {"query": "only in 1"}),
        call("use_tool", {"name": "mcp__a__only_in_1", "arguments": {}}),
        call("find_tool", {"query": "zebra"}),
    ]
    loaded = config.load()
    with ScriptedModel(*(say(calls=[one]) for one in steps), say("Done.")) as model:
        agent = AIAgent(session_db=db, config=loaded, endpoint=model.endpoint(), yolo=True)
        assert asyncio.run(agent.arun_conversation("Do it."))["final_response"] == "Done."
        found, used, none = [str(one["content"]) for one in model.requests[-1].messages if one["role"] == "tool"]
    assert found.splitlines()[2].startswith("mcp__a__only_in_1: ")
    assert used == "only_in_1 in start 1"
    assert none.endswith("MCP servers whose tools are not known: b (off).")
    source.use(config.of(home, {}))


def test_without_a_server_nothing_of_it_is_loaded(home: Path) -> None:
    program = """
import sys, threading
from hermes_agent import AIAgent
from hermes_config import config
AIAgent(model="demo", config=config.load())
loaded = [name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types", "pydantic") or ".mcp" in name]
print(loaded, [one.name for one in threading.enumerate() if "mcp" in one.name])
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout == "[] []\n"
