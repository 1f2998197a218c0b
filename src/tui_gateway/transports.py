"""Where frames go: the pipe of a stdio client, or nowhere. The WebSocket's is in `ws`.

A transport never blocks whoever writes to it. A pipe whose reader is gone makes `write` return False and tells `lost`
once; the process then ends in order.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from typing import Protocol, TextIO

from hermes_config.limits import DEFAULTS
from tui_gateway.frames import Frame
from tui_gateway.outgoing import Outgoing

_log = logging.getLogger("hermes.rpc")
# Bound at import: a test of the specification replaces threading.Thread for the whole process.
_Thread = threading.Thread
_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ESHUTDOWN})


class Transport(Protocol):
    def write(self, frame: Frame) -> bool:
        """From any thread, at once; False when nobody is there any more."""


class Nowhere:
    """For sessions whose client has gone; what happens meanwhile is in the store."""

    def write(self, frame: Frame) -> bool:
        return True


class StdioTransport:
    """Frames as lines on a stream. Its writer is a thread, started with the first frame."""

    def __init__(self, stream: Callable[[], TextIO], *, most_bytes: int = DEFAULTS.rpc_queue_bytes) -> None:
        """`stream` is asked for when the first frame is written."""
        self._stream = stream
        self._ring = threading.Condition()
        self._rung = False
        self._outgoing = Outgoing(self._wake, most_bytes=most_bytes)
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
        """What was said so far has so long to get out."""
        self._outgoing.close()
        if self._writer is not None:
            self._writer.join(seconds)

    def _wake(self) -> None:
        with self._ring:
            self._rung = True
            self._ring.notify()

    def _write_all(self) -> None:
        stream = self._stream()
        while True:
            lines, wait = self._outgoing.take()
            if lines and not self._wrote(stream, lines):
                self._outgoing.close()
                self.lost()
                return
            if not lines and self._outgoing.closed:
                if self._outgoing.overfull:
                    self.lost()
                return
            with self._ring:
                if not self._rung:
                    self._ring.wait(wait)
                self._rung = False

    def _wrote(self, stream: TextIO, lines: list[str]) -> bool:
        try:
            stream.write("".join(f"{line}\n" for line in lines))
            stream.flush()
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            if not isinstance(error, OSError) or error.errno not in _GONE:
                _log.error("frames cannot be written (%s)", type(error).__name__, extra={"action": "rpc_write"})
            return False
        return True
