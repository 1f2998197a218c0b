"""Which tools there are and who is offered them; and that a call always ends in one result."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools import tools_page

from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_agent.tools import arguments
from hermes_agent.tools.base import Tool, ToolContext, ToolResult
from hermes_agent.tools.builtin import BUILT_INS
from hermes_agent.tools.registry import NameTaken, Registry, run_call, unknown_tool
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, say

from .conftest import Bench

pytestmark = pytest.mark.slow

FILES = {"terminal", "read_file", "write_file", "patch", "search_files", "process"}
FINDER = {"find_tool", "use_tool"}
HERE = set(BUILT_INS) - {"send_file", "web_search"}
"""What there is at a terminal, which is no chat to send files to, without a search engine."""


def _names(config: Mapping[str, Any], **more: Any) -> list[str]:
    return [tool.name for tool in Registry().offered(config_of(Path(), config), **{"role": "owner", **more})]


def _tool(name: str = "mine", **changes: Any) -> Tool:
    async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
        return "done"

    about: dict[str, Any] = {
        "name": name, "toolset": "plugin", "description": "mine",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}, "handler": handler,
    }  # fmt: skip
    return Tool(**{**about, **changes})


def test_the_names_existing_prompts_rely_on_are_there_in_a_fixed_order() -> None:
    names = ["terminal", "read_file", "write_file", "patch", "search_files", "todo", "memory", "session_search"]
    more = ["clarify", "skills_list", "skill_view", "process", "delegate_task", "cronjob", "web_extract"]
    assert _names({}) == [*names, *more, "find_tool", "use_tool", "skill_manage"]


@pytest.mark.parametrize("name", BUILT_INS)
def test_a_schema_is_plain_data_that_every_provider_takes(name: str) -> None:
    tool = Registry().get(name)
    assert tool is not None and tool.name == name
    assert json.loads(json.dumps(tool.parameters)) == tool.parameters
    assert tool.parameters["type"] == "object"
    assert set(tool.parameters.get("required", ())) <= set(tool.parameters["properties"])
    assert all("type" in schema and "description" in schema for schema in tool.parameters["properties"].values())


def test_members_and_guests_get_no_terminal_and_no_files() -> None:
    for role in ("member", "guest"):
        assert not FILES & set(_names({}, role=role))
        assert all(Registry().get(name, role=role) is None for name in FILES)
    assert "memory" in _names({}, role="member") and "memory" not in _names({}, role="guest")


@pytest.mark.parametrize(
    ("config", "on"),
    [
        ({"toolsets": ["file"]}, {"read_file", "write_file", "patch", "search_files"}),
        ({"toolsets": "terminal, todo"}, {"terminal", "process", "todo", *FINDER}),
        ({"toolsets": ["hermes-cli"]}, HERE),
        ({"toolsets": ["some-plug-in"]}, FINDER),
        ({"toolsets": ["safe"]}, HERE - FILES - {"delegate_task", "cronjob", "web_extract"}),
        ({"agent": {"disabled_toolsets": ["file", "memory"]}}, {"terminal", "process"} | (HERE - FILES - {"memory"})),
        ({"toolsets": ["terminal"], "agent": {"disabled_toolsets": ["terminal"]}}, set()),
        ({"toolsets": ["terminal"], "platform_toolsets": {"cli": ["todo"]}}, {"todo"}),
        ({"toolsets": ["read_file"]}, {"read_file"}),
        ({"toolsets": None, "agent": None, "platform_toolsets": []}, HERE),
    ],
)
def test_configuration_chooses(config: dict[str, Any], on: set[str]) -> None:
    assert set(_names(config)) == on


def test_an_agent_can_be_narrowed_but_not_past_what_is_switched_off() -> None:
    config = {"agent": {"disabled_toolsets": ["terminal"]}}
    assert _names(config, enabled=["terminal", "todo"]) == ["todo"]
    assert _names({}, enabled=["todo", "clarify"], disabled=["clarify"]) == ["todo"]


def test_a_plug_in_registers_as_we_do_and_replaces_only_on_purpose() -> None:
    tools = Registry()
    before = tools.generation
    tools.register(_tool("zebra"))
    tools.register(_tool("apple"))
    assert tools.generation > before
    with pytest.raises(NameTaken, match="terminal"):
        tools.register(_tool("terminal"))
    tools.register(_tool("terminal"), override=True)
    names = [tool.name for tool in tools.offered(config_of(Path(), {}), role="owner")]
    assert names == [*(name for name in BUILT_INS if name in HERE), "apple", "zebra"], (
        "its place stays, and plug-ins come by name"
    )
    replaced = tools.get("terminal")
    assert replaced is not None and replaced.toolset == "plugin"


def test_listing_names_imports_no_tool() -> None:
    code = (
        "import sys\nfrom hermes_agent.tools.registry import Registry\nRegistry().names()\n"
        "print([m for m in sys.modules if m.startswith('hermes_agent.tools.') and m.rpartition('.')[2] in"
        " ('terminal', 'patch', 'search_files')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_specs_import_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom hermes_config.config import of\n"
        "from hermes_agent.tools.registry import Registry\nRegistry().offered(of(Path(), {}), role='owner')\n"
        "print([m for m in ('yaml', 'httpx2', 'tree_sitter', 'apsw', 'hermes_agent.knowledge.memory',"
        " 'hermes_agent.knowledge.skills')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_users_page_is_made_from_the_registry() -> None:
    checked_in = Path(__file__).parents[3] / "docs/users/tools.md"
    assert checked_in.read_text() == tools_page.page(), "make docs"


def test_an_unknown_tool_names_those_that_are_near() -> None:
    assert "read_file" in unknown_tool("readfile", BUILT_INS).content
    assert unknown_tool("x" * 10_000, BUILT_INS).is_error
    assert "There are: todo." in unknown_tool("qqqq", ["todo"]).content


def _run(tool: Tool, bench: Bench, raw: str = "{}", **changes: Any) -> ToolResult:
    async def run() -> ToolResult:
        return await run_call(tool, raw, replace(bench.ctx, stop=Stop(), **changes))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("{", "not valid JSON"),
        ('{"x": 1', "not valid JSON"),
        ("[1]", "one JSON object"),
        ('{"x": NaN}', "NaN"),
        ('{"y": 1}', "unknown parameter y"),
        ('{"xx": 1}', "did you mean x?"),
        ('{"x": "many"}', "x must be integer"),
        ('{"x": true}', "x must be integer, not boolean"),
        ("[" * 100_000, "nested too deeply"),
        ('{"x": "\\ud800"}', "x must be integer"),
    ],
)
def test_bad_arguments_end_in_one_line_that_says_what_was_wrong(bench: Bench, raw: str, why: str) -> None:
    result = _run(_tool(), bench, raw)
    assert result.is_error and why in result.content
    assert "\n" not in result.content and len(result.content) < 400


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "null",
        "{}",
        ' {"x": 1} ',
        '{"x": "1"}',
        '{"x": 1.0}',
        '"{\\"x\\": 1}"',
        '{"x": null}',
        '```json\n{"x": 1}\n```',
    ],
)
def test_what_cannot_be_misunderstood_is_taken(bench: Bench, raw: str) -> None:
    assert _run(_tool(), bench, raw).content == "done"


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, 5.0),
        ({"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array"}]}, ["5"]),
        ({"type": "object"}, {"owner": None}),
        ({"type": "object", "properties": {"owner": {"type": ["string", "null"]}}}, {"owner": None}),
    ],
)
def test_a_value_that_fits_is_not_changed(rule: dict[str, Any], given: Any) -> None:
    schema = {"type": "object", "properties": {"x": rule}}
    assert repr(arguments.parse(json.dumps({"x": given}), schema, longest=100)) == repr({"x": given})


def test_a_value_is_converted_where_no_alternative_takes_it_and_null_is_left_out_where_it_is_none() -> None:
    schema = {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}
    assert arguments.parse('{"x": "true"}', schema, longest=100) == {"x": True}
    assert arguments.parse('{"x": null}', schema, longest=100) == {}


def test_a_schema_that_doubles_its_work_at_every_step_does_not_hold_the_process() -> None:
    rules: dict[str, Any] = {f"r{at}": {"anyOf": [{"$ref": f"#/$defs/r{at + 1}"}] * 2} for at in range(40)}
    schema = {"$defs": {**rules, "r40": {"type": "null"}}, "properties": {"x": {"$ref": "#/$defs/r0"}}}
    began = time.monotonic()
    with pytest.raises(arguments.BadArguments, match="nested too deeply"):
        arguments.parse('{"x": 1}', schema, longest=100)
    assert time.monotonic() - began < 10


def test_a_text_beyond_its_bound_is_refused(bench: Bench) -> None:
    result = bench.call("send_file", path="a", caption="x" * 1_001)
    assert result.is_error and "caption has 1,001 characters; at most 1,000 are taken" in result.content


def test_a_line_break_inside_a_string_is_taken_as_it_is(bench: Bench) -> None:
    bench.raw("write_file", '{"path": "a", "content": "one\ntwo\n"}')
    assert (bench.workdir / "a").read_text() == "one\ntwo\n"


def test_a_tool_that_raises_costs_its_call_and_tells_the_log_no_secret(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(args: dict[str, Any], ctx: ToolContext) -> str:
        raise RuntimeError("could not use hunter2\nat all")

    with caplog.at_level(logging.DEBUG):
        result = _run(_tool(handler=broken), bench)
    assert result.is_error and result.content == "mine failed: RuntimeError: could not use hunter2 at all"
    said = "".join(str(record.__dict__) for record in caplog.records)
    assert "tool_failed" in said and "hunter2" not in said


def test_a_tool_that_hangs_is_stopped_and_its_cleaning_up_is_waited_for(bench: Bench) -> None:
    cleaned: list[bool] = []

    async def hangs(args: dict[str, Any], ctx: ToolContext) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)
        return "never"

    bench.limited(tool_seconds=1)

    async def run() -> ToolResult:
        result = await run_call(_tool(handler=hangs), "{}", replace(bench.ctx, stop=Stop()))
        assert cleaned == [True], "before the result, not when the loop ends"
        return result

    began = time.monotonic()
    result = asyncio.run(run())
    assert time.monotonic() - began < 10
    assert result.is_error and "stopped after 1 s" in result.content and "effect" in result.content


def test_the_time_of_a_person_who_is_asked_is_not_the_tools(make_agent: Any, db: SessionDB, tmp_path: Path) -> None:
    db.limits = db.limits.changed(tool_seconds=1)

    class Slow:
        async def ask(self, question: ApprovalQuestion) -> Choice:
            await asyncio.sleep(1.5)
            return "once"

    (tmp_path / "prod.env").write_text("A=1\n")
    outside = {"path": str(tmp_path / "prod.env")}
    with ScriptedModel(say(calls=[call("read_file", outside)]), say("Read.")) as model:
        agent = make_agent(model, approver=Slow(), role="owner")
        assert asyncio.run(agent.arun_conversation("read it"))["final_response"] == "Read."
        (result,) = [row for row in db.get_messages(agent.session_id) if row["role"] == "tool"]
    assert "A=1" in result["content"]
    assert [row.state for row in db.approvals.of_turn(result["turn_id"])] == ["used"]


def test_a_tool_that_goes_on_after_a_persons_answer_has_its_whole_time(bench: Bench) -> None:
    async def asks(args: dict[str, Any], ctx: ToolContext) -> str:
        with ctx.person_wait:
            await asyncio.sleep(1.5)
        await asyncio.sleep(0.6)
        return "done"

    bench.limited(tool_seconds=1)
    result = asyncio.run(run_call(_tool(handler=asks), "{}", replace(bench.ctx, stop=Stop())))
    assert result.content == "done"


def test_a_tool_that_will_not_be_cancelled_does_not_hold_the_turn(bench: Bench) -> None:
    async def deaf(args: dict[str, Any], ctx: ToolContext) -> str:
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return "late"

    bench.limited(tool_seconds=1, tool_stop_ms=200)

    async def run() -> float:
        began = time.monotonic()
        result = await run_call(_tool(handler=deaf), "{}", replace(bench.ctx, stop=Stop()))
        assert result.is_error
        return time.monotonic() - began

    assert asyncio.run(run()) < 4.5


def test_an_interruption_ends_any_tool_at_once(bench: Bench) -> None:
    begun = asyncio.Event()

    async def waits(args: dict[str, Any], ctx: ToolContext) -> str:
        begun.set()
        await asyncio.sleep(60)
        return "never"

    async def run() -> tuple[ToolResult, ToolResult]:
        stop = Stop()
        ctx = replace(bench.ctx, stop=stop)
        call = asyncio.create_task(run_call(_tool(handler=waits, changes=False), "{}", ctx))
        await begun.wait()
        stop.set()
        return await call, await run_call(_tool(handler=waits), "{}", ctx)

    during, after = asyncio.run(run())
    assert during.content == "mine was interrupted by the person."
    assert after.content == "mine was not run: interrupted by the person."


@pytest.mark.parametrize(("given", "read"), [({"a": 1}, '{"a": 1}'), (None, "null"), (["é"], '["é"]'), ("", "")])
def test_whatever_a_handler_returns_becomes_text(bench: Bench, given: Any, read: str) -> None:
    async def handler(args: dict[str, Any], ctx: ToolContext) -> Any:
        return given

    assert _run(_tool(handler=handler), bench).content == read


def test_any_long_result_is_kept_in_a_file_and_cut(bench: Bench) -> None:
    async def long(args: dict[str, Any], ctx: ToolContext) -> str:
        return "start\n" + "é" * 100_000 + "\nend"

    result = _run(_tool(handler=long), bench)
    assert len(result.content) <= bench.ctx.db.limits.tool_result_chars
    assert result.content.startswith("start\n") and result.content.endswith("end")
    (file,) = (bench.ctx.home / "results").rglob("*.txt")
    assert file.read_text() == "start\n" + "é" * 100_000 + "\nend" and file.name.startswith("mine-")
