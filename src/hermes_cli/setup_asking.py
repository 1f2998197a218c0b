"""How `hermes setup` talks at the terminal: a question, what Enter does, and what was wrong with an answer."""

from __future__ import annotations

import shutil
import sys

from hermes_cli import output, text
from hermes_config.errors import UsageError


class NobodyAnswers(UsageError):
    """Nobody answers."""

    default_hint = "What was answered is kept; the same command goes on from there."


_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def question(words: str, kept: str) -> str:
    """What is typed below the question, behind what Enter does: a long one leaves the answer its room."""
    print(f"{output.style(words, 'bold')}\n({kept}): ", end="", flush=True)
    line = sys.stdin.readline()
    if not line:
        print()  # Ctrl-D leaves the cursor behind the question
        raise NobodyAnswers
    return line.strip()


def yes(words: str, *, now: bool, kept: str) -> bool:
    """Asked until it is answered; Enter leaves it as it is `now`."""
    while said := question(words, f"Enter: {kept}; or say yes or no").lower():
        if said in _ANSWERS:
            return _ANSWERS[said]
        print("Please say yes or no.")
    return now


def tell(line: str) -> None:
    """A sentence, broken between words and not by the edge of the window."""
    import textwrap

    columns = shutil.get_terminal_size().columns if output.is_terminal() else len(line) + 1
    print(textwrap.fill(text.harmless(line), columns - 1, break_on_hyphens=False, break_long_words=False))
