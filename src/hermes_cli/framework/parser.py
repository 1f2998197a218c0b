"""The argument parser of every command: one-line errors, examples in the help, and the shared flags.

Imported only when a command is chosen, so that `hermes --help` does not pay for argparse.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from hermes_config.errors import UsageError

Run = Callable[[argparse.Namespace], int | None]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Told how wide it may be: by itself it imports shutil to find out, and argparse makes one for each argument."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    if (told := os.environ.get("COLUMNS", "")).isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or 80
    except (OSError, ValueError):  # no terminal, or a stream that is closed
        return 80


class Parser(argparse.ArgumentParser):
    """argparse, with errors as `UsageError` and an `example` below the help.

    `given`: the words that it will parse, for a command whose verbs are dear to describe.
    """

    def __init__(self, *args: Any, example: str = "", given: Sequence[str] = (), **options: Any) -> None:
        self.given = given
        options.setdefault("formatter_class", _Help)
        options.setdefault("allow_abbrev", False)  # an abbreviation in a script breaks when a flag is added
        if example:
            lines = "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
            options["epilog"] = f"examples:\n{lines}"
        super().__init__(*args, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"See {self.prog} --help.")


class Verbs:
    """The verbs of a noun: `verbs.add("list", …)` below `hermes sessions`."""

    def __init__(self, parser: Parser) -> None:
        # Not told the name, argparse would format a usage line to find it out.
        self._verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser, prog=parser.prog)

    def add(self, name: str, run: Run, *, help: str, example: str) -> Parser:  # noqa: A002  argparse's word
        """One verb. Its parser is returned for arguments; `run` gets them parsed."""
        parser = self._verbs.add_parser(name, help=help, description=f"{help[:1].upper()}{help[1:]}.", example=example)
        parser.set_defaults(run=run)
        return parser


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def add_yes(parser: Parser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def add_limit(parser: Parser, default: int) -> None:
    parser.add_argument(
        "-n",
        "--limit",
        type=positive,
        default=default,
        metavar="N",
        help=f"show at most N (default {default})",
    )


def positive(text: str) -> int:
    """An argument that must be a whole number from 1 up."""
    return _whole(text, least=1)


def natural(text: str) -> int:
    """An argument that must be a whole number from 0 up."""
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    if not text.isdecimal() or not 0 < len(text) < 16 or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} up, not {text[:40]!r}")
    return int(text)


_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(min|h|d|w|mo|y)?(?:\s+ago)?")
_SECONDS = {"min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}


def instant(text: str) -> float:
    """Seconds since 1970, from a date or an age with its unit."""
    found = _AGE.fullmatch(text.strip().lower())
    if found and found[2]:
        return time.time() - float(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):  # the latter two: a year no clock of this machine reaches
        raise argparse.ArgumentTypeError(
            f"must be a date such as 2026-11-01 or an age such as 12h, 7d, 2w, not {text[:40]!r}"
        ) from None


def days(text: str) -> float:
    """A length of time in days; a bare number counts days."""
    found = _AGE.fullmatch(text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"must be a number of days or an age such as 12h, 7d, 2w, not {text[:40]!r}")
    return float(found[1]) * _SECONDS[found[2] or "d"] / _SECONDS["d"]
