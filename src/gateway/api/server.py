"""The HTTP server in the gateway's event loop, without signal handlers and logs of its own.

`make` makes a server with its adapter, which is a platform like others; `connect` gives it the parts of the gateway.
Without any key a client key is made. Keys are looked up for every request: a replaced key is invalid at once, and the
new one has its own conversations. The variable that holds a key decides whose key it is; the store records that before
the key is valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketClose

from gateway.access import authorisation
from gateway.access.authorisation import API
from gateway.api import auth, error_boundary
from gateway.api.auth import ApiKey, App, Guard, KeyRole, Receive, Scope, Send, key_of
from gateway.api.chat import ChatHandlers
from gateway.api.conversations import Conversations
from gateway.api.error_boundary import Handle, Handler
from gateway.api.exchange import ApiAdapter
from gateway.api.openai_wire import ApiError
from gateway.api.sessions import SessionHandlers
from gateway.api.webhooks import WebhookHandlers
from gateway.platforms.context import PREFIX
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import HTTPConnection, Request

    from gateway.config import ApiServerConfig, GatewayConfig
    from gateway.services import Parts
    from hermes_config.config import Config
    from hermes_config.limits import Limits
    from hermes_state import SessionDB


_log = logging.getLogger("hermes.gateway")

SocketHandler = Callable[["WebSocket"], Awaitable[None]]
_added: dict[str, Callable[[Parts], SocketHandler]] = {}
"""The WebSockets of other packages, by path."""
_START_SECONDS = 10.0
_GRACE_SECONDS = 3
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 1_024


class ApiServer:
    """The server of one port, which its adapter opens and closes."""

    def __init__(self, adapter: ApiAdapter, settings: ApiServerConfig, found: dict[KeyRole, str]) -> None:
        self.adapter, self._settings, self._keys = adapter, settings, found
        self._guard: Guard | None = None
        self._parts: Parts | None = None
        self._changing = asyncio.Lock()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._seen: Config | None = None
        """The configuration whose keys were compared last."""
        self.problem = ""
        self.address = ""
        """`127.0.0.1:8642` while it listens."""
        adapter.serve(self)

    def connect(self, parts: Parts) -> None:
        """Make the application over the parts of the gateway; called once, before the port is opened."""
        self._parts, services = parts, parts.services
        parts.webhooks.served = True
        self._guard = Guard(
            app(parts, self.adapter), settings=self._settings, body_bytes=services.db.limits.api_body_bytes,
            refused=lambda status: services.metrics.requests("refused", str(status)).inc(),
        )  # fmt: skip
        self._take(self._keys)

    def _take(self, found: dict[KeyRole, str]) -> None:
        """Accept these keys. A key that stays keeps its conversations."""
        assert self._guard is not None and self._parts is not None, "the parts come first"
        services, kept = self._parts.services, self._guard.keys
        self._keys, self._guard.keys = found, {
            role: kept[role] if role in kept and kept[role].key == key
            else ApiKey(role, key, Conversations(services, auth.key_id(key), role))
            for role, key in found.items()
        }  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the guard of the current keys."""
        assert self._guard is not None and self._parts is not None, "the parts come first"
        with contextlib.suppress(ConfigError):  # then the known keys stay valid
            now = self._parts.services.latest()
            if now is not self._seen:
                await self._take_other_keys(self._parts.services.db, now)
                self._seen = now
        await self._guard(scope, receive, send)

    async def _take_other_keys(self, db: SessionDB, config: Config) -> None:
        async with self._changing:
            if (found := auth.all_configured(config)) != self._keys:
                await asyncio.to_thread(_store_whose, db, found)
                self._take(found)
                _log.info("the API keys changed", extra={"action": "api_key"})

    async def open(self) -> bool:
        """Open the port; False, with `problem` set, when it cannot be opened."""
        assert self._parts is not None, "the parts come first"
        db = self._parts.services.db
        try:
            listening = _bound(self._settings.host, self._settings.port)
        except OSError as error:
            self.problem = _refused(self._settings, error)
            return False
        await asyncio.to_thread(_store_whose, db, self._keys)
        self._server = _quiet_server(self, db.limits)
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="api server")
        self._task.add_done_callback(self._ended)
        async with asyncio.timeout(_START_SECONDS):
            while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn rings no bell
                await asyncio.sleep(0.005)
        host, port = listening.getsockname()[:2]
        self.problem, self.address = "", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _log.info("the API listens on %s", self.address, extra={"action": "api_start"})
        return True

    async def close(self) -> None:
        """Close the port; running responses have a moment to end."""
        self.address = ""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await asyncio.wait({self._task}, timeout=_GRACE_SECONDS + 2)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.address = ""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problem = f"the server ended ({type(error).__name__})"
            _log.error("the API server ended", exc_info=error, extra={"action": "api_defect"})


def make(config: Config, settings: GatewayConfig, db: SessionDB) -> ApiServer | None:
    """The server of a home; None when it is not enabled."""
    if not auth.is_wanted(config, settings):
        return None
    found = auth.all_configured(config) or {"client": auth.make(config.home)}
    return ApiServer(ApiAdapter(db, config.home), settings.api_server, found)


def _store_whose(db: SessionDB, keys: dict[KeyRole, str]) -> None:
    """Store whose each key is. In an older home the client key was the owner's; this changes it to a client's."""
    for role, key in keys.items():
        person = db.people.owner() if role == "owner" else db.people.api_client()
        name = auth.key_id(key)
        before = db.people.find(platform=API, native_id=name)
        db.people.move(person.id, platform=API, native_id=name, display_name=f"{role} key of the API")
        if before is not None and before.id != person.id:
            _log.warning(
                "the key in %s was the %s's and is %s from now on", auth.VARIABLES[role], before.role,
                "the owner's" if role == "owner" else "a client's: no terminal, no files, no approvals. "
                "hermes api key --role owner makes an owner key", extra={"action": "api_key_changed"},
            )  # fmt: skip


def _bound(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # With its protocol named, connections send small answers at once instead of waiting for more.
    made = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _refused(settings: ApiServerConfig, error: OSError) -> str:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is taken by another program; end that one, or set API_SERVER_PORT (or api_server.port) to a "
            "free one. Chats go on without the API"
        )
    if error.errno == errno.EACCES:
        return f"{where} is not ours to open; set API_SERVER_PORT (or api_server.port) to one above 1023"
    reason = error.strerror or type(error).__name__
    return f"{where} cannot be opened ({reason}); see API_SERVER_HOST and API_SERVER_PORT"


def _most_connections(limits: Limits) -> int:
    """How many connections the server allows, so that half of the process's files stay for everything else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = limits.api_connections if files == resource.RLIM_INFINITY else max(1, files // 2)
    return min(limits.api_connections, half)


def _quiet_server(app: App, limits: Limits) -> uvicorn.Server:
    import uvicorn

    from gateway.api.http_protocol import BoundedHttp, Bounds

    class Http(BoundedHttp):
        bounds = Bounds(
            most=_most_connections(limits), head_seconds=limits.api_head_seconds, body_seconds=limits.api_body_seconds
        )

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Install no signal handlers: the gateway has its own."""
            yield

    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", interface="asgi3",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS, server_header=False,
        proxy_headers=False, backlog=_BACKLOG, http=Http, ws="websockets-sansio",
        ws_max_size=limits.rpc_frame_bytes,
    )  # fmt: skip
    return Quiet(config)


# The paths of the server, on one screen. A bare router: every handler is its own boundary (`error_boundary`), so the
# layers of an application, which would catch what handlers raise and which each request would pay for, are left out.


def app(parts: Parts, adapter: ApiAdapter) -> App:
    """The application behind the guard, which has checked the key."""
    from gateway.api.health import HealthHandlers

    services, health = parts.services, HealthHandlers(parts)
    chat = ChatHandlers(parts, adapter)
    sessions = SessionHandlers(services, parts.agents, chat)

    async def is_shut_out(request: HTTPConnection) -> bool:
        who, where = authorisation.api_client(key_of(request).id)
        return not authorisation.decide(who, where, "speak", None, await services.policy.fresh()).allowed

    def checked(handle: Handle) -> Handle:
        """Refuse a revoked key, for handlers that make no other access check."""

        async def handled(request: Request) -> App:
            if await is_shut_out(request):
                raise ApiError(403, "this key has no access here", code="not_allowed")
            return await handle(request)

        return handled

    def checked_socket(handle: SocketHandler) -> SocketHandler:
        async def handled(socket: WebSocket) -> None:
            if await is_shut_out(socket):
                await socket.close()
            else:
                await handle(socket)

        return handled

    paths: tuple[tuple[str, str, Handle], ...] = (  # looked through in this order
        ("POST", "/v1/chat/completions", chat.completions),
        ("GET", "/health", health.alive),  # without a key, as the next two
        ("GET", "/v1/health", health.alive),
        ("GET", "/readyz", health.ready),
        ("GET", "/health/detailed", checked(health.detailed)),
        ("GET", "/metrics", checked(health.metrics)),
        ("GET", "/v1/models", checked(chat.models)),
        ("GET", "/v1/models/{model:path}", checked(chat.one_model)),
        ("GET", "/api/sessions", sessions.listing),
        ("POST", "/api/sessions", sessions.create),
        ("GET", "/api/sessions/{id}", sessions.show),
        ("PATCH", "/api/sessions/{id}", sessions.rename),
        ("DELETE", "/api/sessions/{id}", sessions.delete),
        ("GET", "/api/sessions/{id}/messages", sessions.messages),
        ("POST", "/api/sessions/{id}/chat", sessions.chat),
        ("POST", "/api/sessions/{id}/chat/stream", sessions.chat_stream),
        ("POST", "/api/sessions/{id}/compress", sessions.compress),
        ("POST", "/api/sessions/{id}/fork", sessions.fork),
    )
    if services.settings.api_server.mcp:
        from gateway.api.mcp import McpHandlers

        mcp = checked(McpHandlers(parts, chat, adapter).handle)
        paths += tuple((method, "/mcp", mcp) for method in ("POST", "GET", "DELETE"))
    routes: list[BaseRoute] = [
        _Path(path, Handler(f"{method} {path}", handle, services.metrics), methods=[method])
        for method, path, handle in paths
    ]
    webhooks = WebhookHandlers(parts.webhooks, services.db.limits)
    routes.append(
        _Path(f"{PREFIX}{{rest:path}}", Handler(PREFIX, webhooks.handle, services.metrics), methods=["GET", "POST"])
    )
    opened = [WebSocketRoute(path, checked_socket(make(parts))) for path, make in _added.items()]
    return Router([*routes, *opened], default=_no_path)


class _Path(Route):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] not in self.methods:
            refusal = error_boundary.refusal(ApiError(405, "this path does not allow that method", code="wrong_method"))
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def _no_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    await error_boundary.refusal(ApiError(404, "there is nothing at this path", code="unknown_path"))(
        scope, receive, send
    )


def add(path: str, make: Callable[[Parts], SocketHandler]) -> None:
    """Register a WebSocket of another package, such as the terminal's, before the gateway is made.

    The guard checks a client before its handler is called. A handler is made once, for the gateway's parts.
    """
    _added[path] = make
