"""The API's keys: made once, kept in `<home>/.env`, compared in constant time, shown by nobody but `hermes api key`.

There are two. The client key (`API_SERVER_KEY`) has its own conversations and no terminal, no files and no approvals;
it is the one to give to another program. The owner key (`API_SERVER_OWNER_KEY`) is the owner: it exists only when
somebody made it, and `/api/ws` takes no other.
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
from gateway.config import ApiServerConfig
from hermes_config import config as configuration
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_config.config import Config


KeyRole = Literal["client", "owner"]
VARIABLES: Mapping[KeyRole, str] = MappingProxyType({"client": "API_SERVER_KEY", "owner": "API_SERVER_OWNER_KEY"})
SHORTEST = 16


def configured(config: Config, role: KeyRole = "client") -> str | None:
    """The key of this home for this role; None when there is none. One that is too short is refused, not used."""
    variable = VARIABLES[role]
    key = (config.environ(variable) or "").strip()
    if not key:
        return None
    if len(key) < SHORTEST:
        raise _wrong(config, variable, f"has fewer than {SHORTEST} characters")
    return key


def all_configured(config: Config) -> dict[KeyRole, str]:
    """Every key of this home. One text cannot be both keys."""
    found: dict[KeyRole, str] = {role: key for role in VARIABLES if (key := configured(config, role)) is not None}
    if len(found) == 2 and matches(found["client"], found["owner"]):
        raise _wrong(config, VARIABLES["owner"], f"is the same as {VARIABLES['client']}")
    return found


def in_force(home: Path, known: dict[KeyRole, str]) -> dict[KeyRole, str]:
    """The keys as the files say them now, for two looks at their stamps; `known` while they make no sense."""
    try:
        return all_configured(configuration.load_or_last_good(home)[0])
    except ConfigError:
        return known


def make(home: Path, role: KeyRole = "client") -> str:
    """A new key, added to `.env`; the one that another process has put there meanwhile, if so."""
    key = f"hk-{secrets.token_urlsafe(32)}"
    variable = VARIABLES[role]
    if configuration.add_variable(variable, key, home):
        return key
    found = configured(configuration.load(home), role)
    if found is None:
        raise ConfigError("is there and empty", file=str(home / ".env"), key=variable, hint="Take the line out.")
    return found


def replace(home: Path, role: KeyRole = "client") -> str:
    """Another key in place of the one in `.env`, because a person asked for it."""
    configuration.remove_variable(VARIABLES[role], home)
    return make(home, role)


def key_id(key: str) -> str:
    """A name for the key that can be stored and shown: nothing leads back from it."""
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
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class KeyApp(NamedTuple):
    """One key, and the application behind it."""

    role: KeyRole
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
        await _answer(
            send, openai_wire.ApiError(403, what, code="owner_key_needed"), None, kind="websocket.http.response"
        )

    def _found(self, *shown: str) -> KeyApp | None:
        """The key that was shown. All of them are compared: how long it takes says nothing."""
        found = [one for one in self._apps for text in shown if matches(one.key, text)]
        return found[0] if found else None

    def _refusal(
        self, scope: Scope, headers: dict[bytes, str], origin: str | None, found: KeyApp | None
    ) -> openai_wire.ApiError | None:
        if not self._known_host(headers.get(b"host", "")):
            return openai_wire.ApiError(421, "this server does not go by that name", code="wrong_host")
        if origin is not None and not self._allowed(origin):
            return openai_wire.ApiError(403, "this origin is not on the list", code="wrong_origin")
        if is_open(scope, origin):
            return None
        if found is None:
            what = "this is not a key of this home" if _bearer(headers) else "a bearer key is needed"
            return openai_wire.ApiError(
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


def _too_large(most: int) -> openai_wire.ApiError:
    return openai_wire.ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


async def _answer(send: Send, error: openai_wire.ApiError, origin: str | None, *, kind: str = "http.response") -> None:
    body = openai_wire.encoded(error.body())
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
