"""Tools that the prompt does not list: found by words, called through `use_tool`, and treated as any other call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.prompt import prefix, system_prompt
from hermes_agent.receipts import receipt
from hermes_agent.tools import registry
from hermes_cli import plugins
from hermes_config import config
from hermes_state import SessionDB
from hermes_state.ids import ConversationId, PersonId
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, call, say

SERVERS = """
from hermes_agent.tools.base import Tool, ToolResult, ToolSource, parameters, value

SEEN = []

async def act(args, ctx):
    return ToolResult(f"did {args}", source="MCP server git")

class Server(ToolSource):
    def __init__(self, name, *tools):
        self.name, self.known = name, tools

    def tools(self):
        return [
            Tool(name=f"{self.name}_{name}", toolset=f"mcp-{self.name}", source=f"MCP server {self.name}",
                 description=about, handler=act,
                 parameters=parameters("path", path={**value("string", "The folder."), "title": "Path"},
                                       depth=value("integer", "How far.")))
            for name, about in self.known
        ]

def register(ctx):
    git = [("log", "Show the commits of a repository."), ("createBranch", "Make a branch.")]
    ctx.register_tool_source("git", Server("git", *git, *((f"extra_{n}", "Show more.") for n in range(30))))
    for name in ("time", "fetch", "files", "everything"):
        ctx.register_tool_source(name, Server(name, *((f"tool_{n}", "Something else. " * 40) for n in range(40))))
    ctx.register_hook("pre_tool_call", lambda tool_name, args, **_: SEEN.append((tool_name, args)))
    ctx.register_command("seen", lambda args: repr(SEEN), description="what the hook saw")
"""


@pytest.fixture
def servers(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as plugged:
        plugged.add("servers", SERVERS)
        config.set_value("auto_title", False)
        plugged.load("servers")
        yield plugged


def turn(db: SessionDB, *calls: tuple[str, Any], **options: Any) -> tuple[AIAgent, list[str]]:
    """One turn with a step for each call: the agent, and the results."""
    with ScriptedModel(*(say(calls=[call(name, args)]) for name, args in calls), say("Done.")) as model:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), **options)
        assert asyncio.run(agent.arun_conversation("Do it."))["final_response"] == "Done."
        messages = json.loads(model.requests[-1].body)["messages"]
    return agent, [str(one["content"]) for one in messages if one["role"] == "tool"]


def find(query: str) -> tuple[str, Any]:
    return "find_tool", {"query": query}


def use(name: str, /, **arguments: Any) -> tuple[str, Any]:
    return "use_tool", {"name": name, "arguments": arguments}


def test_what_is_found(servers: PluginHome, db: SessionDB) -> None:
    queries = ("show the commits", "branches", "git_log", "parallel helper", "", "play the violin", "read files")
    _, results = turn(db, *(find(query) for query in queries))
    commits, branches, named, helpers, everything, nothing, listed = results
    assert commits.splitlines()[2].startswith("git_log: Show the commits of a repository. [MCP server git]")
    assert '"required":["path"]' in commits and '"title"' not in commits and "26 more fit less: git_extra_" in commits
    assert branches.splitlines()[2].startswith("git_createBranch: ") and "1 tool of" in branches
    assert named.splitlines()[2].startswith("git_log: ")
    assert "delegate_task: Give independent tasks" in helpers
    assert "- Hermes: skills_list, process, delegate_task" in everything and "- MCP server git: 32 tools" in everything
    assert "No further tool fits 'play the violin'" in nothing and "- MCP server time: 40 tools" in nothing
    assert "files_tool_0: " in listed and " more fit less: files_tool_" in listed
    assert max(map(len, results)) < 10_000


def test_a_call_counts_as_one_of_the_tool_itself(servers: PluginHome, db: SessionDB) -> None:
    owner = db.people.owner().id
    _, refused = turn(db, use("git_log", path="."), person_id=owner)
    assert "git_log was not run" in refused[0], "nobody is there who could be asked"
    db.approvals.add(person_id=owner, kind="tool", value="git_log", shown="beforehand", granted_by=owner)
    shown: list[Any] = []
    with ScriptedModel(say(calls=[call(*use("git_log", path="."))]), say("Done.")) as model:
        again = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), person_id=owner)
        again.tool_start_callback = lambda *args: shown.append(args[1:])
        asyncio.run(again.arun_conversation("Do it."))
    assert shown == [("git_log", {"path": "."})], "what people see"
    assert plugins.get_plugin_commands()["seen"].handler("") == repr([("git_log", {"path": "."})] * 2)
    rows = db.get_messages(again.session_id)
    assert rows[1]["tool_calls"][0]["function"]["name"] == "use_tool", "the model reads what it wrote"
    assert (rows[2]["tool_name"], rows[2]["content"]) == ("git_log", "did {'path': '.'}")
    (done,) = db.turns.last_ended(ConversationId(db.get_conversation_root(again.session_id)))
    assert [effect.tool for effect in db.effects.of_turn(done.id)] == ["git_log"]
    assert [(one["name"], one["outcome"]) for one in receipt.receipt_of(db, done)["tools"]] == [("git_log", "done")]


def test_wrong_names_and_arguments_are_answered_with_what_helps(servers: PluginHome, db: SessionDB) -> None:
    wrong = (
        use("git_lock", path="."),
        use("git_log", depth=3),
        use("git_log", path="."),
        ("use_tool", {"arguments": {}}),
    )
    broken = (("use_tool", {"name": "git_log", "arguments": "path=."}), use("use_tool", name="todo"))
    _, results = turn(db, *wrong, *broken, yolo=True)
    assert "There is no tool named 'git_lock'. Did you mean git_log" in results[0]
    assert results[1].startswith("git_log: ") and '"path":{"type":"string"' in results[1]
    assert results[2].startswith("did ")
    assert results[3].startswith("use_tool: ") and "name" in results[3]
    assert "object" in results[4] and results[5].startswith("use_tool: give the name of another tool")


@pytest.mark.parametrize(
    ("role", "toolsets", "listed", "found"),
    [
        ("owner", None, True, True), ("member", None, True, False), ("guest", None, False, False),
        ("owner", ["file"], False, False), ("owner", ["file", "mcp-git"], True, True),
        ("owner", ["file", "mcp-time"], True, False),
    ],
)  # fmt: skip
def test_roles_and_toolsets_hold(
    servers: PluginHome, role: str, toolsets: list[str] | None, listed: bool, found: bool
) -> None:
    offered = registry.shared().offered(config.load(), role=role, enabled=toolsets)
    names = {tool.name for tool in offered if tool.listed}
    assert (("use_tool" in names), any(tool.name == "git_log" for tool in offered)) == (listed, found)
    assert not any(tool.listed for tool in offered if tool.source)


def test_a_member_cannot_use_what_the_role_forbids(servers: PluginHome, db: SessionDB) -> None:
    ada = PersonId("ada")
    _, results = turn(
        db, use("git_log", path="."), use("terminal", command="id"), person_id=ada, role="member", yolo=True
    )
    assert all("There is no tool named" in text for text in results)


def test_the_first_request_is_small_with_five_servers(servers: PluginHome, db: SessionDB) -> None:
    """Counted as `hermes -q hello --model demo --json` does, which is more than o200k counts."""
    config.set_value("web.searxng_url", "http://127.0.0.1:9")
    with ScriptedModel(say("Hello.")) as model:
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), platform="telegram")
        asyncio.run(agent.arun_conversation("hello"))
        listed = {one["function"]["name"] for one in json.loads(model.requests[0].body)["tools"]}
        assert {"web_search", "web_extract", "send_file", "cronjob", "find_tool"} <= listed
        assert len(model.requests[0].body) // 4 <= 3_500
    assert len(agent.valid_tool_names) > 190


def test_a_conversation_of_an_older_version_begins_its_prompt_anew_once(servers: PluginHome, db: SessionDB) -> None:
    known = [tool.spec for tool in registry.shared().offered(config.load(), role="owner")]
    older = [spec for spec in known if spec["name"] not in ("find_tool", "use_tool")]
    db.create_session("old", "cli")
    prefix.ensure(db, ConversationId("old"), lambda: (system_prompt.build(), older))
    for _ in range(2):
        turn(db, use("git_log", path="."), session_id="old", yolo=True)
    reasons = [epoch.reason for epoch in db.prefixes.epochs(ConversationId("old"))]
    assert (reasons, db.prefixes.break_count()) == (["first use", "the tools changed"], 0)
