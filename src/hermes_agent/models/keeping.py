"""The connections under our HTTP clients: kept alive, taken one at a time, each request sent in one piece.

The pool that comes with httpx2 walks through all of its connections twice a request and asks the kernel about each idle
one; with thirty turns at once that was a fifth of what a turn costs. This one keeps the idle ones in a stack and looks
at the one it takes. Head and body of a request go out in one write, where they took two. HTTP itself is httpcore2's
(`AsyncHTTP11Connection`), sockets and TLS are asyncio's.

One origin each, HTTP/1.1. What goes through a proxy stays with httpx2's own pool.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import httpcore2
import httpx2

from hermes_agent.models.dialling import dialled

_PIECE = 64 * 1024
"""What is held back for the next write at most."""
_UNREAD = 256 * 1024
"""How far ahead of its reader a connection reads."""


class Transport(httpx2.AsyncHTTPTransport):
    """httpx2's own, over another pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool


class Pool(httpcore2.AsyncConnectionPool):
    """The connections to one origin, on one event loop."""

    def __init__(self, tls: ssl.SSLContext, *, most: int, most_idle: int, idle_seconds: float) -> None:
        super().__init__(ssl_context=tls)
        self._tls, self._most_idle, self._idle_seconds = tls, most_idle, idle_seconds
        self._room = asyncio.Semaphore(most)
        self._idle: deque[httpcore2.AsyncHTTP11Connection] = deque()
        self._busy: set[httpcore2.AsyncHTTP11Connection] = set()

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        await self._room.acquire()
        try:
            connection = await self._taken(request)
        except BaseException:
            self._room.release()
            raise
        self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self._given_back(connection)
            raise
        body = cast(_Body, response.stream)
        return httpcore2.Response(
            status=response.status, headers=response.headers, extensions=response.extensions,
            content=_Answer(body, lambda: self._given_back(connection)),
        )  # fmt: skip

    async def aclose(self) -> None:
        open_ = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in open_:
            await connection.aclose()

    async def _taken(self, request: httpcore2.Request) -> httpcore2.AsyncHTTP11Connection:
        """The one that was used last, if it can be used again; else a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        stream = await self._connected(request)
        return httpcore2.AsyncHTTP11Connection(request.url.origin, stream, keepalive_expiry=self._idle_seconds)

    async def _given_back(self, connection: httpcore2.AsyncHTTP11Connection) -> None:
        self._busy.discard(connection)
        self._room.release()
        if not connection.is_idle():
            await connection.aclose()
            return
        self._idle.append(connection)
        if len(self._idle) > self._most_idle or self._idle[0].has_expired():
            await self._idle.popleft().aclose()

    async def _connected(self, request: httpcore2.Request) -> Stream:
        origin, seconds = request.url.origin, request.extensions.get("timeout", {}).get("connect")
        host, loop = origin.host.decode("ascii"), asyncio.get_running_loop()
        with _told(httpcore2.ConnectError, httpcore2.ConnectTimeout):
            async with asyncio.timeout(seconds):
                _, stream = await loop.create_connection(Stream, sock=await dialled(host, origin.port))
                if origin.scheme != b"https":
                    return stream
                self._tls.set_alpn_protocols(["http/1.1"])
                name = request.extensions.get("sni_hostname") or host
                return await stream.start_tls(self._tls, server_hostname=name)


class _Body(Protocol):
    """What httpcore2 gives as the body of an answer."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class _Answer:
    """The body of an answer. Closed, it gives its connection back."""

    def __init__(self, body: _Body, done: Callable[[], Awaitable[None]]) -> None:
        self._body = body
        self._done: Callable[[], Awaitable[None]] | None = done

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.__aiter__()

    async def aclose(self) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        try:
            await self._body.aclose()
        finally:
            await done()


class Stream(httpcore2.AsyncNetworkStream, asyncio.Protocol):
    """One connection. Made by asyncio, read and written by httpcore2."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._ended = self._paused = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None

    # -- asyncio's side ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > _UNREAD and not self._paused:
            self._paused = True
            self._open().pause_reading()
        self._rouse()

    def eof_received(self) -> None:
        self._ended = True
        self._rouse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, self._error or exc
        self._rouse()

    def _rouse(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "asyncio makes the connection first"
        return self._transport

    # -- httpcore2's side ----------------------------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        self._send()
        if not self._unread and not self._ended:
            with _told(httpcore2.ReadError, httpcore2.ReadTimeout):
                async with asyncio.timeout(timeout):
                    await self._arrival()
        if self._unread:
            read = bytes(self._unread[:max_bytes])
            del self._unread[:max_bytes]
            if self._paused and not self._ended:
                self._paused = False
                self._open().resume_reading()
            return read
        if self._error is not None:
            raise httpcore2.ReadError(str(self._error)) from self._error
        return b""

    async def _arrival(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Held back until the answer is read: what follows goes with it."""
        self._unsent.append(buffer)
        self._unsent_bytes += len(buffer)
        if self._unsent_bytes > _PIECE:
            self._send()

    def _send(self) -> None:
        if self._unsent and not self._ended:  # reading tells of an end
            self._open().write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0

    async def aclose(self) -> None:
        """At once: what is closed is done with, or was given up."""
        self._ended = True
        self._open().abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the names are httpcore2's
    ) -> Stream:
        loop = asyncio.get_running_loop()
        try:
            made = await loop.start_tls(self._open(), self, ssl_context, server_hostname=server_hostname)
        except BaseException:
            await self.aclose()
            raise
        assert made is not None, "the connection is open"
        self._transport = made
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # of an idle connection: that it has ended
            return self._ended or bool(self._unread)
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._open().get_extra_info(names.get(info, info))


@contextmanager
def _told(error: type[Exception], late: type[Exception]) -> Iterator[None]:
    """What asyncio raises, in httpcore2's words."""
    try:
        yield
    except TimeoutError as raised:
        raise late(str(raised)) from raised
    except (OSError, ssl.SSLError) as raised:
        raise error(str(raised)) from raised
