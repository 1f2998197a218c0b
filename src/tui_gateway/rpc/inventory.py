"""Methods about what there is beside conversations: tools, skills, plug-ins, and the folder that tools work in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import skills
from hermes_agent.tools import registry
from hermes_cli import plugins
from hermes_config import config as configuration
from hermes_config.errors import HermesError
from tui_gateway.session import session_view
from tui_gateway.session.services import RpcServices
from tui_gateway.session.services import word_of as word
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

if TYPE_CHECKING:
    from hermes_agent.skills import Skills
    from tui_gateway.rpc.sessions import Handler
    from tui_gateway.session.live_session import LiveSession

_PLATFORM = "tui"


def found_skills() -> Skills:
    config = configuration.load_or_last_good()[0]
    return skills.discover(config.home, config.skills, platform=_PLATFORM, limits=config.limits)


def _tools(services: RpcServices, params: Params) -> Result:
    return {"tools": registry.tool_rows(configuration.load_or_last_good()[0], platform=_PLATFORM)}


def _toolsets(services: RpcServices, params: Params) -> Result:
    grouped: dict[str, list[dict[str, str]]] = {}
    for row in registry.tool_rows(configuration.load_or_last_good()[0], platform=_PLATFORM):
        grouped.setdefault(row["toolset"], []).append(row)
    return {"toolsets": [_toolset(name, grouped[name]) for name in sorted(grouped)]}


def _toolset(name: str, rows: list[dict[str, str]]) -> dict[str, Any]:
    return {"name": name, "tools": [row["name"] for row in rows], "enabled": any(row["state"] == "on" for row in rows)}


def _skills(services: RpcServices, params: Params) -> Result:
    action, found = word(params, "action") or "list", found_skills()
    if action == "list":
        shown = [{"name": one.name, "category": one.category, "description": one.description} for one in found.skills]
        return {"skills": shown, "problems": list(found.problems)}
    if action != "inspect":
        raise RpcError(frames.BAD_VALUE, "action must be list or inspect")
    try:
        seen = found.view(word(params, "query"))
    except HermesError as error:
        raise RpcError(frames.BAD_VALUE, error.one_line()) from error
    return {
        "skill": {"name": seen.skill.name, "category": seen.skill.category, "description": seen.skill.description,
                  "content": seen.content, "files": list(seen.files)}
    }  # fmt: skip


def _plugins(services: RpcServices, params: Params) -> Result:
    manager = plugins.get_plugin_manager()
    manager.discover()
    return {
        "plugins": [{"name": row.found.key, "status": row.state, "reason": row.reason}
                    for row in manager.plugins.values()]
    }  # fmt: skip


def _move(services: RpcServices, params: Params) -> Result:
    """Tools of this session work in another folder from the next turn on."""
    sid, session = services.session(params)
    given = word(params, "cwd")
    folder = Path(os.path.expanduser(given))  # noqa: PTH111 - an unknown user is an error of Path's
    if not given or not os.path.isdir(folder):  # noqa: PTH112 - an impossible name is not a folder, and not an error
        raise RpcError(frames.BAD_VALUE, f"there is no folder {given[:200]!r}")
    live: LiveSession = session["live"]
    if live.busy():
        raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
    session.update(cwd=str(folder.absolute()), explicit_cwd=True)
    live.drop_agent()
    services.emit("session.info", sid, session_view.info(session))
    return {"cwd": session["cwd"]}


HANDLERS: dict[str, Handler] = {
    "tools.list": _tools,
    "toolsets.list": _toolsets,
    "skills.manage": _skills,
    "plugins.list": _plugins,
    "session.cwd.set": _move,
}
