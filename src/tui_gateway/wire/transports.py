"""Destinations of frames: the pipe of a stdio client, or all clients of a session. The WebSocket's is in `ws`.

A transport never blocks its writers. If a pipe's reader is gone, `write` returns False and `lost` is called once; the
process then shuts down normally.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TextIO

from hermes_config.limits import DEFAULTS
from tui_gateway.wire.frame_queue import FrameQueue
from tui_gateway.wire.frames import Frame

_log = logging.getLogger("hermes.rpc")
# Bound at import: a test of the specification replaces threading.Thread for the whole process.
_Thread = threading.Thread
_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ESHUTDOWN})


class FrameTransport(Protocol):
    def write(self, frame: Frame) -> bool:
        """Send from any thread, without waiting; False when the client is gone."""


class Audience:
    """The clients of one session; each gets every frame. Without clients, events are only in the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[FrameTransport, FrameTransport] = {}
        """The clients, and their transports."""
        self._expected = 0
        self._empty_since = time.monotonic()

    def write(self, frame: Frame, *, but: FrameTransport | None = None) -> bool:
        """Send to all `but` one; an unreachable client is removed."""
        with self._lock:
            members = [pair for pair in self._members.items() if pair[0] is not but]
        for one, way in members:
            if not way.write(frame):
                self.leave(one)
        return True

    def write_to(self, one: FrameTransport, frame: Frame) -> None:
        """Send to one client, if it is still here."""
        with self._lock:
            way = self._members.get(one)
        if way is not None and not way.write(frame):
            self.leave(one)

    def join(self, transport: FrameTransport) -> None:
        with self._lock:
            self._members.setdefault(transport, transport)

    def join_later(self, transport: FrameTransport) -> HeldTransport:
        """Join now, but hold frames back until `release`."""
        held = HeldTransport(transport)
        with self._lock:
            self._members[transport] = held
        return held

    def leave(self, transport: FrameTransport) -> None:
        with self._lock:
            if self._members.pop(transport, None) is not None:
                self._empty_since = time.monotonic()

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """Announce a client that is about to join and may still fail."""
        with self._lock:
            self._expected += 1
        try:
            yield
        finally:
            with self._lock:
                self._expected -= 1
                self._empty_since = time.monotonic()

    @property
    def gone_since(self) -> float | None:
        """The time (monotonic) since when no client is here; None while one is, or is about to join."""
        with self._lock:
            return None if self._members or self._expected else self._empty_since


class HeldTransport:
    """A client that must get another frame first."""

    def __init__(self, transport: FrameTransport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._waiting: list[Frame] | None = []

    def write(self, frame: Frame) -> bool:
        with self._lock:
            if self._waiting is None:
                return self._transport.write(frame)
            self._waiting.append(frame)
            return True

    def release(self) -> None:
        with self._lock:
            for frame in self._waiting or ():
                self._transport.write(frame)
            self._waiting = None


class StdioTransport:
    """Frames as lines on a stream. Its writer is a thread, started with the first frame."""

    def __init__(self, stream: Callable[[], TextIO], *, most_bytes: int = DEFAULTS.rpc_queue_bytes) -> None:
        """`stream` is called when the first frame is written."""
        self._stream = stream
        self._rung = threading.Event()
        self._outgoing = FrameQueue(self._rung.set, most_bytes=most_bytes)
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self.lost: Callable[[], None] = lambda: None

    def write(self, frame: Frame) -> bool:
        with self._starting:
            if self._writer is None:
                self._writer = _Thread(target=self._write_all, daemon=True, name="rpc-writer")
                self._writer.start()
        return self._outgoing.put(frame)

    def close(self, seconds: float) -> None:
        """Give queued frames this long to be written."""
        self._outgoing.close()
        if self._writer is not None:
            self._writer.join(seconds)

    def _write_all(self) -> None:
        stream = self._stream()
        while True:
            self._rung.clear()
            lines, wait = self._outgoing.take()
            if lines and not self._wrote(stream, lines):
                self._outgoing.close()
                self.lost()
                return
            if not lines and self._outgoing.closed:
                if self._outgoing.overfull:
                    _log.warning("the client reads too slowly and is disconnected", extra={"action": "rpc_write"})
                    self.lost()
                return
            if not lines:  # else it may have ended meanwhile, without another wake-up
                self._rung.wait(wait)

    def _wrote(self, stream: TextIO, lines: list[str]) -> bool:
        try:
            stream.write("".join(f"{line}\n" for line in lines))
            stream.flush()
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            if not isinstance(error, OSError) or error.errno not in _GONE:
                _log.error("frames cannot be written (%s)", type(error).__name__, extra={"action": "rpc_write"})
            return False
        return True
