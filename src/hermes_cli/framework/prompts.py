"""Questions at the terminal (yes or no, a value, a secret), and the flags that answer them.

A secret is typed without an echo, piped in or read from a file, and never given on the command line: every user of the
machine can see that (`ps`), and the shell's history keeps it. So a flag only says where the secret is: `-` for standard
input, `@FILE` for a file.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hermes_cli.framework import output, text
from hermes_config.errors import HermesError, UsageError

SECRET_FROM = "- reads it from standard input, @FILE from a file; the value itself is refused, since ps would show it"
_MOST_CHARS = 10_000
_EDITORS = ("nano", "vim", "vi")
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


class NobodyAnswers(UsageError):
    """No answer: the input ended."""

    default_hint = "Earlier answers are saved; run the same command to continue."


class Declined(HermesError):
    """Nothing was changed."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask before destroying something. Raises `Declined` on a no, so that every command exits with the same code."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("confirmation required but stdin is not a terminal", hint="Add --yes.")
    print(f"{text.harmless(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined


def question(words: str, kept: str) -> str:
    """Ask a question and return the answer; `kept` says what Enter does. The answer has its own line."""
    print(f"{output.style(_wrapped(words), 'bold')}\n({kept}): ", end="", flush=True)
    line = sys.stdin.readline()
    if not line:
        print()  # Ctrl-D leaves the cursor behind the question
        raise NobodyAnswers
    return line.strip()


def yes_or_no(words: str, *, now: bool, kept: str) -> bool:
    """Ask until the answer is yes or no; Enter keeps the value `now`."""
    while answer := question(words, f"Enter: {kept}; or type yes or no").lower():
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        print("Please type yes or no.")
    return now


def tell(words: str) -> None:
    """Print lines, each wrapped between words."""
    print(_wrapped(words), flush=True)


def _wrapped(words: str) -> str:
    columns = shutil.get_terminal_size().columns - 1 if output.is_terminal() else None
    return "\n".join("\n".join(text.wrapped(line, columns)) for line in words.split("\n"))


def secret(words: str) -> str:
    """Ask for a secret at the terminal; the typed or pasted text is not shown."""
    import getpass

    try:
        return getpass.getpass(words).strip()
    except EOFError:
        print()
        raise NobodyAnswers from None


def secret_from_flag(flag: str, given: str, *, variable: str = "") -> str:
    """Read the secret from the source that `--key` or `--token` names."""
    found = read_source(given, flag)
    if found is None:
        also = f", or set {variable}" if variable else ""
        raise UsageError(
            f"{flag} on the command line could be read by every user of this machine",
            hint=f"Pipe it in with {flag} -, name a file with {flag} @FILE{also}.",
        )
    return found


def read_source(given: str, name: str) -> str | None:
    """Read the first line of standard input (`-`) or of a file (`@FILE`); None when `given` names neither."""
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
    """Say where a variable is stored, and warn if the environment overrides it."""
    tell(f"{variable} is saved in {home / '.env'}, which only you can read.")
    if os.environ.get(variable, value) != value:
        tell(f"Note: the environment sets {variable} to another value, and Hermes uses that one.")


def open_editor(file: Path, *, instead: str) -> None:
    """Open a file in the person's editor; `instead` is the advice when there is no editor."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not named and not sys.stdin.isatty():
        raise UsageError("an editor needs a terminal, and there is none", hint=f"{instead[:1].upper()}{instead[1:]}.")
    words = output.words_of(named) or [found for one in _EDITORS if (found := shutil.which(one))][:1]
    if not words:
        raise UsageError("no editor was found", hint=f"Set EDITOR, or {instead}.")
    try:
        code = output.give_terminal([*words, str(file)])
    except OSError as error:
        raise UsageError(f"the editor {words[0]!r} cannot be started: {error.strerror}", hint="Set EDITOR.") from error
    if code:
        raise UsageError(f"the editor exited with code {code}, so nothing was saved")
