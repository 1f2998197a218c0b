"""One keep-alive HTTP client an origin (scheme, host, port), event loop and process; one TLS context a process.

A client is a pool of connections (`keeping`), or one of httpx2's transports in its place. httpx2's `AsyncClient` stands
above those for what a model's server has no use for (redirects, cookies, ways to log in), which cost more than the
request itself.

Reading the machine's certificates costs more than a whole turn, so it happens once, and never for http://. Clients
are made at the first call and belong to the loop that made them; `close_clients` closes those of the running loop,
and whoever ends a loop calls it. A transport may be put in the place of the network, for a scheme or below an address:
the demo model and tests answer from this very process that way.

Time is bounded in three ways (connect, first byte, silence), bytes in two (a line, an answer). First byte and silence
share one timer, made by whoever calls: a timer for every piece of an answer is what reading it would cost most. A call
that is cancelled closes its connection; one that was read to its end gives it back.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from hermes_agent.models import errors
from hermes_agent.models.base import Endpoint, ModelError
from hermes_config.version import VERSION

if TYPE_CHECKING:
    import httpx2

    from hermes_agent.models.keeping import Address
    from hermes_config.limits import Limits

TransportFactory = Callable[[], "httpx2.AsyncBaseTransport"]

_ERROR_BYTES = 64 * 1024
_DRAIN_SECONDS = 0.25
"""How long the end of an answer is waited for after the model said it was done; then the connection is dropped."""
_KEEP_ALIVE_SECONDS = 90.0
_LONGER = 1.25
"""How much longer than `limits.model_idle_ms` a silence may last, so that the timer is not set with every piece."""
_HEADERS = {"user-agent": f"hermes/{VERSION}", "accept-encoding": "identity"}
_BUILT_IN = {"demo": "hermes_agent.models.demo.model"}
"""Schemes that are answered from this process, and the module whose `transport` does it."""

_transports: dict[str, TransportFactory] = {}
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Client]] = WeakKeyDictionary()
_keepers: dict[asyncio.AbstractEventLoop, AsyncIterator[None]] = {}
_lock = threading.Lock()


def register_transport(where: str, factory: TransportFactory) -> Callable[[], None]:
    """Serve a scheme (`"demo"`) or everything below a base URL (`"http://127.0.0.1:1"`) from this process.

    The factory is called once for each event loop that calls there. What is returned takes the registration back.
    """
    with _lock:
        _transports[where] = factory
        _forget(where)

    def take_back() -> None:
        with _lock:
            if _transports.get(where) is factory:
                del _transports[where]
                _forget(where)

    return take_back


def _forget(where: str) -> None:
    for clients in _clients.values():
        clients.pop(where, None)


def _close_with(loop: asyncio.AbstractEventLoop) -> None:
    """Before it closes a loop, `asyncio.run` ends the generators that were begun on it: this one closes the clients."""
    for gone in [old for old in _keepers if old.is_closed()]:
        del _keepers[gone]  # closed by somebody who ends no generators
    if loop in _keepers:
        return

    async def keep() -> AsyncIterator[None]:
        try:
            yield
        finally:
            _keepers.pop(loop, None)
            await close_clients()

    _keepers[loop] = keep()
    with suppress(StopIteration):  # it comes to its `yield` without having waited for anything
        _keepers[loop].__anext__().__await__().send(None)


async def close_clients() -> None:
    """Close the clients of the running loop. A later call opens new ones."""
    with _lock:
        clients = _clients.pop(asyncio.get_running_loop(), {})
    for client in clients.values():
        await client.aclose()


class Response(Protocol):
    """The head of an answer, and its body as it comes."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case."""

    def decoded(self) -> AsyncIterator[bytes]:
        """The body, whatever its server did to make it shorter."""

    async def aclose(self) -> None: ...


class Transport(Protocol):
    """Who sends a request and hears the answer: `keeping.Transport`, or `_Foreign`."""

    async def post(
        self, address: Address, headers: dict[str, str], body: bytes, *, connect_seconds: float
    ) -> Response: ...

    async def aclose(self) -> None: ...


class Client:
    """What calls of one origin go through."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.is_closed = transport, False

    async def aclose(self) -> None:
        self.is_closed = True
        await self.transport.aclose()


class _Foreign:
    """A transport of httpx2's: the demo model's, a test's, the way through a proxy."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def post(self, address: Address, headers: dict[str, str], body: bytes, *, connect_seconds: float) -> Response:
        import httpx2

        request = httpx2.Request(
            "POST", address.url, headers=headers, content=body, extensions={"timeout": {"connect": connect_seconds}}
        )
        return _ForeignResponse(await self._transport.handle_async_request(request))

    async def aclose(self) -> None:
        await self._transport.aclose()


class _ForeignResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.status_code, self.headers, self._response = response.status_code, response.headers, response

    def decoded(self) -> AsyncIterator[bytes]:
        if "content-encoding" in self.headers:
            return self._response.aiter_bytes()
        return aiter(cast("AsyncIterable[bytes]", self._response.stream))

    async def aclose(self) -> None:
        await self._response.aclose()


async def post(endpoint: Endpoint, path: str, headers: dict[str, str], body: bytes, bounds: Limits) -> Response:
    """Send a request and wait for the answer's head. The caller closes the response; errors are `ModelError`s."""
    import httpx2

    _check_headers(endpoint, headers)
    client = client_for(endpoint, bounds)
    try:
        return await client.transport.post(
            _address(endpoint.base_url, path), {**_HEADERS, **headers}, body,
            connect_seconds=bounds.model_connect_ms / 1000,
        )  # fmt: skip
    except (httpx2.LocalProtocolError, httpx2.InvalidURL, UnicodeError) as error:
        raise errors.from_network(endpoint, error) from None  # its text may hold a header
    except (httpx2.HTTPError, OSError) as error:
        raise errors.from_network(endpoint, error) from error


def client_for(endpoint: Endpoint, bounds: Limits) -> Client:
    """The client of this origin and of the running loop."""
    key = _place(endpoint.base_url)
    loop = asyncio.get_running_loop()
    mine = _clients.get(loop)
    if mine is None:
        with _lock:
            mine = _clients.setdefault(loop, {})
            _close_with(loop)
    client = mine.get(key)
    if client is None or client.is_closed:
        client = mine[key] = Client(_open(endpoint.base_url, key, bounds))
    return client


def get_ready(endpoint: Endpoint) -> None:
    """Read the machine's certificates now, where they will be needed; any thread may do it."""
    if urlsplit(endpoint.base_url).scheme == "https":
        _tls()


async def error_of(lines: Lines, endpoint: Endpoint, response: Response) -> ModelError:
    """What an answer that is no success says, as an error. Its text is read only so far."""
    kept = bytearray()
    try:
        while len(kept) < _ERROR_BYTES and (chunk := await lines.chunk()) is not None:
            kept += chunk
    except ModelError:
        pass  # the answer broke off; its status says enough
    return errors.from_response(endpoint, response.status_code, response.headers, bytes(kept[:_ERROR_BYTES]))


class Lines:
    """The lines of an answer as they arrive. Ends at LF, with or without CR; see `sse` for why not otherwise.

    `timer`: it ends the wait for the answer's head, and from now on that for its next piece.
    """

    __slots__ = (
        "_bounds", "_bytes", "_cancelling", "_chunks", "_ended", "_endpoint", "_idle", "_now", "_open_line",
        "_open_size", "_ready", "_task", "_timer",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, response: Response, bounds: Limits, timer: asyncio.Timeout) -> None:
        self._endpoint = endpoint
        self._bounds, self._idle = bounds, bounds.model_idle_ms / 1000
        self._timer, self._now = timer, asyncio.get_running_loop().time
        self._timer.reschedule(self._now() + self._idle * _LONGER)
        task = asyncio.current_task()
        assert task is not None, "a timer is inside a task"
        self._task, self._cancelling = task, task.cancelling()
        self._chunks = response.decoded()
        self._ready: deque[str] = deque()
        self._open_line: list[bytes] = []
        self._open_size = 0
        self._bytes = 0
        self._ended = False

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._fill()
        return self._ready.popleft()

    async def chunk(self) -> bytes | None:
        """The next bytes; None at the end."""
        soonest, due = self._now() + self._idle, self._timer.when()
        if due is not None and due < soonest:
            self._timer.reschedule(soonest + self._idle * (_LONGER - 1))
        return await self._next()

    async def _next(self) -> bytes | None:
        import httpx2

        try:
            chunk: bytes | None = await anext(self._chunks, None)
        except asyncio.CancelledError:
            if not self._timer.expired() or self._task.cancelling() > self._cancelling + 1:
                raise  # somebody else wants it ended
            name = self._endpoint.provider
            raise ModelError("timeout", f"{name} fell silent in the middle of its answer") from None
        except (httpx2.HTTPError, OSError) as error:
            raise errors.from_network(self._endpoint, error) from error
        if chunk is None:
            self._ended = True
        return chunk

    async def drain(self) -> None:
        """Read what is behind the end of the answer, so that the connection can be used again."""
        if self._ended:
            return
        self._timer.reschedule(self._now() + _DRAIN_SECONDS)
        try:
            while await self._next() is not None:
                pass
        except ModelError:
            return  # the answer is complete; closing the response drops the connection

    async def _fill(self) -> None:
        chunk = await self.chunk()
        if chunk is None:
            if self._open_line:
                self._close_line(b"")
            return
        self._bytes += len(chunk)
        if self._bytes > self._bounds.model_reply_bytes:
            raise self._too_long("an answer", self._bounds.model_reply_bytes, "model_reply_bytes")
        first, *rest = chunk.split(b"\n")
        if rest:
            self._close_line(first)
            first = rest.pop()
            self._ready.extend(line.rstrip(b"\r").decode("utf-8", "replace") for line in rest)
        if first:
            self._open_line.append(first)
            self._open_size += len(first)
            if self._open_size > self._bounds.model_line_bytes:
                raise self._too_long("a line", self._bounds.model_line_bytes, "model_line_bytes")

    def _close_line(self, last: bytes) -> None:
        line = b"".join((*self._open_line, last)) if self._open_line else last
        self._open_line.clear()
        self._open_size = 0
        self._ready.append(line.rstrip(b"\r").decode("utf-8", "replace"))

    def _too_long(self, what: str, limit: int, name: str) -> ModelError:
        message = f"{self._endpoint.provider} sent {what} longer than {limit:,} bytes"
        return ModelError("protocol", message, hint=f"Raise limits.{name} if that is right.")


def _check_headers(endpoint: Endpoint, headers: dict[str, str]) -> None:
    """A header with a line break or a letter outside ASCII raises errors that quote it, and it may be the key."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            key = endpoint.key_from or "the key"
            raise ModelError(
                "auth",
                f"the header {name} has characters that no header may have",
                where=endpoint.where,
                hint=f"Check {key} for stray spaces, quotes or line breaks.",
            )


@lru_cache(maxsize=256)
def _address(base_url: str, path: str) -> Address:
    import httpx2

    from hermes_agent.models.keeping import Address

    return Address.of(httpx2.URL(base_url.rstrip("/") + path))


def _place(base_url: str) -> str:
    """What a client is shared by: a registered transport, or the origin."""
    for where in _transports:
        if base_url.startswith(where) and (base_url[len(where) :][:1] in ("", "/", ":") or where.endswith("/")):
            return where
    origin = _origin(base_url)
    scheme = origin.partition(":")[0]
    if scheme in _BUILT_IN and scheme not in _transports:
        register_transport(scheme, import_module(_BUILT_IN[scheme]).transport)
        return scheme
    return origin


@lru_cache(maxsize=256)
def _origin(base_url: str) -> str:
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def _open(base_url: str, key: str, bounds: Limits) -> Transport:
    factory = _transports.get(key)
    if factory is not None:
        return _Foreign(factory())
    parts = urlsplit(base_url)
    tls = _tls() if parts.scheme == "https" else _no_tls()
    proxy = _proxy(parts.scheme, parts.hostname or "")
    if proxy is not None:
        import httpx2

        limits = httpx2.Limits(
            max_connections=bounds.model_connections,
            max_keepalive_connections=bounds.model_idle_connections,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
        )
        return _Foreign(httpx2.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy))
    from hermes_agent.models import keeping

    return keeping.Transport(
        tls, most=bounds.model_connections, most_idle=bounds.model_idle_connections, idle_seconds=_KEEP_ALIVE_SECONDS
    )


def _proxy(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a host; this machine itself needs none."""
    from urllib.request import getproxies, proxy_bypass

    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    named = getproxies()
    found = named.get(scheme) or named.get("all")
    if found is None or proxy_bypass(host):
        return None
    return found if "://" in found else f"http://{found}"


@cache
def _tls() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _no_tls() -> ssl.SSLContext:
    """For http:// alone: a context that trusts nobody, and reads no certificates to do so."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
