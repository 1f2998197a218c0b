"""`hermes gateway run` with the test tools of MCP's conformance suite beside our own on the MCP server.

The suite is made for SDKs: most scenarios call a tool, a prompt or a resource with a fixed name and a fixed answer.
They are registered here on the product's own server object, so the suite reaches the product's guard, transport and
task code. The task tools put a message into the gateway like `ask`; the scripted model waits or fails as the message
says. What the product itself offers is tested without this file, too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer, require_client_extension
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    Completion,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from gateway.mcp_server import tasks, tools
from gateway.mcp_server.asks import Caller
from hermes_state.turns.inbox import InboxRow

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
Ctx = Context[Any, Any]


def text(said: str) -> TextContent:
    return TextContent(type="text", text=said)


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sample(prompt: str, most: int) -> dict[str, Any]:
    said = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": said, "maxTokens": most}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", name={"type": "string"})


def need(state: str | None = None, **requests: Any) -> InputRequiredResult:
    given = {"inputRequests": requests, **({} if state is None else {"requestState": state})}
    return InputRequiredResult.model_validate({"resultType": "input_required", **given})


def given(ctx: Ctx, *names: str) -> dict[str, Any] | None:
    """The caller's responses as plain data; None when one of these is missing or no answer."""
    found = {
        name: value if isinstance(value, dict) else value.model_dump(by_alias=True, mode="json")
        for name, value in (ctx.input_responses or {}).items()
    }
    return found if all(name in found for name in names) else None


# -- content -------------------------------------------------------------------------------------------------------


def content_tools(server: MCPServer[Any]) -> None:
    @server.tool(description="returns a text")
    def test_simple_text() -> CallToolResult:
        return CallToolResult(content=[text("This is a simple text response for testing.")])

    @server.tool(description="returns a picture")
    def test_image_content() -> CallToolResult:
        return CallToolResult(content=[ImageContent(type="image", data=PNG, mime_type="image/png")])

    @server.tool(description="returns a sound")
    def test_audio_content() -> CallToolResult:
        return CallToolResult(content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")])

    @server.tool(description="returns a resource")
    def test_embedded_resource() -> CallToolResult:
        said = TextResourceContents(
            uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
        )
        return CallToolResult(content=[EmbeddedResource(type="resource", resource=said)])

    @server.tool(description="returns several kinds of content")
    def test_multiple_content_types() -> CallToolResult:
        data = '{"test":"data","value":123}'
        said = TextResourceContents(uri="test://mixed-content-resource", mime_type="application/json", text=data)
        return CallToolResult(
            content=[
                text("Multiple content types test:"),
                ImageContent(type="image", data=PNG, mime_type="image/png"),
                EmbeddedResource(type="resource", resource=said),
            ]
        )

    @server.tool(description="fails")
    def test_error_handling() -> CallToolResult:
        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool(description="tells its progress")
    async def test_tool_with_progress(ctx: Ctx) -> CallToolResult:
        for progress in (0, 50, 100):
            await ctx.report_progress(progress, 100)
            await asyncio.sleep(0.05)
        return CallToolResult(content=[text("done")])

    @server.tool(description="writes log messages")
    async def test_tool_with_logging(ctx: Ctx) -> CallToolResult:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
            await asyncio.sleep(0.05)
        return CallToolResult(content=[text("done")])


# -- questions on the way, 2025-11-25 ------------------------------------------------------------------------------


def older_questions(server: MCPServer[Any]) -> None:
    async def elicited(ctx: Ctx, message: str, **properties: Any) -> str:
        asked = form(message, **properties)["params"]
        found = await ctx.session.elicit_form(message, asked["requestedSchema"], ctx.request_id)
        return f"action={found.action}, content={found.content}"

    @server.tool(description="asks the client's model")
    async def test_sampling(prompt: str, ctx: Ctx) -> CallToolResult:
        said = SamplingMessage(role="user", content=text(prompt))
        found = await ctx.session.create_message([said], max_tokens=100, related_request_id=ctx.request_id)
        return CallToolResult(content=[text(f"LLM response: {getattr(found.content, 'text', '')}")])

    @server.tool(description="asks the client's person")
    async def test_elicitation(message: str, ctx: Ctx) -> CallToolResult:
        who = {"type": "string", "description": "User's response"}
        mail = {"type": "string", "description": "User's email address"}
        return CallToolResult(
            content=[text(f"User response: {await elicited(ctx, message, username=who, email=mail)}")]
        )

    @server.tool(description="asks with defaults")
    async def test_elicitation_sep1034_defaults(ctx: Ctx) -> CallToolResult:
        found = await elicited(
            ctx, "Please check",
            name={"type": "string", "default": "John Doe"}, age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5}, verified={"type": "boolean", "default": True},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        )  # fmt: skip
        return CallToolResult(content=[text(f"Elicitation completed: {found}")])

    @server.tool(description="asks with choices")
    async def test_elicitation_sep1330_enums(ctx: Ctx) -> CallToolResult:
        plain = ["option1", "option2", "option3"]
        titled = [
            {"const": f"value{at}", "title": f"{name} Option"}
            for at, name in enumerate(("First", "Second", "Third"), 1)
        ]
        names = ["Option One", "Option Two", "Option Three"]
        found = await elicited(
            ctx, "Please choose", untitledSingle={"type": "string", "enum": plain},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        )  # fmt: skip
        return CallToolResult(content=[text(f"Elicitation completed: {found}")])

    async def accepted(ctx: Any, params: Any) -> EmptyResult:
        return EmptyResult()

    low = server._lowlevel_server
    low.add_request_handler("logging/setLevel", SetLevelRequestParams, accepted)
    low.add_request_handler("resources/subscribe", SubscribeRequestParams, accepted)
    low.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, accepted)


# -- questions on the way, 2026-07-28 ------------------------------------------------------------------------------


def newer_questions(server: MCPServer[Any]) -> None:
    def tool(name: str) -> Any:
        return server.tool(name=f"test_input_required_result_{name}", description=f"needs input: {name}")

    def is_name(found: dict[str, Any], key: str) -> bool:
        return isinstance((found[key].get("content") or {}).get("name"), str)

    @tool("elicitation")
    async def elicitation(ctx: Ctx) -> Any:
        found = given(ctx, "user_name")
        if found is None or not is_name(found, "user_name"):
            return need(user_name=NAME)
        return CallToolResult(content=[text(f"Hello, {found['user_name']['content']['name']}!")])

    @tool("sampling")
    async def sampling(ctx: Ctx) -> Any:
        found = given(ctx, "capital_question")
        if found is None:
            return need(capital_question=sample("What is the capital of France?", 100))
        return CallToolResult(content=[text(str(found["capital_question"].get("content")))])

    @tool("list_roots")
    async def list_roots(ctx: Ctx) -> Any:
        found = given(ctx, "client_roots")
        if found is None:
            return need(client_roots=ROOTS)
        return CallToolResult(content=[text(str(found["client_roots"].get("roots")))])

    @tool("request_state")
    async def request_state(ctx: Ctx) -> Any:
        if given(ctx, "confirm") is None or ctx.request_state != "kept":
            return need("kept", confirm=form("Please confirm", ok={"type": "boolean"}))
        return CallToolResult(content=[text("state-ok")])

    @tool("tampered_state")
    async def tampered_state(ctx: Ctx) -> Any:
        if given(ctx, "confirm") is None:
            return need("kept", confirm=form("Please confirm", ok={"type": "boolean"}))
        return CallToolResult(content=[text("state-ok")])

    @tool("multiple_inputs")
    async def multiple_inputs(ctx: Ctx) -> Any:
        if given(ctx, "user_name", "greeting", "client_roots") is None:
            return need("kept", user_name=NAME, greeting=sample("Generate a greeting", 50), client_roots=ROOTS)
        return CallToolResult(content=[text("all here")])

    @tool("multi_round")
    async def multi_round(ctx: Ctx) -> Any:
        if ctx.request_state == "2" and given(ctx, "step2") is not None:
            return CallToolResult(content=[text("done")])
        if ctx.request_state == "1" and given(ctx, "step1") is not None:
            return need("2", step2=form("Step 2: What is your favorite color?", color={"type": "string"}))
        return need("1", step1=form("Step 1: What is your name?", name={"type": "string"}))

    @tool("capabilities")
    async def capabilities(ctx: Ctx) -> Any:
        can, wanted = ctx.client_capabilities, {}
        if can is not None and can.elicitation is not None:
            wanted["user_name"] = NAME
        if can is not None and can.sampling is not None:
            wanted["greeting"] = sample("Generate a greeting", 50)
        if not wanted or given(ctx, *wanted) is not None:
            return CallToolResult(content=[text("done")])
        return need(**wanted)

    @server.tool(description="needs a client with sampling")
    async def test_missing_capability(ctx: Ctx) -> CallToolResult:
        can = ctx.client_capabilities
        if can is None or can.sampling is None:
            wanted = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="sampling is needed", data=wanted)
        return CallToolResult(content=[text("done")])


# -- resources and prompts -----------------------------------------------------------------------------------------


def resources_and_prompts(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", description="a text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", description="a picture", mime_type="image/png")
    def static_binary() -> bytes:
        import base64

        return base64.b64decode(PNG)

    @server.resource("test://watched-resource", description="one to subscribe to", mime_type="text/plain")
    def watched() -> str:
        return "watched"

    @server.resource("test://template/{id}/data", description="by id", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the name in the address
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'

    @server.prompt(description="a simple prompt")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="a prompt with arguments")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="a prompt with a resource")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's name
        said = TextResourceContents(
            uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing."
        )
        first = {"role": "user", "content": EmbeddedResource(type="resource", resource=said)}
        return [first, {"role": "user", "content": text("Please process the embedded resource above.")}]

    @server.prompt(description="a prompt with a picture")
    def test_prompt_with_image() -> list[Any]:
        first = {"role": "user", "content": ImageContent(type="image", data=PNG, mime_type="image/png")}
        return [first, {"role": "user", "content": text("Please analyze the image above.")}]

    @server.prompt(description="a prompt that needs input")
    async def test_input_required_result_prompt(ctx: Ctx) -> Any:
        if given(ctx, "user_context") is None:
            asked = form("What context should the prompt use?", context={"type": "string"})
            return need(user_context=asked)
        return "With your context."

    @server.completion()
    async def completion(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)


# -- tasks ---------------------------------------------------------------------------------------------------------


async def _slow(caller: Caller, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> InboxRow:
    return await tools.begin_ask(caller, {"message": f"wait {float(arguments.get('seconds') or 0)}"}, {})


async def _failing(caller: Caller, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> InboxRow:
    return await tools.begin_ask(caller, {"message": "fail"}, {})


STARTS = {"slow_compute": _slow, "failing_job": _failing, "protocol_error_job": _failing}


def task_tools(server: MCPServer[Any], caller_of: tasks.CallerOf) -> None:
    own = tools.ConversationTools(caller_of)

    async def waited(ctx: Ctx, name: str, **arguments: Any) -> CallToolResult:
        row = await STARTS[name](caller_of(ctx.request_context.request), arguments, {})
        return tasks.result_of(await own._waited(ctx, row))

    @server.tool(description="greets")
    def greet(name: str) -> CallToolResult:
        return CallToolResult(content=[text(f"Hello, {name}!")])

    @server.tool(description="takes its time")
    async def slow_compute(ctx: Ctx, seconds: float = 0, label: str = "") -> CallToolResult:
        return await waited(ctx, "slow_compute", seconds=seconds)

    @server.tool(description="fails after a while, as a task only")
    async def failing_job(ctx: Ctx) -> CallToolResult:
        require_client_extension(ctx.request_context, tasks.EXTENSION)
        return await waited(ctx, "failing_job")

    @server.tool(description="fails after a while")
    async def protocol_error_job(ctx: Ctx) -> CallToolResult:
        return await waited(ctx, "protocol_error_job")


_make = tools.make


def make(caller_of: tasks.CallerOf) -> MCPServer[Any]:
    server = _make(caller_of)
    for extension in server._extensions:
        if isinstance(extension, tasks.Tasks):
            extension.starts = {**extension.starts, **STARTS}
    content_tools(server)
    older_questions(server)
    newer_questions(server)
    resources_and_prompts(server)
    task_tools(server, caller_of)
    return server


def run() -> None:
    from hermes_cli.main import main

    tools.make = make
    sys.exit(main(["gateway", "run"]))
