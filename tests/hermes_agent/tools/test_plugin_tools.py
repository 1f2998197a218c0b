"""Tools that plug-ins bring: offered, gated and bounded like ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.tools import builtin, registry
from hermes_agent.tools.base import ToolResult
from hermes_agent.turn.control import Stop
from hermes_cli import plugins
from hermes_config.config import Config, load_or_last_good
from hermes_config.config import of as config_of

from .conftest import Bench

CODE = """
import asyncio, os

SCHEMA = {"name": "greet", "description": "Greet somebody", "parameters": {
    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}

def greet(args, **facts):
    return {"said": "hello " + args["name"], "call": facts["tool_call_id"]}

async def slow(args, **facts):
    await asyncio.sleep(0.01)
    return "slowly"

def broken(args, **facts):
    raise ValueError("no")

def register(ctx):
    ctx.register_tool("greet", "greeting", SCHEMA, greet)
    ctx.register_tool("slow", "greeting", {"type": "function", "function": SCHEMA}, slow, is_async=True)
    ctx.register_tool("broken", "greeting", {"parameters": {"type": "object", "properties": {}}}, broken)
    ctx.register_tool("hidden", "greeting", SCHEMA, greet, check_fn=lambda: False)
    ctx.register_tool("needy", "greeting", SCHEMA, greet, requires_env=["GREETING_SERVICE"])
    ctx.register_tool("terminal", "greeting", SCHEMA, greet)
    ctx.register_hook("transform_terminal_output", lambda **facts: facts["output"].replace("hello", "HELLO"))
"""


@pytest.fixture
def loaded(bench: Bench) -> Iterator[Bench]:
    folder = bench.ctx.home / "plugins/greeter"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: greeter\nversion: 1.0.0\n")
    (folder / "__init__.py").write_text(CODE)
    (bench.ctx.home / "config.yaml").write_text("plugins:\n  enabled: [greeter]\n")
    plugins.discover_plugins(force=True)
    yield bench
    (bench.ctx.home / "config.yaml").write_text("")
    plugins.discover_plugins(force=True)


def _call(bench: Bench, name: str, args: dict[str, Any]) -> ToolResult:
    tool = registry.shared().get(name)
    assert tool is not None

    async def run() -> ToolResult:
        return await registry.run_call(tool, json.dumps(args), replace(bench.ctx, stop=Stop()))

    return asyncio.run(run())


def _offered(config: Config | None = None, **more: Any) -> set[str]:
    config = config or config_of(Path(), {})
    offered = registry.shared().offered(config, **{"role": "owner", **more})
    return {tool.name for tool in offered}.difference(builtin.BUILT_INS)


def test_a_plug_ins_tools_join_ours_and_leave_with_it(loaded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _offered() == {"greet", "slow", "broken"}
    monkeypatch.setenv("GREETING_SERVICE", "on")
    assert "needy" in _offered()
    assert _offered(role="member") == set(), "who else may use them is not for a plug-in to say"
    assert _offered(disabled=["greeting"]) == set()
    terminal = registry.shared().get("terminal")
    assert terminal is not None and terminal.toolset == "terminal", "ours is not replaced by the way"
    before = registry.shared().generation
    (loaded.ctx.home / "config.yaml").write_text("")
    plugins.discover_plugins(force=True)
    assert _offered() == set() and registry.shared().generation > before


def test_what_a_tool_needs_is_looked_up_in_the_last_good_configuration(loaded: Bench) -> None:
    (loaded.ctx.home / ".env").write_text("GREETING_SERVICE=on\n")
    assert "needy" in _offered(load_or_last_good(loaded.ctx.home)[0])
    (loaded.ctx.home / "config.yaml").write_text("plugins: [\n")
    assert "needy" in _offered(load_or_last_good(loaded.ctx.home)[0])


def test_they_are_called_with_facts_and_pass_the_gate(loaded: Bench) -> None:
    result = _call(loaded, "greet", {"name": "Ada"})
    assert json.loads(result.content) == {"said": "hello Ada", "call": "call_1"}
    assert _call(loaded, "slow", {"name": "Ada"}).content == "slowly"
    first = loaded.gate.asked[0]
    assert (first.kind, first.text) == ("plugin", 'greet {"name": "Ada"}')
    loaded.gate.refuses = ("plugin",)
    refused = _call(loaded, "greet", {"name": "Ada"})
    assert refused.is_error and "hello" not in refused.content


def test_their_failures_cost_one_call(loaded: Bench) -> None:
    assert _call(loaded, "broken", {}).content == "broken failed: ValueError: no"
    assert "missing: name" in _call(loaded, "greet", {}).content


def test_a_plug_in_may_rewrite_what_a_command_printed(loaded: Bench) -> None:
    assert loaded.call("terminal", command="echo hello").content == "HELLO\n[exit code 0]"
