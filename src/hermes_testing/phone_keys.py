"""Keys pressed at a terminal, one after the other, and the line they make.

The terminal hands over every key at once (no echo, no line buffer); `Line` keeps the text and the cursor. For POSIX
systems.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator

_NAMES = {
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x03": "ctrl-c", "\x04": "ctrl-d",
    "\x15": "ctrl-u", "\x17": "ctrl-w", "\x01": "home", "\x05": "end", "\x0c": "ctrl-l",
    "\x1b[D": "left", "\x1b[C": "right", "\x1b[A": "up", "\x1b[B": "down", "\x1b[H": "home", "\x1b[F": "end",
    "\x1b[1~": "home", "\x1b[4~": "end", "\x1b[7~": "home", "\x1b[8~": "end", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b[3~": "delete", "\x1b[5~": "page up", "\x1b[6~": "page down",
}  # fmt: skip
_SEQUENCE = re.compile(r"\x1b(?:\[\[.|\[[0-?]*[ -/]*[@-~]|O.)")
"""Of a key, whether it means something here or not."""


@contextlib.contextmanager
def every_key() -> Iterator[None]:
    """While it lasts the terminal gives keys, not lines; afterwards it is as before."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setraw(number)
        # A line feed written goes on to mean "and to the first column", as everywhere else.
        mode = termios.tcgetattr(number)
        mode[1] |= termios.OPOST | termios.ONLCR
        termios.tcsetattr(number, termios.TCSADRAIN, mode)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def pressed(seconds: float) -> list[str]:
    """What was pressed within so long: names of keys (`enter`, `left`) or characters; `gone` when the terminal is."""
    number = sys.stdin.fileno()
    if not select.select([number], [], [], seconds)[0]:
        return []
    raw = os.read(number, 4096)
    while raw and _unfinished(raw) and select.select([number], [], [], 0.05)[0]:
        raw += os.read(number, 4096)
    return list(_keys(raw.decode("utf-8", "ignore"))) if raw else ["gone"]


def _unfinished(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return re.search(rb"\x1b(?:O|\[[0-?]*)?$", raw) is not None


def _keys(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = next((mark for mark in sorted(_NAMES, key=len, reverse=True) if text.startswith(mark, at)), None)
        if found is not None:
            yield _NAMES[found]
            at += len(found)
            continue
        other = _SEQUENCE.match(text, at)  # F5, say: no text either
        if other is None and text[at] >= " ":
            yield text[at]
        at = other.end() if other else at + 1


class Line:
    """What is being typed."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0

    def take(self) -> str:
        """The line, which is then empty again."""
        text, self.text, self.at = self.text, "", 0
        return text

    def press(self, key: str) -> None:
        match key:
            case "backspace" if self.at:
                self.text = self.text[: self.at - 1] + self.text[self.at :]
                self.at -= 1
            case "delete":
                self.text = self.text[: self.at] + self.text[self.at + 1 :]
            case "left":
                self.at = max(0, self.at - 1)
            case "right":
                self.at = min(len(self.text), self.at + 1)
            case "home":
                self.at = 0
            case "end":
                self.at = len(self.text)
            case "ctrl-u":
                self.text, self.at = self.text[self.at :], 0
            case "ctrl-w":
                kept = self.text[: self.at].rstrip().rpartition(" ")
                start = len(kept[0]) + len(kept[1])
                self.text, self.at = self.text[:start] + self.text[self.at :], start
            case _ if len(key) == 1:
                self.text = self.text[: self.at] + key + self.text[self.at :]
                self.at += 1
