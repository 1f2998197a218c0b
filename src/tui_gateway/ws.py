"""The server over a WebSocket, at `/api/ws` of the API server: the same frames, one per text message.

`mount` registers it; the API's guard has already authorised the client. A thread answers the requests of a connection
in order, so that nothing here blocks the gateway's loop. `idle_sessions` keeps its sessions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway.api import server as api_server
from hermes_config.limits import DEFAULTS
from tui_gateway import server
from tui_gateway.wire import frames
from tui_gateway.wire.frame_queue import FrameQueue
from tui_gateway.wire.frames import Frame

if TYPE_CHECKING:
    from gateway.services import Parts

_log = logging.getLogger("hermes.rpc")
PATH = "/api/ws"
SUBPROTOCOL = "hermes.v1"
_TRY_AGAIN_LATER, _GOING_AWAY = 1013, 1001


def mount() -> None:
    """Register the WebSocket for the gateways of this process."""
    api_server.add(PATH, _make_handler)


def _make_handler(parts: Parts) -> api_server.SocketHandler:
    server._db = parts.services.db
    server._stdio_transport.close(0.0)  # a gateway's stdout is not a client: closed sessions still send events
    return handle_ws


class _WsTransport:
    """Frames for one connection; its own task writes them."""

    def __init__(self, most_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._loop, self._rung = loop, asyncio.Event()
        self._outgoing = FrameQueue(self._wake, most_bytes=most_bytes)

    def write(self, frame: Frame) -> bool:
        return self._outgoing.put(frame)

    def close(self) -> None:
        self._outgoing.close()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def write_all(self, socket: WebSocket) -> None:
        """Write until the connection or the gateway ends. A slow client delays only itself."""
        while True:
            self._rung.clear()
            texts, wait = self._outgoing.take()
            for text in texts:
                await socket.send_text(text)
            if self._outgoing.closed and not texts:
                if self._outgoing.overfull:
                    await socket.close(_TRY_AGAIN_LATER, "read faster, or resume")
                return
            if not texts:
                try:
                    async with asyncio.timeout(wait):
                        await self._rung.wait()
                except TimeoutError:
                    continue


async def handle_ws(socket: WebSocket) -> None:
    """One connection, from its first frame to its end."""
    wanted = SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None
    await socket.accept(subprotocol=wanted)
    db = await asyncio.to_thread(server._get_db)
    transport = _WsTransport((DEFAULTS if db is None else db.limits).rpc_queue_bytes)
    transport.write(server.ready())
    writing = asyncio.create_task(transport.write_all(socket), name="rpc writer")
    reading = asyncio.create_task(_read(socket, transport), name="rpc reader")
    try:
        await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        transport.close()
        for task in (reading, writing):
            task.cancel()
        for outcome in await asyncio.gather(reading, writing, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, WebSocketDisconnect | RuntimeError):
                _log.error("a connection ended (%s)", type(outcome).__name__, extra={"action": "rpc_ws"})
        await asyncio.to_thread(server._idle_sessions.left, transport)
        await _closed(socket)


async def _closed(socket: WebSocket) -> None:
    if WebSocketState.DISCONNECTED in (socket.application_state, socket.client_state):
        return
    try:
        await socket.close(_GOING_AWAY)
    except (RuntimeError, WebSocketDisconnect):  # the client was faster
        return


async def _read(socket: WebSocket, transport: _WsTransport) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        try:
            given = frames.parse(message.get("bytes") or b"" if text is None else text)
        except frames.RpcError as error:
            transport.write(frames.failure(None, error.code, error.message))
        else:
            await asyncio.to_thread(server.serve, given, transport)
