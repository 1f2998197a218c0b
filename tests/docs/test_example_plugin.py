"""The example in the documentation does what it says, installed the way the page says; the page lists every hook."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent import AIAgent
from hermes_agent.tools import registry
from hermes_cli import plugins
from hermes_cli.main import main
from hermes_config import config
from hermes_state.session_db import SessionDB
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, call, say

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def tally(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as plugged:
        plugged.copy(DOCS / "examples" / "plugin" / "tally")
        yield plugged


def test_installed_as_the_page_says(tally: PluginHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "enable", "tally"]) == 0
    assert main(["plugins", "list"]) == 0
    shown = capsys.readouterr().out
    assert "tally  loaded  1.0" in shown and "failed" not in shown
    assert "tally adds hermes tally, /tally\n" in shown


def test_its_hooks_and_its_command(tally: PluginHome) -> None:
    config.set_value("plugins.entries.tally.keep_out", "/srv/photos")
    tally.load("tally")
    decide = plugins.resolve_pre_tool_block
    veto = decide(plugins.invoke_hook("pre_tool_call", tool_name="terminal", args={"command": "rm -r /srv/photos"}))
    assert veto is not None and veto.action == "block" and "/srv/photos is off limits" in veto.message
    assert decide(plugins.invoke_hook("pre_tool_call", tool_name="terminal", args={"command": "ls"})) is None
    plugins.invoke_hook("post_tool_call", tool_name="terminal", status="ok", duration_ms=3)
    plugins.invoke_hook("on_session_end", session_id="s", completed=True)
    assert plugins.invoke_hook("pre_llm_call", user_message="A SHORT answer") == ["The person has asked for brevity."]
    command = plugins.get_plugin_commands()["tally"].handler
    assert command("") == "tool terminal ok: 1\nturns: 1" and command("reset") == "Nothing was counted yet."


def test_its_tool_is_offered_to_the_model(tally: PluginHome) -> None:
    tally.load("tally")
    specs = {tool.name: tool.spec for tool in registry.shared().offered(config.load(), role="owner")}
    assert specs["count_words"]["description"] == "Count the words of a text."
    assert plugins.get_plugin_tools()[0].handler({"text": "three little words"}) == {"words": 3}


def test_its_command_line(tally: PluginHome, capsys: pytest.CaptureFixture[str]) -> None:
    config.set_value("plugins.enabled", ["tally"])
    plugins.discover_plugins(force=True)
    assert main(["tally", "two", "words"]) == 0 and capsys.readouterr().out == "2\n"
    assert main(["tally"]) == 2 and "hermes tally --help" in capsys.readouterr().err
    shutil.rmtree(tally.home / "plugins")
    plugins.discover_plugins(force=True)
    assert main(["tally", "two"]) == 2 and "there is no command" in capsys.readouterr().err


def test_the_page_lists_every_hook_and_every_call() -> None:
    page = (DOCS / "contributors" / "plugins.md").read_text(encoding="utf-8")
    for hook, when in plugins.HOOKS.items():
        assert f"| `{hook}` | {when.replace('|', chr(92) + '|')} |" in page
    calls = [name for name in dir(plugins.PluginContext) if name.startswith("register_")]
    assert calls and all(f"`ctx.{name}(" in page for name in calls)


def test_in_a_real_turn(tally: PluginHome, db: SessionDB, tmp_path: Path) -> None:
    """The model uses its tool, is kept out of the folder, hears what it adds; /tally has counted all of it."""
    config.set_value("plugins.entries.tally.keep_out", "/srv/photos")
    config.set_value("auto_title", False)
    tally.load("tally")
    plugins.get_plugin_commands()["tally"].handler("reset")
    steps = (
        say(calls=[call("count_words", {"text": "three little words"}), call("read_file", {"path": "/srv/photos/a"})]),
        say("Three words."),
    )
    with ScriptedModel(*steps) as model:
        agent = AIAgent(
            session_db=db, config=config.load(), endpoint=model.endpoint(), workdir=tmp_path, yolo=True
        )  # fmt: skip
        result = asyncio.run(agent.arun_conversation("A short count, please."))
        asked, told = (json.loads(request.body)["messages"] for request in model.requests)
    assert result["final_response"] == "Three words."
    assert "The person has asked for brevity." in asked[-1]["content"]
    assert told[-2]["content"] == '{"words": 3}' and "/srv/photos is off limits" in told[-1]["content"]
    stored = [row["content"] for row in db.get_messages(agent.session_id) if row["role"] == "user"]
    assert stored == ["A short count, please."], "what was added for the model is not what the person said"
    counted = plugins.get_plugin_commands()["tally"].handler("")
    assert counted == "tool count_words ok: 1\ntool read_file blocked: 1\nturns: 1"
