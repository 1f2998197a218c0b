"""The tool calls of one model step: ask the hooks, mark the call as started, run it, store its result.

Calls run in the order in which the model made them. A call that changes something is marked as begun once it is
permitted and before it acts, and as finished together with its result, so that after a crash in between its outcome is
reported as unknown and the call is never repeated. The mark's name is the row of the model's step and the call's index
in it, so a call has the same name after a restart, whatever id the provider gave it. A call that still waited for a
person's answer had not begun; it keeps waiting.

A call made through `use_tool` comes here as a call of the tool it names (`messages.inner_call`), so hooks, permissions,
marks and people see that tool. Only the stored step, which the model reads again, names `use_tool`.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import time
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_agent import context, hooks
from hermes_agent.messages import FIND_TOOL, arguments_of
from hermes_agent.models.base import ToolCall
from hermes_agent.tools import environment, registry
from hermes_agent.tools.base import Action, PersonWait, ToolContext, ToolResult
from hermes_state.conversations import origins

if TYPE_CHECKING:
    from hermes_agent.approvals.gate import CommandGate
    from hermes_agent.delegation import Delegation
    from hermes_agent.turn.state import TurnRun
    from hermes_state.turns.approvals import Approval

LOST = (
    "The process was lost while this call was running; its outcome is unknown. It was not repeated. "
    "Check what it did before you decide to do it again."
)
NO_STEP = "the step that asked for it is no longer part of this conversation"
INTERRUPTED = "The person interrupted before this call ran."
NOT_RUN = "The turn ended before this call ran."
AFTER_LOST = "Not run: the outcome of a call before it is unknown. See what it did, then decide what is still to do."
BEHIND = "Not run: a call before it waits for permission. Make it again when that one has its result, if it is needed."


async def run_all(
    turn: TurnRun, step: int | str, calls: Sequence[ToolCall], *, first: int = 0, begun: Container[int] = ()
) -> list[dict[str, Any]]:
    """Run the calls from index `first` on; return the stored result rows, in order. `step`: the row of the calls.
    `begun`: indexes of calls during which a process was lost.
    """
    rows: list[dict[str, Any]] = []
    for place in range(first, len(calls)):
        call, why = calls[place], ""
        if turn.signals.stopped:
            why = INTERRUPTED
        elif rows and str(rows[0]["content"]).startswith(LOST):  # only the first call of a recovered step can be lost
            why = AFTER_LOST
        elif turn.waits_for:
            why = BEHIND
        not_run = ToolResult(why, is_error=True)
        run = _store(turn, call, not_run) if why else _run(turn, f"{step}:{place}", call, lost=place in begun)
        rows.append(await run)
    return rows


async def run_waited(turn: TurnRun, question: Approval, call: ToolCall | None, *, begun: bool) -> dict[str, Any]:
    """Run a call whose permission was given while its turn waited, or record the denial; return the stored row.

    The result is a new row at the end, so that the rows the model has seen stay unchanged. `call`: None if its step is
    no longer part of the conversation. `begun`: a process was lost while the call ran.
    """
    name, result = call.name if call is not None else "call", ToolResult()
    if call is None:
        said = f"It was not run: {NO_STEP}."
    elif begun:
        said = LOST
        turn.model.notify(f"The process was lost while {name} ran, which you had approved; its outcome is unknown.")
    elif question.scope is None:
        why = " ".join((question.reason or "").split())
        said = f"It was not run: the person said no{f' ({why})' if why else ''}. Do not work around it."
    else:
        turn.agent.tell("tool_start_callback", call.id, name, arguments_of(call))
        beginning = _Beginning(turn, f"run:{question.id}", name)
        await _listed(turn, call)
        result = await _result(turn, f"run:{question.id}", call, beginning, answers=question.id)
        how = "and it ran. Its result" if beginning.done else "but it was not run"
        said = f"The person gave permission, {how}:\n{result.content}"
        if not beginning.done:
            turn.model.notify(f"{name} was not run, although you had approved it.")
        turn.agent.tell("tool_complete_callback", call.id, name, arguments_of(call), result.content)
    text = f"[About the call {name} that waited for permission ({question.id}):]\n{said}"
    row = {"role": "user", "content": text, "timestamp": turn.setup.db.clock(), **_whose(turn, result)}
    stored = await turn.journal.waited_finished(question.id, row, unknown=said is LOST, also=result.stored)
    return {**row, "id": stored}


class _Beginning:
    """The mark that a call has begun to act, set at most once."""

    def __init__(self, turn: TurnRun, mark: str, tool: str) -> None:
        self._turn, self._mark, self._tool = turn, mark, tool
        self.done = False

    async def __call__(self) -> None:
        if not self.done:
            await self._turn.journal.call_started(self._mark, tool=self._tool)
            self.done = True


async def _run(turn: TurnRun, mark: str, call: ToolCall, *, lost: bool = False) -> dict[str, Any]:
    await _listed(turn, call)
    tool, tell = turn.tools.get(call.name), turn.agent.tell
    arguments = arguments_of(call)
    shown = "" if tool is None or not isinstance(arguments, dict) else tool.summary(arguments)
    tell("tool_start_callback", call.id, call.name, arguments)
    tell("tool_progress_callback", "tool.started", call.name, shown, arguments)
    began, beginning = time.monotonic(), _Beginning(turn, mark, call.name)
    unknown = lost and not (tool is not None and tool.repeatable)
    result = await _result(turn, mark, call, beginning, unknown=unknown)
    row = await _store(turn, call, result, mark=mark if lost or beginning.done else None, unknown=unknown)
    tell("tool_complete_callback", call.id, call.name, arguments, result.content)
    tell(
        "tool_progress_callback", "tool.completed", call.name, result.shown or result.content[:200], arguments,
        duration=time.monotonic() - began, is_error=result.is_error,
    )  # fmt: skip
    return row


async def _listed(turn: TurnRun, call: ToolCall) -> None:
    """Wait for the lists of MCP servers if the call needs them: after a start they come later."""
    seeks = call.name == FIND_TOOL or (call.name.startswith("mcp__") and call.name not in turn.tools)
    if seeks and (servers := registry.mcp_servers()) is not None:
        await servers.until_listed(turn.stop)


async def _result(
    turn: TurnRun, mark: str, call: ToolCall, beginning: _Beginning, *, unknown: bool = False, answers: str = ""
) -> ToolResult:
    """Ask the hooks, run the call, and let them see its result. `answers`: as in `_context`."""
    tool, began = turn.tools.get(call.name), time.monotonic()
    if unknown:
        result, status = ToolResult(await _what_is_known(turn, call), is_error=True), "error"
    elif (veto := await _veto(turn, call, mark=mark, answers=answers)) is not None:
        result, status = ToolResult(veto, is_error=True), "blocked"
    else:
        begins = beginning if answers or (tool is not None and tool.changes) else None
        result = (
            registry.unknown_tool(call.name, turn.tools)
            if tool is None
            else await registry.run_call(tool, call.arguments, _context(turn, call.id, mark, begins, answers=answers))
        )
        status = "error" if result.is_error else "ok"
    facts = {**turn.facts, "tool_name": call.name, "args": arguments_of(call), "tool_call_id": call.id}
    facts |= {
        "result": result.content, "duration_ms": round((time.monotonic() - began) * 1000), "status": status,
        "error_type": None, "error_message": result.content if result.is_error else None,
    }  # fmt: skip
    await hooks.fire("post_tool_call", **facts)
    replaced = hooks.first_text(await hooks.fire("transform_tool_result", **facts))
    return result if replaced is None else replace(result, content=replaced)


async def _what_is_known(turn: TurnRun, call: ToolCall) -> str:
    """What is known of a call whose process was lost. A background process has a row of its own."""
    if call.name != "terminal":
        return LOST
    row = await asyncio.to_thread(turn.setup.db.processes.of_call, turn.journal.turn_id, call.id)
    return LOST if row is None else f"{LOST} It had stored the background process {row.id}: see process."


async def _veto(turn: TurnRun, call: ToolCall, *, mark: str, answers: str) -> str | None:
    """The reason if a plug-in blocks this call, or if a person whom the plug-in wants asked denies it; else None."""
    decision = await hooks.tool_call_decision(
        tool_name=call.name, args=arguments_of(call), tool_call_id=call.id, **turn.facts
    )
    if decision is None:
        return None
    if decision.action == "block":
        return decision.message
    wanted = (decision.message or "a plug-in wants you to be asked",)
    gate = _gate(turn, call.id, mark, answers=answers, extra_reasons=wanted)
    asked = Action(kind="plugin", text=f"{call.name} {call.arguments}", workdir=str(turn.setup.workdir))
    verdict = await gate.permit(asked)
    return None if verdict.allowed else f"{call.name} was not run: {verdict.reason}"


def _context(turn: TurnRun, call_id: str, mark: str, beginning: _Beginning | None, *, answers: str = "") -> ToolContext:
    """The store, folders, permission gate and environment for one call. `answers`: the question whose answer permits
    it."""
    setup, journal = turn.setup, turn.journal
    waited = PersonWait()
    gate = replace(_gate(turn, call_id, mark, answers=answers), person_wait=waited)
    return ToolContext(
        db=setup.db, home=setup.home, workdir=setup.workdir, conversation_id=journal.conversation_id,
        session_id=lambda: journal.session_id, turn_id=journal.turn_id, call_id=call_id,
        person_id=setup.person_id, platform=setup.platform, gate=gate,
        ask=setup.ask, notify=turn.model.notify,
        emit=lambda text: turn.agent.tell("tool_progress_callback", "tool.output", "", text, None),
        environ=environment.child_environment(
            os.environ, passed=setup.config.terminal.env_passthrough, identity=context.child_environment(),
            home=setup.home,
        ),
        stop=turn.stop, config=setup.config, agent=turn.agent.notes, person_wait=waited, tools=turn.tools,
        delegation=functools.partial(_delegation, turn, mark), **({} if beginning is None else {"begin": beginning}),
    )  # fmt: skip


def _gate(turn: TurnRun, call_id: str, mark: str, *, answers: str, extra_reasons: Sequence[str] = ()) -> CommandGate:
    gate = turn.gate.for_call(call_id, mark=mark, extra_reasons=extra_reasons)
    return replace(gate, answers=answers, open_seconds=0.0) if answers else gate  # it waits once


def _delegation(turn: TurnRun, mark: str) -> Delegation:
    from hermes_agent.delegation import Delegation  # for the one tool that delegates

    return Delegation(turn, mark)


async def _store(
    turn: TurnRun, call: ToolCall, result: ToolResult, *, mark: str | None = None, unknown: bool = False
) -> dict[str, Any]:
    content = result.content if not result.images else _with_images(result)
    row = {**result_row(call, content, turn.setup.db.clock()), **_whose(turn, result)}
    if mark is not None:
        row_id = await turn.journal.call_finished(mark, row, unknown=unknown, also=result.stored)
    else:
        (row_id,) = await turn.journal.append(row)
    return {**row, "id": row_id}


def _whose(turn: TurnRun, result: ToolResult) -> dict[str, Any]:
    """The columns that say whose words a result holds."""
    if result.is_answer:
        return {"origin": origins.of_words(result.content, turn.role), "person_id": turn.setup.person_id}
    return {"origin": origins.outside(result.source)} if result.source else {}


def _with_images(result: ToolResult) -> list[dict[str, Any]]:
    urls = (f"data:{one.mime};base64,{base64.b64encode(one.data).decode()}" for one in result.images)
    text = result.content or f"[{len(result.images)} images]"
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def result_row(call: ToolCall, content: str | list[dict[str, Any]], now: float) -> dict[str, Any]:
    return {
        "role": "tool", "content": content, "timestamp": now, "tool_call_id": call.id, "tool_name": call.name,
    }  # fmt: skip
