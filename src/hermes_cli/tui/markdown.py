"""Renders Markdown as lines of the window while the text still streams in.

A text is cut at the ends of its top-level blocks. The part before the last cut can no longer change and is rendered
once; only the unfinished block is rendered again, so a step of a long answer costs no more than one of a short answer.
Code is highlighted, and a link shows its address. No text is lost: HTML is shown as text (`List<String>` is not a
tag), a picture as its link, formulas keep their backslashes, and a table too wide for the window becomes one list per
row.

Limits: a reference link whose definition comes later stays unchanged; a text longer than `_PART` characters is drawn in
parts, so a very long code block may be highlighted as if it started again.
"""

from __future__ import annotations

import re
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.measure import Measurement
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from textual.strip import Strip

from hermes_cli.tui.widgets import Inks

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_PART = 2_000
"""Characters that are drawn at a time."""
_COLUMN = 10
"""The narrowest readable column of a table."""
_IN_FORMULAS = frozenset("()[]{},;:\\")
"""Characters after a backslash in formulas. Markdown would drop the backslash."""


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 2), background_color="default"
        )


class _Table(TableElement):
    """A table without cut cells: long words continue on the next line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in (self.body.rows if self.body else [])]
        table = Table(box=box.SIMPLE, pad_edge=False, style="markdown.table.border", collapse_padding=True)
        for head in heads:
            shown = head.copy()
            shown.stylize("markdown.table.header")
            table.add_column(shown, overflow="fold")
        for row in rows:
            table.add_row(*row)
        fits = Measurement.get(console, options.update(max_width=10_000), table).maximum <= options.max_width
        if fits or options.max_width >= _COLUMN * len(heads):
            yield table
            return
        for row in rows:
            yield Text()
            for head, cell in zip(heads, row, strict=False):
                yield Text.assemble((f"{head.plain}: ", "markdown.table.header"), cell, overflow="fold")


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code, "table_open": _Table,
    }  # fmt: skip

    def __init__(self, markup: str, *, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.markup, self.parsed = markup, _PARSER.parse(markup)


def _formula(state: StateInline, silent: bool) -> bool:
    """Keep a backslash of a formula."""
    found = state.src[state.pos : state.pos + 2]
    if len(found) < 2 or found[0] != "\\" or found[1] not in _IN_FORMULAS:
        return False
    if not silent:
        state.pending += found
    state.pos += 2
    return True


_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_PARSER.disable(["image", "autolink"])  # both would be drawn without their address, or with it twice
_PARSER.inline.ruler.before("escape", "formula", _formula)


def strips(text: str, width: int, inks: Inks) -> list[Strip]:
    """Render a whole text."""
    return drawn(_Markdown(text, code_theme=inks.code), width, inks)


def drawn(what: RenderableType, width: int, inks: Inks) -> list[Strip]:
    """Draw a Rich renderable, without empty lines around it."""
    options = inks.console.options.update(width=max(width, 1), height=None)
    found = [Strip(line) for line in inks.console.render_lines(what, options, pad=False)]
    while found and not found[-1].text.strip():
        found.pop()
    first = next((at for at, line in enumerate(found) if line.text.strip()), 0)
    return found[first:]


def cuts(text: str, start: int) -> tuple[list[int], str]:
    """Return the places after `start` (itself one) where blocks of `text` begin, and the opening line of a code block
    that is still open at the end.

    A block begins after an empty line outside code, with a line that cannot continue a list or a quotation.
    """
    found: list[int] = []
    at, fence, opened, blank = start, "", "", False
    while (end := text.find("\n", at)) >= 0:
        line = text[at:end]
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = opened = ""
        else:
            if blank and line and not line[0].isspace() and not _goes_on(line):
                found.append(at)
            if mark:
                fence, opened = mark[1], line
        blank = not fence and not line.strip()
        at = end + 1
    return found, opened


def _goes_on(line: str) -> bool:
    """Whether a line after an empty one may belong to the list or table before it."""
    return line[0] in "-*+>|" or line[0].isdigit()


def parted(text: str) -> tuple[str, str, bool] | None:
    """Split a long text into a finished part and the rest, and say whether an empty line separates them.

    Where no block ends, a code block or a list is cut after a line, other text between words. None for a short text.
    """
    if len(text) <= _PART:
        return None
    head = text[:_PART]
    if found := cuts(head, 0)[0]:
        return text[: found[-1]], text[found[-1] :], True
    at = max(head.rfind("\n", _PART // 2), head.rfind(" ", _PART // 2) if "\n" not in head[_PART // 2 :] else -1)
    at = at if at >= 0 else _PART - 1
    fence = cuts(f"{head[:at]}\n", 0)[1]
    if fence:
        mark = _FENCE.match(fence)
        return f"{text[:at]}\n{mark[1] if mark else ''}", f"{fence}\n{text[at + 1 :]}", False
    return text[: at + 1], text[at + 1 :], False
