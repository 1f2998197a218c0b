"""The connections to models: kept alive, taken one at a time, each request sent in one piece.

httpx2's own pool walks through all of its connections twice a request and asks the kernel about each idle one; with
thirty turns at once that was a fifth of what a turn costs. This one keeps the idle ones in a stack and looks at the one
it takes. HTTP itself is two libraries': h11 writes the head of a request, once for all that differ in their length
alone, and httptools (the parser of Node.js) reads the answer, for a thirtieth of what h11 takes to read a streamed one.
Sockets and TLS are asyncio's. Between them stands nothing: what arrived together is handed on together.

One origin each, HTTP/1.1, `POST` alone. What goes through a proxy is httpx2's. Its errors and its address are used
here, too, so that whoever calls knows one kind of each.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from functools import cached_property
from typing import NamedTuple, cast

import h11
import httptools
import httpx2

from hermes_agent.models.dialling import dialled

_UNREAD = 256 * 1024
"""How far ahead of its reader a connection reads."""
_PIECE = 64
"""What a piece takes beside its bytes: many small ones are more than they hold."""
_HEAD = 100 * 1024
"""How much may come without a byte of the body: the head of an answer, whatever stands behind its last piece."""
_HEADS = 16
"""How many heads of requests are kept: one for each key that is used here, as a rule."""
_LENGTH = b"9" * 18
"""Where the length will stand in a head that is kept; it comes last, so nothing behind it looks like this."""


class Address(NamedTuple):
    """Where a request goes, as the socket, TLS and the request itself want to know it."""

    url: httpx2.URL
    secure: bool
    host: str
    port: int
    authority: bytes
    target: bytes

    @classmethod
    def of(cls, url: httpx2.URL) -> Address:
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
        return cls(url, secure, url.raw_host.decode("ascii"), port, url.netloc, url.raw_path)


class Transport:
    """The connections to one origin, on one event loop."""

    def __init__(self, tls: ssl.SSLContext, *, most: int, most_idle: int, idle_seconds: float) -> None:
        tls.set_alpn_protocols(["http/1.1"])
        self._tls, self._most_idle, self._idle_seconds = tls, most_idle, idle_seconds
        self._room = asyncio.Semaphore(most)
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._heads: dict[object, tuple[bytes, bytes, bool]] = {}

    async def post(self, address: Address, headers: dict[str, str], body: bytes, *, connect_seconds: float) -> Answer:
        """Send a request and wait for the head of its answer, which has to be closed."""
        before, behind, last = self._head(address, headers)
        await self._room.acquire()
        try:
            connection = self._kept() or await self._connected(address, connect_seconds)
        except BaseException:
            self._room.release()
            raise
        self._busy.add(connection)
        try:
            connection.send(b"".join((before, b"%d" % len(body), behind, body)), last=last)
            status = await connection.answered()
        except BaseException:
            self.give_back(connection)
            raise
        return Answer(status, connection.head, connection, self)

    async def aclose(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        self._heads.clear()

    def _head(self, address: Address, headers: dict[str, str]) -> tuple[bytes, bytes, bool]:
        key = (address.target, *headers.items())
        known = self._heads.get(key)
        if known is None:
            known = self._heads[key] = _head(address, headers)
            while len(self._heads) > _HEADS:
                del self._heads[next(iter(self._heads))]
        return known

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
        if not connection.is_done():
            connection.close()
            return
        self._idle.append(connection)
        oldest = self._idle[0]
        if len(self._idle) > self._most_idle or not oldest.is_fresh(time.monotonic() - self._idle_seconds):
            self._idle.popleft().close()

    async def _connected(self, address: Address, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                made, connection = await dialled(address.host, address.port), Connection()
                try:
                    await loop.create_connection(
                        lambda: connection, sock=made, ssl=self._tls if address.secure else None,
                        server_hostname=address.host if address.secure else None,
                    )  # fmt: skip
                except BaseException:
                    connection.close()  # the socket is the loop's from here on
                    raise
                return connection
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except OSError as error:  # TLS says what it does not like this way, too
            raise httpx2.ConnectError(str(error)) from error


def _head(address: Address, headers: dict[str, str]) -> tuple[bytes, bytes, bool]:
    """The head of a request, before and behind the length of its body; whether its connection ends with it.

    How the body is sent is not the caller's to say.
    """
    fields = [
        (name.encode("ascii"), value.encode("ascii"))
        for name, value in headers.items()
        if name.lower() not in ("content-length", "transfer-encoding")
    ]
    if not any(name.lower() == b"host" for name, _ in fields):
        fields.insert(0, (b"Host", address.authority))
    try:
        written = h11.Connection(h11.CLIENT).send(
            h11.Request(method=b"POST", target=address.target, headers=[*fields, (b"Content-Length", _LENGTH)])
        )
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error
    before, _, behind = (written or b"").rpartition(_LENGTH)
    last = any(name.lower() == b"connection" and b"close" in value.lower() for name, value in fields)
    return before, behind, last


class Answer(httpx2.AsyncByteStream):
    """The head of an answer, and its body piece by piece. Closed, it gives its connection back."""

    def __init__(
        self, status: int, head: list[tuple[bytes, bytes]], connection: Connection, transport: Transport
    ) -> None:
        self.status_code, self._head = status, head
        self._connection: Connection | None = connection
        self._transport = transport

    @cached_property
    def headers(self) -> httpx2.Headers:
        return httpx2.Headers(self._head)

    def decoded(self) -> AsyncIterator[bytes]:
        """The body as it was before its server compressed it."""
        if not any(name.lower() == b"content-encoding" for name, _ in self._head):
            return self  # undoing an encoding that is not there costs as much as reading
        return httpx2.Response(self.status_code, headers=self._head, stream=self).aiter_bytes()

    def __aiter__(self) -> Answer:
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
    """One connection: asyncio brings and takes the bytes, httptools reads them. One request at a time."""

    def __init__(self) -> None:
        self.head: list[tuple[bytes, bytes]] = []
        """Of the answer that is read."""
        self._transport: asyncio.Transport | None = None
        self._http: httptools.HttpResponseParser | None = None
        self._status = 0
        self._pieces: list[bytes] = []
        self._unread = self._aside = 0
        self._whole = self._kept_alive = self._beyond = self._ended = self._paused = False
        self._error: Exception | None = None
        self._broken: httpx2.RemoteProtocolError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._used = 0.0

    # -- asyncio's side ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listen()  # who is too busy may say so before it is asked

    def data_received(self, data: bytes) -> None:
        http = self._http
        if http is None or self._is_over():
            self._beyond = True  # nobody asked
            return
        self._aside += len(data)
        try:
            http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._is_over():
                self._beyond = True
            else:
                self._broken = httpx2.RemoteProtocolError(f"that is not HTTP: {error}")
        if self._aside > _HEAD and not self._is_over():
            self._broken = httpx2.RemoteProtocolError("the head of the answer does not end")
        if self._unread > _UNREAD and not self._paused:
            self._paused = True
            self._open().pause_reading()
        self._rouse()

    def eof_received(self) -> None:
        self._ended = True
        self._rouse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, self._error or exc
        self._rouse()

    def _is_over(self) -> bool:
        """The answer is whole, or will never be."""
        return self._whole or self._broken is not None

    def _rouse(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "asyncio makes the connection first"
        return self._transport

    # -- httptools' side -----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._whole:
            raise ValueError("there is more than an answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # what comes behind the body is nobody's business
            self.head.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._http is not None
        status = self._http.get_status_code()
        if status < 100 or status == 101:
            raise ValueError("the server speaks of something else than HTTP")
        if status < 200:
            self.head.clear()  # "go on": the answer is still to come
            return
        self._status, self._kept_alive = status, self._http.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body) + _PIECE
        self._aside = 0

    def on_message_complete(self) -> None:
        self._whole = bool(self._status)

    # -- a request and its answer --------------------------------------------------------------------------

    def send(self, request: bytes, *, last: bool) -> None:
        """`last`: it says itself that none will follow."""
        if self._http is None:
            self._listen()
        self._beyond = last or self._aside > 0 or self._status > 0  # who spoke unasked is not asked again
        if not self._ended:  # reading tells of an end
            self._open().write(request)

    async def answered(self) -> int:
        """Wait for the head of the answer: its status."""
        while not self._status:
            await self._more()
        return self._status

    def _listen(self) -> None:
        """To one answer."""
        self._http = httptools.HttpResponseParser(self)
        # As forgiving as h11: a lone LF, blanks behind the size of a piece, a length that the pieces make void, a
        # "go on" that speaks of closing. Two lengths, folded headers and odd extensions it does not forgive.
        self._http.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_chunked_length=True,
            lenient_keep_alive=True,
        )  # fmt: skip
        self.head, self._status, self._aside, self._whole = [], 0, 0, False

    async def piece(self) -> bytes | None:
        """What has arrived of the body, at least one byte; None at its end."""
        while not self._pieces:
            if self._whole:
                return None
            await self._more()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._paused and not self._ended:
            self._paused = False
            self._open().resume_reading()
        return piece

    async def _more(self) -> None:
        """Wait for bytes, or the end of them."""
        if self._broken is not None:
            raise self._broken
        if self._ended:
            if self._error is not None:
                raise httpx2.ReadError(str(self._error)) from self._error
            if not self._status:
                raise httpx2.RemoteProtocolError("the server hung up without an answer")
            if self._has_bounds():
                raise httpx2.RemoteProtocolError("the server hung up in the middle of its answer")
            self._whole = True
            return
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _has_bounds(self) -> bool:
        """The answer says itself where it ends; else it does so by hanging up."""
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.head)

    # -- between requests ----------------------------------------------------------------------------------

    def is_done(self) -> bool:
        """Ready for another request. Not when this one is not over, or more came than its answer."""
        if self._ended or self._beyond or self._pieces or not (self._whole and self._kept_alive):
            return False
        if self._open().get_write_buffer_size():
            return False  # it answered before it had read: whatever is sent now waits behind the rest
        self._http, self._used = None, time.monotonic()
        return True

    def is_fresh(self, since: float) -> bool:
        """Used since then, and nothing was heard of the server: an idle one speaks only to hang up."""
        return not self._ended and not self._beyond and self._used >= since

    def close(self) -> None:
        """At once: what is closed is done with, or was given up."""
        self._ended, self._error, self._http = True, self._error or ConnectionAbortedError("closed at this end"), None
        if self._transport is not None:
            self._transport.abort()
