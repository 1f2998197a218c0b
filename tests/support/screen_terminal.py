"""A terminal whose whole screen is drawn: `Grid` keeps its cells, `ScreenTerminal` is a `Terminal` that shows them.

A cell is a character and its pen: the parameters of the colour sequences (SGR) in force when it was written.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.terminal import Terminal

from hermes_cli.framework import text

_CONTROL = re.compile(
    r"\x1b\[([<-?]?)([0-9;:]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]|\x1b[=>78cDEM]"
)
_BEGUN = re.compile(r"\x1b(?:\[[<-?]?[0-9;:]*[ -/]*|\][^\x07\x1b]*\x1b?|[()])?$")
_ALTERNATE = "1049"
Cell = tuple[str, str]
_EMPTY: Cell = (" ", "")


class Grid:
    """Cells, and where the next character goes. A wide character has an empty cell behind it."""

    def __init__(self, columns: int, lines: int) -> None:
        self._columns, self._lines = columns, lines
        self._cells = self._blank()
        self._x = self._y = 0
        self._beneath = (self._cells, 0, 0)
        self._rest = self._pen = ""

    def _blank(self) -> list[list[Cell]]:
        return [[_EMPTY] * self._columns for _ in range(self._lines)]

    @property
    def text(self) -> str:
        return "\n".join("".join(character for character, _pen in row).rstrip() for row in self._cells)

    @property
    def cells(self) -> list[list[Cell]]:
        return [row.copy() for row in self._cells]

    def feed(self, written: str) -> None:
        written = self._rest + written
        begun = _BEGUN.search(written, max(0, len(written) - 64))
        self._rest = begun[0] if begun else ""
        end, at = len(written) - len(self._rest), 0
        while at < end:
            sequence = _CONTROL.match(written, at)
            if sequence is not None:
                if sequence[3]:
                    self._obey(sequence[1], sequence[2], sequence[3])
                at = sequence.end()
            else:
                self._put(written[at])
                at += 1

    def _obey(self, private: str, given: str, what: str) -> None:
        if private:
            if given == _ALTERNATE and what in "hl":
                self._turn(away=what == "h")
            return
        if what == "m":
            self._pen = ";".join(filter(None, (self._pen, given))) if given.strip("0;") == given else given.lstrip("0;")
            return
        numbers = [int(one) if one else 0 for one in given.split(";")]
        first = numbers[0]
        match what:
            case "H" | "f":
                self._y, self._x = max(first, 1) - 1, max([*numbers, 1][1], 1) - 1
            case "A" | "B":
                self._y += max(first, 1) * (1 if what == "B" else -1)
            case "C" | "D":
                self._x += max(first, 1) * (1 if what == "C" else -1)
            case "G":
                self._x = max(first, 1) - 1
            case "K":
                self._erase(self._y, *((self._x, self._columns) if first == 0 else (0, self._columns)))
            case "J":
                self._erase(self._y, self._x if first == 0 else 0, self._columns)
                for row in range(self._y + 1 if first == 0 else 0, self._lines):
                    self._erase(row, 0, self._columns)
        self._x, self._y = min(max(self._x, 0), self._columns - 1), min(max(self._y, 0), self._lines - 1)

    def _turn(self, *, away: bool) -> None:
        """To the alternate screen, which begins empty, and back to what stood there before."""
        if away:
            self._beneath, self._cells = (self._cells, self._x, self._y), self._blank()
        else:
            self._cells, self._x, self._y = self._beneath

    def _erase(self, row: int, start: int, end: int) -> None:
        self._cells[row][start:end] = [_EMPTY] * (end - start)

    def _put(self, character: str) -> None:
        if character == "\r":
            self._x = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self._x = max(0, self._x - 1)
        elif character >= " " and (wide := text.width(character)):
            if self._x + wide > self._columns:
                self._x = 0
                self._down()
            self._cells[self._y][self._x : self._x + wide] = [(character, self._pen), *([("", self._pen)] * (wide - 1))]
            self._x += wide

    def _down(self) -> None:
        if self._y + 1 < self._lines:
            self._y += 1
        else:
            self._cells.append([_EMPTY] * self._columns)
            del self._cells[0]


class ScreenTerminal(Terminal):
    """`shown` is the screen as it stands, one line a row."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        lines: int = 24,
        **more: Any,
    ) -> None:
        self._grid = Grid(columns, lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fed = 0
        environment = {"TERM": "xterm-256color", **(env or {})}
        super().__init__(command, env=environment, columns=columns, lines=lines, **more)

    @property
    def shown(self) -> str:
        self._draw()
        return self._grid.text

    def _draw(self) -> None:
        self._grid.feed(self._decoder.decode(self._raw[self._fed :]))
        self._fed = len(self._raw)

    def screen(self, *, within: float) -> list[list[Cell]]:
        """The cells as they stand after waiting at most so many seconds for something new."""
        self._read(time.monotonic() + within)
        self._draw()
        return self._grid.cells
