"""How a turn looks in plain lines: the answer as it comes, one line a tool call, what else there is to say, a footer.

The answer and what is said beside it are two streams, which are one at a terminal; a program that reads the answer
from a pipe gets nothing but the answer. Everything a model, a tool or a stranger wrote is made harmless here.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from hermes_cli.chat_wrap import Wrap
from hermes_cli.framework import output, text

_WAITING = "…"
_SHOWN = 200


class Screen:
    """Where one chat is shown. Used from the main thread alone."""

    def __init__(self, *, answer: TextIO | None = None, aside: TextIO | None = None) -> None:
        self._answer = sys.stdout if answer is None else answer
        self._aside = sys.stdout if aside is None else aside
        self._live = self._aside.isatty() and _draws()
        self._wrap = Wrap(_window) if self._answer.isatty() and _draws() else None
        self._mid_line = False
        self._passing = False
        """The last line stands there only for now: a call that runs, a sign of life."""

    # -- the answer --------------------------------------------------------------------------------------

    def answer(self, piece: str) -> None:
        """Some more of it."""
        shown = text.harmless_block(piece)
        if not self._mid_line:
            shown = shown.lstrip("\n")  # a model that begins with empty lines
        if not shown:
            return
        self._make_room()
        self._answer.write(self._wrap.add(shown) if self._wrap else shown)
        self._answer.flush()
        self._mid_line = not shown.endswith("\n")

    def end_answer(self) -> None:
        self._make_room()
        if self._mid_line:
            self._answer.write(f"{self._wrap.rest()}\n" if self._wrap else "\n")
            self._answer.flush()
            self._mid_line = False
        if self._wrap:
            self._wrap = Wrap(_window)

    # -- beside it ---------------------------------------------------------------------------------------

    def banner(self, lines: Iterable[str]) -> None:
        """Lines of our own making, with their colours."""
        self.end_answer()
        self._aside.write("".join(f"{line}\n" for line in lines))
        self._aside.flush()

    def say(self, block: str, *, style: str = "") -> None:
        """Some lines of ours."""
        self.end_answer()
        shown = text.harmless_block(block)
        if self._live:
            wrap = Wrap(_window)
            shown = wrap.add(shown) + wrap.rest()
        for line in shown.split("\n"):
            self._aside.write(f"{output.style(line, style) if style and self._live and line else line}\n")
        self._aside.flush()

    def note(self, line: str) -> None:
        """Something by the way."""
        self.say(f"· {text.harmless(line)}", style="dim")

    def trouble(self, line: str) -> None:
        self.say(f"✗ {text.harmless(line)}", style="red")

    def tool_started(self, name: str, summary: str) -> None:
        """Shown until its outcome takes its place; where nothing can be replaced, the outcome alone is shown."""
        self.end_answer()
        self._pass(self._fit(f"{_WAITING} {_call(name, summary)}"))

    def tool_ended(self, name: str, summary: str, *, seconds: float, failed: bool, why: str) -> None:
        self.end_answer()
        call = _call(name, summary)
        told = f" · {text.harmless(why.strip().partition(chr(10))[0])}" if failed and why.strip() else ""
        line = self._fit(f"{'✗' if failed else '✓'} {call}", room=f" · {duration(seconds)}", more=told)
        styled = output.style(line, "yellow" if failed else "dim") if self._live else line
        self._aside.write(f"{styled}\n")
        self._aside.flush()

    def waiting(self) -> None:
        """Nothing has come for a moment."""
        if not self._mid_line and not self._passing:
            self._pass(_WAITING)

    def typed(self) -> None:
        """The person pressed Enter: the terminal has begun a new line by itself."""
        if self._wrap:
            self._answer.write(self._wrap.rest())
        self._mid_line = self._passing = False

    def _pass(self, line: str) -> None:
        if self._live:
            self._passing = True
            self._aside.write(output.style(line, "dim"))
            self._aside.flush()

    def _make_room(self) -> None:
        """What stands in the line only for now is wiped."""
        if self._passing:
            self._passing = False
            self._aside.write("\r\x1b[K")
            self._aside.flush()

    def _fit(self, line: str, *, room: str = "", more: str = "") -> str:
        """One line of the window, its end kept; a pipe gets it whole up to a bound."""
        columns = _window() if self._live else _SHOWN
        call = text.shorten(line, max(columns - text.width(room) - min(text.width(more), columns // 3), 16))
        return text.shorten(f"{call}{room}{more}", columns)


def _draws() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb"


def _window() -> int:
    return shutil.get_terminal_size().columns - 1


def _call(name: str, summary: str) -> str:
    return f"{text.harmless(name)}  {text.harmless(summary)}".rstrip()


def duration(seconds: float) -> str:
    """`12 ms`, `1.4 s`, `2:05 min`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return time.strftime("%-H:%M:%S h" if seconds >= 3_600 else "%-M:%S min", time.gmtime(seconds))
