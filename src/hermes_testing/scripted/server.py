"""A scripted model behind a real socket on loopback.

    with ScriptedModel(say("Hello")).served() as server:      # a thread of its own: for child processes, sync tests
        endpoint = server.endpoint()
    async with ScriptedModel(say("Hello")).served() as server:    # in the running loop

A small HTTP/1.1 server of our own: it must be able to break an answer at any byte, and to be quick enough that
benchmarks measure us and not it. It knows keep-alive and requests with a `Content-Length`, and nothing else.
`python -m hermes_testing.scripted.server` runs one in its own process and prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import threading
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from hermes_agent.models.base import Endpoint
from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.scripted.steps import Hold, ScriptedRequest
from hermes_testing.scripted.wire import Lost, Pause, ScriptedAnswer

_LARGEST = 512 * 1024 * 1024


class ScriptedServer:
    """One listening socket. Leaving the `with` block closes it and checks the script."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.origin = ""
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._thread: _LoopThread | None = None
        self.connections_made = 0
        """The number of connections: one, when keep-alive works."""

    def endpoint(self, **changes: Any) -> Endpoint:
        return self.model.endpoint(self.origin, **changes)

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port)
        host, bound = self._server.sockets[0].getsockname()
        self.origin = f"http://{host}:{bound}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in tuple(self._connections):
                connection.abort()
            await self._server.wait_closed()

    def opened(self, connection: _Connection) -> None:
        self._connections.add(connection)
        self.connections_made += 1

    def closed(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        self.model.__enter__()
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self.model.__exit__(kind, error, trace)

    def __enter__(self) -> Self:
        self.model.__enter__()
        self._thread = _LoopThread()
        self._thread.run(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.run(self.stop())
            self._thread.end()
        self.model.__exit__(kind, error, trace)


class _LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-server", daemon=True)
        self._thread.start()

    def run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class _Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._playing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.closed(self)
        self._transport = None
        if self._playing is not None:
            self._playing.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def _go_on(self) -> None:
        while self._playing is None and self._transport is not None and (request := self._next()) is not None:
            answer = self._server.model.answer(request)
            if all(isinstance(part, bytes) for part in answer.parts):
                self._transport.write(_complete(answer))  # the usual case, in one piece and without a task
                continue
            self._playing = asyncio.get_running_loop().create_task(self._play(answer))
            self._playing.add_done_callback(self._played)

    def _played(self, task: asyncio.Task[None]) -> None:
        self._playing = None
        if not task.cancelled():
            task.result()
            self._go_on()

    def _next(self) -> ScriptedRequest | None:
        """The next whole request in the buffer."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, target, _version = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
        start = end + 4
        length = int(headers.get("content-length", "0"))
        after = start + length
        if length > _LARGEST or len(self._buffer) < after:
            return None
        body = bytes(self._buffer[start:after])
        del self._buffer[:after]
        return ScriptedRequest(method, target.partition("?")[0], headers, body)

    async def _play(self, answer: ScriptedAnswer) -> None:
        parts = list(answer.parts)
        while parts and not isinstance(first := parts[0], bytes):
            if not await self._pass(first):
                return
            del parts[0]
        self._write(_head(answer, (("transfer-encoding", "chunked"),)))
        for part in parts:
            if isinstance(part, bytes):
                self._write(b"%x\r\n%b\r\n" % (len(part), part))
            elif not await self._pass(part):
                return
        self._write(b"0\r\n\r\n")

    async def _pass(self, part: Pause | Hold | Lost) -> bool:
        """Handle a part that is not bytes; return False when the connection ends here."""
        if not isinstance(part, Lost):
            await part.wait()
        elif self._transport is not None:
            self._transport.close()
            return False
        return True

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _complete(answer: ScriptedAnswer) -> bytes:
    parts = [part for part in answer.parts if isinstance(part, bytes)]
    if answer.status != HTTPStatus.OK or len(parts) == 1:
        body = b"".join(parts)
        return _head(answer, (("content-length", str(len(body))),)) + body
    framed = b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts])
    return _head(answer, (("transfer-encoding", "chunked"),)) + framed + b"0\r\n\r\n"


def _head(answer: ScriptedAnswer, framing: tuple[tuple[str, str], ...]) -> bytes:
    reasons = {529: "Overloaded"}
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = reasons.get(answer.status, "Unknown")
    lines = [f"{name}: {value}" for name, value in (*answer.headers, *framing)]
    return "\r\n".join((f"HTTP/1.1 {answer.status} {reason}", *lines, "", "")).encode("latin-1")


async def _serve(arguments: argparse.Namespace) -> None:
    model = ScriptedModel(
        always(say(*arguments.text, delay=arguments.delay)), wire=arguments.wire, model=arguments.model,
        api_key=arguments.key, context_length=arguments.context_length, keep=arguments.keep,
    )  # fmt: skip
    server = ScriptedServer(model)
    await server.start(arguments.port)
    print(server.origin, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A strict model server that always says the same.")
    parser.add_argument("--text", nargs="+", default=["Hello ", "there."], help="the answer, in pieces")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--wire", choices=("chat", "anthropic"), default="chat")
    parser.add_argument("--model", default="scripted-1")
    parser.add_argument("--key", default="scripted-key")
    parser.add_argument("--context-length", type=int, default=100_000_000)
    parser.add_argument("--keep", type=int, default=16, help="how many requests are kept")
    parser.add_argument("--port", type=int, default=0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
