"""The tools that come with Hermes, one file a tool, in the order in which the model sees them.

They are a tool source like one of a plug-in; a tool's module is imported when the tool is offered or called.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes_agent.tools.base import Tool, ToolSource

if TYPE_CHECKING:
    from hermes_cli.plugins import PluginContext

BUILT_INS = (
    "terminal", "read_file", "write_file", "patch", "search_files", "todo", "memory", "session_search", "clarify",
    "skills_list", "skill_view", "send_file", "process", "delegate_task", "cronjob", "web_search", "web_extract",
    "find_tool", "use_tool", "skill_manage",
)  # fmt: skip


def register(ctx: PluginContext) -> None:
    """Register the built-in tools, like a plug-in's."""
    ctx.register_tool_source("builtin", BuiltInTools())


class BuiltInTools(ToolSource):
    def tools(self) -> Sequence[Tool]:
        return [tool for name in BUILT_INS if (tool := built_in(name)) is not None]


def built_in(name: str) -> Tool | None:
    if name not in BUILT_INS:
        return None
    tool: Tool = importlib.import_module(f"{__name__}.{name}").TOOL
    return tool
