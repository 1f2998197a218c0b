"""Lines that are longer than the window is wide go on below where their words began.

In a table of two columns (`/help`, `/status`) that is the second column; where there is no room beside the first one,
the words stand below it. What a table is can be seen: two lines at least whose second column begins at one place.
"""

from __future__ import annotations

import re
from collections import Counter

from rich.console import Console
from rich.text import Text

from hermes_cli.framework import text as words

_FIRST_COLUMN = re.compile(r" *\S.*? {2,}(?=\S)")
_ROOM = 24
"""Columns that words need to stand beside something."""
_BELOW = 6
_LEAST = 8
"""With less than that behind it nothing is indented."""


def hung(text: str, width: int, console: Console) -> str:
    """A harmless text with its long lines broken."""
    lines = text.split("\n")
    seconds = [found.end() if (found := _FIRST_COLUMN.match(line)) else 0 for line in lines]
    times = Counter(seconds)
    made: list[str] = []
    for line, second in zip(lines, seconds, strict=True):
        if words.width(line) <= width:
            made.append(line)
        elif second and times[second] > 1:
            made += _row(line[:second], line[second:], width, console)
        else:
            made += _plain(line, width, console)
    return "\n".join(made)


def _row(first: str, second: str, width: int, console: Console) -> list[str]:
    if width - words.width(first) >= _ROOM:
        return _broken(first, second, width, console)
    return [*_plain(first.rstrip(" "), width, console), *_broken(" " * _BELOW, second, width, console)]


def _plain(line: str, width: int, console: Console) -> list[str]:
    own = line.lstrip(" ")
    return _broken(line[: len(line) - len(own)], own, width, console)


def _broken(lead: str, own: str, width: int, console: Console) -> list[str]:
    """`own` behind `lead`, and on below itself."""
    at = words.width(lead)
    if width - at < _LEAST:
        return [f"{lead}{own}"]
    found = [line.plain.rstrip() for line in Text(own).wrap(console, width - at)]
    return [f"{lead if number == 0 else ' ' * at}{line}" for number, line in enumerate(found)]
