"""Splits texts into pieces that fit into one message of a platform.

Lengths are UTF-16 units, which is how the strictest platforms count and never less than characters. A cut falls on a
line, else between words, else where it must, and then not inside what a reader sees as one character. Nothing is lost
but white space at the cuts. `split_blocks` also closes a fenced code block at a cut and opens it again, with its
language, in the next piece. The same text gives the same pieces, always: a delivery that was cut off goes on by number.
"""

from __future__ import annotations

import re
import unicodedata

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_LONGEST_FENCE = 16
_JOINER = "\u200d"
_LONGEST_CLUSTER = 64
"""Longer runs of combining marks are not real text and may be cut."""


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text) + sum(char > "\uffff" for char in text) if not text.isascii() else len(text)


def split_plain(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` units, none of them blank."""
    _check(limit)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end, following = cut(text, start, limit)
        pieces.append(text[start:end] if following >= len(text) else text[start:end].rstrip())
        start = following
    return [piece for piece in pieces if piece.strip()]


def split_blocks(text: str, limit: int) -> list[str]:
    """As `split_plain`, for Markdown: no piece ends inside a fenced block that it does not close."""
    _check(limit)
    reserve = _LONGEST_FENCE + 1
    if limit < 8 * reserve or _FENCE.search(text) is None:
        return split_plain(text, limit)
    pieces: list[str] = []
    start, block = 0, ""
    while start < len(text):
        head = f"{block}\n" if block else ""
        room = limit - units(head)
        end, following = cut(text, start, room)
        if following < len(text):
            end, following = cut(text, start, room - reserve)
            end, following = _before_opening(text, start, end, following, block)
        body = text[start:end]
        block = _open_block(body, block)
        if following >= len(text):
            pieces.append(head + body)
            break
        tail = f"\n{_mark(block)}" if block else ""
        pieces.append(head + body.rstrip() + tail)
        start = following
        if block and (closing := _closing_line(text, start, block)):
            start, block = closing, ""
    return [piece for piece in pieces if piece.strip()]


def _check(limit: int) -> None:
    if limit < 2:
        raise ValueError(f"a message of at most {limit} units cannot hold every character")


def cut(text: str, start: int, room: int) -> tuple[int, int]:
    """Where a piece that begins at `start` ends, and where the next one begins."""
    end = _farthest(text, start, room)
    if end >= len(text):
        return len(text), len(text)
    least = start + max(1, (end - start) // 3)  # a piece of one short line is no gain
    at = text.rfind("\n", least, end + 1)
    if at >= 0:
        return at, _skip(text, at, "\n")
    at = max(text.rfind(" ", least, end + 1), text.rfind("\t", least, end + 1))
    if at >= 0:
        return at, _skip(text, at, " \t\n")
    end = _whole_cluster(text, start, end)
    return end, end


def _farthest(text: str, start: int, room: int) -> int:
    """The end of the longest stretch from `start` that takes no more than `room` units."""
    end = min(len(text), start + room)
    excess = units(text[start:end]) - room
    while excess > 0:
        end -= 1
        excess -= 2 if text[end] > "\uffff" else 1
    return max(end, start + 1)


def _skip(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at


def _whole_cluster(text: str, start: int, end: int) -> int:
    """`end`, moved back before the character that it would cut in two."""
    at = end
    while at > start + 1 and end - at < _LONGEST_CLUSTER and _joined(text, start, at):
        at -= 1
    return at if not _joined(text, start, at) and at > start else end


def _joined(text: str, start: int, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it."""
    after, before = text[at], text[at - 1]
    if after == _JOINER or before == _JOINER or unicodedata.combining(after) or unicodedata.category(after) == "Me":
        return True
    if "\ufe00" <= after <= "\ufe0f" or "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if not _is_flag(after):
        return False
    before_it = at - 1
    while before_it >= start and _is_flag(text[before_it]):
        before_it -= 1
    return (at - 1 - before_it) % 2 == 1  # flags are pairs


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


# -- fenced blocks ----------------------------------------------------------------------------------------------------


def _open_block(body: str, block: str) -> str:
    """The opening line of the block that is open at the end of `body`, when `block` was open before it."""
    for found in _FENCE.finditer(body):
        mark, info = found[1], found[2].strip()
        if not block:
            if len(mark) <= _LONGEST_FENCE:
                block = mark + (info if len(info) <= _LONGEST_CLUSTER else "")
        elif not info and mark.startswith(_mark(block)):
            block = ""
    return block


def _mark(block: str) -> str:
    return block[: len(block) - len(block.lstrip(block[0]))]


def _before_opening(text: str, start: int, end: int, following: int, block: str) -> tuple[int, int]:
    """A block whose first line would be the last of a piece begins with the next piece instead."""
    line = text.rfind("\n", start, end) + 1
    opening = _FENCE.match(text, line, end) if line > start else None
    if opening is None or _open_block(text[start:line], block):
        return end, following
    return line - 1, line


def _closing_line(text: str, at: int, block: str) -> int:
    """Where the text goes on when its next line only closes the block, which the last piece did already; else 0."""
    found = _FENCE.match(text, at)
    if found is None or found[2].strip() or not found[1].startswith(_mark(block)):
        return 0
    return min(found.end() + 1, len(text)) or 0
