"""`hermes mcp serve` as a child of the official client: without a gateway, killed in the middle, asking permission."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import StdioServerParameters
from mcp.shared.exceptions import MCPError
from tests.support.mcp_agent import McpAgent

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

WIPE = say(calls=[call("terminal", {"command": "rm -rf old"})])


class Home:
    """A home for servers that are started one after the other."""

    def __init__(self, folder: Path, model: ScriptedModel | None = None, origin: str = "") -> None:
        self.folder = folder
        if model is None:
            return
        folder.mkdir(mode=0o700)
        written = {"model": model.settings(origin), "auto_title": False, "approvals": {"timeout": 60}}
        (folder / "config.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")

    def agent(self, **more: Any) -> McpAgent:
        code = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); from hermes_cli.main import main; "
        code += "sys.exit(main(['mcp', 'serve']))"
        return McpAgent(
            StdioServerParameters(
                command=sys.executable, args=["-c", code, str(self.folder / "server.pid")],
                env={**os.environ, "HERMES_HOME": str(self.folder)}, cwd=self.folder,
            ),
            **more,
        )  # fmt: skip

    def kill(self) -> None:
        os.kill(int((self.folder / "server.pid").read_text()), signal.SIGKILL)


def test_without_a_gateway_both_eras(tmp_path: Path) -> None:
    async def go(home: Home) -> None:
        async with home.agent() as modern:
            assert modern.client.protocol_version == "2026-07-28"
            task = await modern.ask("write to a@b.example", key="k")
            assert await modern.answer(task) == "One."
            assert await modern.ask("write to a@b.example", key="k") == task
            listed = (await modern.tool("conversations_list"))["conversations"]
            assert [(one["source"], one["preview"]) for one in listed] == [("mcp", "write to a@b.example")]
            answer = await modern.answer(await modern.ask("go on", conversation=listed[0]["id"]))
            assert answer == "Two."
        async with home.agent(mode="legacy") as older:
            assert older.client.protocol_version == "2025-11-25"
            assert await older.answer(task) == "One.", "another process, and the task is still there"
            assert await older.answer(await older.ask("write to a@b.example", key="k")) == "One."
            assert await older.answer(await older.ask("and now?")) == "Three."

    with ScriptedModel(say("One."), say("Two."), say("Three.")) as model, model.served() as served:
        asyncio.run(go(Home(tmp_path / "home", model, served.origin)))
        assert model.calls == 3


def test_calls_with_one_key_at_the_same_time_are_one_task(tmp_path: Path) -> None:
    async def go(home: Home) -> None:
        async with home.agent() as agent:
            tasks = await asyncio.gather(*(agent.ask("only once", key="k") for _ in range(8)))
            assert len(set(tasks)) == 1
            assert await agent.answer(tasks[0]) == "Once."

    with ScriptedModel(say("Once.")) as model, model.served() as served:
        asyncio.run(go(Home(tmp_path / "home", model, served.origin)))
        assert model.calls == 1


def test_killed_in_the_middle_the_next_server_finishes_the_task(tmp_path: Path) -> None:
    hold = Hold()

    async def go(home: Home) -> None:
        async with home.agent() as first:
            task = await first.ask("a long question", key="k")
            async with asyncio.timeout(30):
                while not hold.is_reached:  # noqa: ASYNC110 - the model lives in a thread
                    await asyncio.sleep(0.02)
            home.kill()
            with pytest.raises(MCPError, match="closed"):
                await first.task(task)
        hold.release()
        async with home.agent() as second:
            assert await second.answer(task) == "At last."
            assert await second.ask("a long question", key="k") == task

    steps = say("Half of ", "it", hold=hold), say("At last.")
    with ScriptedModel(*steps) as model, model.served() as served:
        home = Home(tmp_path / "home", model, served.origin)
        asyncio.run(go(home))
        db = SessionDB(home.folder / "state.db")
        assert [row.state for row in db.inbox.list()] == ["answered"]
        db.close()


@pytest.mark.parametrize(("mode", "answer"), [("auto", "once"), ("auto", "deny"), ("legacy", "once")])
def test_the_caller_of_the_owner_answers_an_approval(tmp_path: Path, mode: str, answer: str) -> None:
    async def go(home: Home) -> None:
        async with home.agent(mode=mode, answer=answer) as agent:
            task = await agent.ask("tidy up")
            waiting = await agent.until(task, "input_required")
            assert "rm -rf old" in waiting["statusMessage"]
            if mode == "legacy":
                result = await agent.rpc("tasks/result", taskId=task)
                assert result["content"][0]["text"] == "Done." and "rm -rf old" in agent.asked[0]
                assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task}
                return
            (number, request), *_ = waiting["inputRequests"].items()
            async with home.agent() as blind:
                assert (await blind.task(task))["inputRequests"] == {}, "its client can ask nobody"
                with pytest.raises(MCPError, match="may not decide"):
                    given = {"action": "accept", "content": {"answer": "once"}}
                    await blind.rpc("tasks/update", taskId=task, inputResponses={number: given})
            assert request["method"] == "elicitation/create" and "rm -rf old" in request["params"]["message"]
            offered = [one["const"] for one in request["params"]["requestedSchema"]["properties"]["answer"]["oneOf"]]
            assert set(offered) <= {"once", "task", "deny"}, "no lasting permission from a program's side"
            for wrong in ({"action": "accept", "content": {"answer": "always"}}, {"action": "accept"}, "yes"):
                with pytest.raises(MCPError, match="answer must be one of"):
                    await agent.rpc("tasks/update", taskId=task, inputResponses={number: wrong})
            said = {"action": "accept", "content": {"answer": answer}}
            await agent.rpc("tasks/update", taskId=task, inputResponses={number: said, "ask_unknown": said})
            assert await agent.answer(task) == "Done."
        async with home.agent(tasks=False) as plain:
            assert (await plain.tool("conversations_list"))["conversations"]

    with ScriptedModel(WIPE, say("Done.")) as model, model.served() as served:
        home = Home(tmp_path / "home", model, served.origin)
        asyncio.run(go(home))
        told = next(one["content"] for one in model.requests[1].json["messages"] if one["role"] == "tool")
        assert ("was not approved" in told) == (answer == "deny")


def test_the_caller_sees_what_would_be_written(tmp_path: Path) -> None:
    async def go(home: Home) -> None:
        async with home.agent(answer="once") as agent:
            task = await agent.ask("set it up")
            waiting = await agent.until(task, "input_required")
            ((number, request),) = waiting["inputRequests"].items()
            assert "+touch found\n" in request["params"]["message"] and "\x1b" not in request["params"]["message"]
            said = {"action": "accept", "content": {"answer": "deny"}}
            await agent.rpc("tasks/update", taskId=task, inputResponses={number: said})
            assert await agent.answer(task) == "Done."

    write = call("write_file", {"path": ".envrc", "content": "touch found\n\x1b[2J\n"})
    with ScriptedModel(say(calls=[write]), say("Done.")) as model, model.served() as served:
        asyncio.run(go(Home(tmp_path / "home", model, served.origin)))


def test_beside_a_gateway_a_chat_is_continued_there_and_the_phone_permits() -> None:
    model = ScriptedModel(say("Hello, Ada."), WIPE, say("It is gone."))
    with Scenario(FakeTelegram(flood=OFF), model, config={"auto_title": False}) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("Hello, Ada.")

        async def go() -> None:
            async with Home(scene.home).agent() as agent:
                chat = (await agent.tool("conversations_list"))["conversations"][0]
                assert chat["source"] == "telegram"
                task = await agent.ask("tidy up", conversation=chat["id"], key="k")
                assert await agent.ask("tidy up", conversation=chat["id"], key="k") == task
                await agent.until(task, "input_required")
                asked = await asyncio.to_thread(ada.expect, "rm -rf old")
                await asyncio.to_thread(ada.press, "This command once", message=asked.id)
                assert await agent.answer(task) == "It is gone."

        asyncio.run(go())
        ada.expect("It is gone.")
        assert "(from the terminal) tidy up" in ada.chat_text()
