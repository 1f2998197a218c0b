"""`process`: lists, reads, writes, waits for and kills background commands of the terminal tool.

Only the conversation or the person that started a process reaches it. What is written to a process that a person let
out of its sandbox, fully or in part, passes the gate like a command outside the sandbox: a shell would run it. A
confined process reads whatever it gets."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from hermes_agent.text import brief
from hermes_agent.tools.base import Action, Tool, ToolContext, ToolResult, parameters, value
from hermes_agent.turn.control import Interrupted, until_stopped

if TYPE_CHECKING:
    from hermes_state.turns.processes import ProcessRow

_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.25
_LISTED = 20
_COMMAND = 200


async def process(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent import processes  # here and below: listing tools does not need it
    from hermes_config.errors import HermesError

    await asyncio.to_thread(processes.settle, ctx.db, ctx.home)
    action, process_id = args["action"], str(args.get("id") or "")
    if action == "list":
        return await asyncio.to_thread(_list, ctx)
    row = await asyncio.to_thread(ctx.db.processes.get, process_id)
    if row is None or not _may_reach(row, ctx):
        return ToolResult(f"There is no process {process_id!r:.40} here; action=list shows them.", is_error=True)
    try:
        if action == "write":
            text = str(args.get("text") or "")
            if refused := await _refusal(row, text, ctx):
                return ToolResult(f"Nothing was sent: {refused}", is_error=True, shown="not allowed")
            await ctx.begin()
            await asyncio.to_thread(processes.send, ctx.home, row.id, text, close=bool(args.get("close")))
            return ToolResult("Sent." if text else "Its input is closed.")
        if action == "kill":
            await ctx.begin()
            row = await asyncio.to_thread(processes.kill, ctx.db, ctx.home, row, quiet=False)
        elif action == "wait":
            row = await _wait(row, float(args.get("timeout") or _WAIT_SECONDS), ctx)
    except HermesError as error:
        return ToolResult(error.one_line(), is_error=True)
    return await asyncio.to_thread(_shown, row, args.get("offset"), ctx)


async def _refusal(row: ProcessRow, text: str, ctx: ToolContext) -> str:
    """Why the process must not read this text; empty if it may."""
    if not text or not row.opening:
        return ""
    command = row.command if len(row.command) <= _COMMAND else f"{row.command[:_COMMAND]}…"
    detail = f"as input of the background process {row.id} ({row.opening}): {command}"
    try:
        action = Action("command", text, row.workdir, detail, outside=True)
        verdict = await until_stopped(ctx.gate.permit(action), ctx.stop)
    except Interrupted:
        return "interrupted by the person."
    return "" if verdict.allowed else verdict.reason


def _may_reach(row: ProcessRow, ctx: ToolContext) -> bool:
    mine = row.person_id is not None and row.person_id == ctx.person_id
    return row.conversation_id == ctx.conversation_id or mine


def _list(ctx: ToolContext) -> ToolResult:
    from hermes_agent import processes

    ours = {row.id: row for row in ctx.db.processes.of_conversation(ctx.conversation_id, limit=_LISTED)}
    ours.update((row.id, row) for row in ctx.db.processes.running() if _may_reach(row, ctx))
    now = ctx.db.clock()
    lines = [f"{row.id}: {processes.described(row, now)}: {row.command[:_COMMAND]}" for row in ours.values()]
    return ToolResult("\n".join(lines) or "There are no background processes.")


async def _wait(row: ProcessRow, seconds: float, ctx: ToolContext) -> ProcessRow:
    from hermes_agent import processes

    deadline = time.monotonic() + min(seconds, ctx.db.limits.terminal_longest_seconds)
    while row.running and time.monotonic() < deadline and not ctx.stop.is_set():
        await asyncio.sleep(_LOOK_SECONDS)
        row = await asyncio.to_thread(processes.wait, ctx.db, ctx.home, row, seconds=0)
    return row


def _shown(row: ProcessRow, offset: int | None, ctx: ToolContext) -> ToolResult:
    """The process's output and state. An end that the model reads here needs no turn of its own."""
    from hermes_agent import processes
    from hermes_agent.tools import output

    if not row.running:
        ctx.db.processes.take_notice(row)
    kept = processes.read(ctx.home, row.id, offset=offset, most=ctx.db.limits.tool_result_chars // 2)
    how = processes.ending(row.state, row.exit_code, row.trouble)
    end = kept.offset + len(kept.data)
    part = "" if not kept.offset and end >= kept.size else f" (from byte {kept.offset:,}; offset reads elsewhere)"
    state = f"[{row.id}: {processes.described(row, ctx.db.clock())}; {kept.size:,} bytes of output{part}]"
    text = f"{output.text_of(kept.data).rstrip() or '(no output)'}\n{state}"
    return ToolResult(text, shown=f"{row.id}: {how}", source=f"the output of {brief(row.command, 60)}")


TOOL = Tool(
    name="process",
    toolset="terminal",
    description="See and control the background commands of terminal.",
    parameters=parameters(
        "action",
        action=value("string", "wait: until it ends", enum=["list", "read", "write", "wait", "kill"]),
        id=value("string", "Which one; not for list."),
        offset=value("integer", "Read from this byte; default: the end of its output."),
        text=value("string", "For write: its input."),
        close=value("boolean", "End its input."),
        timeout=value("number", "Seconds to wait, default 60."),
    ),
    handler=process,
    begins=True,
    roles=frozenset({"owner", "admin"}),
    listed=False,
    summary=lambda args: f"{args.get('action', '')} {args.get('id') or ''}".strip(),
    own_timeout=True,
)
