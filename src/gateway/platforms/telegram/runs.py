"""Text with marks, and how it becomes messages of Telegram: cut by UTF-16 units, then written as HTML.

A `Run` is a stretch of text under the same marks, a `Block` a paragraph, a list item, a code block. Pieces are cut from
runs and each is written as HTML on its own, so no cut can leave a tag open: a code block that has to be divided is a
code block of the same language on both sides. Blocks are kept whole where they fit into one message.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_JOINS = frozenset("\u200d\ufe0e\ufe0f")
_OUR_TAGS = re.compile(r"</?(?:b|i|s|u|code|pre|blockquote|a)(?: [^<>]*)?>")


class Mark(NamedTuple):
    """One formatting. `serial` tells two quotes or code blocks apart that stand next to each other."""

    tag: str
    value: str = ""
    serial: int = 0


class Run(NamedTuple):
    text: str
    marks: tuple[Mark, ...] = ()
    """Outermost first."""


class Block(NamedTuple):
    runs: tuple[Run, ...]
    gap: str = "\n\n"
    """What stands between it and the block before, in the same message."""


def units(text: str) -> int:
    """The length as Telegram counts it: a character outside the basic plane is two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def to_html(runs: Iterable[Run]) -> str:
    """Runs as Telegram's HTML: everything escaped, tags nested properly."""
    out: list[str] = []
    under: tuple[Mark, ...] = ()
    for run in runs:
        shared = _shared(under, run.marks)
        out += [_end(mark) for mark in reversed(under[shared:])]
        out += [_start(mark) for mark in run.marks[shared:]]
        out.append(html.escape(run.text, quote=False))
        under = run.marks
    out += [_end(mark) for mark in reversed(under)]
    return "".join(out)


def to_plain(piece: str) -> str:
    """A piece of ours without its tags: what is sent when Telegram does not understand the HTML."""
    return html.unescape(_OUR_TAGS.sub("", piece))


def fill(blocks: Iterable[Block], limit: int) -> list[list[Run]]:
    """Blocks as messages of at most `limit` units, in order; nothing is lost but white space at cuts."""
    pieces: list[list[Run]] = []
    current: list[Run] = []
    size = 0
    for block in blocks:
        length = _length(block.runs)
        if current and size + len(block.gap) + length <= limit:
            quote = current[-1].marks[: _shared(current[-1].marks, block.runs[0].marks)]
            current += [Run(block.gap, quote), *block.runs]
            size += len(block.gap) + length
            continue
        if current:
            pieces.append(current)
        rest = list(block.runs)
        while length > limit:
            head, rest = _cut(rest, limit)
            pieces.append(head)
            length = _length(rest)
        current, size = rest, length
    if current:
        pieces.append(current)
    return [piece for piece in pieces if any(run.text.strip() for run in piece)]


def _length(runs: Sequence[Run]) -> int:
    return sum(units(run.text) for run in runs)


def _shared(first: tuple[Mark, ...], second: tuple[Mark, ...]) -> int:
    """How many of the outermost marks are the same."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _start(mark: Mark) -> str:
    if mark.tag == "a":
        return f'<a href="{html.escape(mark.value)}">'
    if mark.tag == "pre" and mark.value:
        return f'<pre><code class="language-{html.escape(mark.value)}">'
    return f"<{mark.tag}>"


def _end(mark: Mark) -> str:
    return "</code></pre>" if mark.tag == "pre" and mark.value else f"</{mark.tag}>"


def _cut(runs: list[Run], limit: int) -> tuple[list[Run], list[Run]]:
    """Divide before `limit` units: after a line, else after a word, else between characters that do not join."""
    window: list[str] = []
    left = limit
    for run in runs:
        part = _first_units(run.text, left)
        window.append(part)
        left -= units(part)
        if len(part) < len(run.text):
            break
    text = "".join(window)
    for separator in ("\n", " "):
        place = text.rfind(separator, len(text) // 3)
        if place > 0:
            head, rest = _divide(runs, place)
            return head, _divide(rest, 1)[1]
    place = len(text)
    following = next((run.text[len(part)] for run, part in _uneven(runs, window)), "")
    while place > len(text) // 2 and following and _joined(text[place - 1], following):
        place -= 1
        following = text[place]
    return _divide(runs, place)


def _uneven(runs: Sequence[Run], window: Sequence[str]) -> Iterable[tuple[Run, str]]:
    """The run in which a window ends, with the part of it that is inside."""
    return ((run, part) for run, part in zip(runs, window, strict=False) if len(part) < len(run.text))


def _joined(before: str, after: str) -> bool:
    """Whether a cut between the two would tear a character as people see it."""
    if unicodedata.combining(after) or after in _JOINS or before == "\u200d":
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff"  # a skin tone


def _first_units(text: str, most: int) -> str:
    """The longest beginning of at most `most` units."""
    if len(text) * 2 <= most or units(text) <= most:
        return text
    if text.isascii():
        return text[:most]
    return text.encode("utf-16-le", "surrogatepass")[: most * 2].decode("utf-16-le", "ignore")


def _divide(runs: Sequence[Run], place: int) -> tuple[list[Run], list[Run]]:
    """The runs before and after a place, counted in characters."""
    for index, run in enumerate(runs):
        if place < len(run.text):
            head = [*runs[:index], Run(run.text[:place], run.marks)] if place else list(runs[:index])
            return head, [Run(run.text[place:], run.marks), *runs[index + 1 :]]
        place -= len(run.text)
    return list(runs), []
