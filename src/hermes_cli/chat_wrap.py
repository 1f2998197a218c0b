"""Lines broken between words while a text arrives, so that nobody reads half a word at the edge of the window.

A word is held back until it is known to fit: until the next space, or the end. Scripts that are written without spaces
break between characters. What stands in a code fence, or is indented like code, is left to the terminal, so that it
can be copied as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes_cli.framework import text

_FENCE = "```"
_ITEM = re.compile(r" {0,3}(?:[-*•·✗]|\d{1,3}[.)]) +|> +")
_CODE_INDENT = "    "


class Wrap:
    """For one text of harmless characters. `columns` is asked again and again: windows change their size."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._word = ""
        self._gap = ""
        self._line = ""
        """What of the present line has been let through; without what was broken."""
        self._at = 0
        self._fenced = False

    def add(self, piece: str) -> str:
        """What can be shown now of all that has come."""
        shown: list[str] = []
        for character in piece:
            if character == "\n":
                shown += [self._let(), self._end_line()]
            elif character == " ":
                shown.append(self._let())
                self._gap += " "
            elif text.width(character) == 2:
                shown.append(self._let())
                self._word = character
                shown.append(self._let())
            else:
                self._word += character
        return "".join(shown)

    def rest(self) -> str:
        """What is still held back."""
        shown = self._let()
        self._gap = ""
        return shown

    def _let(self) -> str:
        """Let the word through, in a new line when it does not fit in this one."""
        word, gap = self._word, self._gap
        if not word:
            return ""
        self._word = self._gap = ""
        wide = text.width(word)
        room = self._columns()
        breaks = self._at and self._at + len(gap) + wide > room and wide <= room and not self._is_code()
        indent = self._indent() if breaks else ""
        reached = len(indent) + wide if breaks else self._at + len(gap) + wide
        self._at = reached if reached <= room else reached % max(room, 1)  # what is too wide the terminal has broken
        self._line += gap + word
        return f"\n{indent}{word}" if breaks else gap + word

    def _end_line(self) -> str:
        if self._line.lstrip().startswith(_FENCE):
            self._fenced = not self._fenced
        self._line, self._gap, self._at = "", "", 0
        return "\n"

    def _is_code(self) -> bool:
        return self._fenced or self._line.startswith((_CODE_INDENT, _FENCE))

    def _indent(self) -> str:
        """Below the first word of an item of a list."""
        item = _ITEM.match(self._line)
        return " " * len(item[0]) if item else ""
