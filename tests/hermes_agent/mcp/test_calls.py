"""Calls of the tools of a confined MCP server: results, bounds, questions, interruptions, names."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from dataclasses import replace

import pytest
from tests.hermes_agent.mcp.conftest import McpBench

from hermes_agent.turn.control import Stop

pytestmark = pytest.mark.slow


def test_what_is_offered(bench: McpBench) -> None:
    state = bench.connected()["tester"]
    assert (state.protocol, state.tools) == ("2026-07-28", 13)
    tools = {tool.name: tool for tool in bench.source.tools()}
    assert tools["mcp__tester__add"].parameters["required"] == ["a", "b"]
    assert not any(tool.listed for tool in tools.values())
    assert tools["mcp__tester__add"].changes, "a server's readOnlyHint is not believed"
    assert {tool.source for tool in tools.values()} == {"MCP server tester"}
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)


def test_two_tools_whose_names_become_one_are_both_there(bench: McpBench) -> None:
    names = [name for name in bench.names() if name.startswith("mcp__tester__add_numbers")]
    assert len(names) == 2
    assert sorted(bench.call(name, a=5).content for name in names) == ["-5", "5"]


def test_a_hostile_description_is_left_out(bench: McpBench) -> None:
    tool = bench.tool("mcp__tester__hostile")
    assert tool is not None
    assert "left out" in tool.description
    assert "Ignore" not in tool.description
    assert len(tool.description) < 200
    assert bench.call("mcp__tester__hostile").content == "hostile"


def test_text_pictures_and_errors(bench: McpBench) -> None:
    added = bench.call("mcp__tester__add", a=2, b=3)
    assert (added.content, added.is_error, added.source) == ("5", False, "MCP server tester")
    seen = bench.call("mcp__tester__picture")
    assert seen.content == "see"
    assert seen.images[0].mime == "image/png"
    assert seen.images[0].data.startswith(b"\x89PNG")
    failed = bench.call("mcp__tester__fail")
    assert failed.is_error
    assert failed.source == "MCP server tester"
    wrong = bench.call("mcp__tester__add", a="many", b=3)
    assert wrong.is_error


def test_the_same_call_has_the_same_key(bench: McpBench) -> None:
    assert bench.call("mcp__tester__key").content == "turn_1/call_1"


def test_resources_and_prompts(bench: McpBench) -> None:
    assert "note://today: The note of today." in bench.call("mcp__tester__read_resource").content
    assert bench.call("mcp__tester__read_resource", uri="note://today").content == "milk"
    assert "greet(name)" in bench.call("mcp__tester__get_prompt").content
    assert "Say hello to Ada." in bench.call("mcp__tester__get_prompt", name="greet", arguments={"name": "Ada"}).content
    missing = bench.call("mcp__tester__read_resource", uri="note://none")
    assert missing.is_error
    assert missing.source == "MCP server tester"


def test_a_server_asks_the_person(bench: McpBench) -> None:
    assert "Ada" in bench.call("mcp__tester__who").content
    assert bench.asked[-1].startswith("The MCP server tester asks: What is your name?")
    bench.answer = None
    try:
        assert "cancel" in bench.call("mcp__tester__who").content
    finally:
        bench.answer = "Ada"


def test_others_do_not_wait_for_a_slow_call(bench: McpBench) -> None:
    async def both() -> tuple[str, str, float]:
        ctx = bench.ctx()
        slow = asyncio.ensure_future(bench.acall("mcp__tester__slow", ctx, {"seconds": 2.0}))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        quick = await bench.acall("mcp__tester__add", replace(ctx, call_id="call_2"), {"a": 1, "b": 1})
        assert not slow.done()
        return quick.content, (await slow).content, began

    quick, slow, _ = asyncio.run(both())
    assert (quick, slow) == ("2", "late")


def test_an_interrupted_call_ends_and_the_server_goes_on(bench: McpBench) -> None:
    async def go() -> str:
        stop = Stop()
        call = asyncio.ensure_future(bench.acall("mcp__tester__slow", replace(bench.ctx(), stop=stop), {"seconds": 60}))
        await asyncio.sleep(0.3)
        stop.set()
        return (await asyncio.wait_for(call, 10)).content

    assert "interrupted by the person" in asyncio.run(go())
    assert bench.call("mcp__tester__add", a=1, b=1).content == "2"


def test_a_result_of_50_mb_is_dropped_while_it_is_read(bench: McpBench) -> None:
    result = bench.call("mcp__tester__big", size=50_000_000)
    assert result.is_error
    assert "larger than 16,777,216 bytes" in result.content
    assert bench.connected()["tester"].state == "connected"
    kept = bench.call("mcp__tester__big", size=2_000_000)
    assert not kept.is_error
    assert len(kept.content) < 40_000
    assert "read_file" in kept.content


@pytest.mark.needs_bubblewrap
def test_it_is_confined(bench: McpBench) -> None:
    """It gets no variable of Hermes, does not see the home, and reaches no port of the machine."""
    database = bench.home / "state.db"
    assert database.exists()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        said = bench.call("mcp__tester__environment", path=str(database), port=port).content
    assert "HERMES" not in said
    assert "'PATH'" in said
    assert said.endswith("seen=False reached=False")


def test_a_changed_list_is_followed(bench: McpBench) -> None:
    assert bench.tool("mcp__tester__grown") is None
    before = bench.source.generation
    bench.call("mcp__tester__grow")
    bench.until(lambda states: bench.tool("mcp__tester__grown") is not None)
    assert bench.source.generation == before + 1
    assert bench.call("mcp__tester__grown").content == "grown"
