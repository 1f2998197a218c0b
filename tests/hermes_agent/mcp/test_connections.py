"""Servers that end, hang, change or cannot be started: what their state says, and what a call answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.mcp.conftest import PROGRAM, McpBench

from hermes_agent.approvals import targets
from hermes_agent.execution.executor import Executor
from hermes_agent.mcp import connection, results, source
from hermes_agent.mcp.servers import configured, proposed_needs
from hermes_agent.tools import registry
from hermes_agent.tools.base import ToolResult
from hermes_agent.tools.builtin import find_tool
from hermes_cli import plugins
from hermes_config.config import of as config_of

pytestmark = pytest.mark.slow

SMALL = PROGRAM.with_name("mcp_small_server.py")
PYTHON = os.path.realpath(sys.executable)


def small(**more: Any) -> dict[str, Any]:
    return {"command": PYTHON, "args": ["-S", str(SMALL)], "needs": [f"read:{SMALL.parent}"], **more}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[McpBench]:
    made = McpBench(tmp_path / "home", {"one": small(), "two": small()})
    made.connected()
    yield made
    made.close()


def test_the_older_protocol(two: McpBench) -> None:
    assert {one.protocol for one in two.source.states().values()} == {"2025-11-25"}
    two.answer = "yes"
    assert '"sure": true' in two.call("mcp__one__ask").content
    two.answer = "perhaps"
    assert '"action": "decline"' in two.call("mcp__one__ask").content
    assert two.call("mcp__one__junk").content == "junk in start 1"
    two.call("mcp__one__list_changed")
    two.until(lambda states: two.tool("mcp__one__announced") is not None)


def test_time_in_which_the_person_thinks_does_not_count(two: McpBench) -> None:
    two.use({"one": small(timeout=1), "two": small()})
    two.connected()
    ctx = two.ctx()

    async def ask(question: str, choices: tuple[str, ...]) -> str | None:
        await asyncio.sleep(1.5)
        return "yes"

    async def go() -> ToolResult:
        return await two.acall("mcp__one__ask", replace(ctx, ask=ask), {})

    assert '"sure": true' in asyncio.run(go()).content
    assert ctx.person_wait.seconds > 1, "nor towards the bound of all tools"


def test_a_server_that_ends_is_started_again_and_the_other_does_not_notice(two: McpBench) -> None:
    ended = two.call("mcp__one__exit")
    assert ended.is_error
    assert "ended during the call" in ended.content
    assert "look before you repeat it" in ended.content
    assert "mcp__one__exit" in two.names(), "its tools stay known"
    assert two.call("mcp__two__junk").content == "junk in start 1"
    assert two.call("mcp__one__junk").content == "junk in start 2", "the next call waits for it"
    two.until(lambda states: two.tool("mcp__one__only_in_2") is not None)
    assert two.tool("mcp__one__only_in_1") is None


def test_a_hung_server_holds_nobody_and_is_started_again(two: McpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.5)
    two.use({"one": small(timeout=1), "two": small()})
    two.connected()
    hung = two.call("mcp__one__hang")
    assert hung.is_error
    assert "did not answer in time" in hung.content
    assert two.call("mcp__two__junk").content.startswith("junk")
    two.until(lambda states: two.call("mcp__one__junk").content == "junk in start 3")


def test_a_call_of_a_server_that_is_away_says_so_in_one_line(two: McpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_AWAY_SECONDS", 0.5)
    two.use({"one": {"command": "/bin/false"}, "two": small()})
    state = two.until(lambda states: states["one"].reason.startswith("its program"))["one"]
    assert (state.state, state.reason) == ("retrying", "its program ended with exit code 1")
    result = two.call("mcp__one__junk")
    assert result.is_error
    assert "the MCP server one is away (retrying: its program ended with exit code 1)." in result.content
    assert result.content.count("\n") == 0


def test_the_next_process_knows_the_tools_and_starts_a_server_only_when_it_is_called(two: McpBench) -> None:
    two.source.close()
    later = source.McpTools()
    try:
        later.use(two.config)
        assert {one.reason for one in later.states().values()} == {connection.LAZY}
        assert "mcp__one__only_in_1" in [tool.name for tool in later.tools()]
        two.source = later
        assert two.call("mcp__one__junk").content == "junk in start 2"
        assert later.states()["two"].reason == connection.LAZY
    finally:
        later.close()


def test_other_processes_see_the_states(two: McpBench) -> None:
    two.until(lambda _: source.described(two.config)[0][1] == "connected")  # it is written just after
    (name, _, words), _ = source.described(two.config)
    assert name == "one" and ", 6 tools" in words
    changed = config_of(two.home, {"mcp_servers": {"one": small(timeout=7)}})  # of other settings it is no news
    assert source.described(changed)[0][1] == "off"
    two.source.close()
    assert {state for _, state, _ in source.described(two.config)} == {"off"}
    off = config_of(two.home, {"mcp_servers": {"one": small(enabled=False)}})
    assert source.described(off) == [("one", "off", "off: `enabled` is false")]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "either a command or a url"),
        ({"command": "no-such-program"}, "there is no program no-such-program"),
        ({"command": "true", "needs": ["nework"]}, "the need 'nework' is not known"),
        ({"command": "true", "env": {"KEY": "${NOT_SET_ANYWHERE}"}}, "the variable NOT_SET_ANYWHERE is not set"),
        ({"url": "file:///etc/passwd"}, "must begin with https:// or http://"),
    ],
)
def test_settings_that_cannot_be_used_are_told(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    bench = McpBench(tmp_path / "home", {"odd": settings})
    try:
        state = bench.until(lambda states: states["odd"].state == "off" and states["odd"].reason != connection.LAZY)
        assert why in state["odd"].reason
    finally:
        bench.close()


def test_filters(tmp_path: Path) -> None:
    bench = McpBench(tmp_path / "home", {"one": small(tools={"include": ["e*", "junk"], "exclude": ["ex*"]})})
    try:
        bench.connected()
        assert bench.names() == ["mcp__one__junk"]
    finally:
        bench.close()


def test_servers_end_with_their_process_also_after_kill_9(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from hermes_agent.mcp import source
from hermes_config.config import of
config = of(Path({str(tmp_path / "home")!r}), {{"mcp_servers": {{"one": {small()!r}}}}})
source.use(config, connect=True)
while source.states(config)["one"].state != "connected":
    time.sleep(0.05)
print("connected", flush=True)
time.sleep(600)
"""
    (tmp_path / "home").mkdir()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        assert running(tmp_path)
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while running(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(home: Path) -> list[str]:
    """The processes of small servers whose folder is in this home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if SMALL.name in (process / "cmdline").read_text() and str(home) in str((process / "cwd").readlink()):
                found.append(process.name)
        except OSError:
            continue
    return found


def test_what_a_program_will_need_is_proposed(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.touch()
    assert proposed_needs("npx", ["-y", "some-server", str(tmp_path)], {}) == {
        "network": "npx fetches the server's program",
        str(tmp_path): "an argument names this folder",
    }
    assert proposed_needs("python", [str(file), "--api=https://api.example"], {}) == {
        f"read:{tmp_path}": "an argument names server.py in it",
        "network": "an argument is an address",
    }
    assert proposed_needs("mcp-server-time", [], {}) == {}


def test_calls_of_many_turns_share_one_connection(two: McpBench) -> None:
    async def many() -> list[str]:
        calls = (two.acall("mcp__one__junk", two.ctx(), {}) for _ in range(20))
        return [one.content for one in await asyncio.gather(*calls)]

    assert set(asyncio.run(many())) == {"junk in start 1"}


def test_what_a_server_says_when_it_ends_is_its_own_word(two: McpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_AWAY_SECONDS", 0.3)
    name = next(one for one in two.names() if one.endswith("__exit"))
    assert guarded(two, name).source.startswith("MCP server ")


def guarded(bench: McpBench, name: str, **args: Any) -> ToolResult:
    """The result of a call as the registry makes it, with its gate."""
    row = plugins.PluginToolSource(plugin="mcp", name="mcp", source=bench.source)
    tool = bench.tool(name)
    assert tool is not None
    return asyncio.run(registry.run_call(registry._guarded(row.plugin, tool), json.dumps(args), bench.ctx()))


def test_every_argument_that_may_be_a_target_is_one(two: McpBench) -> None:
    properties = {name: {"type": "string"} for name in ("path", "webhook", "payee", "body", "recipientEmail")}
    (_, tool) = two.source._tool(
        next(iter(two.source._connections.values())).server, "send", "Send.", {"properties": properties}, _nothing
    )
    given = {"path": "a", "webhook": "hooks.evil.example/x", "payee": "Eve", "body": "https://evil.example/x"}
    given["recipientEmail"] = "eve"
    found = targets.of_call(tool.name, tool.targets, tool.parameters, given, two.config)
    assert dict(found) == given


@pytest.mark.parametrize("wrong", [[1], 5, None])
def test_a_schema_that_is_none_costs_nobody_anything(two: McpBench, wrong: Any) -> None:
    said = {"name": "odd", "description": "Odd.", "schema": {"type": "object", "properties": wrong}}
    lists = two.home / "mcp" / "lists"
    for name, tool in (("one", results.plain_record(said, two.config.limits)), ("two", said)):
        (lists / f"{name}.json").write_text(json.dumps({"tools": [tool]}))
    (lists / "three.json").write_text(json.dumps({"tools": [{"name": 3, "description": "", "schema": wrong}]}))
    later = source.McpTools()
    try:
        servers = {name: small() for name in ("one", "two", "three")}
        later.use(config_of(two.home, {"mcp_servers": servers}), look=True)
        assert [tool.name for tool in later.tools()] == ["mcp__one__odd", "mcp__two__odd"]
        assert [tool.name for tool in find_tool.rank("odd", later.tools())] == ["mcp__one__odd", "mcp__two__odd"]
    finally:
        later.close()


def test_a_variable_that_changed_in_the_env_file_makes_a_new_connection(tmp_path: Path) -> None:
    servers = {"one": small(env={"KEY": "${ROTATED_KEY}"}), "two": small()}
    tools = source.McpTools()

    def use(key: str) -> list[connection.ServerConnection]:
        tools.use(config_of(tmp_path, {"mcp_servers": servers}, {"ROTATED_KEY": key}), look=True)
        return [tools._connections[name] for name in ("one", "two")]

    try:
        before, same, after = use("a"), use("a"), use("b")
        assert before == same
        assert after[0] is not before[0] and after[1] is before[1]
    finally:
        tools.close()


async def _nothing(*_: Any) -> ToolResult:
    return ToolResult()


@pytest.mark.parametrize("place", ["bin", "mcp", "mcp/bin", "mcp/tokens"])
def test_a_program_in_the_home_sees_no_logins_of_others(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    other = home / "mcp" / "tokens" / "other.json"
    for folder in (other.parent, home / place):
        folder.mkdir(parents=True, exist_ok=True)
    other.write_text("a token")
    program = home / place / "program"
    program.write_text(f"#!/bin/sh\necho started; cat {other}\n")
    program.chmod(0o755)
    server = configured(config_of(home, {"mcp_servers": {"here": {"command": str(program)}}}))["here"]
    command, permit, reads = server.command()
    said = bytearray()

    async def go() -> None:
        run = Executor(home, server.config, server.config.limits)
        async with run.run(
            command, workspace=server.folder, on_output=said.extend, permit=permit, reads=reads
        ) as child:  # fmt: skip
            await child.ended(30)
            await child.drained(1)

    asyncio.run(go())
    assert b"started" in said and b"a token" not in said, said


def test_a_server_with_a_permit_starts_in_a_home_that_is_a_link(tmp_path: Path) -> None:
    for name in ("elsewhere", "notes"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "home").symlink_to(tmp_path / "elsewhere")
    made = McpBench(tmp_path / "home", {"one": small(needs=[*small()["needs"], str(tmp_path / "notes")])})
    try:
        assert made.connected()["one"].tools
    finally:
        made.close()
