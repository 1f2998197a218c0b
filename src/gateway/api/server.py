"""The listening server, inside the gateway's own event loop. It keeps to itself: no signals, no log of its own.

`make` gives a server with its adapter, which is a platform among the others; `over` puts the applications over the
parts of the gateway, one a key. A client key is made when there is no key. Keys are looked up for every request: when
somebody has made another one, the old one is no good any more, and its application is put together anew, because a key
has its own conversations. Whose a key is follows from the variable that holds it, and is put into the store before it
opens anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.api import keys
from gateway.api.adapter import ApiAdapter
from gateway.authorisation import API
from gateway.config import Platform

if TYPE_CHECKING:
    import uvicorn

    from gateway.api.guard import App, KeyApp, Receive, Scope, Send
    from gateway.api.keys import KeyRole
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

    def __init__(self, adapter: ApiAdapter, settings: ApiServerConfig, found: dict[KeyRole, str]) -> None:
        self.adapter, self._settings, self._keys = adapter, settings, found
        self._app: App | None = None
        self._make: Callable[[KeyRole, str], App] | None = None
        self._apps: dict[KeyRole, KeyApp] = {}
        self._bare: App | None = None
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
        from gateway.api.app import app, bare
        from gateway.api.health import Health

        health = Health(parts)
        self._parts, self._make = parts, lambda role, key: app(parts, self.adapter, role, key, health)
        self._bare = bare(parts, health)
        self._take(self._keys)

    def _take(self, found: dict[KeyRole, str]) -> None:
        """These keys open the door from now on. One that stays keeps its application."""
        from gateway.api.guard import Guard, KeyApp

        assert self._make is not None and self._bare is not None and self._parts is not None, "the parts come first"
        board, kept = self._parts.board, self._apps
        self._apps = {
            role: kept[role] if role in kept and kept[role].key == key else KeyApp(role, key, self._make(role, key))
            for role, key in found.items()
        }
        self._keys, self._app = found, Guard(
            [*self._apps.values()], self._bare, settings=self._settings, body_bytes=board.db.limits.api_body_bytes,
            refused=lambda status: board.metrics.requests("refused", str(status)).inc(),
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, before the guard of the keys that are in force now."""
        assert self._app is not None and self._parts is not None, "the parts come first"
        if keys.in_force(self._parts.board.home, self._keys) != self._keys:
            await self._take_other_keys(self._parts)
        await self._app(scope, receive, send)

    async def _take_other_keys(self, parts: Parts) -> None:
        async with self._changing:
            found = keys.in_force(parts.board.home, self._keys)
            if found == self._keys:
                return
            await asyncio.to_thread(_let_in, parts.board.db, found)
            self._take(found)
        _log.info("the API has other keys", extra={"action": "api_key"})

    async def open(self) -> bool:
        """Listen; False, with `problem` set, when the port cannot be had."""
        assert self._parts is not None, "the parts come first"
        db = self._parts.board.db
        try:
            listening = _bound(self._settings.host, self._settings.port)
        except OSError as error:
            self.problem = _refused(self._settings, error)
            return False
        await asyncio.to_thread(_let_in, db, self._keys)
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
    found, chosen = keys.all_configured(config), settings.api_server
    platform = settings.platforms.get(Platform.API_SERVER)
    if not (chosen.enabled or found or (platform is not None and platform.enabled)):
        return None
    return ApiServer(ApiAdapter(db, config.home), chosen, found or {"client": keys.make(config.home)})


def _let_in(db: SessionDB, found: dict[KeyRole, str]) -> None:
    """Whose each key is. The client key of an older home was the owner's: it is taken from them here."""
    for role, key in found.items():
        person = db.people.owner() if role == "owner" else db.people.api_client()
        name = keys.key_id(key)
        before = db.people.find(platform=API, native_id=name)
        db.people.move(person.id, platform=API, native_id=name, display_name=f"{role} key of the API")
        if before is not None and before.id != person.id:
            _log.warning(
                "the key in %s was the %s's and is %s from now on", keys.VARIABLES[role], before.role,
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
    """So many that half of the process's files stay for everything else."""
    if sys.platform == "win32":
        return limits.api_connections
    import resource  # not on Windows

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = limits.api_connections if files == resource.RLIM_INFINITY else max(1, files // 2)
    return min(limits.api_connections, half)


def _quiet_server(app: App, limits: Limits) -> uvicorn.Server:
    import uvicorn

    from gateway.api.http_protocol import BoundedHttp, Bounds

    class Http(BoundedHttp):
        bounds = Bounds(
            most=_most_connections(limits),
            head_seconds=limits.api_head_seconds,
            body_seconds=limits.api_body_seconds,
        )

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals are the gateway's."""
            yield

    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", interface="asgi3",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS, server_header=False,
        proxy_headers=False, backlog=_BACKLOG, http=Http, ws="websockets-sansio",
        ws_max_size=limits.rpc_frame_bytes,
    )  # fmt: skip
    return Quiet(config)
