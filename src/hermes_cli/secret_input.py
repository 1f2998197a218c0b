"""How a key or token gets in: asked for at the terminal without an echo, or piped, or from a file; never from a flag.

What stands on a command line is shown to every user of the machine (`ps`) and kept in the shell's history, so a flag
only says where the secret is: `-` for standard input, `@FILE` for a file. A variable of the environment needs no flag.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes_cli.setup_asking import NobodyAnswers
from hermes_config.errors import UsageError

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
