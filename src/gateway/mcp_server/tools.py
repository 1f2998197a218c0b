"""The tools that another agent sees: list, search, read and continue conversations; `ask` for an answer.

Every call is decided by `gateway.access.authorisation` for the caller of its request. A conversation that the caller
may not read is the same as a missing one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.access import authorisation
from gateway.access.authorisation import ReadableConversation
from gateway.api import sessions
from gateway.api.conversations import history
from gateway.mcp_server import asks, tasks
from gateway.mcp_server.asks import AskRefused, AskState, Caller
from gateway.mcp_server.tasks import CallerOf
from hermes_config import redaction
from hermes_config.errors import HermesError
from hermes_config.version import VERSION
from hermes_state import columns
from hermes_state.ids import is_possible_id
from hermes_state.turns.inbox import InboxRow

IDEMPOTENCY_META = "hermes/idempotency-key"
"""`_meta` of a call may hold the key that the argument `key` would hold; Hermes as a client sends it there."""
_SHOWN = ("id", "title", "source", "preview", "started_at", "last_active", "message_count")
_PAGE_CHARS = 60_000
_MESSAGE_CHARS = 20_000
_PROGRESS_SECONDS = 5.0
_LOOK_SECONDS = 0.25
_INSTRUCTIONS = (
    "Conversations of a Hermes agent. ask sends a message and returns the agent's answer; it may take minutes and wait "
    "for a person's permission, so call it as a task if you can. Give a key to repeat a call without asking twice."
)

T = TypeVar("T")
Message = Annotated[str, Field(min_length=1, max_length=200_000, description="the message to Hermes")]
Target = Annotated[
    str | None, Field(max_length=200, description="id of a conversation to continue; a new one begins without it")
]
Key = Annotated[
    str | None,
    Field(pattern=r"^[\x21-\x7e]{1,200}$", description="your own key of this call: it is not sent twice under it"),
]
Conversation = Annotated[str, Field(max_length=200, description="id of a conversation, from conversations_list")]
Page = Annotated[int, Field(ge=1, le=200, description="how many")]
Offset = Annotated[int, Field(ge=0, le=10**9, description="how many to skip")]


class AskArguments(BaseModel):
    """The arguments of `ask` and `conversation_send`."""

    model_config = ConfigDict(extra="ignore")
    message: Message
    conversation: Target = None
    key: Key = None


async def begin_ask(caller: Caller, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> InboxRow:
    """Store the message of a call; it is durable when this returns."""
    given = {**arguments}
    if given.get("key") is None and isinstance(meta.get(IDEMPOTENCY_META), str):
        given["key"] = meta[IDEMPOTENCY_META]
    asked = AskArguments.model_validate(given)
    if not asked.message.strip():
        raise AskRefused("message must not be empty")
    if asked.conversation is not None:
        await readable(caller, asked.conversation)
    return await caller.submit(asked.message, asked.conversation, asked.key)


async def readable(caller: Caller, wanted: str) -> dict[str, Any]:
    """The row of a conversation that the caller may read."""
    await tasks.person_of(caller)
    row = await asyncio.to_thread(_row, caller, wanted) if is_possible_id(wanted) else None
    if row is not None:
        owner = await asyncio.to_thread(caller.db.ledger.owner, row["root_id"])
        resource = ReadableConversation(owner)
        if authorisation.decide(*caller.who, "read", resource, await caller.policy()).allowed:
            return row
    raise AskRefused("there is no such conversation", hint="conversations_list shows those that you may read.")


def _row(caller: Caller, wanted: str) -> dict[str, Any] | None:
    return caller.db.get_session(caller.db.get_compression_tip(wanted))


class ConversationTools:
    """The tools of one server. Each gets its caller from the request."""

    def __init__(self, caller_of: CallerOf) -> None:
        self._caller_of = caller_of

    def add_to(self, server: MCPServer[Any]) -> None:
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        for tool in (self.conversations_list, self.conversations_search, self.conversation_read):
            server.add_tool(tool, annotations=reads)
        writes = ToolAnnotations(read_only_hint=False, destructive_hint=False)
        server.add_tool(self.conversation_send, annotations=writes)
        server.add_tool(self.ask, annotations=writes)

    def _caller(self, ctx: Context[Any, Any]) -> Caller:
        return self._caller_of(ctx.request_context.request)

    async def _whose(self, caller: Caller) -> Any:
        """The owner of the conversations to list; None for the person at this machine, who may read all of them."""
        person = await tasks.person_of(caller)
        return None if caller.who[0].kind == "local" else person

    # -- reading -------------------------------------------------------------------------------------------

    async def conversations_list(
        self, ctx: Context[Any, Any], limit: Page = 20, offset: Offset = 0, title: str | None = None
    ) -> dict[str, Any]:
        """List conversations, newest activity first. title: only those whose title or id contains it."""
        caller = self._caller(ctx)
        owner = await self._whose(caller)
        found = await asyncio.to_thread(sessions.listed, caller.db, owner, title, limit + 1, offset)
        return {"conversations": [_facts(one) for one in found[:limit]], "has_more": len(found) > limit}

    async def conversations_search(
        self, ctx: Context[Any, Any], query: Annotated[str, Field(min_length=1, max_length=2_000)], limit: Page = 20,
        offset: Offset = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Search what was said. Returns conversations with the matching passages."""
        caller = self._caller(ctx)
        owner = await self._whose(caller)
        found, more = await asyncio.to_thread(sessions.searched, caller.db, owner, query, limit, offset)
        hide = redaction.current()
        shown = [
            {**_facts(one), "matches": [{**hit, "snippet": hide(str(hit["snippet"]))} for hit in one["matches"]]}
            for one in found
        ]
        return {"conversations": shown, "has_more": more}

    async def conversation_read(
        self, ctx: Context[Any, Any], conversation: Conversation, offset: Offset | None = None, limit: Page = 50
    ) -> dict[str, Any]:
        """Read messages of a conversation, oldest first. Without offset: the last ones. A page is bounded in size too:
        next_offset is where the next one begins."""
        caller = self._caller(ctx)
        row = await _told(readable(caller, conversation))
        return await asyncio.to_thread(_page, caller, row, offset, limit)

    # -- speaking ------------------------------------------------------------------------------------------

    async def conversation_send(
        self, ctx: Context[Any, Any], message: Message, conversation: Target = None, key: Key = None
    ) -> dict[str, Any]:
        """Send a message and do not wait. The answer comes into the conversation: conversation_read shows it."""
        row = await self._begun(ctx, {"message": message, "conversation": conversation, "key": key})
        state = await asyncio.to_thread(asks.state_of, self._caller(ctx).db, row)
        return {"task": asks.task_id(row), "state": row.state, "conversation": state.conversation or conversation}

    async def ask(
        self, ctx: Context[Any, Any], message: Message, conversation: Target = None, key: Key = None
    ) -> CallToolResult:
        """Send a message and return the answer. It may take minutes: a client with tasks gets a task instead. If you
        stop waiting, the work goes on, and the same call with the same key returns its answer."""
        row = await self._begun(ctx, {"message": message, "conversation": conversation, "key": key})
        return tasks.result_of(await self._waited(ctx, row))

    async def _begun(self, ctx: Context[Any, Any], given: Mapping[str, Any]) -> InboxRow:
        return await _told(begin_ask(self._caller(ctx), given, dict(ctx.request_context.meta or {})))

    async def _waited(self, ctx: Context[Any, Any], row: InboxRow) -> AskState:
        caller, loop = self._caller(ctx), asyncio.get_running_loop()
        began = told = loop.time()
        while True:
            state = await asyncio.to_thread(asks.state_of, caller.db, row)
            if state.status in ("completed", "cancelled"):
                return state
            await caller.follow(row)
            if loop.time() - told >= _PROGRESS_SECONDS:
                told = loop.time()
                await ctx.report_progress(round(told - began), message=state.text)
            await asyncio.sleep(_LOOK_SECONDS)


async def _told(work: Awaitable[T]) -> T:
    """Our errors as one line for the caller."""
    try:
        return await work
    except HermesError as error:
        raise ToolError(error.in_chat()) from error


class ConversationServer(MCPServer[Any]):
    """The SDK's server, with errors in one line."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            raise ToolError(_one_line(name, error)) from error.__cause__


def _one_line(name: str, error: ToolError) -> str:
    cause: BaseException | None = error.__cause__
    while isinstance(cause, ToolError):
        cause = cause.__cause__
    if isinstance(cause, HermesError):
        return cause.in_chat()
    if not isinstance(cause, ValidationError):
        return " ".join(str(error).split())
    wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in cause.errors(include_url=False))
    return f"{name}: {'; '.join(wrong)}"


def make(caller_of: CallerOf) -> MCPServer[Any]:
    """The server. It keeps no state of its own, so one serves any number of callers."""
    extension = tasks.Tasks(caller_of, {"ask": begin_ask})
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # the SDK sets up logging for the whole process, unless the root logger has a handler
    try:
        server = ConversationServer(
            "hermes", title="Hermes", version=VERSION, instructions=_INSTRUCTIONS, extensions=[extension],
            middleware=[tasks.LegacyTasks(extension)], subscriptions=False,
        )  # fmt: skip
    finally:
        root.removeHandler(silent)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    ConversationTools(caller_of).add_to(server)
    return server


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    hide = redaction.current()
    return {name: hide(value) if isinstance(value := row.get(name), str) else value for name in _SHOWN}


def _page(caller: Caller, row: Mapping[str, Any], offset: int | None, limit: int) -> dict[str, Any]:
    said = history(caller.db, row["id"])
    first = max(0, len(said) - limit) if offset is None else min(offset, len(said))
    hide, free = redaction.current(), _PAGE_CHARS
    shown: list[dict[str, Any]] = []
    for one in said[first : first + limit]:
        text = hide(columns.text_of(one.get("content")))
        clipped = text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}… ({len(text):,} characters)"
        free -= len(clipped)
        if free < 0 and shown:
            break
        calls = [str((call.get("function") or {}).get("name")) for call in one.get("tool_calls") or ()]
        about = {"tool_calls": calls} if calls else {"tool": one["tool_name"]} if one.get("tool_name") else {}
        shown.append({"role": one["role"], "text": clipped, "at": one.get("timestamp"), **about})
    after = first + len(shown)
    more = {"next_offset": after} if after < len(said) else {}
    return {**_facts(row), "id": row["root_id"], "offset": first, "total": len(said), "messages": shown, **more}
