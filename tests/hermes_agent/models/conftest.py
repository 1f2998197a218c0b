"""A provider on loopback that sends exactly the bytes a test writes down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import pytest

from hermes_agent.models.base import Endpoint
from hermes_agent.models.http import close_clients

Handler = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request, and the pen to answer it with."""

    def __init__(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.line, *fields = head.split("\r\n")
        self.headers = dict(field.lower().split(": ", 1) for field in fields if field)
        self.body = body
        self.writer = writer

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.writer.write(chunk)
            await self.writer.drain()

    async def begin(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        """An answer in chunks, of which no end was sent yet."""
        fields = {"content-type": kind, "transfer-encoding": "chunked", **headers}
        lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def answer(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        await self.begin(status, kind, **headers)
        await self.chunk(body)
        await self.end()

    async def stream(self, *events: str, done: bool = True) -> None:
        await self.begin()
        for event in (*events, *(["[DONE]"] if done else [])):
            await self.chunk(f"data: {event}\n\n".encode())
        await self.end()

    def hang_up(self) -> None:
        self.writer.transport.abort()


class Loopback:
    """A real HTTP server. Each request takes the next handler; the last one stays."""

    def __init__(self, *handlers: Handler) -> None:
        self.handlers = list(handlers)
        self.requests: list[Exchange] = []
        self.connections = 0
        self.lost = asyncio.Event()
        """Set when a client went away in the middle of an answer."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        await close_clients()
        self._server.close()
        await asyncio.sleep(0.01)

    def endpoint(self, **changes: Any) -> Endpoint:
        given: dict[str, Any] = {
            "provider": "custom", "wire": "chat", "base_url": f"http://127.0.0.1:{self.port}/v1", "model": "m-1",
            "api_key": "sk-secret-canary-1234567890", "key_from": "CANARY_KEY in .env",
        }  # fmt: skip
        return Endpoint(**{**given, **changes})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n")
                exchange = Exchange(head, b"", writer)
                exchange.body = await reader.readexactly(int(exchange.headers.get("content-length", 0)))
                self.requests.append(exchange)
                handler = self.handlers[0] if len(self.handlers) == 1 else self.handlers.pop(0)
                await self._watched(handler(exchange), reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _watched(self, answering: Awaitable[None], reader: asyncio.StreamReader) -> None:
        task = asyncio.ensure_future(answering)
        while not task.done():
            await asyncio.wait([task], timeout=0.01)
            if reader.at_eof() and not task.done():
                self.lost.set()
                task.cancel()
                await asyncio.wait([task])
                return
        task.result()


@pytest.fixture
def loopback() -> type[Loopback]:
    return Loopback
