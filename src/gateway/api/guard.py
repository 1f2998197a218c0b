"""Who may talk to the server at all: pure ASGI, before any handler.

Every path needs a bearer key, on loopback too, but `/health` and `/readyz`, which say nothing but that they are there.
Behind each key stands an application of its own; a WebSocket needs the owner key. The Host must be a loopback name, the
address the server listens on or a name from `api_server.hosts`, whatever that address is, so that a page of a stranger
that points its own name at this machine gets nowhere. An Origin must be on the list. Bodies are bounded before they are
read.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from ipaddress import IPv6Address
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from gateway.api import keys, shapes
from gateway.config import ApiServerConfig

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/readyz", "/v1/health"})
_BEARER = "bearer."
_POLICY = 1008
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class KeyApp(NamedTuple):
    """One key, and the application behind it."""

    role: keys.KeyRole
    key: str
    app: App


class Guard:
    """Wraps the application."""

    def __init__(
        self,
        apps: Sequence[KeyApp],
        bare: App,
        *,
        settings: ApiServerConfig,
        body_bytes: int,
        refused: Callable[[int], None],
    ) -> None:
        """`bare`: answers the paths that need no key."""
        self._apps, self._bare, self._body_bytes, self._refused = tuple(apps), bare, body_bytes, refused
        self._origins = frozenset(settings.cors_origins)
        # An address that stands for every other one names no host, although browsers let pages reach it.
        bound = () if settings.host in ("0.0.0.0", "::", "") else (settings.host,)
        self._hosts = frozenset(map(host_name, (*_LOOPBACK, *bound, *settings.hosts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._bare(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        found = None if is_open(scope, origin) else self._found(_bearer(headers))
        refusal = self._refusal(scope, headers, origin, found)
        allowed = origin if origin is not None and self._allowed(origin) else None
        if refusal is not None:
            self._refused(refusal.status)
            await _answer(send, refusal, allowed)
        elif scope["method"] == "OPTIONS" and allowed is not None:
            await _preflight(send, allowed)
        else:
            app = self._bare if found is None else found.app
            await app(scope, self._bounded(receive), _with_origin(send, allowed) if allowed else send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The owner's terminal: no other key opens it.

        A browser cannot set headers of a WebSocket: there the key may be a subprotocol or in the query.
        """
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        known = self._known_host(headers.get(b"host", "")) and (origin is None or self._allowed(origin))
        found = self._found(*_shown_keys(scope, headers)) if known else None
        if found is not None and found.role == "owner":
            await found.app(scope, receive, send)
            return
        self._refused(403)
        if found is None or "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _POLICY})
            return
        what = "this is a client key, and this path needs the owner key; hermes api key --role owner makes one"
        await _answer(send, shapes.ApiError(403, what, code="owner_key_needed"), None, kind="websocket.http.response")

    def _found(self, *shown: str) -> KeyApp | None:
        """The key that was shown. All of them are compared: how long it takes says nothing."""
        found = [one for one in self._apps for text in shown if keys.matches(one.key, text)]
        return found[0] if found else None

    def _refusal(
        self, scope: Scope, headers: dict[bytes, str], origin: str | None, found: KeyApp | None
    ) -> shapes.ApiError | None:
        if not self._known_host(headers.get(b"host", "")):
            return shapes.ApiError(421, "this server does not go by that name", code="wrong_host")
        if origin is not None and not self._allowed(origin):
            return shapes.ApiError(403, "this origin is not on the list", code="wrong_origin")
        if is_open(scope, origin):
            return None
        if found is None:
            what = "this is not a key of this home" if _bearer(headers) else "a bearer key is needed"
            return shapes.ApiError(
                401, f"{what}; hermes api key prints it", code="invalid_api_key", kind="authentication_error"
            )
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self._body_bytes:
            return _too_large(self._body_bytes)
        return None

    def _known_host(self, host: str) -> bool:
        return host_name(host) in self._hosts

    def _allowed(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins

    def _bounded(self, receive: Receive) -> Receive:
        """A body that was announced smaller than it is, or not at all, ends here."""
        taken = 0

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._body_bytes:
                    raise _too_large(self._body_bytes)
            return message

        return bounded


def is_open(scope: Scope, origin: str | None) -> bool:
    """A request that needs no key: a bare word, or a browser that asks whether it may ask."""
    return scope["path"] in OPEN or (scope["method"] == "OPTIONS" and origin is not None)


def host_name(host: str) -> str:
    """The name or address in a Host header, or in a setting: without a port, and written in one way."""
    name = host.strip().lower()
    if found := _HOST.fullmatch(name):
        name = found["six"] or found["name"].removesuffix(".")
    if ":" not in name:
        return name
    try:
        return str(IPv6Address(name))
    except ValueError:
        return name


def _bearer(headers: dict[bytes, str]) -> str:
    kind, _, shown = headers.get(b"authorization", "").partition(" ")
    return shown.strip() if kind.lower() == "bearer" else ""


def _shown_keys(scope: Scope, headers: dict[bytes, str]) -> Iterator[str]:
    if shown := _bearer(headers):
        yield shown
    for name in scope.get("subprotocols", ()):
        if name.startswith(_BEARER):
            yield name.removeprefix(_BEARER)
    yield from parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", ())


def _too_large(most: int) -> shapes.ApiError:
    return shapes.ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


async def _answer(send: Send, error: shapes.ApiError, origin: str | None, *, kind: str = "http.response") -> None:
    body = shapes.encoded(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    headers += _cors(origin)
    await send({"type": f"{kind}.start", "status": error.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


async def _preflight(send: Send, origin: str) -> None:
    headers = [
        *_cors(origin),
        (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE, OPTIONS"),
        (b"access-control-allow-headers", b"authorization, content-type, idempotency-key, x-hermes-session-id"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _cors(origin: str | None) -> list[tuple[bytes, bytes]]:
    if origin is None:
        return []
    exposed = b"x-hermes-session-id, x-hermes-trace-id"
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", exposed),
        (b"vary", b"origin"),
    ]


def _with_origin(send: Send, origin: str) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_cors(origin)]
        await send(message)

    return sending
