"""The `find_tool` tool: find tools that the prompt does not list.

It looks at the tools that this conversation has now, so role, platform and toolsets hold as for listed ones. Its answer
is a row of the transcript: a server that comes, goes or changes never moves the prompt's prefix.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.messages import FIND_TOOL
from hermes_agent.text import brief, counted
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_state.search import words
from hermes_state.search.stem import stem

_SHOWN = 5
"""How many tools are shown with their arguments."""
_MORE = 20
_SCHEMAS_CHARS = 8_000
"""All schemas of one answer together; the first one is always shown."""
_ABOUT_CHARS = 400
_LEAST = 0.25
"""How well a tool must fit, compared with the best one."""
_COMMON = frozenset({"a", "an", "and", "for", "i", "in", "is", "me", "my", "of", "on", "or", "the", "to", "with"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


async def find_tool(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    query = str(args.get("query") or "").strip()
    hidden = [tool for tool in ctx.tools.values() if not tool.listed]
    if not query:
        return ToolResult(f"{sources(hidden)}{_unknown()}", shown=counted(len(hidden), "tool"))
    found = rank(query, hidden)
    if not found:
        text = f"No further tool fits {query[:80]!r}.{_known(query, ctx.tools.values())}\n{sources(hidden)}{_unknown()}"
        return ToolResult(text, shown="nothing found")
    lines, room = [f"{counted(len(found), 'tool')} of {len(hidden)} fit. Call one with use_tool(name, arguments)."], 0
    for tool in found[:_SHOWN]:
        origin = f" [{tool.source}]" if tool.source else ""
        lines.append(f"\n{tool.name}: {brief(tool.description, _ABOUT_CHARS)}{origin}")
        room += len(tool.schema_text)
        fits = tool is found[0] or room <= _SCHEMAS_CHARS
        lines.append(f"arguments: {tool.schema_text if fits else 'long; find_tool with its name shows them'}")
    if more := [tool.name for tool in found[_SHOWN:]]:
        lines.append(f"\n{len(more)} more fit less: {', '.join(more[:_MORE])}{' …' if more[_MORE:] else ''}")
    outside = dict.fromkeys(tool.source for tool in found[: _SHOWN + _MORE] if tool.source)
    shown = ", ".join(tool.name for tool in found[:_SHOWN])
    return ToolResult("\n".join(lines), shown=shown, source=", ".join(outside))


def rank(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """The tools that fit, best first. Rare words count more than common ones, and those of the name most."""
    wanted = dict.fromkeys(word for word in _stems(query) if word not in _COMMON)
    known = [(tool, _weights(tool)) for tool in tools]
    often = Counter(word for _, weights in known for word in wanted if word in weights)
    scores: dict[str, float] = {}
    for tool, weights in known:
        score = sum(weights[word] * math.log(1 + len(known) / often[word]) for word in wanted if word in weights)
        scores[tool.name] = math.inf if tool.name == query else score
    least = _LEAST * max((score for score in scores.values() if score < math.inf), default=0.0)
    found = [tool for tool in tools if scores[tool.name] > least]
    return sorted(found, key=lambda tool: (-scores[tool.name], tool.name))


def _weights(tool: Tool) -> Mapping[str, float]:
    """The tool's words, each with the weight of the best place it stands in."""
    arguments = tool.spec["parameters"]["properties"]
    places = (
        (1.0, tool.description),
        (1.5, " ".join(arguments)),
        (2.0, f"{tool.toolset} {tool.source}"),
        (4.0, tool.name),
    )
    return {word: weight for weight, text in places for word in _stems(text)}


def _stems(text: str) -> Iterator[str]:
    return (stem(word) for word in words.words(_CAMEL.sub(" ", text)))


def _known(query: str, tools: Iterable[Tool]) -> str:
    """The listed tools that fit, by name: the model has them already."""
    listed = rank(query, [tool for tool in tools if tool.listed and tool.toolset != TOOL.toolset])
    return f" You have already: {', '.join(tool.name for tool in listed[:3])}." if listed else ""


def _unknown() -> str:
    """The MCP servers whose tools are not known yet."""
    from hermes_agent.tools import registry  # it imports this module

    servers = registry.mcp_servers()
    names = [] if servers is None else servers.without_list()
    return f"\nMCP servers whose tools are not known: {', '.join(names)}." if names else ""


def sources(tools: Iterable[Tool]) -> str:
    """Where there are further tools: the built-in ones by name, the others counted by source."""
    ours = ", ".join(tool.name for tool in tools if not tool.source)
    counts = Counter(tool.source for tool in tools if tool.source)
    lines = [f"- Hermes: {ours}"] if ours else []
    lines += [f"- {source}: {counted(number, 'tool')}" for source, number in sorted(counts.items())]
    return "\n".join(["Further tools:", *lines]) if lines else "There are no further tools."


TOOL = Tool(
    name=FIND_TOOL,
    toolset="find",
    description=(
        "Find further tools: for helpers that work in parallel, background processes, lists of skills, and whatever"
        " plug-ins and MCP servers offer. Look here before you say that you cannot do something."
    ),
    parameters=parameters(query=value("string", "A few words about the task, or a tool's name; empty: what there is.")),
    handler=find_tool,
    changes=False,
    roles=frozenset({"owner", "admin", "member"}),
    summary=lambda args: str(args.get("query", "")),
)
