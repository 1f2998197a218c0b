"""The argument parser of every command: one-line errors, examples in the help, shared options, dates and ages.

Imported only when a command is chosen, so that `hermes --help` does not pay for argparse.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from hermes_cli.framework import old_forms
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_cli.commands import Command
    from hermes_cli.framework.output import CommandAnswer
    from hermes_state import SessionDB

    Outcome = int | CommandAnswer | None

_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(min|h|d|w|mo|y)?(?:\s+ago)?")
_WRONG_VERB = re.compile(r"argument VERB: invalid choice: '([^']*)'")
_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (--[^\s=]+)")
_SECONDS = {"min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}


class Parser(argparse.ArgumentParser):
    """argparse, with errors as `UsageError` and examples below the help.

    `given`: the words that it will parse, so that a command can skip verbs that are not called.
    """

    def __init__(self, *args: Any, given: Sequence[str] = (), **options: Any) -> None:
        self.given = given
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)  # an abbreviation in a script breaks when an option is added
        super().__init__(*args, **options)

    def add_examples(self, *examples: str) -> None:
        """Show examples below the help: arguments of this command, or a whole command line after `$ `."""
        lines = [line[2:] if line.startswith("$ ") else f"{self.prog} {line}".rstrip() for line in examples]
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in lines)])

    def format_help(self) -> str:
        """Return the help with `{platform}` replaced by the name of an available platform."""
        shown = super().format_help()
        return shown.replace("{platform}", example_platform()) if "{platform}" in shown else shown

    def error(self, message: str) -> NoReturn:
        verbs, meant = self._verb_parsers(), ""
        words = message.split()  # argparse names the unknown words, or only the word after one
        if self._subparsers is None:
            words += [word for word in self.given if word not in self._option_string_actions]
        if wrong := _WRONG_VERB.match(message):
            message = f"{self.prog} has no verb '{wrong[1]}'"
            meant = _near(wrong[1], verbs, before=f"{self.prog} ")
        elif wrong := _UNKNOWN_OPTION.match(message):
            parsers = [self, *(verbs[word] for word in self.given if word in verbs)]  # argparse reports a verb's here
            meant = _near(wrong[1], [name for one in parsers for name in one._option_string_actions])
        if hint := old_forms.instead(self.prog.removeprefix("hermes ").partition(" ")[0], words):
            raise UsageError(message.partition(" (choose from")[0], hint=hint)
        raise UsageError(message, hint=meant or f"See {self.prog} --help.")

    def _verb_parsers(self) -> dict[str, argparse.ArgumentParser]:
        if self._subparsers is None:
            return {}
        return dict(cast("Any", self._subparsers._group_actions[0].choices))


def _near(typed: str, known: Iterable[str], *, before: str = "") -> str:
    """The hint that names the known word most like the typed one; empty if none is like it."""
    from difflib import get_close_matches

    near = get_close_matches(typed, list(known), n=1)
    return f"Did you mean {before}{near[0]}?" if near else ""


def example_platform() -> str:
    """The name of a chat platform, for examples."""
    from gateway.platforms import registry  # late: only a help or a hint needs it

    return registry.example()


class Verbs:
    """The verbs of a noun: `verbs.add("list", …)` below `hermes sessions`."""

    def __init__(self, parser: Parser) -> None:
        # Without `prog`, argparse formats a usage line to find it out.
        self._verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser, prog=parser.prog)

    def add(
        self, name: str, run: Callable[..., Outcome], about: str, *examples: str,
        db: bool = False, json: bool = False, yes: bool = False, limit: int = 0,
    ) -> Parser:  # fmt: skip
        """Add one verb with its help and examples; return its parser for more arguments.

        `run` gets the parsed arguments; with `db`, also the open store.
        """
        parser = self._verbs.add_parser(name, help=about, description=sentence(about))
        parser.add_examples(*examples or ("",))
        parser.set_defaults(run=with_store(run) if db else run)
        if limit:
            most = f"show at most N (default {limit})"
            parser.add_argument("-n", "--limit", type=positive, default=limit, metavar="N", help=most)
        if yes:
            parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
        if json:
            add_json(parser)
        return parser


def with_store(run: Callable[[argparse.Namespace, SessionDB], Outcome]) -> Callable[[argparse.Namespace], Outcome]:
    """Wrap a command so that it gets the open store, which is closed before the answer is printed."""

    def opened(args: argparse.Namespace) -> Outcome:
        from hermes_cli.framework import store

        with store.open_store() as db:
            return run(args, db)

    return opened


def parser_of(command: Command, given: Sequence[str] = ()) -> Parser:
    """Import the module of a command and return its parser with all arguments."""
    parser = Parser(prog=f"hermes {command.name}", description=sentence(command.help), given=given)
    functions = vars(import_module(command.module))
    (functions.get(f"register_{command.name}") or functions["register"])(parser)
    return parser


def sentence(words: str) -> str:
    """Turn a help text into a sentence."""
    return f"{words[:1].upper()}{words[1:]}."


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def add_offset(parser: Parser) -> None:
    parser.add_argument("--offset", type=natural, default=0, metavar="N", help="skip the first N")


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


def instant(text: str) -> float:
    """Seconds since 1970, from a date (in the local time zone unless it has one) or an age such as `90min`, `7d`."""
    from datetime import datetime

    found = _AGE.fullmatch(text.strip().lower())
    if found and found[2]:
        return time.time() - float(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):  # the last two: a year outside the range of the system's clock
        raise argparse.ArgumentTypeError(
            f"must be a date such as 2026-11-01 or an age such as 12h, 7d, 2w, not {text[:40]!r}"
        ) from None


def days(text: str) -> float:
    """A length of time in days; a bare number counts days."""
    found = _AGE.fullmatch(text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"must be a number of days or an age such as 12h, 7d, 2w, not {text[:40]!r}")
    return float(found[1]) * _SECONDS[found[2] or "d"] / _SECONDS["d"]
