"""Tools that plug-ins bring: from the plain record a plug-in left to a `Tool` like ours.

A plug-in's handler runs off the event loop, in a plug-in worker, and like everything that executes it passes the gate
first (kind `plugin`). Its tools are for the owner and admins: who else may use them is not for a stranger's code to
say.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from hermes_agent.tools.base import Action, Handler, Tool, ToolContext, ToolResult
from hermes_cli import plugins

log = logging.getLogger("hermes.agent")


def as_tool(record: plugins.PluginTool) -> Tool:
    """The tool a record describes. A schema may come bare or wrapped in {"type": "function", "function": …}."""
    wrapped = record.schema.get("function")
    schema: Mapping[str, Any] = wrapped if isinstance(wrapped, Mapping) else record.schema
    parameters = schema.get("parameters")
    return Tool(
        name=record.name,
        toolset=record.toolset,
        description=record.description or str(schema.get("description") or record.name),
        parameters=parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}},
        handler=_handler(record),
        roles=frozenset({"owner", "admin"}),
        available=lambda _config: _is_available(record),
    )


def _handler(record: plugins.PluginTool) -> Handler:
    async def call(args: dict[str, Any], ctx: ToolContext) -> ToolResult | str:
        text = f"{record.name} {json.dumps(args, ensure_ascii=False, sort_keys=True)}"
        verdict = await ctx.gate.permit(Action("plugin", text, str(ctx.workdir), f"a tool of {record.plugin}"))
        if not verdict.allowed:
            return ToolResult(f"{record.name} was not run: {verdict.reason}", is_error=True)
        facts = {"session_id": ctx.session_id(), "task_id": ctx.turn_id, "tool_call_id": ctx.call_id}
        # The registry's own time-out is the one that counts; this one only ends the wait after it.
        answer = await plugins.call_plugin(record.handler, args, seconds=ctx.db.limits.tool_seconds, **facts)
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)

    return call


def _is_available(record: plugins.PluginTool) -> bool:
    from hermes_config import config

    if record.requires_env and not all(config.load().environ(name) for name in record.requires_env):
        return False
    if record.check_fn is None:
        return True
    try:
        return bool(record.check_fn())
    except Exception as error:  # noqa: BLE001 - boundary: a plug-in's callback; a check that fails is a no
        facts = {"action": "tool_check_failed", "tool": record.name, "error": type(error).__name__}
        log.warning("a tool's check failed", extra=facts)
        return False
