"""The one HTTP client of the web tools: bounded in bytes, time, redirects and pace, and never to a private address.

Each request has a connection of its own to the address that was checked, with the name in `Host` and in TLS. Nothing is
sent but the address and an honest `User-Agent`: no cookies, no credentials of the environment or of `.netrc`. Proxy
variables are not read; `web.proxy` names one. A body is read up to `limits.web_page_bytes`, counted after
decompression.
"""

from __future__ import annotations

import asyncio
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hermes_agent.web.addresses import AddressRefused, WebAddress, WebPolicy, parse
from hermes_config.errors import HermesError
from hermes_config.version import VERSION

if TYPE_CHECKING:
    import ssl

    import httpx2

    from hermes_config.limits import Limits

USER_AGENT = f"Hermes/{VERSION} (an assistant fetching a page for a person)"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRIED_ADDRESSES = 3
_KEPT_HOSTS = 1_000
_LOOKUPS = 8


class FetchFailed(HermesError):
    """The page could not be fetched."""


@dataclass(frozen=True, slots=True)
class Network:
    """How a name becomes addresses, and where a connection to a checked address goes.

    The checks are the same for every network. `tests.support.web` replaces `network` below in order to have an
    Internet on this machine: public addresses lead to its servers there. No setting, variable or file can do that.
    """

    resolve: Callable[[str, int], Awaitable[Sequence[str]]]
    dial: Callable[[str, int], tuple[str, int]] = lambda address, port: (address, port)
    certificates: str | None = None
    """Instead of the machine's certificates: a file with the ones to trust."""


# Threads of their own: a name server that does not answer must not hold those that the rest of Hermes works with.
_lookups = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="names")


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookups, look_up)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


network = Network(_system_resolve)


@dataclass(slots=True)
class WebRequest:
    """One request, for the receipt."""

    url: str
    status: int | None = None
    bytes: int = 0
    """What came over the network, before decompression."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class WebResponse:
    url: str
    """The address after all redirects."""
    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    """Whether the body was longer than its limit; `body` is its beginning."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class WebClient:
    """Fetches addresses within the limits and the owner's policy."""

    limits: Limits
    policy: WebPolicy
    takes: Callable[[str], bool] = lambda media_type: True
    """Whether a body of this type is read."""
    done: Callable[[WebRequest], Awaitable[None]] | None = None
    """Told of each request that was made, redirects included."""

    async def get(self, text: str, headers: Mapping[str, str] | None = None) -> WebResponse:
        """Fetch an address. Extra headers go to its own host only, not to where it redirects."""
        address = parse(text)
        extra = dict(headers or {})
        try:
            async with asyncio.timeout(self.limits.web_seconds):
                for _ in range(self.limits.web_redirects + 1):
                    answer = await self._step(address, extra)
                    if isinstance(answer, WebResponse):
                        return answer
                    if (answer.host, answer.port) != (address.host, address.port):
                        extra = {}
                        if self.policy.opens(answer) and not self.policy.opens(address):
                            raise AddressRefused(f"{address.host} redirects to the private host {answer.host}")
                    address = answer
        except TimeoutError:
            raise FetchFailed(f"{address.text} took longer than {self.limits.web_seconds} s") from None
        raise FetchFailed(f"{text[:200]} redirects more than {self.limits.web_redirects} times")

    async def _step(self, address: WebAddress, headers: Mapping[str, str]) -> WebResponse | WebAddress:
        """One request: the response, or the address it redirects to."""
        self.policy.check(address)
        try:
            found = await network.resolve(address.host, address.port)
        except OSError as error:
            raise FetchFailed(f"the name {address.host} was not found") from error
        chosen = self.policy.choose(address, found)[:_TRIED_ADDRESSES]
        async with _host_gate(address.host, self.limits):
            request = WebRequest(address.text)
            try:
                return await self._request(address, chosen, headers, request)
            except BaseException as error:
                request.error = str(error) or type(error).__name__
                raise
            finally:
                if self.done is not None:
                    await self.done(request)

    async def _request(
        self, address: WebAddress, chosen: Sequence[str], headers: Mapping[str, str], request: WebRequest
    ) -> WebResponse | WebAddress:
        import httpx2

        for place, ip in enumerate(chosen):
            try:
                async with self._sent(address, ip, headers) as response:
                    request.status = response.status_code
                    where = response.headers.get("location")
                    if response.status_code in _REDIRECTS and where:
                        try:
                            return parse(str(address.url.join(where)))
                        except httpx2.InvalidURL as error:
                            raise AddressRefused(f"{address.text} redirects to something that is no address") from error
                    return await self._read(address, response, request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if place + 1 == len(chosen):
                    raise FetchFailed(f"{address.host} cannot be reached: {error}") from error
            except httpx2.HTTPError as error:
                raise FetchFailed(f"{address.text} broke off: {type(error).__name__}") from error
        raise AssertionError("a name has at least one address")

    @asynccontextmanager
    async def _sent(self, address: WebAddress, ip: str, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        import httpx2

        host, port = network.dial(ip, address.port)
        own = address.host if ":" not in address.host else f"[{address.host}]"
        named = own if address.url.port is None else f"{own}:{address.port}"
        sent = {
            "Host": named, "User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate", "Connection": "close",
            "Accept": "text/html,text/plain,application/json,application/pdf;q=0.9,*/*;q=0.5", **headers,
        }  # fmt: skip
        waits = httpx2.Timeout(self.limits.web_seconds, connect=self.limits.web_connect_ms / 1000)
        request = httpx2.Request(
            "GET", address.url.copy_with(host=host, port=port), headers=sent,
            extensions={"sni_hostname": address.host, "timeout": waits.as_dict()},
        )  # fmt: skip
        tls = await asyncio.to_thread(_tls, network.certificates)
        # The transport alone: a client would add headers, and follow what `Location` says in its own way.
        async with httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, proxy=self.policy.proxy) as transport:
            response = await transport.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()

    async def _read(self, address: WebAddress, response: httpx2.Response, request: WebRequest) -> WebResponse:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        body, cut = b"", False
        if response.status_code < 400:
            if not self.takes(kind):
                raise FetchFailed(f"{address.text} is {kind[:80]}, which cannot be read as text; it was not loaded")
            body, cut = await self._body(response, request)
        return WebResponse(address.text, response.status_code, dict(response.headers), body, cut)

    async def _body(self, response: httpx2.Response, request: WebRequest) -> tuple[bytes, bool]:
        """The body, decompressed, and whether it was cut at its limit."""
        most, unpack = self.limits.web_page_bytes, _decoder(response.headers.get("content-encoding", ""))
        body = bytearray()
        async for piece in response.aiter_raw():
            request.bytes += len(piece)
            try:
                body += piece if unpack is None else await asyncio.to_thread(unpack, piece, most + 1 - len(body))
            except zlib.error as error:
                raise FetchFailed("its compressed data is broken") from error
            if len(body) > most or request.bytes > most:
                return bytes(body[:most]), True
        return bytes(body), False


def _decoder(encoding: str) -> Callable[[bytes, int], bytes] | None:
    """A function that unpacks pieces of a body, never more than it is allowed to."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in ("gzip", "x-gzip", "deflate"):
        raise FetchFailed(f"it is packed as {name[:40]!r}, although Hermes did not ask for that")
    unpacker: zlib._Decompress | None = None
    first = b""

    def unpack(piece: bytes, most: int) -> bytes:
        nonlocal unpacker, first
        if unpacker is None:
            piece = first = first + piece
            if len(piece) < 2:
                return b""
            # Some servers call data without zlib's header deflate.
            bare = name == "deflate" and (piece[0] & 15 != 8 or int.from_bytes(piece[:2], "big") % 31)
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        out = bytearray()
        while piece and len(out) < most:
            out += unpacker.decompress(piece, most - len(out))
            piece = unpacker.unconsumed_tail
            if unpacker.eof:
                piece = unpacker.unused_data
                if not piece.startswith(b"\x1f\x8b"):
                    break  # nothing, or padding after the data
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return bytes(out)

    return unpack


def _tls(certificates: str | None) -> ssl.SSLContext:
    if certificates is None:
        from hermes_agent.models.http import tls_context  # read once for the process

        return tls_context()
    import ssl

    return ssl.create_default_context(cafile=certificates)


# -- the pace of a host ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _HostGate:
    free: asyncio.Semaphore
    next_at: float = 0.0
    users: int = 0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _HostGate]] = WeakKeyDictionary()


@asynccontextmanager
async def _host_gate(host: str, limits: Limits) -> AsyncIterator[None]:
    """Wait until the host may be asked again: so many at once, and a pause between two."""
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    gate = gates.setdefault(host, _HostGate(asyncio.Semaphore(limits.web_host_requests)))
    gate.users += 1
    try:
        async with gate.free:
            async with gate.asking:
                await asyncio.sleep(gate.next_at - time.monotonic())
                gate.next_at = time.monotonic() + limits.web_host_pause_ms / 1000
            yield
    finally:
        gate.users -= 1
        if len(gates) > _KEPT_HOSTS:
            for name in [name for name, one in gates.items() if not one.users]:
                del gates[name]
