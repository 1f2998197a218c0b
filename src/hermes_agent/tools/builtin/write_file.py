"""`write_file`: writes the whole content of a file in one step, with the gate's permission."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes_agent.text import counted
from hermes_agent.tools import paths
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value


async def write_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    data = args["content"].encode()
    write = await paths.for_writing(args["path"], data, ctx, detail=f"write_file, {len(data):,} bytes")
    await ctx.begin()
    await asyncio.to_thread(paths.carry_out, write)
    place = write.place
    done = "created" if place.status is None else "replaced"
    lines = args["content"].count("\n") + (not args["content"].endswith("\n") and bool(data))
    said = f"{place.named} {done}: {counted(lines, 'line')}, {counted(len(data), 'byte')}."
    if place.real != place.named:
        said += f" It is a link; what was written is {place.real}."
    return ToolResult(said)


TOOL = Tool(
    name="write_file",
    toolset="file",
    description=(
        "Write a whole file: `content` replaces everything in it, and missing folders are made. To change a part of a"
        " file use patch."
    ),
    parameters=parameters(
        "path",
        "content",
        path=value("string", "The file: absolute, relative to the working directory, or with ~.", minLength=1),
        content=value("string", "The whole new content."),
    ),
    handler=write_file,
    begins=True,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("path", "")),
)
