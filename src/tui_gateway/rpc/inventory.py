"""Methods that list tools, skills and plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.knowledge import skills
from hermes_agent.tools import registry
from hermes_cli import plugins
from hermes_config import config as configuration
from hermes_config.errors import HermesError
from tui_gateway.rpc.method import MethodParam, method
from tui_gateway.session.services import RpcCall
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Result, RpcError

if TYPE_CHECKING:
    from hermes_agent.knowledge.skills import Skills

_PLATFORM = "tui"


def found_skills() -> Skills:
    config = configuration.load_or_last_good()[0]
    return skills.discover(config, platform=_PLATFORM)


def is_skill(name: str) -> bool:
    """Whether a command names a skill."""
    return any(one.name.lower().replace("_", "-") == name.replace("_", "-") for one in found_skills().skills)


@method("tools.list", result="tools [{name, toolset, state (on, off, not set up), description}]", pooled=True)
def _tools(call: RpcCall) -> Result:
    """All tools."""
    return {"tools": registry.tool_rows(configuration.load_or_last_good()[0], platform=_PLATFORM)}


@method("toolsets.list", result="toolsets [{name, tools, enabled}]", pooled=True)
def _toolsets(call: RpcCall) -> Result:
    """Groups of tools."""
    grouped: dict[str, list[dict[str, str]]] = {}
    for row in _tools(call)["tools"]:
        grouped.setdefault(row["toolset"], []).append(row)
    return {
        "toolsets": [
            {"name": name, "tools": [row["name"] for row in rows], "enabled": any(row["state"] == "on" for row in rows)}
            for name, rows in sorted(grouped.items())
        ]
    }


@method(
    "skills.manage", MethodParam("action", "text", "list or inspect; list"),
    MethodParam("query", "text", "which one"),
    result="skills? [{name, category, description}], problems?, "
    "skill? {name, category, description, content, files}",
    errors=(4004,), pooled=True,
)  # fmt: skip
def _skills(call: RpcCall) -> Result:
    """All skills, or one of them."""
    action, found = call.word("action") or "list", found_skills()
    if action == "list":
        shown = [{"name": one.name, "category": one.category, "description": one.description} for one in found.skills]
        return {"skills": shown, "problems": list(found.problems)}
    if action != "inspect":
        raise RpcError(frames.BAD_VALUE, "action must be list or inspect")
    try:
        seen = found.view(call.word("query"))
    except HermesError as error:
        raise RpcError(frames.BAD_VALUE, error.one_line()) from error
    return {
        "skill": {"name": seen.skill.name, "category": seen.skill.category, "description": seen.skill.description,
                  "content": seen.content, "files": list(seen.files)}
    }  # fmt: skip


@method("plugins.list", result="plugins [{name, status, reason}]", pooled=True)
def _plugins(call: RpcCall) -> Result:
    """All plug-ins."""
    manager = plugins.get_plugin_manager()
    manager.discover()
    rows = manager.plugins.values()
    return {"plugins": [{"name": row.found.key, "status": row.state, "reason": row.reason} for row in rows]}
