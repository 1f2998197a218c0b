"""The transcript on the screen: a list of blocks, of which only those near the window are drawn.

The transcript is one widget that draws lines, not one widget per message, so thousands of messages cost as much as a
screenful. Heights of undrawn blocks are guesses; a block is drawn before it comes into view, and the visible lines do
not move. Near the top the widget asks for older messages (`wants_older`). A reader at the end stays at the end; one who
has scrolled up stays there, and the window is informed (`moved`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from hermes_cli.tui.blocks import EMPTY, ScreenBlock, ToolBlock
from hermes_cli.tui.widgets import Inks, inks

_ROUNDS = 12
_NEAR = 5
"""Blocks within this many screens of the window keep their lines."""
_GUTTER = 1
_STEP, _LONGEST, _SHARE = 0.02, 0.1, 4.0


class TranscriptView(ScrollView, can_focus=False):
    """Never takes the focus: typed text goes to the editor, also after a click here."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    TranscriptView { background: $background; color: $foreground; overflow-y: auto; overflow-x: hidden;
                 scrollbar-size-vertical: 1; }
    """

    # More content changes only the scroll range; it does not move other widgets.
    virtual_size = Reactive(Size(0, 0), layout=False)

    def __init__(self, *, wants_older: Callable[[], None], is_behind: Callable[[], bool], dark: bool) -> None:
        """`is_behind`: whether the terminal still has output to show."""
        super().__init__(id="transcript")
        self._wants_older, self._is_behind = wants_older, is_behind
        self.moved: Callable[[bool], None] = lambda at_end: None
        """Called with whether the reader is at the end, when that changes."""
        self._stack = BlockLayout(inks(dark=dark))
        self.more_above = False
        self._at_end = True
        self._settling = False
        self._due = False
        self._cost = 0.0
        """Duration of the last step in seconds."""
        self._clicked = 0
        """The row of the last mouse press."""

    # -- blocks --------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> list[ScreenBlock]:
        return self._stack.blocks

    def add(self, block: ScreenBlock) -> None:
        self.blocks.append(block)
        self.show_change()

    def take_out(self, block: ScreenBlock) -> None:
        """Remove a block."""
        if block in self.blocks:
            self.blocks.remove(block)
            self.show_change()

    def put_above(self, blocks: Iterable[ScreenBlock], *, more: bool) -> None:
        """Add older blocks above; the visible lines do not move."""
        found = list(blocks)
        self.more_above = more
        top = self._anchor()
        self.blocks[:0] = found
        self.screen.clear_selection()
        self._count()
        if not self._at_end and top is not None:
            self._go(self._stack.start(top[0] + len(found)) + top[1])
        self._settle()

    def replace(self, blocks: Iterable[ScreenBlock], *, more: bool) -> None:
        """Replace all blocks and go to the end."""
        self._stack.blocks, self.more_above = list(blocks), more
        self.follow()

    def follow(self) -> None:
        """Go to the end and follow it."""
        self._be_at_end(True)
        self.show_change()

    def show_change(self) -> None:
        """Draw added or grown blocks."""
        self._count()
        self._settle()
        self.refresh()

    def grew(self) -> None:
        """Draw streamed changes in steps that leave most of the time for keys."""
        if not self._due:
            self._due = True
            self.set_timer(max(_STEP, _SHARE * self._cost), self._step)

    def _step(self) -> None:
        if self._is_behind():
            self.set_timer(_LONGEST, self._step)
            return
        began, top, last = time.perf_counter(), self.scroll_offset.y, self._stack.last
        before = self.blocks[last].drawn if last >= 0 else []
        self._due = False
        self._count()
        self._settle()
        if self.scroll_offset.y == top and last >= 0:  # else all of it moved, and is painted anyway
            after = self.blocks[last].drawn
            same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a is not b), len(before))
            self.refresh_lines(self._stack.start(last) + same, self.size.height)
        self._cost = min(time.perf_counter() - began, _LONGEST)

    def repaint(self, *, dark: bool) -> None:
        self._stack.inks = inks(dark=dark)
        self.show_change()

    def fold_all(self) -> bool:
        """Unfold all tool calls, or fold all when one is unfolded; return whether there are any."""
        calls = [block for block in self.blocks if isinstance(block, ToolBlock)]
        unfold = not any(call.unfolded for call in calls)
        for call in calls:
            call.fold(unfold)
        self._changed_in_place()
        return bool(calls)

    # -- where the reader is -------------------------------------------------------------------------------

    def _count(self) -> None:
        self._stack.width = max(self.size.width - 2 * _GUTTER, 1)
        size = Size(self.size.width, self._stack.recount())
        if size != self.virtual_size:
            self.virtual_size = size
            self._scroll_update(size)

    def _anchor(self) -> tuple[int, int] | None:
        """Return the block and its line at the top of the window."""
        if self._stack.last < 0:
            return None
        index = self._stack.index(self.scroll_offset.y)
        return index, self.scroll_offset.y - self._stack.start(index)

    def _go(self, y: int) -> None:
        place = max(0, min(y, self._bottom))
        self.set_scroll(None, place)
        self.scroll_target_y = place  # the wheel goes on from here, not from where it was used last

    @property
    def _bottom(self) -> int:
        return max(0, self.virtual_size.height - self.size.height)

    def _be_at_end(self, at_end: bool) -> None:
        if at_end != self._at_end:
            self._at_end = at_end
            self.moved(at_end)

    def _settle(self) -> None:
        """Draw every block within a screen of the window, so that it has its true height."""
        if self._settling or not self.size.width:
            return
        self._settling = True
        try:
            for _ in range(_ROUNDS):
                if self._at_end:
                    self._go(self._bottom)
                if not self._draw_near():
                    break
        finally:
            self._settling = False
        page, top = self.size.height, self.scroll_offset.y
        self._stack.forget_far(top - _NEAR * page, top + _NEAR * page)
        if self.more_above and self.scroll_offset.y < 2 * self.size.height:
            self._wants_older()

    def _draw_near(self) -> bool:
        """Draw the undrawn blocks near the window; return whether there were any."""
        page, top = self.size.height, self.scroll_offset.y
        stale = self._stack.stale(top - page, top + 2 * page)
        if not stale:
            return False
        anchor = self._anchor()
        self._stack.draw(stale)
        self._count()
        if anchor is not None and not self._at_end:
            index, line = anchor
            self._go(self._stack.start(index) + min(line, self.blocks[index].height - 1))
        return True

    def _changed_in_place(self) -> None:
        """Show blocks whose height changed; the line at the top of the window stays."""
        self._at_end, was = False, self._at_end
        self._count()
        self._settle()
        self._at_end = was
        self._be_at_end(self.scroll_offset.y >= self._bottom)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self.show_change()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._settling:
            self._be_at_end(round(new_value) >= self._bottom)
            self._settle()

    # -- on the screen -------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        strip = self._stack.line(row)
        selected = self.text_selection
        if selected is not None and (span := selected.get_span(row)) is not None:
            strip = _marked(strip, span, self.screen.get_component_rich_style("screen--selection"))
        whole, style = Strip.join([Strip([Segment(" " * _GUTTER)]), strip]), self.rich_style
        return whole.crop_extend(0, self.size.width, style).apply_style(style).apply_offsets(-_GUTTER, row)

    # -- the mouse -----------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return self._stack.text(selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._clicked = self.scroll_offset.y + event.y

    def text_select_all(self) -> None:
        """Select one message on a double click; Textual would select the whole conversation."""
        if (message := self._stack.whole(self._clicked)) is not None:
            self.screen.selections = {self: message}

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold a tool call on a click on its line."""
        row = self.scroll_offset.y + event.y
        block = self._stack.block(row)
        if isinstance(block, ToolBlock) and row == self._stack.first_row(row) and not self.screen.get_selected_text():
            block.fold(not block.unfolded)
            self._changed_in_place()


def _marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """Show the characters of `span` as selected."""
    text = strip.text
    stop = len(text) if span[1] == -1 else max(span[1], 0)
    start, end = cell_len(text[: max(span[0], 0)]), cell_len(text[:stop])
    if end <= start:
        return strip
    before, inside, after = strip.divide([start, end, strip.cell_length])
    return Strip.join([before, Strip(Segment.apply_style(inside, post_style=style)), after])


_KEPT_LINES = 1_000
"""Lines that may be drawn before far blocks drop theirs."""


class BlockLayout:
    """The blocks of a transcript and the rows that each takes."""

    def __init__(self, inks: Inks) -> None:
        self.inks = inks
        self.width = 1
        self.blocks: list[ScreenBlock] = []
        self._ends: list[int] = []
        """The row below each block."""
        self._drawn: set[ScreenBlock] = set()
        """The blocks that have lines."""

    def recount(self) -> int:
        """Compute the rows after a block was added or changed; return the height of all."""
        self._ends = list(accumulate(block.height for block in self.blocks))
        return self.height

    @property
    def height(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def last(self) -> int:
        """The index of the last counted block; -1 when there is none."""
        return len(self._ends) - 1

    def start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def index(self, row: int) -> int:
        """Return the index of the block at a row; the last one for rows below all blocks."""
        return min(bisect_right(self._ends, max(row, 0)), self.last)

    def block(self, row: int) -> ScreenBlock | None:
        return self.blocks[self.index(row)] if 0 <= row < self.height else None

    def first_row(self, row: int) -> int:
        """Return the first row of the block at a row, below its margin."""
        index = self.index(row)
        return self.start(index) + self.blocks[index].margin

    def stale(self, top: int, bottom: int) -> list[ScreenBlock]:
        """Return the blocks between two rows that must be drawn."""
        near = self.blocks[self.index(top) : self.index(bottom) + 1] if self._ends else []
        return [block for block in near if not block.is_drawn(self.width, self.inks)]

    def draw(self, blocks: Iterable[ScreenBlock]) -> None:
        for block in blocks:
            self._lines(block)

    def forget_far(self, top: int, bottom: int) -> None:
        """Drop the lines of blocks outside two rows, if many lines are drawn."""
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
        """Select the whole block at a row."""
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
