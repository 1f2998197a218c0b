"""`ask` as an MCP task, in both versions of the protocol.

2026-07-28: the extension `io.modelcontextprotocol/tasks` (SEP-2663). A caller that declares it gets a task for `ask`
and reads it with `tasks/get`; `tasks/update` answers an approval question, `tasks/cancel` stops the turn. 2025-11-25:
the caller adds `task` to the call; `tasks/result` waits for the outcome and asks the questions on the way. There
`LegacyTasks` does what the SDK leaves out. A task is an inbox row (`asks`), so no process keeps a list of tasks.

An approval question is shown to the caller only if its role may decide and its client can ask a person. Everybody else
reads `input_required` without a request: the question is answered on the phone or in the window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, CallToolRequestParams, CallToolResult, RequestParams, TextContent
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, ValidationError

from gateway.access import authorisation
from gateway.chat import question_messages
from gateway.mcp_server import asks
from gateway.mcp_server.asks import AskState, Caller
from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_config import redaction
from hermes_config.errors import HermesError
from hermes_state.ids import PersonId
from hermes_state.turns.inbox import InboxRow

EXTENSION = "io.modelcontextprotocol/tasks"
LEGACY = "2025-11-25"
_BOTH = frozenset({LEGACY, *MODERN_PROTOCOL_VERSIONS})
_POLL_MS = 1_000
_LOOK_SECONDS = 0.25
_DAY_MS = 86_400_000
_OFFERED: tuple[Choice, ...] = ("once", "task", "deny")
"""The answers that a caller may give. A lasting permission is given by a person at Hermes itself."""
_ANSWER = "answer"

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Any], Caller]
"""The caller of a request: `ServerRequestContext.request` is an HTTP request, or None on stdio."""
Start = Callable[[Caller, Mapping[str, Any], Mapping[str, Any]], Awaitable[InboxRow]]
"""Stores the message of a call: caller, arguments, `_meta`. Raises `ValidationError` or `HermesError`."""


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class Tasks(Extension):
    """The extension. `starts`: the tools that are tasks, and how each begins."""

    identifier = EXTENSION

    def __init__(self, caller_of: CallerOf, starts: Mapping[str, Start]) -> None:
        self.caller_of, self.starts = caller_of, starts

    def methods(self) -> Sequence[MethodBinding]:
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, _BOTH),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, _BOTH),
            MethodBinding("tasks/update", UpdateParams, self._update, modern),
            MethodBinding("tasks/result", TaskParams, self._result, frozenset({LEGACY})),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        if params.name not in self.starts or not _declares(ctx):
            return await call_next(ctx)
        state = await self.start(params.name, params.arguments or {}, ctx)
        return await call_next(ctx) if state is None else {"resultType": "task", **_shown(state, ctx)}

    async def start(self, name: str, arguments: Mapping[str, Any], ctx: Context) -> AskState | None:
        """Begin a task; None when the arguments do not fit, which the tool itself explains."""
        caller = self.caller_of(ctx.request)
        try:
            row = await self.starts[name](caller, arguments, dict(ctx.meta or {}))
        except ValidationError:
            return None
        except HermesError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.in_chat()) from error
        return await asyncio.to_thread(asks.state_of, caller.db, row)

    # -- methods -------------------------------------------------------------------------------------------

    async def _found(self, ctx: Context, params: TaskParams) -> tuple[Caller, AskState]:
        """The caller and its task. A task of somebody else is the same as a missing one."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            require_client_extension(ctx, EXTENSION)
            if ctx.request is not None and ctx.request.headers.get("mcp-name", "").strip() != params.task_id:
                raise MCPError(code=HEADER_MISMATCH, message="the header Mcp-Name must be the taskId")
        caller = self.caller_of(ctx.request)
        await person_of(caller)
        row = await asyncio.to_thread(asks.find, caller.db, params.task_id)
        if row is None or not caller.is_own(row):
            raise MCPError(code=INVALID_PARAMS, message="there is no such task")
        state = await asyncio.to_thread(asks.state_of, caller.db, row)
        if state.status == "working":
            await caller.follow(row)
        return caller, state

    async def _get(self, ctx: Context, params: TaskParams) -> HandlerResult:
        caller, state = await self._found(ctx, params)
        shown = _shown(state, ctx)
        if ctx.protocol_version == LEGACY:
            return shown
        if state.status == "input_required":
            shown["inputRequests"] = await self._requests(caller, state, ctx)
        elif state.status == "completed":
            shown["result"] = dumped(result_of(state))
        return {"resultType": "complete", **shown}

    async def _cancel(self, ctx: Context, params: TaskParams) -> HandlerResult:
        caller, state = await self._found(ctx, params)
        is_over = state.status in ("completed", "cancelled")
        if is_over and ctx.protocol_version == LEGACY:
            raise MCPError(code=INVALID_PARAMS, message=f"the task has ended: {state.status}")
        if not is_over:
            await caller.cancel(state.row)
        if ctx.protocol_version != LEGACY:
            return {"resultType": "complete"}
        # This era wants the task in its new state with the answer, although a turn takes a moment to stop.
        return _shown(replace(state, status="cancelled", text=asks.CANCELLED), ctx)

    async def _update(self, ctx: Context, params: UpdateParams) -> HandlerResult:
        caller, state = await self._found(ctx, params)
        offered = {one.id for one in await self._offered(caller, state, ctx)}
        for question in state.questions:
            if question.id in params.input_responses:
                if question.id not in offered:
                    decision = await _approval(caller, question)
                    why = "it was not asked" if decision.allowed else decision.reason
                    raise MCPError(code=INVALID_PARAMS, message=f"this caller may not decide: {why}")
                await self._answer(caller, question, params.input_responses[question.id])
        return {"resultType": "complete"}

    async def _result(self, ctx: Context, params: TaskParams) -> HandlerResult:
        """2025-11-25: wait for the outcome, and ask the caller's person meanwhile."""
        asked: set[str] = set()
        asking: list[asyncio.Task[None]] = []
        try:
            while True:
                caller, state = await self._found(ctx, params)
                if state.status in ("completed", "cancelled"):
                    related = {"io.modelcontextprotocol/related-task": {"taskId": params.task_id}}
                    return {**dumped(result_of(state)), "_meta": related}
                for question in await self._offered(caller, state, ctx):
                    if question.id not in asked:
                        asked.add(question.id)
                        asking.append(asyncio.create_task(self._elicit(ctx, caller, question)))
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for task in asking:  # another surface may have answered first
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    # -- questions -----------------------------------------------------------------------------------------

    async def _offered(self, caller: Caller, state: AskState, ctx: Context) -> list[ApprovalQuestion]:
        """The questions that this caller may answer and can show to a person."""
        can = ctx.session.client_capabilities
        if can is None or can.elicitation is None:
            return []
        return [
            one for one in state.questions
            if not question_messages.is_too_long(one) and (await _approval(caller, one)).allowed
        ]  # fmt: skip

    async def _requests(self, caller: Caller, state: AskState, ctx: Context) -> dict[str, Any]:
        return {
            one.id: {"method": "elicitation/create", "params": {"mode": "form", **_form(one)}}
            for one in await self._offered(caller, state, ctx)
        }

    async def _elicit(self, ctx: Context, caller: Caller, question: ApprovalQuestion) -> None:
        form = _form(question)
        given = await ctx.session.elicit_form(form["message"], form["requestedSchema"], ctx.request_id)
        await self._answer(caller, question, given.model_dump(by_alias=True, mode="json"))

    async def _answer(self, caller: Caller, question: ApprovalQuestion, given: Any) -> None:
        """Store a person's answer. Anything that is not clearly an offered answer is an error, and decides nothing."""
        decision = await _approval(caller, question)
        if not decision.allowed:
            raise MCPError(code=INVALID_PARAMS, message=f"this caller may not decide: {decision.reason}")
        action = given.get("action") if isinstance(given, dict) else None
        content = given.get("content") if isinstance(given, dict) else None
        said = content.get(_ANSWER) if isinstance(content, dict) else None
        if action == "cancel":
            return
        choice = "deny" if action == "decline" else said if action == "accept" else None
        if choice not in _choices(question):
            raise MCPError(code=INVALID_PARAMS, message=f"answer must be one of {', '.join(_choices(question))}")
        await caller.answer(question, choice, decision.person_id)


class LegacyTasks:
    """Middleware for 2025-11-25, whose tasks the SDK does not serve: the capability, the mark on tools, the call."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        params = dict(ctx.params or {})
        if ctx.method == "tools/call" and ctx.protocol_version == LEGACY and isinstance(params.get("task"), dict):
            name, arguments = params.get("name"), params.get("arguments") or {}
            if isinstance(name, str) and name in self._tasks.starts and isinstance(arguments, dict):
                state = await self._tasks.start(name, arguments, ctx)
                if state is not None:
                    return {"task": _shown(state, ctx)}
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        if ctx.method == "initialize" and result.get("protocolVersion") == LEGACY:
            result["capabilities"]["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        elif ctx.method == "tools/list" and ctx.protocol_version == LEGACY:
            for tool in result.get("tools") or ():
                if tool["name"] in self._tasks.starts:
                    tool["execution"] = {"taskSupport": "optional"}
        return result


async def person_of(caller: Caller) -> PersonId | None:
    """The caller's person, by the current policy. Raises for a key without access."""
    decision = authorisation.decide(*caller.who, "speak", None, await caller.policy())
    if not decision.allowed:
        raise MCPError(code=INVALID_PARAMS, message="this key has no access here")
    return decision.person_id


def result_of(state: AskState) -> CallToolResult:
    """The outcome of `ask` as the result of a tool."""
    known = {"answer": state.text, "status": state.row.state, "task": asks.task_id(state.row)}
    return CallToolResult(
        content=[TextContent(type="text", text=state.text)], is_error=state.failed,
        structured_content={**known, **({"conversation": state.conversation} if state.conversation else {})},
    )  # fmt: skip


def dumped(result: CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"result_type"})


async def _approval(caller: Caller, question: ApprovalQuestion) -> authorisation.Decision:
    resource = authorisation.Question(question.person_id)
    return authorisation.decide(*caller.who, "approve", resource, await caller.policy())


def _declares(ctx: Context) -> bool:
    can = ctx.session.client_capabilities if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else None
    return can is not None and EXTENSION in (can.extensions or {})


def _shown(state: AskState, ctx: Context) -> dict[str, Any]:
    times = {"createdAt": _iso(state.row.received_at), "lastUpdatedAt": _iso(state.updated_at)}
    ends = {"statusMessage": state.text} if state.status != "completed" else {}
    legacy = ctx.protocol_version == LEGACY
    kept, poll = ("ttl", "pollInterval") if legacy else ("ttlMs", "pollIntervalMs")
    return {
        "taskId": asks.task_id(state.row), "status": state.status, **times, **ends,
        kept: state.kept_days * _DAY_MS, poll: _POLL_MS,
    }  # fmt: skip


def _iso(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _choices(question: ApprovalQuestion) -> list[Choice]:
    return [one for one in _OFFERED if one in question.choices]


def _form(question: ApprovalQuestion) -> dict[str, Any]:
    """The question for a person at the caller's side: what would happen, and the answers."""
    facts = [f"{name}: {value}" for name, value in approval_text.facts(question, whom="the caller of this MCP server")]
    lines = [f"{approval_text.heading(question.kind)}:", *approval_text.exactly(question.command), ""]
    if question.content:
        lines += [*approval_text.exactly(question.content), ""]
    lines += facts
    choices = _choices(question)
    answer = {
        "type": "string", "title": "Answer",
        "oneOf": [{"const": one, "title": question.label(one)} for one in choices],
    }  # fmt: skip
    schema = {"type": "object", "properties": {_ANSWER: answer}, "required": [_ANSWER]}
    return {"message": redaction.current()("\n".join(lines)), "requestedSchema": schema}
