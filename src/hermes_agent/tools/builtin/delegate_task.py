"""`delegate_task`: gives tasks to child conversations, waits for them and returns their results."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_state.turns import children as store

_TEXT = {"type": "string"}


async def delegate_task(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    if ctx.delegation is None:
        return ToolResult("delegate_task was not run: nothing can be delegated from here.", is_error=True)
    delegation = ctx.delegation()
    began = await delegation.begin(args["tasks"])
    children, left = await delegation.wait()
    returned = functools.partial(
        ctx.db.children.return_in, turn_id=began[0].turn_id, call_id=began[0].call_id, later=left
    )
    ended = sum(not child.is_open for child in children)
    if left:
        said = (
            f"{ended} of {len(children)} tasks have ended; the others are still at work. All results come in one"
            " message when the last one has ended: do not wait for them and do not delegate them again."
        )
        return ToolResult(said, shown=f"{len(children) - ended} still at work", stored=returned)
    failed = sum(child.state != "done" for child in children)
    shown = f"{len(children)} done" if not failed else f"{len(children) - failed} of {len(children)} done"
    read = await asyncio.to_thread(lambda: any(ctx.db.origins.has_outside(child.id) for child in children))
    return ToolResult(
        store.results_text(children), shown=shown, is_error=failed == len(children), stored=returned,
        source="a delegated task" if read else "",
    )  # fmt: skip


def _summary(args: Mapping[str, Any]) -> str:
    goals = [str(task.get("goal", "")) for task in args.get("tasks") or () if isinstance(task, Mapping)]
    return goals[0] if len(goals) == 1 else f"{len(goals)} tasks: {'; '.join(goals)}"


TOOL = Tool(
    name="delegate_task",
    toolset="delegation",
    description=(
        "Give independent tasks to helpers that work at the same time, each in a fresh conversation with your tools,"
        " and get their reports. They know nothing of this conversation and cannot ask: say everything they need."
    ),
    parameters=parameters(
        "tasks",
        tasks={
            "type": "array", "description": "One for each helper.", "minItems": 1,
            "items": parameters(
                "goal", goal=value("string", "What to do and what to report.", minLength=1), context=_TEXT,
                toolsets={"type": "array", "items": _TEXT}, model=_TEXT,
            ),
        },
    ),
    handler=delegate_task,
    repeatable=True,
    own_timeout=True,
    roles=frozenset({"owner", "admin", "member"}),
    available=lambda config: config.delegation.max_depth > 0,
    listed=False,
    summary=_summary,
)  # fmt: skip
