"""The API's keys: made once, kept in `<home>/.env`, compared in constant time, and shown only by `hermes api key`.

There are two. The client key (`API_SERVER_KEY`) has its own conversations and no terminal, no files and no approvals;
give this one to other programs. The owner key (`API_SERVER_OWNER_KEY`) acts as the owner: it exists only if somebody
made it, and `/api/ws` accepts no other.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qs

from gateway.api import openai_wire
from gateway.api.openai_wire import ApiError
from gateway.config import ApiServerConfig, GatewayConfig, Platform
from gateway.platforms import registry
from gateway.platforms.context import PREFIX
from hermes_config import config as configuration
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from gateway.api.conversations import Conversations
    from hermes_config.config import Config


KeyRole = Literal["client", "owner"]
VARIABLES: Mapping[KeyRole, str] = MappingProxyType({"client": "API_SERVER_KEY", "owner": "API_SERVER_OWNER_KEY"})
SHORTEST = 16


def configured(config: Config, role: KeyRole = "client") -> str | None:
    """The key of this home for this role; None when there is none. Raises `ConfigError` for a key that is too short."""
    variable = VARIABLES[role]
    key = (config.environ(variable) or "").strip()
    if not key:
        return None
    if len(key) < SHORTEST:
        raise _wrong(config, variable, f"has fewer than {SHORTEST} characters")
    return key


def all_configured(config: Config) -> dict[KeyRole, str]:
    """The keys of this home, by role. The same text cannot be both keys."""
    found: dict[KeyRole, str] = {role: key for role in VARIABLES if (key := configured(config, role)) is not None}
    if len(found) == 2 and matches(found["client"], found["owner"]):
        raise _wrong(config, VARIABLES["owner"], f"is the same as {VARIABLES['client']}")
    return found


def is_wanted(config: Config, settings: GatewayConfig) -> bool:
    """Whether the API is enabled: by its setting, by a key, or by a platform that needs webhooks."""
    platform = settings.platforms.get(Platform.API_SERVER)
    on = settings.api_server.enabled or (platform is not None and platform.enabled)
    return on or bool(all_configured(config)) or any(map(_has_webhooks, settings.get_connected_platforms()))


def _has_webhooks(platform: Platform) -> bool:
    about = registry.find(str(platform.value))
    return about is not None and about.webhooks


def make(home: Path, role: KeyRole = "client") -> str:
    """Add a new key to `.env`, or return the key that another process has added meanwhile."""
    key = f"hk-{secrets.token_urlsafe(32)}"
    variable = VARIABLES[role]
    if configuration.add_variable(variable, key, home):
        return key
    found = configured(configuration.load(home), role)
    if found is None:
        raise ConfigError("is empty", file=str(home / ".env"), key=variable, hint="Remove the line.")
    return found


def replace(home: Path, role: KeyRole = "client") -> str:
    """Replace the key in `.env`, because a person asked for it."""
    configuration.remove_variable(VARIABLES[role], home)
    return make(home, role)


def key_id(key: str) -> str:
    """An id of the key that can be stored and shown, because the key cannot be derived from it."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def matches(key: str, shown: str) -> bool:
    return hmac.compare_digest(key.encode(), shown.encode("utf-8", "surrogatepass"))


def _wrong(config: Config, variable: str, reason: str) -> ConfigError:
    hint = "Take it out; hermes api key makes a good one."
    return ConfigError(reason, file=str(config.home / ".env"), key=variable, hint=hint)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/readyz", "/v1/health"})
_BEARER = "bearer."
_POLICY = 1008
_KEY, _HEADERS = "hermes.api_key", "hermes.headers"
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ApiKey(NamedTuple):
    """A valid key, and its own conversations."""

    role: KeyRole
    key: str
    conversations: Conversations

    @property
    def id(self) -> str:
        return key_id(self.key)


def key_of(request: HTTPConnection) -> ApiKey:
    """The key of a request, which the guard has checked."""
    found: ApiKey = request.scope[_KEY]
    return found


class Guard:
    """ASGI middleware that decides, before any handler, which clients may use the server.

    Every path needs a bearer key, on loopback too, except `/health` and `/readyz`, which answer yes or no, and
    `/webhooks/`, where the platform's adapter verifies each request (`webhooks`). Handlers find the key in the
    request's scope (`key_of`); a WebSocket needs the owner key. The Host must be a loopback name, the address that the
    server listens on, or a name in `api_server.hosts`, so that a hostile web page cannot point its own name at this
    machine. An Origin must be on the list. Bodies are limited before they are read.
    """

    def __init__(self, app: App, *, settings: ApiServerConfig, body_bytes: int, refused: Callable[[int], None]) -> None:
        self._app, self._body_bytes, self._refused = app, body_bytes, refused
        self.keys: dict[KeyRole, ApiKey] = {}
        """The valid keys; the server sets them."""
        self._origins = frozenset(settings.cors_origins)
        self._shared: App = _shared(self._keyed, settings.cors_origins) if self._origins else self._keyed
        # An address that stands for every other one names no host, although browsers let pages reach it.
        bound = () if settings.host in ("0.0.0.0", "::", "") else (settings.host,)
        self._hosts = frozenset(map(host_name, (*_LOOPBACK, *bound, *settings.hosts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = scope[_HEADERS] = _headers(scope)
        if not self._known_host(headers.get(b"host", "")):
            await self._refuse(send, ApiError(421, "this server does not have that host name", code="wrong_host"))
        elif not self._allowed(headers.get(b"origin")):
            await self._refuse(send, ApiError(403, "this origin is not allowed", code="wrong_origin"))
        else:
            await self._shared(scope, receive, send)

    async def _keyed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key of a request from an allowed host and origin, limit its body, and pass it on."""
        if scope["path"] in OPEN or scope["path"].startswith(PREFIX):
            await self._app(scope, self._bounded(receive), send)
            return
        headers = scope[_HEADERS]
        found = self._found(_bearer(headers))
        length = headers.get(b"content-length", "0")
        if found is None:
            what = "this is not a key of this home" if _bearer(headers) else "a bearer key is needed"
            what = f"{what}; hermes api key prints it"
            await self._refuse(send, ApiError(401, what, code="invalid_api_key", kind="authentication_error"))
        elif not length.isdecimal() or int(length) > self._body_bytes:
            await self._refuse(send, _too_large(self._body_bytes))
        else:
            scope[_KEY] = found
            await self._app(scope, self._bounded(receive), send)

    async def _refuse(self, send: Send, error: ApiError) -> None:
        self._refused(error.status)
        await _answer(send, error)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the owner's terminal, which needs the owner key.

        A browser cannot set headers of a WebSocket: there the key may be a subprotocol or in the query.
        """
        headers = _headers(scope)
        known = self._known_host(headers.get(b"host", "")) and self._allowed(headers.get(b"origin"))
        found = self._found(*_shown_keys(scope, headers)) if known else None
        if found is not None and found.role == "owner":
            scope[_KEY] = found
            await self._app(scope, receive, send)
            return
        self._refused(403)
        if found is None or "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _POLICY})
            return
        what = "this is a client key, and this path needs the owner key; hermes api key --role owner makes one"
        await _answer(send, ApiError(403, what, code="owner_key_needed"), kind="websocket.http.response")

    def _found(self, *shown: str) -> ApiKey | None:
        """The valid key that a request sent. All keys are compared, so the time needed reveals nothing."""
        found = [one for one in self.keys.values() for text in shown if matches(one.key, text)]
        return found[0] if found else None

    def _known_host(self, host: str) -> bool:
        return host_name(host) in self._hosts

    def _allowed(self, origin: str | None) -> bool:
        return origin is None or origin in self._origins or "*" in self._origins

    def _bounded(self, receive: Receive) -> Receive:
        """Limit a body whose announced length is missing or too small."""
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


def _shared(app: App, origins: Sequence[str]) -> App:
    """CORS: allows web pages of these origins to read responses."""
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PATCH", "DELETE"),
        allow_headers=("*",),  # clients send headers of their own (openai-js: x-stainless-…); the origin is what counts
        expose_headers=(
            "x-hermes-session-id",
            "x-hermes-trace-id",
            "x-hermes-ignored",
            "x-should-retry",
            "retry-after",
            "mcp-session-id",
        ),
    )


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def host_name(host: str) -> str:
    """The name or address in a Host header or setting, normalised and without the port."""
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


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


async def _answer(send: Send, error: ApiError, *, kind: str = "http.response") -> None:
    body = openai_wire.encoded(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"x-should-retry", b"false"))  # as in `error_boundary.refusal`: no refusal here passes by itself
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.start", "status": error.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
