"""Textual's driver for a terminal, with five fixes.

Invalid UTF-8 (a paste from an old file, a terminal with another encoding) becomes replacement characters and does not
end the input. Keys typed before the window opened are read correctly. `is_behind` says whether a slow terminal still
has output to show, so that other code can paint later. Ctrl-Z stops the whole job. A terminal that closes during a
large output does not keep the window from ending.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from codecs import getincrementaldecoder
from typing import Any, TextIO

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_AT_A_TIME = 1 << 16
_TICK = 0.1
_HUNG_UP = 129


class _Watched:
    """A file that knows whether a write is running.

    Writes to a closed terminal are ignored, because the reader reports the loss. The writing thread must not end with
    an error: the window would wait for it forever.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.fileno, self.isatty = file.fileno, file.isatty
        self.busy = False

    def write(self, text: str) -> int:
        self.busy = True
        try:
            with contextlib.suppress(OSError):
                self._file.write(text)
            return len(text)
        finally:
            self.busy = False

    def flush(self) -> None:
        self.busy = True
        try:
            with contextlib.suppress(OSError):
                self._file.flush()
        finally:
            self.busy = False


class TolerantDriver(LinuxDriver):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._file: Any = _Watched(self._file)

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not yet taken the last output."""
        thread = self._writer_thread
        return bool(self._file.busy) or (thread is not None and not thread._queue.empty())

    def _sigtstp_application(self, *_signal: object) -> None:
        """Stop like Textual, but together with the parent process (make, a script), for which the shell also waits.

        The terminal is restored first, because the shell may use it from then on.
        """
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        os.kill(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        os.kill(os.getpid(), signal.SIGSTOP)

    def run_input_thread(self) -> None:
        """Read input like Textual, but replace invalid UTF-8 and read larger pieces."""
        decode = getincrementaldecoder("utf-8")("replace").decode
        parser = XTermParser(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            if selector.select(0):  # typed ahead, at a terminal that still made a line's end of Enter
                for event in parser.feed(decode(self._gulp().replace(b"\n", b"\r"))):
                    self.process_message(event)
            while not self.exit_event.is_set():
                if selector.select(_TICK):
                    data = self._gulp()
                    if not data:  # the terminal is gone
                        self._app.call_later(self._app.exit, _HUNG_UP)
                        return
                    for event in parser.feed(decode(data)):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _gulp(self) -> bytes:
        try:
            return os.read(self.fileno, _AT_A_TIME)
        except OSError:
            return b""
