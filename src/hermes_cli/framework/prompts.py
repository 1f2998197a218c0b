"""How `hermes setup` talks at the terminal: a question, what Enter does, and what was wrong with an answer."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hermes_cli.framework import output, text
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


WHERE = "- reads it from standard input, @FILE from a file; never written here, where ps shows it"
_MOST_CHARS = 10_000


def from_flag(flag: str, given: str, *, variable: str = "") -> str:
    """The secret that `--key` or `--token` points at."""
    found = pointed_at(given, flag)
    if found is None:
        also = f", or set {variable}" if variable else ""
        raise UsageError(
            f"{flag} on the command line could be read by everybody on this machine",
            hint=f"Pipe it in with {flag} -, name a file with {flag} @FILE{also}.",
        )
    return found


def pointed_at(given: str, name: str) -> str | None:
    """The first line of standard input (`-`) or of a file (`@FILE`); None when it points at neither."""
    if given != "-" and not given.startswith("@"):
        return None
    where = "standard input" if given == "-" else str(Path(given[1:]).expanduser())
    try:
        if given == "-":
            return sys.stdin.readline(_MOST_CHARS).strip()
        with Path(where).open(encoding="utf-8") as opened:
            return opened.readline(_MOST_CHARS).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(f"{name} cannot be read: {why}", where=where) from error


def say_kept(variable: str, value: str, home: Path) -> None:
    """Tell where it is now, and when it does not count there."""
    print(f"{variable} is kept in {home / '.env'}, which only you can read.")
    if os.environ.get(variable, value) != value:
        print(f"Note: {variable} is also set in the environment, to something else, and that one counts.")


def asked(words: str) -> str:
    """What a person types or pastes at the terminal; it is not shown. Ctrl-D is no answer, as at any other question."""
    import getpass

    try:
        return getpass.getpass(words).strip()
    except EOFError:
        print()
        raise NobodyAnswers from None
