"""Who may talk to the server at all: pure ASGI, before any handler.

Every path needs the bearer key, on loopback too, but `/health` and `/readyz`, which say nothing but that they are
there. The Host must be a name the server was given or a loopback name, so that a page of a stranger that points its own
name at this machine gets nowhere; an Origin must be on the list. Bodies are bounded before they are read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
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
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Guard:
    """Wraps the application."""

    def __init__(
        self, app: App, *, key: str, settings: ApiServerConfig, body_bytes: int, refused: Callable[[int], None]
    ) -> None:
        self._app, self._key, self._body_bytes, self._refused = app, key, body_bytes, refused
        self._origins = frozenset(settings.cors_origins)
        self._hosts = _LOOPBACK | {settings.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        refusal = self._refusal(scope, headers, origin)
        allowed = origin if origin is not None and self._allowed(origin) else None
        if refusal is not None:
            self._refused(refusal.status)
            await _answer(send, refusal, allowed)
        elif scope["method"] == "OPTIONS" and allowed is not None:
            await _preflight(send, allowed)
        else:
            await self._app(scope, self._bounded(receive), _with_origin(send, allowed) if allowed else send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A browser cannot set headers of a WebSocket: there the key may be a subprotocol or in the query."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        known = self._known_host(headers.get(b"host", "")) and (origin is None or self._allowed(origin))
        if known and any(keys.matches(self._key, shown) for shown in _shown_keys(scope, headers)):
            await self._app(scope, receive, send)
            return
        self._refused(403)
        await send({"type": "websocket.close", "code": _POLICY})

    def _refusal(self, scope: Scope, headers: dict[bytes, str], origin: str | None) -> shapes.ApiError | None:
        if not self._known_host(headers.get(b"host", "")):
            return shapes.ApiError(421, "this server does not go by that name", code="wrong_host")
        if origin is not None and not self._allowed(origin):
            return shapes.ApiError(403, "this origin is not on the list", code="wrong_origin")
        if scope["path"] in OPEN or (scope["method"] == "OPTIONS" and origin is not None):
            return None
        kind, _, shown = headers.get(b"authorization", "").partition(" ")
        given = shown.strip() if kind.lower() == "bearer" else ""
        if not keys.matches(self._key, given):
            what = "this is not the key of this home" if given else "a bearer key is needed"
            return shapes.ApiError(
                401, f"{what}; hermes api key prints it", code="invalid_api_key", kind="authentication_error"
            )
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self._body_bytes:
            return _too_large(self._body_bytes)
        return None

    def _known_host(self, host: str) -> bool:
        name = host.lower()
        if not name.endswith("]"):
            name = name.rpartition(":")[0] if ":" in name.rpartition("]")[2] else name
        return name in self._hosts or "0.0.0.0" in self._hosts

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


def _shown_keys(scope: Scope, headers: dict[bytes, str]) -> Iterator[str]:
    kind, _, shown = headers.get(b"authorization", "").partition(" ")
    if kind.lower() == "bearer":
        yield shown.strip()
    for name in scope.get("subprotocols", ()):
        if name.startswith(_BEARER):
            yield name.removeprefix(_BEARER)
    yield from parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", ())


def _too_large(most: int) -> shapes.ApiError:
    return shapes.ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


async def _answer(send: Send, error: shapes.ApiError, origin: str | None) -> None:
    body = shapes.encoded(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    headers += _cors(origin)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
