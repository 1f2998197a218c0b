"""Textual's driver for a terminal, with two things mended: bytes that are no UTF-8 do not end its reading, and what was
typed before the window opened is read as it was meant.

A paste from an old file, or a key of a terminal with another encoding, shows the sign for an unknown character.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_AT_A_TIME = 1 << 16
_TICK = 0.1
_HUNG_UP = 129


class TolerantDriver(LinuxDriver):
    def run_input_thread(self) -> None:
        """As Textual does it, but with a decoder that replaces what it cannot read, and larger gulps."""
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
