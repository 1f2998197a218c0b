"""Another agent with the official MCP client: calls tools, and follows `ask` as a task in either era."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult, Request, Result
from pydantic import TypeAdapter

TASKS = "io.modelcontextprotocol/tasks"
OVER = ("completed", "cancelled", "failed")
_ANY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class TaskHandle(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class _TasksExtension(ClientExtension):
    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(handle: TaskHandle, ctx: ClaimContext) -> CallToolResult:
            raise AssertionError("the tests read tasks themselves")

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class _AnyRequest(Request[dict[str, Any], str]):
    pass


class McpAgent:
    """`async with McpAgent(url, key=KEY) as agent`. `answer`: what its person says to an approval question."""

    def __init__(
        self,
        server: str | StdioServerParameters,
        *,
        key: str = "",
        mode: str = "auto",
        tasks: bool = True,
        answer: str | None = None,
    ) -> None:
        self.legacy, self._answer = mode == "legacy", answer
        self.asked: list[str] = []
        """The approval questions that its person was shown."""
        self._http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60)
        where: Any = streamable_http_client(server, http_client=self._http) if isinstance(server, str) else server
        self.client = Client(
            where, mode=mode, extensions=[_TasksExtension()] if tasks and not self.legacy else [],
            elicitation_callback=None if answer is None else self._elicited,
        )  # fmt: skip

    async def _elicited(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": self._answer or ""})

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)
        await self._http.aclose()

    async def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a tool that is no task; raises its error."""
        found = await self.client.call_tool(name, arguments)
        assert not found.is_error, found.content
        assert found.structured_content is not None
        return dict(found.structured_content)

    async def refusal(self, name: str, **arguments: Any) -> str:
        """The error text of a tool."""
        found = await self.client.call_tool(name, arguments)
        assert found.is_error, found
        text: str = found.content[0].text  # type: ignore[union-attr]
        return text

    async def ask(self, message: str, **more: Any) -> str:
        """Begin a task; returns its id."""
        arguments = {"message": message, **more}
        if self.legacy:
            # The SDK's client takes no task for an answer in this era, so this one request goes below its checks.
            call = {"name": "ask", "arguments": arguments, "task": {"ttl": 60_000}}
            made = await self.client.session._dispatcher.send_raw_request("tools/call", call, {})
            return str(made["task"]["taskId"])
        found = await self.client.session.call_tool("ask", arguments, allow_claimed=True)
        assert isinstance(found, TaskHandle), found
        return found.task_id

    async def rpc(self, method: str, **params: Any) -> dict[str, Any]:
        kind = _TaskRequest if method.startswith("tasks/") else _AnyRequest
        return await self.client.session.send_request(kind(method=method, params=params), _ANY)

    async def task(self, task_id: str) -> dict[str, Any]:
        return await self.rpc("tasks/get", taskId=task_id)

    async def until(self, task_id: str, *wanted: str, seconds: float = 30.0) -> dict[str, Any]:
        """The task, once it has one of these states."""
        async with asyncio.timeout(seconds):
            while (found := await self.task(task_id))["status"] not in wanted:  # noqa: ASYNC110 - callers poll
                await asyncio.sleep(0.05)
        return found

    async def answer(self, task_id: str) -> str:
        """The text of a task's result, once it has ended."""
        ended = await self.until(task_id, *OVER)
        result = await self.rpc("tasks/result", taskId=task_id) if self.legacy else ended["result"]
        return str(result["content"][0]["text"])
