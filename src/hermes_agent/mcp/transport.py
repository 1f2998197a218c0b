"""The wire to an MCP server: a confined program with two pipes, or HTTP. Both bound what they read.

A message larger than `limits.mcp_message_bytes` is dropped while it is read; the call that waits for it gets an error,
and the connection goes on. What a program writes to its errors goes to the log, line by line, and the last line is kept
as the reason if it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from hermes_agent.execution.executor import Executor
from hermes_agent.tools import output

if TYPE_CHECKING:
    import httpx2

    from hermes_agent.execution.process import ChildProcess, PluginProcess
    from hermes_agent.mcp.servers import McpServer

log = logging.getLogger("hermes.mcp")
_CHUNK = 65_536
_ENDS = 512
"""Bytes kept of the beginning and the end of a message that is too large, to find whose answer it is."""
_ID_FIRST = re.compile(rb'^\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_LOGGED_LINES, _LINE_CHARS = 200, 500
_END_SECONDS = 1.0
"""How long a program that closed its output may take to end."""
_TRANSFER_SECONDS, _READ_SECONDS = 30.0, 300.0


class StdioLines:
    """Splits bytes into lines of at most `most` bytes; of a longer line only both ends are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._part = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The complete lines, each with how many bytes were dropped from its middle."""
        found: list[tuple[bytes, int]] = []
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._add(line)
            found.append((bytes(self._part), self._dropped))
            self._part, self._dropped = bytearray(), 0
        self._add(rest)
        return found

    def _add(self, data: bytes) -> None:
        self._part += data
        over = len(self._part) - 2 * _ENDS
        if over > 0 and (self._dropped or len(self._part) > self._most):
            del self._part[_ENDS : _ENDS + over]
            self._dropped += over


def answered_id(line: bytes) -> int | None:
    """The id of the request that a cut answer belongs to; servers write it first or last."""
    found = _ID_FIRST.search(line[:_ENDS]) or _ID_LAST.search(line[-_ENDS:])
    return int(found[1]) if found else None


class ProgramErrors:
    """What a server's program writes to its errors: logged, and the last line kept."""

    def __init__(self, name: str) -> None:
        self._name, self._lines, self._count = name, StdioLines(_LINE_CHARS * 4), 0
        self.last = ""

    def add(self, data: bytes) -> None:
        for line, _ in self._lines.feed(data):
            said = output.clean(line.decode("utf-8", "replace")).strip()[:_LINE_CHARS]
            if not said:
                continue
            self.last = said
            self._count += 1
            if self._count <= _LOGGED_LINES:
                more = " (further lines are left out)" if self._count == _LOGGED_LINES else ""
                log.info("%s: %s%s", self._name, said, more, extra={"action": "mcp_stderr", "server": self._name})


class ServerProgram:
    """A server that runs here, as a transport of the SDK. `on_end` is called when it ends; `reason` says how."""

    def __init__(self, server: McpServer, on_end: Callable[[], None]) -> None:
        self._server, self._on_end = server, on_end
        self.ended = False
        self.reason = ""
        self.errors = ProgramErrors(server.name)

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        """Start the program; yields the SDK's two streams. After the block nothing of it runs."""
        import anyio

        command, permit, reads = await asyncio.to_thread(self._server.command)
        executor = Executor(self._server.config.home, self._server.config, self._server.config.limits)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        mine, theirs = [ours_out, ours_in], [theirs_in, theirs_out]
        try:
            async with executor.run(
                command, workspace=self._server.folder, on_output=self.errors.add, permit=permit, reads=reads,
                streams=(theirs_in, theirs_out), grace=2.0,
            ) as child:  # fmt: skip
                while theirs:
                    os.close(theirs.pop())
                reading, reader = await _reader(mine.pop())
                writing, writer = await _writer(mine.pop())
                incoming, read_stream = anyio.create_memory_object_stream[Any](0)
                write_stream, outgoing = anyio.create_memory_object_stream[Any](0)
                tasks = [
                    asyncio.ensure_future(self._read(reader, incoming, child)),
                    asyncio.ensure_future(self._write(writer, outgoing, incoming)),
                ]
                try:
                    yield read_stream, write_stream
                finally:
                    for task in tasks:
                        task.cancel()
                    try:
                        await asyncio.gather(*tasks, return_exceptions=True)
                    finally:  # also if this is cancelled meanwhile
                        for end in (writing, reading, incoming, read_stream, write_stream, outgoing):
                            end.close()
        finally:
            for descriptor in (*mine, *theirs):
                os.close(descriptor)

    async def _read(self, reader: asyncio.StreamReader, incoming: Any, child: ChildProcess | PluginProcess) -> None:
        from anyio import BrokenResourceError, ClosedResourceError

        lines = StdioLines(self._server.config.limits.mcp_message_bytes)
        with suppress(BrokenResourceError, ClosedResourceError):
            while data := await reader.read(_CHUNK):
                for line, dropped in lines.feed(data):
                    if line.strip() and (message := self._message(line, dropped)) is not None:
                        await incoming.send(message)
        code = await child.ended(_END_SECONDS)
        how = "closed its output" if code is None else f"ended with {'signal' if code < 0 else 'exit code'} {abs(code)}"
        trouble = f" ({child.trouble})" if child.trouble else ""
        self.reason = f"its program {how}{trouble}{f': {self.errors.last}' if self.errors.last else ''}"
        incoming.close()  # the SDK answers every waiting call
        self.ended = True
        self._on_end()

    def _message(self, line: bytes, dropped: int) -> Any:
        from mcp.shared.message import SessionMessage
        from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

        name = self._server.name
        if dropped:
            most = self._server.config.limits.mcp_message_bytes
            said = f"its answer was larger than {most:,} bytes and was dropped"
            log.warning("%s: %s", name, said, extra={"action": "mcp_too_large", "server": name})
            if (request := answered_id(line)) is None:
                return None
            return SessionMessage(
                JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=INTERNAL_ERROR, message=said))
            )
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self.errors.add(b"(output that is no message) " + line[:_LINE_CHARS] + b"\n")
            return None

    async def _write(self, writer: asyncio.StreamWriter, outgoing: Any, incoming: Any) -> None:
        try:
            async for message in outgoing:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
        except OSError:  # nobody reads: the connection is over, and `_read` knows best how it ended
            await asyncio.sleep(2 * _END_SECONDS)
            incoming.close()


async def _reader(descriptor: int) -> tuple[asyncio.BaseTransport, asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=_CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return transport, reader


async def _writer(descriptor: int) -> tuple[asyncio.BaseTransport, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    return transport, asyncio.StreamWriter(transport, protocol, None, loop)


# -- HTTP --------------------------------------------------------------------------------------------------------------


def http_client(server: McpServer, *, auth: httpx2.Auth | None, on_status: Callable[[Any], None]) -> httpx2.AsyncClient:
    """The HTTP client of one connection. `on_status` sees every response before its body."""
    import httpx2

    most = server.config.limits.mcp_message_bytes

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > most:
                    raise httpx2.StreamError(f"the answer was larger than {most:,} bytes and was dropped")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def responded(response: httpx2.Response) -> None:
        on_status(response)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise httpx2.StreamError("the answer is compressed, although Hermes did not ask for that")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = Bounded(response.stream)  # the SDK bounds the events of the others

    return httpx2.AsyncClient(
        headers={**server.headers(), "Accept-Encoding": "identity"}, auth=auth,
        timeout=httpx2.Timeout(_TRANSFER_SECONDS, read=_READ_SECONDS), event_hooks={"response": [responded]},
    )  # fmt: skip


@asynccontextmanager
async def http_streams(server: McpServer, client: httpx2.AsyncClient) -> AsyncIterator[Any]:
    """The SDK's two streams to a server that is called."""
    from mcp.client.streamable_http import streamable_http_client

    made: AbstractAsyncContextManager[Any] = streamable_http_client(
        server.url(), http_client=client, max_sse_event_size=server.config.limits.mcp_message_bytes
    )
    async with client, made as streams:
        yield streams


def reason_of(error: BaseException) -> str:
    """The innermost reason of a failed connection, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    said = ""
    with suppress(Exception):
        said = " ".join(output.clean(str(error)).split())
    unreachable = "it cannot be reached: " if type(error).__name__ == "ConnectError" else ""  # of httpx2
    return (unreachable + (said or type(error).__name__))[:300]
