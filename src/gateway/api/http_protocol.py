"""uvicorn's HTTP protocol, with limits on connections.

uvicorn waits forever for a request that does not come or does not end. Here the head of a request has a deadline that
no single byte extends, and a limit in bytes; a body must keep coming. The number of connections is limited; when all
are in use, one without a request is closed for the next one: the oldest that never sent any, else the one that was idle
longest. A connection with a running request is never closed for another.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger("hermes.gateway")
_FULL = {"action": "api_full"}


class Bounds:
    """The limits of one server: its connections, how long it waits for each, and the size of a request's head."""

    def __init__(self, *, most: int, head_seconds: float, body_seconds: float, head_bytes: int = 64 * 1024) -> None:
        self.most, self.head_seconds, self.body_seconds, self.head_bytes = most, head_seconds, body_seconds, head_bytes
        self.not_asked: dict[BoundedHttp, None] = {}
        """Connections without any request yet, oldest first."""
        self.idle: dict[BoundedHttp, None] = {}
        """Connections whose last request was answered, without a new complete one."""

    def least_useful(self) -> BoundedHttp | None:
        return next(iter(self.not_asked), None) or next(iter(self.idle), None)


class BoundedHttp(HttpToolsProtocol):
    """One connection. A subclass sets the limits."""

    bounds: Bounds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_for = ""
        self._part = ""
        """The part of a request that has begun and not ended: head or body; empty between requests."""
        self._bare_bytes = 0
        """How many bytes came since the last one of a body: a head, trailers, the sizes of chunks."""

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
        self._unset_keepalive_if_required()
        self._bare_bytes += len(data)
        self._feed(data)
        if self._part and self._bare_bytes > self.bounds.head_bytes:
            self.send_400_response("The head of the request is too long.")
        self._look(again=True)

    def _feed(self, data: bytes) -> None:
        """Parse what came. One offer of another protocol is declined; a second one in the same data is refused."""
        declined = False
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                elif declined or self.parser.get_method() == b"CONNECT":
                    self.send_400_response("Invalid HTTP request received.")
                else:
                    data, declined = self._without_offer(data[offer.args[0] :]), True
                    continue
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            return

    def _without_offer(self, rest: bytes) -> bytes:
        """A request that offers another protocol (`curl --http2`), and what follows it, for a new parser.

        httptools ends such a request with its head; what follows belongs to the other protocol if it was accepted.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        head = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        return b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, b"".join(head), rest)

    def on_message_begin(self) -> None:
        self._part = "head"
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == "head":  # trailers are not headers of the request
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._part, self._bare_bytes = "body", 0
        if not self.parser.should_upgrade() or self._should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._part, self._bare_bytes = "", 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self) -> None:
        self._forget()  # from here on it is another protocol's
        super().handle_websocket_upgrade()

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

    def _look(self, *, again: bool = False) -> None:
        """What the connection waits for now. `again`: data has come."""
        if self not in self.connections or self.transport.is_closing():
            return
        bounds, answers = self.bounds, bool(self.cycle) and not self.cycle.response_complete
        if self._part == "body":
            bounds.not_asked.pop(self, None)
            if answers:
                self._wait("body", again=again)
            else:  # what comes behind the answer is read only to be rid of it
                bounds.idle[self] = None
                self._wait("rest")
        elif answers:
            self._forget()
        else:
            first = self in bounds.not_asked
            if not first:
                bounds.idle[self] = None
            if self._part:
                self._wait("head")
            elif not first:
                self._stop_waiting()

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
