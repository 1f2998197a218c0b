"""The server over a WebSocket, at `/api/ws` of the API server: the same frames, one a text message.

`mount` puts it there; the API's guard has let the client in already. Requests of a connection are answered in order,
on a thread, so that nothing here blocks the gateway's loop. What a connection leaves behind is parked and closed after
a grace, unless a client comes back for it or a turn runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway.api import sockets
from hermes_config.limits import DEFAULTS
from tui_gateway import frames, server
from tui_gateway.frames import Frame
from tui_gateway.outgoing import Outgoing

if TYPE_CHECKING:
    from gateway.run_parts import Parts

_log = logging.getLogger("hermes.rpc")
PATH = "/api/ws"
SUBPROTOCOL = "hermes.v1"
_GRACE_SECONDS = 20.0
_TRY_AGAIN_LATER, _GOING_AWAY = 1013, 1001


def mount() -> None:
    """For the gateways of this process."""
    sockets.add(PATH, _over)


def _over(parts: Parts) -> sockets.Handle:
    server._db = parts.board.db
    return handle_ws


class _WsTransport:
    """Frames for one connection; its own task writes them."""

    def __init__(self, most_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._loop, self._rung = loop, asyncio.Event()
        self._outgoing = Outgoing(self._wake, most_bytes=most_bytes)

    def write(self, frame: Frame) -> bool:
        return self._outgoing.put(frame)

    def close(self) -> None:
        self._outgoing.close()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def write_all(self, socket: WebSocket) -> None:
        """Until the connection or the gateway ends. A slow client waits for itself alone."""
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
        await asyncio.to_thread(_left, transport, asyncio.get_running_loop())
        await _closed(socket)


async def _closed(socket: WebSocket) -> None:
    if WebSocketState.DISCONNECTED in (socket.application_state, socket.client_state):
        return
    try:
        await socket.close(_GOING_AWAY)
    except (RuntimeError, WebSocketDisconnect):  # the client was quicker
        return


async def _read(socket: WebSocket, transport: _WsTransport) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        try:
            given = frames.parse(message.get("bytes") or b"" if text is None else text)
            answer = await asyncio.to_thread(server.dispatch, given, transport)
        except frames.RpcError as error:
            answer = frames.failure(None, error.code, error.message)
        if answer is not None:
            transport.write(answer)


# -- what a connection leaves behind ---------------------------------------------------------------------------


def _left(transport: _WsTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Close what was to be closed with it; park the rest."""
    with server._sessions_lock:
        mine = {sid: one for sid, one in server._sessions.items() if one.get("transport") is transport}
        closing = {sid for sid, one in mine.items() if one.get("close_on_disconnect")}
        for session in mine.values():
            session["transport"] = server._nowhere
    for sid in mine:
        if sid in closing:
            server._teardown(sid, "ws_disconnect")
        else:
            _reap_later(sid, loop)


def _reap_later(sid: str, loop: asyncio.AbstractEventLoop) -> None:
    given = os.environ.get("HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", "")
    seconds = float(given) if given.replace(".", "", 1).isdecimal() else _GRACE_SECONDS
    if seconds and not loop.is_closed():
        loop.call_soon_threadsafe(loop.call_later, seconds, _reap_beside, sid, loop)


def _reap_beside(sid: str, loop: asyncio.AbstractEventLoop) -> None:
    loop.run_in_executor(None, _reap, sid, loop)


def _reap(sid: str, loop: asyncio.AbstractEventLoop) -> None:
    with server._sessions_lock:
        session = server._sessions.get(sid)
        if session is None or session["transport"] is not server._nowhere:
            return
        working = session["running"] or session["place"].questions.waiting
        if not working:
            del server._sessions[sid]  # with the look that found nobody: somebody may be coming back just now
    if working:
        _reap_later(sid, loop)
    else:
        server._end_session(sid, session, "ws_orphan_reap")
