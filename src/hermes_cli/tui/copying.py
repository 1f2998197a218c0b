"""What a key copies: the last answer as it was written, and, pressed again, its code blocks, the last one first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes_cli.framework import text as words
from hermes_cli.tui.blocks import Answer, Block

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^`\n]*\n(.*?)^ {0,3}\1", re.MULTILINE | re.DOTALL)


class Copies:
    """It remembers what was copied last, to give something else the next time."""

    def __init__(self) -> None:
        self._of = ""
        self._place = 0

    def next(self, blocks: Sequence[Block]) -> tuple[str, str]:
        """(text, what it is); empty when nothing was said yet."""
        answer = next((one.said for one in reversed(blocks) if isinstance(one, Answer) and one.said), "")
        if not answer:
            return "", "there is no answer to copy yet"
        code = [found[2].rstrip("\n") for found in reversed(list(_FENCED.finditer(answer)))]
        self._place = (self._place + 1) % (len(code) + 1) if answer == self._of else 0
        self._of = answer
        if self._place:
            of = f" {len(code) - self._place + 1} of {len(code)}" if len(code) > 1 else ""
            lines = code[self._place - 1].count("\n") + 1
            return code[self._place - 1], f"copied code block{of}: {words.counted(lines, 'line')}"
        again = " · again: its code" if code else ""
        return answer.strip(), f"copied the answer: {words.counted(len(answer.strip()), 'character')}{again}"
