"""The listening server, inside the gateway's own event loop. It keeps to itself: no signals, no log of its own.

`make` gives a server with its adapter, which is a platform among the others; `over` puts the application over the parts
of the gateway. The key is made when there is none, and is the owner's, because whoever reads `<home>/.env` is at this
machine. It is looked up for every request: when somebody has made another one, the old one is no good any more, and the
application is put together anew, because a key has its own conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.api import keys
from gateway.api.adapter import ApiAdapter
from gateway.authorisation import API
from gateway.config import Platform
from hermes_state.ids import LOCAL_OWNER

if TYPE_CHECKING:
    import uvicorn

    from gateway.api.guard import App, Receive, Scope, Send
    from gateway.config import ApiServerConfig, GatewayConfig
    from gateway.run_parts import Parts
    from hermes_config.config import Config
    from hermes_config.limits import Limits
    from hermes_state import SessionDB

_log = logging.getLogger("hermes.gateway")

_START_SECONDS = 10.0
_GRACE_SECONDS = 3
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 1_024


class ApiServer:
    """One port. Opened and closed by its adapter."""

    def __init__(self, adapter: ApiAdapter, settings: ApiServerConfig, key: str) -> None:
        self.adapter, self._settings, self._key = adapter, settings, key
        self._app: App | None = None
        self._make: Callable[[str], App] | None = None
        self._parts: Parts | None = None
        self._changing = asyncio.Lock()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        self.address = ""
        """`127.0.0.1:8642` while it listens."""
        adapter.serve(self)

    def over(self, parts: Parts) -> None:
        """Told once, when the gateway is put together, what stands behind the door."""
        from gateway.api.app import app
        from gateway.api.health import Health

        health = Health(parts)
        self._parts, self._make = parts, lambda key: app(parts, self.adapter, key, health)
        self._app = self._make(self._key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, before the guard of the key that is in force now."""
        assert self._app is not None and self._parts is not None, "the parts come first"
        if keys.in_force(self._parts.board.home, self._key) != self._key:
            await self._take_another_key(self._parts)
        await self._app(scope, receive, send)

    async def _take_another_key(self, parts: Parts) -> None:
        async with self._changing:
            key = keys.in_force(parts.board.home, self._key)
            if key == self._key:
                return
            await asyncio.to_thread(_let_in, parts.board.db, keys.key_id(key))
            assert self._make is not None
            self._key, self._app = key, self._make(key)
        _log.info("the API has another key", extra={"action": "api_key"})

    async def open(self) -> bool:
        """Listen; False, with `problem` set, when the port cannot be had."""
        assert self._parts is not None, "the parts come first"
        db = self._parts.board.db
        try:
            listening = _bound(self._settings.host, self._settings.port)
        except OSError as error:
            self.problem = _refused(self._settings, error)
            return False
        await asyncio.to_thread(_let_in, db, keys.key_id(self._key))
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
        """Take no more; what is under way has a moment to be written."""
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
    """The server of a home; None when it is not switched on. A key that was set is a switch, too."""
    key, chosen = keys.configured(config), settings.api_server
    platform = settings.platforms.get(Platform.API_SERVER)
    if not (chosen.enabled or key is not None or (platform is not None and platform.enabled)):
        return None
    return ApiServer(ApiAdapter(db, config.home), chosen, key or keys.make(config.home))


def _let_in(db: SessionDB, key_id: str) -> None:
    db.people.owner()
    if db.people.find(platform=API, native_id=key_id) is None:
        db.people.link(LOCAL_OWNER, platform=API, native_id=key_id, display_name="API key")


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


def _quiet_server(app: App, limits: Limits) -> uvicorn.Server:
    import uvicorn

    from gateway.api.joined import JoinedHttp

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals are the gateway's."""
            yield

    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", interface="asgi3",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS, server_header=False,
        proxy_headers=False, backlog=_BACKLOG, http=JoinedHttp, ws="websockets-sansio",
        ws_max_size=limits.rpc_frame_bytes,
    )  # fmt: skip
    return Quiet(config)
