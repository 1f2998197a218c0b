"""The HTTP client for calls to models: kept connections, one pool an origin (scheme, host, port) and event loop.

A call to a model is one `POST` whose answer streams. httpx2 takes 0.7 to 0.9 ms for one, this module 0.05 ms (see
docs/decisions/connections-to-models.md); whatever else speaks HTTP in Hermes uses httpx2. Here a connection is an
asyncio protocol: httptools, the parser of Node.js, reads the answer, and bytes that arrived together are passed on
together. A transport of httpx2 takes a pool's place for origins behind a proxy, and for those that this process answers
itself (`register_transport`: the demo model and tests). Both raise httpx2's errors, which `post` explains.

Clients belong to the event loop that made them; `close_clients` closes those of the running loop. The certificates of
the machine are read once a process, and never for http://. Connecting is bounded in time here; the first byte and
silence are bounded by the caller (`call`, `stream_reader.Lines`). A call that is cancelled closes its connection.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from asyncio.staggered import staggered_race
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain, zip_longest
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools
import httpx2

from hermes_agent.models import errors
from hermes_agent.models.base import Endpoint, ModelError, is_own_machine
from hermes_config.limits import Limits
from hermes_config.version import VERSION

TransportFactory = Callable[[], httpx2.AsyncBaseTransport]
Clients = dict[str | TransportFactory, "ConnectionPool | TransportClient"]

_KEEP_ALIVE_SECONDS, _NEXT_ADDRESS_SECONDS = 90.0, 0.25
_UNREAD_BYTES = 256 * 1024  # how far ahead of its reader a connection reads
_PIECE_BYTES = 64  # the overhead of a piece in memory: many small pieces take more than their bytes
_HEAD_BYTES = 100 * 1024  # how much may arrive without a byte of the body: a head, extensions of a chunk, trailers
_HEADERS = {"user-agent": f"hermes/{VERSION}", "accept-encoding": "identity"}
_url = lru_cache(maxsize=256)(httpx2.URL)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_transports: dict[str, TransportFactory] = {}
_loops: dict[asyncio.AbstractEventLoop, tuple[Clients, AsyncIterator[None]]] = {}
"""The clients of a loop by origin or factory, and the generator that closes them with the loop."""


async def post(endpoint: Endpoint, path: str, headers: dict[str, str], body: bytes, bounds: Limits) -> HttpAnswer:
    """Send a request and wait for the answer's head. The caller closes the answer; errors are `ModelError`s."""
    for name, value in headers.items():  # errors of a library would quote the value, which may be the key
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            hint = f"Check {endpoint.key_from or 'the key'} for stray spaces, quotes or line breaks."
            message = f"the header {name} has characters that no header may have"
            raise ModelError("auth", message, where=endpoint.where, hint=hint, unbilled=True)
    try:
        url = _url(endpoint.base_url.rstrip("/") + path)
        client = client_for(endpoint, bounds)
        return await client.post(url, _HEADERS | headers, body, seconds=bounds.model_connect_ms / 1000)
    except (httpx2.LocalProtocolError, httpx2.InvalidURL, UnicodeError) as error:
        raise errors.from_network(endpoint, error) from None  # its text may hold a header
    except (httpx2.HTTPError, OSError) as error:
        raise errors.from_network(endpoint, error) from error


def register_transport(where: str, factory: TransportFactory) -> Callable[[], None]:
    """Serve a scheme (`"demo"`) or everything below a base URL (`"http://127.0.0.1:1"`) from this process.

    The factory is called once for each event loop that calls there. The result undoes the registration.
    """
    _transports[where] = factory

    def undo() -> None:
        if _transports.get(where) is factory:
            del _transports[where]

    return undo


def client_for(endpoint: Endpoint, bounds: Limits) -> ConnectionPool | TransportClient:
    """The client for this origin, or for the transport registered there, on the running loop."""
    base_url = endpoint.base_url
    key: str | TransportFactory = "/".join(base_url.split("/", 3)[:3])
    for where, factory in list(_transports.items()):
        if base_url.startswith(where) and (base_url[len(where) :][:1] in ("", "/", ":") or where.endswith("/")):
            key = factory
    loop = asyncio.get_running_loop()
    clients = (_loops.get(loop) or _begin(loop))[0]
    client = clients.get(key)
    if client is None:
        client = clients[key] = TransportClient(key()) if callable(key) else _open(base_url, bounds)
    return client


async def close_clients() -> None:
    """Close the clients of the running loop. A later call opens new ones."""
    clients, _ = _loops.get(asyncio.get_running_loop()) or ({}, None)
    closing = list(clients.values())
    clients.clear()
    for client in closing:
        await client.aclose()


def _begin(loop: asyncio.AbstractEventLoop) -> tuple[Clients, AsyncIterator[None]]:
    """Register a loop. `asyncio.run` ends all generators of its loop; the one started here closes the clients."""
    for old in [old for old in list(_loops) if old.is_closed()]:
        del _loops[old]  # its owner ended no generators

    async def keep() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await close_clients()
            _loops.pop(loop, None)

    begun: tuple[Clients, AsyncIterator[None]] = ({}, keep())
    _loops[loop] = begun
    with suppress(StopIteration):  # it reaches its `yield` without waiting
        begun[1].__anext__().__await__().send(None)
    return begun


def _open(base_url: str, bounds: Limits) -> ConnectionPool | TransportClient:
    """A client for an origin: through the proxy that the environment names, if any; this machine needs none."""
    parts, named = urlsplit(base_url), getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    tls = tls_context() if parts.scheme == "https" else None
    most, idle = bounds.model_connections, bounds.model_idle_connections
    if proxy is None or is_own_machine(base_url) or proxy_bypass(parts.hostname or ""):
        return ConnectionPool(tls, most=most, most_idle=idle, idle_seconds=_KEEP_ALIVE_SECONDS)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=idle, keepalive_expiry=_KEEP_ALIVE_SECONDS)
    return TransportClient(
        httpx2.AsyncHTTPTransport(verify=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=limits, proxy=proxy)
    )


@cache
def tls_context() -> ssl.SSLContext:
    """The machine's certificates, read once. Call this early, from any thread: reading takes longer than a turn."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(slots=True)
class HttpAnswer:
    """The head of an answer, and its body piece by piece. Closing it returns its connection to the pool."""

    status_code: int
    head: Sequence[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]

    def decoded(self) -> AsyncIterator[bytes]:
        """The body, decompressed if its server compressed it."""
        if not any(name.lower() == b"content-encoding" for name, _ in self.head):
            return self.pieces  # the decoder would double the cost of reading
        return httpx2.Response(self.status_code, headers=list(self.head), content=self.pieces).aiter_bytes()


class TransportClient:
    """Calls through a transport of httpx2: behind a proxy, or inside this process."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport, self.is_closed = transport, False

    async def post(self, url: httpx2.URL, headers: dict[str, str], body: bytes, *, seconds: float) -> HttpAnswer:
        timeout = {"timeout": {"connect": seconds}}
        request = httpx2.Request("POST", url, headers=headers, content=body, extensions=timeout)
        response = await self._transport.handle_async_request(request)
        pieces = aiter(cast("AsyncIterable[bytes]", response.stream))
        return HttpAnswer(response.status_code, response.headers.raw, pieces, response.aclose)

    async def aclose(self) -> None:
        self.is_closed = True
        await self._transport.aclose()


class ConnectionPool:
    """The connections to one origin, on one event loop."""

    def __init__(self, tls: ssl.SSLContext | None, *, most: int, most_idle: int, idle_seconds: float) -> None:
        self._tls, self._most_idle, self._idle_seconds = tls, most_idle, idle_seconds
        self._room = asyncio.Semaphore(most)
        self._idle: deque[HttpConnection] = deque()
        self._busy: set[HttpConnection] = set()
        self.is_closed = self._last = False
        self._url, self._headers, self._head = httpx2.URL(""), dict[str, str](), b""

    async def post(self, url: httpx2.URL, headers: dict[str, str], body: bytes, *, seconds: float) -> HttpAnswer:
        """Send a request and wait for the head of its answer."""
        if url is not self._url or headers != self._headers:  # usually as the last time
            self._head, self._last = _request_head(url, headers)
            self._url, self._headers = url, headers
        head, last = self._head, self._last
        await self._room.acquire()
        try:
            connection = self._idle_connection() or await self._connected(url, seconds)
        except BaseException:
            self._room.release()
            raise
        self._busy.add(connection)
        try:
            # Copied only now, so that calls waiting for a connection or an answer keep no copy.
            connection.send(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body), last=last)
            status = await connection.answered()
        except BaseException:
            await self._return_connection(connection)
            raise
        return HttpAnswer(status, connection.head, connection, partial(self._return_connection, connection))

    async def aclose(self) -> None:
        self.is_closed = True
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    async def _return_connection(self, connection: HttpConnection) -> None:
        """Keep the connection if its answer was read to the end; else close it."""
        self._busy.discard(connection)
        self._room.release()
        if not connection.is_done():
            connection.close()
            return
        self._idle.append(connection)
        oldest = self._idle[0]
        if len(self._idle) > self._most_idle or not oldest.is_fresh(time.monotonic() - self._idle_seconds):
            self._idle.popleft().close()

    def _idle_connection(self) -> HttpConnection | None:
        """The connection used last, if it can be used again."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh(time.monotonic() - self._idle_seconds):
                return connection
            connection.close()
        return None

    async def _connected(self, url: httpx2.URL, seconds: float) -> HttpConnection:
        host, port = url.raw_host.decode("ascii"), url.port or (80 if self._tls is None else 443)
        name, loop = None if self._tls is None else host, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                dialled, connection = await dial(host, port), HttpConnection()
                try:
                    await loop.create_connection(lambda: connection, sock=dialled, ssl=self._tls, server_hostname=name)
                except BaseException:
                    connection.close()  # the socket is the loop's from here on
                    raise
                return connection
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except OSError as error:  # errors of TLS are among them
            raise httpx2.ConnectError(str(error)) from error


def _request_head(url: httpx2.URL, headers: dict[str, str]) -> tuple[bytes, bool]:
    """The head of a request without its length, and whether the connection ends with the request."""
    fields = {"host": url.netloc.decode("ascii")} | {name.lower(): value for name, value in headers.items()}
    fields = {name: fields[name] for name in fields if name not in ("content-length", "transfer-encoding")}
    if not all(map(_HEADER_NAME.fullmatch, fields)):
        raise httpx2.LocalProtocolError("the name of a header is not valid")
    lines = [f"POST {url.raw_path.decode('ascii')} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields), ""]
    return "\r\n".join(lines).encode("ascii"), "close" in fields.get("connection", "").lower()


class HttpConnection(asyncio.Protocol):
    """One connection: asyncio receives the bytes, httptools parses them. One request at a time."""

    def __init__(self) -> None:
        self.head: list[tuple[bytes, bytes]] = []  # the headers of the answer that is being read
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._status = self._unread = 0
        self._since_body = 0  # bytes since the last byte of a body
        self._pieces: list[bytes] = []
        self._whole = self._keeps_alive = self._ended = self._paused = False
        self._extra_bytes = False  # the server sent more than its answer, so another request would not get its own
        self._failure: httpx2.HTTPError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._used = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._expect_answer()  # a busy server may answer before the request

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_over():
            self._extra_bytes = True
            return
        self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._is_over():
                self._extra_bytes = True
            else:
                self._failure = httpx2.RemoteProtocolError(f"the answer is not HTTP: {error}")
        if self._since_body > _HEAD_BYTES and not self._is_over():
            self._failure = httpx2.RemoteProtocolError("the head of the answer does not end")
        if self._unread > _UNREAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if exc is not None and self._failure is None:
            self._failure = httpx2.ReadError(str(exc))
            self._failure.__cause__ = exc
        self._wake()

    def _is_over(self) -> bool:
        return self._whole or self._failure is not None  # the answer is complete, or will never be

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def on_message_begin(self) -> None:  # this and the next four are called by httptools, inside `feed_data`
        if self._whole:
            raise ValueError("there is data after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # trailers behind the body are not read
            self.head.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 100 or status == 101:
            raise ValueError("the server speaks another protocol")
        if status < 200:
            self.head.clear()  # "100 Continue": the answer is still to come
            return
        self._status, self._keeps_alive = status, self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body) + _PIECE_BYTES
        self._since_body = 0

    def on_message_complete(self) -> None:
        self._whole = bool(self._status)

    def send(self, request: bytes, *, last: bool) -> None:
        """Send a request. `last`: the request announces that no other will follow."""
        if self._parser is None:
            self._expect_answer()
        self._extra_bytes = last or self._since_body > 0 or self._status > 0
        if not self._ended and self._transport is not None:  # if it has ended, reading says so
            self._transport.write(request)

    def _expect_answer(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # As lenient as h11: a lone LF, blanks after a chunk's size, a length beside chunks, a "100 Continue" that
        # closes. Two lengths, folded headers and odd extensions are refused.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_chunked_length=True,
            lenient_keep_alive=True,
        )  # fmt: skip
        self.head, self._status, self._since_body, self._whole = [], 0, 0, False

    async def answered(self) -> int:
        """Wait for the head of the answer and return its status."""
        while not self._status:
            await self._more()
        return self._status

    def __aiter__(self) -> HttpConnection:
        """The body of the answer, in pieces as they arrived."""
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._whole:
                raise StopAsyncIteration
            await self._more()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._paused and not self._ended and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    async def _more(self) -> None:
        """Wait for bytes, or for the end of the connection."""
        if self._failure is not None:
            raise self._failure
        if not self._ended:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
            return
        if not self._status:
            raise httpx2.RemoteProtocolError("the server hung up without an answer")
        if any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.head):
            raise httpx2.RemoteProtocolError("the server hung up in the middle of its answer")
        self._whole = True  # an answer without a length ends with its connection

    def is_done(self) -> bool:
        """Whether the answer has ended and the connection can take another request."""
        if self._ended or self._extra_bytes or self._pieces or not (self._whole and self._keeps_alive):
            return False
        if self._transport is None or self._transport.get_write_buffer_size():
            return False  # the server answered before it read the request: another one would wait behind the rest
        self._parser, self._used = None, time.monotonic()
        return True

    def is_fresh(self, since: float) -> bool:
        """Whether it was used since then, and the server has not closed it (the only reason to send on an idle one)."""
        return not self._ended and not self._extra_bytes and self._used >= since

    def close(self) -> None:
        """Close at once, without sending the rest of the request."""
        self._ended, self._parser, self._failure = True, None, self._failure or httpx2.ReadError("closed here")
        if self._transport is not None:
            self._transport.abort()


async def dial(host: str, port: int) -> socket.socket:
    """A connected socket: the first address of the host that answers (RFC 8305). Raises `OSError`.

    Address families alternate, and the next address is tried after a quarter of a second or a failure, so a broken IPv6
    costs only a moment. asyncio's own loop can do this; uvloop, which the gateway runs on, cannot.
    """
    loop = asyncio.get_running_loop()
    connected: list[socket.socket] = []

    async def connect(family: int, kind: int, protocol: int, _name: str, where: Any) -> None:
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            await loop.sock_connect(made, where)
        except BaseException:
            made.close()
            raise
        connected.append(made)

    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = [one for one in found if one[0] == found[0][0]]
    others = [one for one in found if one[0] != found[0][0]]
    in_turns = [one for one in chain.from_iterable(zip_longest(first, others)) if one is not None]
    if len(in_turns) == 1:  # what a race leaves for the garbage collector is a tenth of a waiting turn's memory
        await connect(*in_turns[0])
        return connected[0]
    try:
        _, _, failures = await staggered_race([partial(connect, *one) for one in in_turns], _NEXT_ADDRESS_SECONDS)
    except BaseException:
        for one in connected:
            one.close()
        raise
    if not connected:
        raise next((error for error in failures if error is not None), OSError(f"no address is known for {host}"))
    return connected[0]
