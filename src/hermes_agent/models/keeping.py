"""The connections under our HTTP clients: kept alive, taken one at a time, each request sent in one piece.

A transport for httpx2. The pool that comes with it walks through all of its connections twice a request and asks the
kernel about each idle one; with thirty turns at once that was a fifth of what a turn costs. This one keeps the idle
ones in a stack and looks at the one it takes. HTTP itself is h11's, as it is below httpx2; sockets and TLS are
asyncio's. Between the two stands nothing: what arrived together is handed on together, where the layers of httpcore2
(traces, locks, generators within generators) passed each piece on for as much as h11 takes to read it.

One origin each, HTTP/1.1. What goes through a proxy stays with httpx2's own pool.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from typing import cast

import h11
import httpx2

from hermes_agent.models.dialling import dialled

_UNREAD = 256 * 1024
"""How far ahead of its reader a connection reads."""
_HEAD = 100 * 1024
"""The longest head of an answer."""


class Transport(httpx2.AsyncBaseTransport):
    """The connections to one origin, on one event loop. Of a request's time limits it knows `connect`."""

    def __init__(self, tls: ssl.SSLContext, *, most: int, most_idle: int, idle_seconds: float) -> None:
        tls.set_alpn_protocols(["http/1.1"])
        self._tls, self._most_idle, self._idle_seconds = tls, most_idle, idle_seconds
        self._room = asyncio.Semaphore(most)
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        await self._room.acquire()
        try:
            connection = self._kept() or await self._connected(request)
        except BaseException:
            self._room.release()
            raise
        self._busy.add(connection)
        try:
            head = await connection.ask(request.method, request.url.raw_path, request.headers.raw, body)
        except BaseException:
            self.give_back(connection)
            raise
        return httpx2.Response(head.status_code, headers=head.headers.raw_items(), stream=_Answer(connection, self))

    async def aclose(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    def _kept(self) -> Connection | None:
        """The one that was used last, if it can be used again."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh(time.monotonic() - self._idle_seconds):
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection) -> None:
        """Its answer is read to the end, or nobody wants the rest."""
        self._busy.discard(connection)
        self._room.release()
        if not connection.begin_anew():
            connection.close()
            return
        self._idle.append(connection)
        oldest = self._idle[0]
        if len(self._idle) > self._most_idle or not oldest.is_fresh(time.monotonic() - self._idle_seconds):
            self._idle.popleft().close()

    async def _connected(self, request: httpx2.Request) -> Connection:
        url, loop = request.url, asyncio.get_running_loop()
        host, secure = url.raw_host.decode("ascii"), url.scheme == "https"
        try:
            async with asyncio.timeout(request.extensions.get("timeout", {}).get("connect")):
                made, connection = await dialled(host, url.port or (443 if secure else 80)), Connection()
                try:
                    await loop.create_connection(
                        lambda: connection, sock=made, ssl=self._tls if secure else None,
                        server_hostname=host if secure else None,
                    )  # fmt: skip
                except BaseException:
                    connection.close()  # the socket is the loop's from here on
                    raise
                return connection
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except OSError as error:  # TLS says what it does not like this way, too
            raise httpx2.ConnectError(str(error)) from error


class _Answer(httpx2.AsyncByteStream):
    """The body of an answer. Closed, it gives its connection back."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self._connection: Connection | None = connection
        self._transport = transport

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> bytes:
        piece = None if self._connection is None else await self._connection.piece()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


class Connection(asyncio.Protocol):
    """One connection: asyncio brings and takes the bytes, h11 reads and writes them. One request at a time."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
        self._transport: asyncio.Transport | None = None
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._ended = self._paused = False
        self._error: Exception | None = None
        self._broken: httpx2.RemoteProtocolError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._used = 0.0

    # -- asyncio's side ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > _UNREAD and not self._paused:
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

    # -- a request and its answer --------------------------------------------------------------------------

    async def ask(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> h11.Response:
        """Send a request and wait for the head of its answer."""
        send = self._http.send
        try:
            head = send(h11.Request(method=method, target=target, headers=headers)) or b""
            data = (send(h11.Data(data=body)) or b"") if body else b""
            end = send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise httpx2.LocalProtocolError(str(error)) from error
        if not self._ended:  # reading tells of an end
            self._open().write(b"".join((head, data, end)))
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                await self._read()
            elif isinstance(event, h11.Response):
                return event
            elif not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise httpx2.RemoteProtocolError("the server speaks of something else than HTTP")

    async def piece(self) -> bytes | None:
        """What has arrived of the body, at least one byte; None at its end."""
        parts: list[bytes | bytearray] = []
        if self._broken is not None:
            raise self._broken
        while self._http.their_state is h11.SEND_BODY:
            try:
                event = self._next()
            except httpx2.RemoteProtocolError as error:
                self._broken = error
                if not parts:
                    raise
                break  # what arrived whole comes first
            if isinstance(event, h11.Data):
                parts.append(event.data)
            elif event is h11.NEED_DATA:
                if parts:
                    break
                await self._read()
        return b"".join(parts) or None

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error

    async def _read(self) -> None:
        """Wait for bytes, or the end of them, and give them to h11."""
        if not self._unread and not self._ended:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._unread:
            self._http.receive_data(b"".join(self._unread))
            self._unread.clear()
            self._unread_bytes = 0
            if self._paused and not self._ended:
                self._paused = False
                self._open().resume_reading()
            return
        if self._error is not None:
            raise httpx2.ReadError(str(self._error)) from self._error
        if self._http.their_state is h11.SEND_RESPONSE:
            raise httpx2.RemoteProtocolError("the server hung up without an answer")
        self._http.receive_data(b"")

    # -- between requests ----------------------------------------------------------------------------------

    def begin_anew(self) -> bool:
        """Make ready for another request; False when this one is not over, or more came than its answer."""
        http = self._http
        if self._ended or self._unread or not http.our_state is http.their_state is h11.DONE or http.trailing_data[0]:
            return False
        if self._open().get_write_buffer_size():
            return False  # it answered before it had read: whatever is sent now waits behind the rest
        http.start_next_cycle()
        self._used = time.monotonic()
        return True

    def is_fresh(self, since: float) -> bool:
        """Used since then, and nothing was heard of the server: an idle one speaks only to hang up."""
        return not self._ended and not self._unread and self._used >= since

    def close(self) -> None:
        """At once: what is closed is done with, or was given up."""
        self._ended, self._error = True, self._error or ConnectionAbortedError("closed at this end")
        if self._transport is not None:
            self._transport.abort()
