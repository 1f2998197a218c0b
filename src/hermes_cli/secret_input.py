"""How a key or token gets in: asked for at the terminal without an echo, or piped, or from a file; never from a flag.

What stands on a command line is shown to every user of the machine (`ps`) and kept in the shell's history, so a flag
only says where the secret is: `-` for standard input, `@FILE` for a file. A variable of the environment needs no flag.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hermes_cli.setup_asking import NobodyAnswers
from hermes_config.errors import UsageError

WHERE = "- reads it from standard input, @FILE from a file; never written here, where ps shows it"
_MOST_CHARS = 10_000


def from_flag(flag: str, given: str, *, variable: str = "") -> str:
    """The secret that `--key` or `--token` points at."""
    if given == "-":
        return sys.stdin.readline(_MOST_CHARS).strip()
    if not given.startswith("@"):
        also = f", or set {variable}" if variable else ""
        raise UsageError(
            f"{flag} on the command line could be read by everybody on this machine",
            hint=f"Pipe it in with {flag} -, name a file with {flag} @FILE{also}.",
        )
    file = Path(given[1:]).expanduser()
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.readline(_MOST_CHARS).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(f"the file of {flag} cannot be read: {why}", where=str(file)) from error


def asked(words: str) -> str:
    """What a person types or pastes at the terminal; it is not shown. Ctrl-D is no answer, as at any other question."""
    import getpass

    try:
        return getpass.getpass(words).strip()
    except EOFError:
        print()
        raise NobodyAnswers from None
