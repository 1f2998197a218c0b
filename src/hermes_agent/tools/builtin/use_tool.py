"""The `use_tool` tool: call a tool that the prompt does not list.

The turn replaces such a call by the call of the tool it names before anything else sees it (`messages.inner_call`), so
this handler runs only for calls that could not be read that way.
"""

from __future__ import annotations

from typing import Any

from hermes_agent.messages import USE_TOOL
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value


async def use_tool(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    return ToolResult("use_tool: give the name of another tool, and its arguments as one object.", is_error=True)


TOOL = Tool(
    name=USE_TOOL,
    toolset="find",
    description="Call a tool that find_tool found.",
    parameters=parameters(
        "name",
        name=value("string", "The tool.", minLength=1),
        arguments=value("object", "Its arguments."),
    ),
    handler=use_tool,
    changes=False,
    roles=frozenset({"owner", "admin", "member"}),
    summary=lambda args: str(args.get("name", "")),
)
