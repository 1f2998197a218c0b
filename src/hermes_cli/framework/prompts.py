"""Questions at the terminal: yes or no, a value, a secret. What has a flag as well reads it here, too.

A secret is asked for without an echo, piped in or read from a file, and never given on the command line: that is shown
to every user of the machine (`ps`) and kept in the shell's history. So a flag only says where the secret is: `-` for
standard input, `@FILE` for a file.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hermes_cli.framework import output, text
from hermes_config.errors import HermesError, UsageError

SECRET_FROM = "- reads it from standard input, @FILE from a file; never written here, where ps shows it"
_MOST_CHARS = 10_000
_EDITORS = ("nano", "vim", "vi")
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


class NobodyAnswers(UsageError):
    """Nobody answers."""

    default_hint = "What was answered is kept; the same command continues from there."


class Declined(HermesError):
    """Nothing was changed."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; a no raises `Declined`, so every command ends with the same exit code."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("confirmation required but stdin is not a terminal", hint="Add --yes.")
    print(f"{text.harmless(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined


def question(words: str, kept: str) -> str:
    """The answer to a question; `kept` says what Enter does. It is typed on a line of its own."""
    print(f"{output.style(words, 'bold')}\n({kept}): ", end="", flush=True)
    line = sys.stdin.readline()
    if not line:
        print()  # Ctrl-D leaves the cursor behind the question
        raise NobodyAnswers
    return line.strip()


def yes_or_no(words: str, *, now: bool, kept: str) -> bool:
    """Asked until it is answered; Enter leaves it as it is `now`."""
    while said := question(words, f"Enter: {kept}; or say yes or no").lower():
        if said in _ANSWERS:
            return _ANSWERS[said]
        print("Please say yes or no.")
    return now


def tell(line: str) -> None:
    """Print a sentence, broken between words."""
    print("\n".join(text.wrapped(line, shutil.get_terminal_size().columns - 1 if output.is_terminal() else None)))


def secret(words: str) -> str:
    """A secret that a person types or pastes at the terminal; it is not shown."""
    import getpass

    try:
        return getpass.getpass(words).strip()
    except EOFError:
        print()
        raise NobodyAnswers from None


def secret_from_flag(flag: str, given: str, *, variable: str = "") -> str:
    """The secret that `--key` or `--token` points at."""
    found = pointed_at(given, flag)
    if found is None:
        also = f", or set {variable}" if variable else ""
        raise UsageError(
            f"{flag} on the command line could be read by every user of this machine",
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
    """Say where a variable was stored, and when the environment overrides it."""
    print(f"{variable} is kept in {home / '.env'}, which only you can read.")
    if os.environ.get(variable, value) != value:
        print(f"Note: {variable} is also set in the environment, to something else, and that one counts.")


def open_editor(file: Path, *, instead: str) -> None:
    """Edit a file in the person's editor; `instead` says what else they can do where there is none."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not named and not sys.stdin.isatty():
        raise UsageError("there is no terminal to edit at", hint=f"{instead[:1].upper()}{instead[1:]}.")
    words = output.words_of(named) or [found for one in _EDITORS if (found := shutil.which(one))][:1]
    if not words:
        raise UsageError("there is no editor", hint=f"Set EDITOR, or {instead}.")
    try:
        code = output.give_terminal([*words, str(file)])
    except OSError as error:
        raise UsageError(f"the editor {words[0]!r} cannot be started: {error.strerror}", hint="Set EDITOR.") from error
    if code:
        raise UsageError(f"the editor ended with {code}, so nothing was saved")
