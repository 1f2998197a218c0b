"""`ask` at a real gateway process: permission is given on the phone, and kill -9 loses neither question nor answer."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.mcp_agent import McpAgent

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

OWNER_KEY = "hk-owner-0123456789abcdef0123456789"
WIPE = say(calls=[call("terminal", {"command": "rm -rf old"})])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_killed_while_it_answers_and_while_it_waits_for_the_phone() -> None:
    hold, port = Hold(), _free_port()
    steps = say("Half of ", "it", hold=hold), say("Whole."), WIPE, say("It is gone.")
    config = {"auto_title": False, "api_server": {"enabled": True, "port": port, "mcp": True}}
    with Scenario(
        FakeTelegram(flood=OFF), ScriptedModel(*steps), config=config,
        environment={"API_SERVER_OWNER_KEY": OWNER_KEY},
    ) as scene:  # fmt: skip
        ada = scene.owner("ada")
        scene.start()
        ada.say("/whoami")
        ada.expect("owner")

        def agent() -> McpAgent:
            return McpAgent(f"http://127.0.0.1:{port}/mcp", key=OWNER_KEY, answer="once")

        async def begun(message: str) -> str:
            async with agent() as caller:
                return await caller.ask(message, key=message.replace(" ", "-"))

        async def ended(task: str) -> str:
            async with agent() as caller:
                return await caller.answer(task)

        first = asyncio.run(begun("a long question"))
        scene.wait(lambda: hold.is_reached, "the model is in the middle of its answer")
        scene.kill()
        hold.release()
        scene.start()
        assert asyncio.run(begun("a long question")) == first, "the same key finds the same task"
        assert asyncio.run(ended(first)) == "Whole."

        task = asyncio.run(begun("tidy up"))
        asked = ada.expect("rm -rf old")

        async def waits() -> None:
            async with agent() as caller:
                found = await caller.until(task, "input_required")
                assert "rm -rf old" in found["statusMessage"]
                assert found["inputRequests"] == {}, "a key cannot approve: a person does, on the phone"
                number = found["statusMessage"].split(": ")[1]
                said = {"action": "accept", "content": {"answer": "once"}}
                with pytest.raises(MCPError, match="a program cannot approve"):
                    await caller.rpc("tasks/update", taskId=task, inputResponses={number: said})

        asyncio.run(waits())
        scene.wait(lambda: "sent" in scene.hermes("outbox", "list", "--state", "sent", "--json"), "the card was sent")
        scene.kill()
        scene.start()
        ada.press("This command once", message=asked.id)
        assert asyncio.run(ended(task)) == "It is gone."
        scene.stop()
        db = SessionDB(scene.home / "state.db")
        rows = [row for row in db.inbox.list() if row.platform == "api_server"]
        assert [row.state for row in rows] == ["answered", "answered"], json.dumps([row.reason for row in rows])
        db.close()
