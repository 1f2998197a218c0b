"""`todo`: the model's to-do list of this conversation.

The transcript stores the list: every result holds the whole list, and a new process reads the newest one, also from a
compressed segment. The agent's notes only cache it.
"""

from __future__ import annotations

import json
from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_agent.tools.paths import ToolRefused

_STATES = ("pending", "in_progress", "completed", "cancelled")
_KEY = "todo"


def todo(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    known = ctx.agent.get(_KEY)
    items: list[dict[str, Any]] = _from_transcript(ctx) if known is None else known
    if "todos" in args:
        items = _merged(items, args["todos"]) if args.get("merge") else [_item(new, {}) for new in args["todos"]]
        most = ctx.db.limits.todo_items
        if len(items) > most:
            raise ToolRefused(f"the list would have {len(items)} items; at most {most} are kept")
    ctx.agent[_KEY] = items
    done = sum(item["status"] in ("completed", "cancelled") for item in items)
    return ToolResult(json.dumps({"todos": items}, ensure_ascii=False), shown=f"{done} of {len(items)} done")


def _item(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(new["id"]),
        "content": new.get("content", old.get("content", "")),
        "status": new.get("status", old.get("status", "pending")),
    }


def _merged(items: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The list with the changes merged in; new items come last."""
    known = {item["id"]: item for item in items}
    for change in changes:
        known[str(change["id"])] = _item(change, known.get(str(change["id"]), {}))
    return list(known.values())


def _from_transcript(ctx: ToolContext) -> list[dict[str, Any]]:
    for segment in reversed(ctx.db.get_compression_lineage(ctx.session_id())):
        for message in reversed(ctx.db.get_messages(segment)):
            if message.get("role") == "tool" and message.get("tool_name") == TOOL.name:
                items = _read(message.get("content"))
                if items is not None:
                    return items
    return []


def _read(content: Any) -> list[dict[str, Any]] | None:
    """The list in a stored result; None if the result is an error or was shortened."""
    try:
        items = json.loads(content)["todos"]
        return [
            {"id": str(item["id"]), "content": str(item["content"]), "status": str(item["status"])} for item in items
        ]
    except (ValueError, TypeError, KeyError):
        return None


TOOL = Tool(
    name="todo",
    toolset="todo",
    description=(
        "Your list for work of three steps or more; a call without `todos` reads it. `todos` replaces the whole list,"
        " or with merge changes the items with the same ids and adds new ones. Keep exactly one item in_progress."
    ),
    parameters=parameters(
        todos={
            "type": "array",
            "description": "The items, in order of importance.",
            "items": parameters(
                "id",
                id={"type": ["string", "integer"], "description": "A short name of the item."},
                content=value("string", "What is to be done."),
                status={"type": "string", "enum": list(_STATES)},
            ),
        },
        merge=value("boolean", "Change and add, do not replace."),
    ),
    handler=todo,
    changes=False,
    summary=lambda args: f"{len(args['todos'])} items" if isinstance(args.get("todos"), list) else "read",
)
