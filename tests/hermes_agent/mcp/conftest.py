"""A source of MCP tools with a real server in a child process, and a person to ask."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.tools.conftest import Gatekeeper

from hermes_agent.mcp.connection import ServerState
from hermes_agent.mcp.source import McpTools
from hermes_agent.tools import registry
from hermes_agent.tools.base import Tool, ToolContext, ToolResult
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of
from hermes_config.limits import Limits
from hermes_state.ids import LOCAL_OWNER, ConversationId, SessionId, TurnId
from hermes_state.session_db import SessionDB

PROGRAM = Path(__file__).parents[2] / "support" / "mcp_server.py"
TESTER: dict[str, Any] = {"command": sys.executable, "args": [str(PROGRAM)], "needs": [f"read:{PROGRAM.parent}"]}


class McpBench:
    """The tools of some servers, called the way a turn calls them."""

    def __init__(self, home: Path, servers: dict[str, Any], **limits: int) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home = home
        self.db = SessionDB(home / "state.db", limits=Limits())
        self.source = McpTools()
        self.live: list[str] = []
        self.asked: list[str] = []
        self.answer: str | None = "Ada"
        self.use(servers, **limits)

    def use(self, servers: dict[str, Any], **limits: int) -> None:
        self.config = config_of(self.home, {"mcp_servers": servers, "limits": limits})
        assert not self.config.problems
        self.source.use(self.config, connect=True)

    def until(self, done: Callable[[dict[str, ServerState]], bool]) -> dict[str, ServerState]:
        """The states, once they are as the test wants them."""
        deadline = time.monotonic() + 60
        while not done(states := self.source.states()):
            assert time.monotonic() < deadline, states
            time.sleep(0.02)
        return states

    def connected(self) -> dict[str, ServerState]:
        return self.until(lambda states: all(one.state == "connected" for one in states.values()))

    def names(self) -> list[str]:
        return [tool.name for tool in self.source.tools()]

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.source.tools() if tool.name == name), None)

    async def acall(self, name: str, ctx: ToolContext, args: dict[str, Any]) -> ToolResult:
        tool = self.tool(name)
        assert tool is not None, self.names()
        return await registry.run_call(tool, json.dumps(args), ctx)

    def call(self, name: str, /, stop: Stop | None = None, **args: Any) -> ToolResult:
        async def go() -> ToolResult:
            return await self.acall(name, replace(self.ctx(), stop=stop or Stop()), args)

        return asyncio.run(go())

    def ctx(self) -> ToolContext:
        async def ask(question: str, choices: tuple[str, ...]) -> str | None:
            self.asked.append(question)
            return self.answer

        handle = self.db.ledger.open(route=None, source="cli", owner=LOCAL_OWNER)
        return ToolContext(
            db=self.db, home=self.home, workdir=self.home, conversation_id=ConversationId(handle.conversation_id),
            session_id=lambda: SessionId(handle.session_id), turn_id=TurnId("turn_1"), call_id="call_1",
            person_id=LOCAL_OWNER, platform="cli", gate=Gatekeeper(), ask=ask, emit=self.live.append, environ={},
            stop=Stop(), config=self.config,
        )  # fmt: skip

    def close(self) -> None:
        self.source.close()
        self.db.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpBench]:
    """One server for the tests of a file; each of them leaves it as it was, or restarted."""
    made = McpBench(tmp_path_factory.mktemp("mcp") / "home", {"tester": TESTER})
    made.connected()
    yield made
    made.close()
