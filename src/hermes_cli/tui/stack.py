"""Blocks one below the other: how high each is, and which line of which block a row shows. It knows of no screen.

Heights of blocks that were never drawn are guesses, so a row is only as sure as what stands above it; `draw` makes a
part of it sure. Lines of what is far away are forgotten when there are many; its height is not, so nothing moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip

from hermes_cli.tui.blocks import EMPTY, ScreenBlock
from hermes_cli.tui.palette import Inks

_KEPT_LINES = 1_000
"""So many are drawn before some are forgotten."""


class BlockLayout:
    def __init__(self, inks: Inks) -> None:
        self.inks = inks
        self.width = 1
        self.blocks: list[ScreenBlock] = []
        self._ends: list[int] = []
        """Where each block ends, in lines from the top."""
        self._drawn: set[ScreenBlock] = set()
        """Those that have lines."""

    def recount(self) -> int:
        """Whenever a block was added or changed; the height of all."""
        self._ends = list(accumulate(block.height for block in self.blocks))
        return self.height

    @property
    def height(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def last(self) -> int:
        """The number of the last block that was counted; -1 when there is none."""
        return len(self._ends) - 1

    def start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def index(self, row: int) -> int:
        """The block at a row; the last one for what is below all."""
        return min(bisect_right(self._ends, max(row, 0)), self.last)

    def block(self, row: int) -> ScreenBlock | None:
        return self.blocks[self.index(row)] if 0 <= row < self.height else None

    def first_row(self, row: int) -> int:
        """Where the block at a row begins, below its margin."""
        index = self.index(row)
        return self.start(index) + self.blocks[index].margin

    def stale(self, top: int, bottom: int) -> list[ScreenBlock]:
        """What is not drawn, or not as it is now, between two rows."""
        near = self.blocks[self.index(top) : self.index(bottom) + 1] if self._ends else []
        return [block for block in near if not block.is_drawn(self.width, self.inks)]

    def draw(self, blocks: Iterable[ScreenBlock]) -> None:
        for block in blocks:
            self._lines(block)

    def forget_far(self, top: int, bottom: int) -> None:
        """Of what was drawn, keep what is between two rows, if it is much in all."""
        if sum(len(block.drawn) for block in self._drawn) <= _KEPT_LINES:
            return
        near = set(self.blocks[self.index(top) : self.index(bottom) + 1] if self._ends else [])
        for block in self._drawn - near:
            block.forget()
        self._drawn &= near

    def _lines(self, block: ScreenBlock) -> list[Strip]:
        self._drawn.add(block)
        return block.lines(self.width, self.inks)

    def line(self, row: int) -> Strip:
        block = self.block(row)
        if block is None:
            return EMPTY
        lines = self._lines(block)
        place = row - self.start(self.index(row))
        return lines[place] if place < len(lines) else EMPTY

    # -- text ----------------------------------------------------------------------------------------------

    def whole(self, row: int) -> Selection | None:
        """All of the block at a row."""
        if self.block(row) is None:
            return None
        end = self._ends[self.index(row)] - 1
        return Selection(Offset(0, self.first_row(row)), Offset(len(self.line(end).text), end))

    def text(self, selection: Selection) -> str:
        start = 0 if selection.start is None else max(selection.start.y, 0)
        end = self.height - 1 if selection.end is None else min(selection.end.y, self.height - 1)
        lines = []
        for row in range(start, end + 1):
            if (span := selection.get_span(row)) is not None:
                stop = None if span[1] == -1 else max(span[1], 0)
                lines.append(self.line(row).text[max(span[0], 0) : stop].rstrip())
        return "\n".join(lines)
