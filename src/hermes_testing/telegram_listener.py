"""uvicorn with its connections at hand, so that a fake can cut one in the middle of a request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol


class Listener(uvicorn.Server):
    """Runs on a thread of its own until it is told to leave."""

    def __init__(self, app: Starlette) -> None:
        self._connections: dict[tuple[str, int], asyncio.Transport] = {}
        self._saving: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        connections = self._connections

        class Connection(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.peer = tuple(transport.get_extra_info("peername"))
                connections[self.peer] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                connections.pop(self.peer, None)
                super().connection_lost(exc)

        super().__init__(
            uvicorn.Config(
                app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False, loop="asyncio",
                timeout_graceful_shutdown=2,
            )
        )  # fmt: skip

    def cut(self, peer: tuple[str, int]) -> None:
        if transport := self._connections.get(peer):
            transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def leave(self) -> None:
        """From any thread: cut every connection and end."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut_all)

    def _cut_all(self) -> None:
        for transport in list(self._connections.values()):
            transport.abort()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Once, some time from now; while one is due, another is not added."""
        if self._saving is None or self._saving.when() < asyncio.get_running_loop().time():
            self._saving = asyncio.get_running_loop().call_later(seconds, work)
