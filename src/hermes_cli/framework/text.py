"""Text for a terminal: harmless text, widths in columns, readable times and sizes.

Titles and messages come from strangers. `harmless` removes escape sequences, cursor movements, direction overrides
and invisible letters from them; every shown text goes through it once, just before it is printed.

Widths follow Unicode's East Asian width; a joined emoji counts as its parts, as most terminals draw it.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

from hermes_agent import text as agent_text

T = TypeVar("T")
counted = agent_text.counted

# Direction marks, spaces and hyphens without a width: many languages use them, no terminal needs them.
_MARKS = (0x00AD, 0x061C, 0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF)
# Invisible letters, blanks and tags, and direction overrides: each is shown as a replacement mark.
_UNSEEN = (
    0x115F, 0x1160, 0x180E, 0x2800, 0x3164, 0xFFA0, *range(0x202A, 0x202F), *range(0x2061, 0x2070),
    *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
)  # fmt: skip

# Control characters become their pictures (␛), C1 a replacement mark.
_LINE_CONTROLS: dict[int, int | str | None] = {0x7F: 0x2421}
_LINE_CONTROLS |= {code: 0x2400 + code for code in range(0x20)}
_LINE_CONTROLS |= dict.fromkeys([*range(0x80, 0xA0), *_UNSEEN], 0xFFFD)
_LINE_CONTROLS |= dict.fromkeys([0x0A, 0x0D, 0x09, 0x85, 0x2028, 0x2029], 0x20)
_LINE_CONTROLS |= dict.fromkeys(_MARKS)
_BLOCK_CONTROLS = _LINE_CONTROLS | {0x0A: 0x0A, 0x09: "    ", 0x0D: None}

# JSON does not escape these, but a terminal may obey them, and some readers end a line there.
_JSON_ESCAPES = {
    code: re.sub("(....)", r"\\u\1", chr(code).encode("utf-16-be").hex())
    for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, *_MARKS, *_UNSEEN)
}

SOURCE_NAMES = {"cli": "terminal", "tui": "terminal", "api_server": "api"}
"""Display names of conversation sources; all other sources keep their own name."""
_UNITS = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "d"), (30 * 86_400, "mo"), (365 * 86_400, "y"))


def harmless(text: str) -> str:
    """Make one line that cannot control a terminal."""
    return _encodable(text).translate(_LINE_CONTROLS)


def harmless_block(text: str) -> str:
    """Make lines that cannot control a terminal: line breaks stay, tabs become spaces."""
    return _encodable(text).translate(_BLOCK_CONTROLS)


def harmless_json(document: str) -> str:
    """Return the same JSON with escapes for characters that could control a terminal."""
    return document.translate(_JSON_ESCAPES)


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """Count the columns of a harmless text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, columns: int) -> str:
    """Cut a text to at most `columns` columns; … marks the cut."""
    if width(text) <= columns:
        return text
    taken = 0
    for place, character in enumerate(text):
        taken += _columns(character)
        if taken > columns - 1:
            return f"{text[:place].rstrip()}…" if columns > 0 else ""
    return text


def cut_around(text: str, at: int, columns: int) -> str:
    """Cut a text to at most `columns` columns around position `at`."""
    lead = columns // 3
    if width(text) <= columns or width(text[:at]) <= lead:
        return shorten(text, columns)
    before = text[:at]
    while width(before) > lead - 1:
        before = before[1:]
    word = before.find(" ", 0, lead // 2)  # begin with a whole word where one is near
    return shorten(f"…{before[word + 1 :]}{text[at:]}", columns)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Fill a text with spaces to `columns` columns; with `right`, it is right-aligned."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def ago(instant: float | None, *, now: float | None = None) -> str:
    """Return the age of an instant (seconds since 1970): `now`, `2 min`, `1 h`, `3 d`, `5 mo`, `2 y`."""
    if instant is None:
        return "–"
    seconds = (time.time() if now is None else now) - instant
    if abs(seconds) < 60:
        return "now"
    return span(seconds) if seconds > 0 else f"in {span(-seconds)}"


def when(instant: float | None) -> str:
    """Return the age of an instant for a sentence: `just now`, `2 min ago`, `in 3 d`; `never` for None."""
    age = ago(instant)
    if age in ("now", "–"):
        return "just now" if age == "now" else "never"
    return age if age.startswith("in ") else f"{age} ago"


def span(seconds: float) -> str:
    """A length of time in its largest unit, rounded down: `12 s`, `3 min`, `2 d`."""
    size, unit = next((one for one in reversed(_UNITS) if seconds >= one[0]), _UNITS[0])
    return f"{max(0, int(seconds // size))} {unit}"


def moment(instant: float, *, seconds: bool = False) -> str:
    """Return `2026-11-15 10:02` in the local time zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M", time.localtime(instant))
    except (OverflowError, OSError, ValueError):  # a damaged home holds an impossible year
        return "?"


def moment_and_age(instant: float | None) -> str:
    """Return `2026-11-15 10:02:11 (2 min)`; empty for None."""
    return "" if instant is None else f"{moment(instant, seconds=True)} ({ago(instant)})"


def numbered(typed: str, rows: Sequence[T]) -> T | None:
    """Return the row that a typed number names, counted from 1; None for any other text."""
    said = typed.strip()
    number = int(said) if said.isascii() and said.isdecimal() and len(said) < 4 else 0
    return rows[number - 1] if 0 < number <= len(rows) else None


def wrapped(words: str, columns: int | None) -> list[str]:
    """Wrap a text into harmless lines of at most `columns` columns; one line for None."""
    import textwrap

    line = harmless(words)
    if columns is None or not line:
        return [line] if line else []
    return textwrap.wrap(line, max(columns, 20), break_long_words=False, break_on_hyphens=False)


def size(count: float) -> str:
    """Return a number of bytes as `812 B`, `3.4 MB`, `1.2 GB`."""
    if count < 1_000:
        return f"{int(count)} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1_000
        if count < 999.5:
            return f"{count:.1f} {unit}" if count < 9.95 else f"{count:.0f} {unit}"
    return f"{count / 1_000:.1f} TB"
