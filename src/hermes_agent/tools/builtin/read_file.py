"""`read_file`: a text file, numbered, in pages; anything else is described.

One page is bounded in lines and characters and names the next `offset`, so a result never has to be cut later.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hermes_agent.tools import output, paths
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_config.limits import Limits

_DEFAULT_LINES = 500
_NOTE_ROOM = 200


async def read_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    place = await paths.for_reading(args["path"], ctx)
    limits = ctx.db.limits
    data = await asyncio.to_thread(paths.read_bytes, place, most=limits.read_file_bytes)
    if output.is_binary(data):
        what = output.media_kind(data) or "binary file"
        text = f"{place.named} is not text: {what}, {len(data):,} bytes. It is not shown."
        return ToolResult(text, shown=f"{place.named.name}: {what}")
    text = output.clean(data.decode("utf-8-sig", "replace"))
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # a final line break ends a line, it does not begin one
    offset = args.get("offset", 1)
    count = min(args.get("limit", _DEFAULT_LINES), limits.read_file_lines)
    if not lines:
        return ToolResult(f"{place.named} is empty.")
    if offset > len(lines):
        return ToolResult(f"{place.named} has {len(lines):,} lines; there is no line {offset:,}.", is_error=True)
    page, last = _page(lines, offset, count, limits)
    if last < len(lines):
        page.append(f"[lines {offset:,} to {last:,} of {len(lines):,}; go on with offset {last + 1}]")
    shown = f"{place.named.name}: lines {offset}–{last} of {len(lines)}"
    return ToolResult("\n".join(page), shown=shown, source=place.named.name)


def _page(lines: list[str], offset: int, count: int, limits: Limits) -> tuple[list[str], int]:
    """The numbered lines of a page and the number of the last one; at least one line."""
    page: list[str] = []
    room = limits.tool_result_chars - _NOTE_ROOM
    longest = min(limits.read_line_chars, room - 100)
    for number, line in enumerate(lines[offset - 1 : offset - 1 + count], start=offset):
        if len(line) > longest:
            line = f"{line[:longest]} [… {len(line) - longest:,} more characters in this line]"
        numbered = f"{number:>6}|{line}"
        room -= len(numbered) + 1
        if room < 0 and page:
            break
        page.append(numbered)
    return page, offset - 1 + len(page)


TOOL = Tool(
    name="read_file",
    toolset="file",
    description=(
        "Read a text file, with line numbers (`number|line`). Long files come in pages: go on with `offset`. Images and"
        " other binary files are described, not shown. Use this instead of cat, head or tail."
    ),
    parameters=parameters(
        "path",
        path=value("string", "The file: absolute, relative to the working directory, or with ~.", minLength=1),
        offset=value("integer", "The line to begin with, counted from 1. Default 1.", minimum=1),
        limit=value("integer", "How many lines. Default 500, at most 2000.", minimum=1),
    ),
    handler=read_file,
    changes=False,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("path", "")),
)
