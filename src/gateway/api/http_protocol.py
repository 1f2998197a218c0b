"""uvicorn's HTTP protocol, with limits on connections.

uvicorn waits forever for a request that does not come or does not end. Here the head of a request has a deadline that
no single byte extends, and a body must keep coming. The number of connections is limited; when all are in use, one
without a request is closed for the next one: the oldest that never sent any, else the one that was idle longest. A
connection with a running request is never closed for another.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger("hermes.gateway")
_FULL = {"action": "api_full"}


class Bounds:
    """The limits of one server: its connections, and how long it waits for each."""

    def __init__(self, *, most: int, head_seconds: float, body_seconds: float) -> None:
        self.most, self.head_seconds, self.body_seconds = most, head_seconds, body_seconds
        self.not_asked: dict[BoundedHttp, None] = {}
        """Connections without any request yet, oldest first."""
        self.idle: dict[BoundedHttp, None] = {}
        """Connections whose last request was answered, without a new complete one."""

    def least_useful(self) -> BoundedHttp | None:
        return next(iter(self.not_asked), None) or next(iter(self.idle), None)


class BoundedHttp(H11Protocol):
    """One connection. A subclass sets the limits."""

    bounds: Bounds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_for = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        bounds = self.bounds
        if len(self.connections) > bounds.most:
            (bounds.least_useful() or self).give_up()
            if self not in self.connections:
                _log.warning("a connection to the API was refused: %s are open", bounds.most, extra=_FULL)
                return
        bounds.not_asked[self] = None
        self._wait("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.bounds.idle.pop(self, None)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.our_state in (h11.IDLE, h11.DONE) and not self.transport.is_closing():
            self.bounds.idle[self] = None
            if self.conn.their_state is h11.SEND_BODY:
                self._wait("rest")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._forget()  # from here on it is another protocol's
        super().handle_websocket_upgrade(event)

    def give_up(self) -> None:
        """Close the connection now."""
        self._forget()
        self.connections.discard(self)
        self.transport.abort()

    def _forget(self) -> None:
        self.bounds.not_asked.pop(self, None)
        self.bounds.idle.pop(self, None)
        self._stop_waiting()

    # -- how long ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """What the connection waits for now."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        if theirs is h11.IDLE:
            first = self in self.bounds.not_asked
            if not first:
                self.bounds.idle[self] = None
            if self.conn.trailing_data[0]:
                self._wait("head")
            elif not first:
                self._stop_waiting()
        elif theirs is h11.SEND_BODY:
            self.bounds.not_asked.pop(self, None)
            if ours is h11.DONE:  # what comes behind the answer is read only to be rid of it
                self.bounds.idle[self] = None
                self._wait("rest")
            else:
                self._wait("body", again=True)
        else:
            self._forget()

    def _wait(self, what: str, *, again: bool = False) -> None:
        """Start the deadline; `again`: data has come, and the deadline starts again."""
        if self._waits_for == what and not again:
            return
        self._stop_waiting()
        seconds = self.bounds.body_seconds if what == "body" else self.bounds.head_seconds
        self._waits_for, self._deadline = what, self.loop.call_later(seconds, self._late)

    def _stop_waiting(self) -> None:
        self._waits_for = ""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if self._waits_for == "body" and self.flow.read_paused:
            self._wait("body", again=True)  # it is we who do not read
        else:
            self.give_up()
