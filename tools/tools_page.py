"""The page about tools in the users' guide, made from the registry by `make docs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes_agent.tools.base import Tool
from hermes_agent.tools.builtin import BUILT_INS
from hermes_agent.tools.registry import Registry

_INTRODUCTION = """# Tools

These are the tools that the model can call. `hermes tools` shows which are on in your home.

- Choose in config.yaml: `toolsets` (a list; without it all tools are on), `platform_toolsets.<platform>` for one
  platform, `agent.disabled_toolsets` to switch tools off. Use the names of the toolsets below or of single tools.
- The prompt lists the tools that people use daily. The model finds the others with `find_tool` and calls them with
  `use_tool`: those marked *found* below, and the tools of plug-ins and MCP servers. Such a call counts as a
  call of the tool itself: for permissions, hooks, `/why` and after a crash.
- Members get no terminal and no files. Guests get `todo`, `session_search` and `clarify` alone.
- What needs more than the sandbox allows asks you first, and so does every tool of a plug-in or an MCP server
  ([approvals](approvals.md)). Reading a file that may hold credentials, or a file of the Hermes home outside
  `workspace` and `skills`, asks, too. No tool opens the database.
- Commands and file tools start in the folder where you started Hermes; in the gateway, in `<home>/workspace`. A child
  process gets an allow-list of environment variables (PATH, HOME, LANG …) and those named under
  `terminal.env_passthrough`, never one that looks like a key, a token or a password.
- A result that is longer than the limit is cut in the middle; the full result is in `<home>/results`, where the model
  reads it in pages. The limits are in the operators' [table of limits](../operators/limits.md), under Tools.
"""


def page() -> str:
    """The page, as it is checked in."""
    registry = Registry()
    lines = [_INTRODUCTION.rstrip()]
    for name in BUILT_INS:
        tool = registry.get(name)
        if tool is not None:
            lines += _about(tool)
    lines += ["", "This page is made by `make docs` from `src/hermes_agent/tools/`."]
    return "\n".join(lines) + "\n"


def _about(tool: Tool) -> Iterator[str]:
    who = ", ".join(role for role in ("owner", "admin", "member", "guest") if role in tool.roles)
    yield from ("", f"## `{tool.name}`", "", tool.description, "")
    found = "" if tool.listed else " · *found*"
    yield f"Toolset `{tool.toolset}` · {'changes things' if tool.changes else 'only looks'} · for {who}{found}"
    properties: Mapping[str, Mapping[str, Any]] = tool.parameters["properties"]
    yield from ("", "| parameter | type | |", "|---|---|---|")
    for name, schema in properties.items():
        needed = " **(needed)**" if name in tool.parameters.get("required", ()) else ""
        yield f"| `{name}`{needed} | {_kind(schema)} | {schema.get('description', '')} |"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind = schema.get("type", "any")
    return kind if isinstance(kind, str) else " or ".join(kind)


if __name__ == "__main__":
    print(page(), end="")
