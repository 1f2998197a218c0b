"""Markdown as lines of the window, made while it still arrives.

A text is cut at the ends of its top-level blocks. What is before the last cut can no longer change and is rendered
once; only the block that is being written is rendered again when more comes, so a long answer costs no more per step
than a short one. Code is highlighted; a link shows where it leads.

Limits: a reference link whose definition comes later stays as it was written; what is longer than `_PART` characters is
drawn in parts, so a very long code block may be highlighted as if it began anew.
"""

from __future__ import annotations

import re
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from textual.strip import Strip

from hermes_cli.tui.widgets import Inks

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_PART = 2_000
"""Characters of a text that are drawn at a time."""


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


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code,
    }  # fmt: skip


def strips(text: str, width: int, inks: Inks) -> list[Strip]:
    """A whole text."""
    return drawn(_Markdown(text, code_theme=inks.code, hyperlinks=False), width, inks)


def drawn(what: RenderableType, width: int, inks: Inks) -> list[Strip]:
    """Anything that Rich can draw, without empty lines around it."""
    options = inks.console.options.update(width=max(width, 1), height=None)
    found = [Strip(line) for line in inks.console.render_lines(what, options, pad=False)]
    while found and not found[-1].text.strip():
        found.pop()
    first = next((at for at, line in enumerate(found) if line.text.strip()), 0)
    return found[first:]


def cuts(text: str, start: int) -> tuple[list[int], str]:
    """Where blocks of `text` begin behind `start`, which is such a place itself; and the line that opened the code
    block in which it ends.

    A cut is after an empty line that is in no code fence and is followed by a line that cannot go on with a list or a
    quotation.
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
    """An item after an empty line belongs to the list before it."""
    return line[0] in "-*+>|" or line[0].isdigit()


def parted(text: str) -> tuple[str, str, bool] | None:
    """A long text as one that is finished, one that goes on, and whether an empty line stands between them.

    Where no block ends, a code block or a list is cut after a line, and words between words; None for what is short.
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
