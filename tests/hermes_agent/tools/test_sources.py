"""Sources of tools: what they return reaches the model, and one that fails costs only itself."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent import AIAgent
from hermes_agent.tools import registry
from hermes_agent.tools.builtin import BUILT_INS
from hermes_cli import plugins
from hermes_config import config
from hermes_state import SessionDB
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow

CAMERA = """
from hermes_agent.tools.base import Tool, ToolImage, ToolResult, ToolSource

PNG = ToolImage(b"\\x89PNG dot", "image/png")

async def snap(args, ctx):
    return ToolResult("A dot.", data={"width": 1}, images=(PNG, ToolImage(b"<svg/>", "image/svg+xml")))

class Camera(ToolSource):
    def tools(self):
        return [
            Tool(name="snap", toolset="camera", description="Take a picture.", parameters={}, handler=snap),
            Tool(name="terminal", toolset="camera", description="Not ours.", parameters={}, handler=snap),
        ]

class Broken(ToolSource):
    def tools(self):
        raise OSError("the server is gone")

class Unschooled(ToolSource):
    def tools(self):
        return [Tool(name="odd", toolset="odd", description="", parameters={"properties": {1, 2}}, handler=snap)]

class Doubtful(ToolSource):
    @property
    def generation(self):
        raise OSError("the server is gone")

    def tools(self):
        return [Tool(name="doubt", toolset="doubt", description="", parameters={}, handler=snap,
                     available=lambda config: config.nothing_of_that_name)]

def register(ctx):
    ctx.register_tool_source("camera", Camera())
    ctx.register_tool_source("broken", Broken())
    ctx.register_tool_source("doubtful", Doubtful())
    ctx.register_tool_source("no-source", object())
    ctx.register_tool_source("unschooled", Unschooled())
"""


@pytest.fixture
def camera(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as plugged:
        plugged.add("camera", CAMERA)
        config.set_value("auto_title", False)
        plugged.load("camera")
        yield plugged


def test_our_own_tools_are_a_source_that_is_registered_as_theirs(camera: PluginHome) -> None:
    first, *others = plugins.get_tool_sources()
    assert (first.plugin, tuple(first.source.names())) == ("hermes", tuple(BUILT_INS))
    assert [one.name for one in others] == ["broken", "camera", "doubtful", "no-source", "unschooled"]
    known = registry.shared()
    assert known is registry.shared(), "sources that fail change nothing"
    assert known.names() == (*BUILT_INS, "doubt", "snap") and known.is_added("snap") and not known.is_added("terminal")
    terminal, snap = known.get("terminal"), known.get("snap")
    assert terminal is not None and terminal.toolset == "terminal", "a source replaces none of ours"
    assert snap is not None and snap.roles == {"owner", "admin"}
    assert snap.spec["parameters"] == {"type": "object", "properties": {}}, "as providers insist"


def test_a_tool_whose_check_fails_is_not_offered_and_costs_no_other_one(camera: PluginHome) -> None:
    offered = [tool.name for tool in registry.shared().offered(config.load(), role="owner")]
    assert "snap" in offered and "terminal" in offered and "doubt" not in offered


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_pictures_and_data_of_a_result_reach_the_model(camera: PluginHome, db: SessionDB, wire: str) -> None:
    with ScriptedModel(say(calls=[call("snap", {"anything": 1})]), say("A dot."), wire=wire) as model:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), yolo=True)
        asyncio.run(agent.arun_conversation("Look."))
        sent = model.requests[1].body.decode()
    assert base64.b64encode(b"\x89PNG dot").decode() in sent
    assert 'A dot.\\n{\\"width\\": 1}' in sent
    assert "1 of 2 images left out" in sent
    rows = [row for row in db.get_messages(agent.session_id) if row["role"] == "tool"]
    assert [part["type"] for part in rows[0]["content"]] == ["text", "image_url"]


def test_a_person_is_asked_and_a_permission_for_the_name_stands(camera: PluginHome, db: SessionDB) -> None:
    def results(model: ScriptedModel) -> list[str]:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), person_id=db.people.owner().id)
        asyncio.run(agent.arun_conversation("Look."))
        messages = json.loads(model.requests[-1].body)["messages"]
        return [str(one["content"]) for one in messages if one["role"] == "tool"]

    with ScriptedModel(say(calls=[call("snap")]), say("No.")) as model:
        assert "was not run" in results(model)[0], "nobody is there who could be asked"
    owner = db.people.owner().id
    db.approvals.add(person_id=owner, kind="tool", value="snap", shown="beforehand", granted_by=owner)
    with ScriptedModel(say(calls=[call("snap")]), say("Yes.")) as model:
        assert results(model)[0].startswith("A dot.")
