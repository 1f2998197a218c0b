"""Sources of tools: what they return reaches the model, and one that fails costs only itself."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent import AIAgent
from hermes_agent.tools import registry
from hermes_agent.tools.builtin import BUILT_INS
from hermes_cli import plugins
from hermes_config import config
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow

CAMERA = """
from hermes_agent.tools.base import Tool, ToolImage, ToolResult, ToolSource

PNG = ToolImage(b"\\x89PNG\\r\\n\\x1a\\n dot", "image/png")

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
        return [Tool(name="odd", toolset="odd", description="", parameters={"properties": {"x": {1, 2}}}, handler=snap)]

class Doubtful(ToolSource):
    @property
    def generation(self):
        raise OSError("the server is gone")

    def tools(self):
        return []

class Careless(ToolSource):
    def tools(self):
        wrong = lambda given: given.nothing_of_that_name
        facts = dict(toolset="doubt", description="", parameters={}, handler=snap)
        return [Tool(name="doubt", available=wrong, **facts), Tool(name="place", on_platform=wrong, **facts),
                Tool(name="told", summary=wrong, **facts)]

class Phone(ToolSource):
    generation, now = 0, []

    def tools(self):
        if self.now == "gone":
            raise OSError("the server is gone")
        return self.now and [Tool(name=name, toolset="phone", description="", parameters={}, handler=snap)
                             for name in self.now]

def register(ctx):
    ctx.register_tool_source("camera", Camera())
    ctx.register_tool_source("broken", Broken())
    ctx.register_tool_source("doubtful", Doubtful())
    ctx.register_tool_source("careless", Careless())
    ctx.register_tool_source("phone", Phone())
    try:
        ctx.register_tool_source("no-source", object())
    except Exception as error:
        ctx.register_command("refused", lambda args: str(error), description=str(error))
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
    assert (first.plugin, tuple(tool.name for tool in first.source.tools())) == ("hermes", BUILT_INS)
    assert [one.name for one in others] == ["broken", "camera", "careless", "doubtful", "phone", "unschooled"]
    refused = plugins.get_plugin_commands()["refused"].description
    assert refused == "the tool source 'no-source' is not a ToolSource but object"
    known = registry.shared()
    assert known is registry.shared(), "sources that fail change nothing"
    assert known.names() == (*BUILT_INS, "doubt", "place", "snap", "told")
    assert known.is_added("snap") and not known.is_added("terminal")
    terminal, snap = known.get("terminal"), known.get("snap")
    assert terminal is not None and terminal.toolset == "terminal", "a source replaces none of ours"
    assert snap is not None and snap.roles == {"owner", "admin"}
    assert snap.spec["parameters"] == {"type": "object", "properties": {}}, "as providers insist"


def test_a_tool_whose_check_fails_is_not_offered_and_costs_no_other_one(camera: PluginHome) -> None:
    offered = [tool.name for tool in registry.shared().offered(config.load(), role="owner")]
    assert "snap" in offered and "terminal" in offered and not {"doubt", "place"} & set(offered)
    told = registry.shared().get("told")
    assert told is not None and told.summary({}) == ""


def _phone(now: object, generation: int) -> tuple[str, ...]:
    """What the process knows of the phone's tools when its source says `now`."""
    source = next(row.source for row in plugins.get_tool_sources() if row.name == "phone")
    source.now, source.generation = now, generation
    return tuple(name for name in registry.shared().names() if name in ("ring", "hang_up"))


def test_a_source_that_fails_keeps_its_list_and_is_asked_again(
    camera: PluginHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ASK_AGAIN_SECONDS", 0.5)
    assert _phone(["ring"], 1) == ("ring",)
    known = registry.shared()
    assert _phone("gone", 2) == ("ring",) and registry.shared() is known, "and no prompt begins anew"
    assert _phone(["ring", "hang_up"], 2) == ("ring",), "not at once"
    time.sleep(0.6)
    assert _phone(["ring", "hang_up"], 2) == ("hang_up", "ring"), "of the same generation"


def test_a_source_that_comes_goes_and_changes_fifty_times_never_moves_the_prefix(
    camera: PluginHome, db: SessionDB
) -> None:
    """A tool that has just come is found and called at once; a call of one that is gone says what there is."""
    ring = [
        say(calls=[call("find_tool", {"query": "ring the phone"})]),
        say(calls=[call("use_tool", {"name": "ring"})]),
    ]
    steps = [*ring, say("Rang."), say(calls=[call("use_tool", {"name": "ring"})]), say("Gone.")]
    with ScriptedModel(*steps * 25) as model:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), yolo=True)
        for number in range(25):
            _phone(["ring", f"line_{number}"], 2 * number + 1)
            asyncio.run(agent.arun_conversation("Ring."))
            _phone([], 2 * number + 2)
            asyncio.run(agent.arun_conversation("Again."))
        bodies = [request.body for request in model.requests]
    answers = [str(row["content"]) for row in db.get_messages(agent.session_id) if row["role"] == "tool"]
    assert sum("A dot." in text for text in answers) == 25
    assert sum("There is no tool named 'ring'" in text for text in answers) == 25
    assert all(f"line_{number}" in answers[3 * number] for number in range(25)), "the list of this very moment"
    root = ConversationId(db.get_conversation_root(agent.session_id))
    assert (len(db.prefixes.epochs(root)), db.prefixes.break_count()) == (1, 0)
    assert all(after.startswith(before[: before.rindex(b"]")]) for before, after in itertools.pairwise(bodies))


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_pictures_and_data_of_a_result_reach_the_model(camera: PluginHome, db: SessionDB, wire: str) -> None:
    with ScriptedModel(say(calls=[call("snap", {"anything": 1})]), say("A dot."), wire=wire) as model:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), yolo=True)
        asyncio.run(agent.arun_conversation("Look."))
        sent = model.requests[1].body.decode()
    assert base64.b64encode(b"\x89PNG\r\n\x1a\n dot").decode() in sent
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
