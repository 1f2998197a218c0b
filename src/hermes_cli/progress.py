"""Progress of long work, on stderr: a bar at a terminal, a line every few seconds elsewhere.

`Progress.update` fits wherever a room takes a callback of (done, total). Work that is over in a moment
shows nothing, and at a terminal the bar is wiped when it ends, so that the command's own words are what
remains.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from hermes_cli import text

_FIRST_AFTER = 0.3
_REDRAW_EVERY = 0.1
_LINE_EVERY = 5.0
_BAR = 16


class Progress:
    """`with Progress("copying", unit="messages") as progress: … progress.update(done, total)`."""

    def __init__(
        self,
        label: str,
        *,
        unit: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._unit = f" {unit}" if unit else ""
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._started = clock()
        self._next = self._started + (_FIRST_AFTER if self._terminal else _LINE_EVERY)
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn and self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def update(self, done: int, total: int | None = None) -> None:
        """Say how far the work is. Cheap to call often: it draws only when it is time."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_REDRAW_EVERY if self._terminal else _LINE_EVERY)
        self._drawn = True
        words = self._words(done, total, now - self._started)
        if self._terminal:
            room = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{text.shorten(f'{self._bar(done, total)}{words}', room)}\x1b[K")
        else:
            self._stream.write(f"{words}\n")
        self._stream.flush()

    def _bar(self, done: int, total: int | None) -> str:
        if not total:
            return ""
        filled = min(_BAR, _BAR * done // total)
        return f"{'█' * filled}{'░' * (_BAR - filled)} "

    def _words(self, done: int, total: int | None, elapsed: float) -> str:
        rate = done / elapsed if elapsed > 0 else 0.0
        words = f"{self._label}  {done:,}"
        if total:
            words += f" of {total:,}{self._unit} ({min(100, 100 * done // total)} %)"
        else:
            words += self._unit
        words += f" · {rate:,.0f}/s"
        if total and rate and done < total:
            words += f" · {_clock_time((total - done) / rate)} left"
        return words


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds) + 1, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
