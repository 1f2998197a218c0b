"""The tool calls of one model step: permission by hook, mark, run, result.

Calls run in the order in which the model made them. A call that changes something is marked started before and
finished with its result after, so that a process that dies in between can say so and never repeats it. The mark's name
is the row of the model's step and the call's place in it: the same call has the same name after a restart, whatever
the provider called it. A call that was still waiting for a person's answer had not begun: it waits on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent import hooks
from hermes_agent.models.base import ToolCall
from hermes_agent.tools import registry
from hermes_agent.tools.base import Action, Gate, Tool, ToolContext, ToolResult
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals
from hermes_state.turns.journal import Journal

if TYPE_CHECKING:
    from hermes_state.turns.effects import Effect

LOST = (
    "The process was lost while this call was running; its outcome is unknown. It was not repeated. "
    "Check what it did before you decide to do it again."
)
INTERRUPTED = "The person interrupted before this call ran."
NOT_RUN = "The turn ended before this call ran."


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What the calls of a turn are run with."""

    journal: Journal
    tools: Mapping[str, Tool]
    context: Callable[[str, str], ToolContext]
    """call id, mark → what the call may use."""
    asking: Callable[[str, str], Gate]
    """call id, reason → the gate that asks a person whatever the judge says."""
    was_waiting: Callable[[str], Awaitable[bool]]
    """mark → whether a call of a lost process had got no further than asking for permission."""
    listeners: Callbacks
    signals: Signals
    clock: Callable[[], float]
    facts: Mapping[str, Any]
    """What hooks are told with every call: session_id, turn_id, task_id."""


async def run_all(
    step: int | str, calls: Sequence[ToolCall], bench: Workbench, *, first: int = 0
) -> list[dict[str, Any]]:
    """Run the calls from place `first` on; the stored result rows, with their ids, in order. `step`: their row."""
    rows = []
    for place in range(first, len(calls)):
        call = calls[place]
        if bench.signals.stopped:
            result = ToolResult(INTERRUPTED, is_error=True)
            rows.append(await _store(bench, call, result, mark=None))
            continue
        rows.append(await _run(f"{step}:{place}", call, bench))
    return rows


async def _run(mark: str, call: ToolCall, bench: Workbench) -> dict[str, Any]:
    tool = bench.tools.get(call.name)
    arguments = _arguments(call)
    bench.listeners.tell_tool_started(call.id, call.name, arguments)
    bench.listeners.tell_tool_progress("tool.started", call.name, _summary(tool, arguments), arguments)
    began = time.monotonic()
    marked = False
    veto = await _veto(call, bench)
    if veto is not None:
        result, status = ToolResult(veto, is_error=True), "blocked"
    elif tool is not None and tool.changes and (lost := await _lost(mark, call, bench)) is not None:
        result, status = ToolResult(LOST, is_error=True), "error"
        marked = lost.outcome_unknown
    else:
        marked = tool is not None and tool.changes
        result = (
            registry.unknown_tool(call.name, bench.tools)
            if tool is None
            else await registry.run_call(tool, call.arguments, bench.context(call.id, mark))
        )
        status = "error" if result.is_error else "ok"
    took = time.monotonic() - began
    facts = {**bench.facts, "tool_name": call.name, "args": arguments, "tool_call_id": call.id}
    outcome = {"result": result.content, "duration_ms": round(took * 1000), "status": status}
    await hooks.fire(
        "post_tool_call", **facts, **outcome, error_type=None, error_message=result.content if result.is_error else None
    )
    replaced = hooks.first_text(await hooks.fire("transform_tool_result", **facts, **outcome))
    if replaced is not None:
        result = ToolResult(replaced, is_error=result.is_error, shown=result.shown)
    row = await _store(bench, call, result, mark=mark if marked else None)
    bench.listeners.tell_tool_completed(call.id, call.name, arguments, result.content)
    bench.listeners.tell_tool_progress(
        "tool.completed", call.name, result.shown or result.content[:200], arguments,
        duration=took, is_error=result.is_error,
    )  # fmt: skip
    return row


async def _lost(mark: str, call: ToolCall, bench: Workbench) -> Effect | None:
    """Mark the call as started; what is known of it when it began in a process that is gone."""
    started = await bench.journal.call_started(mark, tool=call.name)
    if started.new or (started.effect.outcome_unknown and await bench.was_waiting(mark)):
        return None
    return started.effect


async def _veto(call: ToolCall, bench: Workbench) -> str | None:
    """Why a plug-in keeps this call from being made: by itself, or because it wants a person asked who says no."""
    decision = await hooks.decided(tool_name=call.name, args=_arguments(call), tool_call_id=call.id, **bench.facts)
    if decision is None:
        return None
    if decision.action == "block":
        return decision.message
    ctx = bench.context(call.id, "")
    asked = Action(kind="plugin", text=f"{call.name} {call.arguments}", workdir=str(ctx.workdir))
    verdict = await bench.asking(call.id, decision.message or "a plug-in wants you to be asked").permit(asked)
    return None if verdict.allowed else f"{call.name} was not run: {verdict.reason}"


async def _store(bench: Workbench, call: ToolCall, result: ToolResult, *, mark: str | None) -> dict[str, Any]:
    row = result_row(call, result.content, bench.clock())
    if mark is not None:
        row_id = await bench.journal.call_finished(mark, row)
    else:
        (row_id,) = await bench.journal.append(row)
    return {**row, "id": row_id}


def result_row(call: ToolCall, content: str, now: float) -> dict[str, Any]:
    return {
        "role": "tool", "content": content, "timestamp": now, "tool_call_id": call.id, "tool_name": call.name,
    }  # fmt: skip


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


def _summary(tool: Tool | None, arguments: Any) -> str:
    if tool is None or not isinstance(arguments, dict):
        return ""
    return tool.summary(arguments)
