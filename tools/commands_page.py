"""The page of all commands in the users' guide, made from the table of commands by `make docs`.

Every command and verb as its own parser describes it: what it does, its arguments, its examples. argparse lays out
nothing of it, since its usage lines differ between versions of Python and widths of a terminal. Commands of plug-ins
are not in it: they belong to a home.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from hermes_cli.commands import GROUPS
from hermes_cli.framework.parser import example_platform, parser_of, sentence

_INTRODUCTION = """# All commands

`hermes COMMAND --help` says the same at the terminal. Every command takes `-h`. What holds for all of them (exit codes,
pipes, questions) is in [the users' guide](README.md)."""


def page() -> str:
    """The page, as it is checked in."""
    lines = [_INTRODUCTION]
    for title, rows in GROUPS.items():
        lines += ["", f"## {title}"]
        for row in rows:
            lines += _about(parser_of(row), sentence(row.help))
    lines += ["", "This page is made by `make docs` from `src/hermes_cli/commands.py`."]
    return ("\n".join(lines) + "\n").replace("{platform}", example_platform())


def _about(parser: argparse.ArgumentParser, says: str, depth: int = 3) -> Iterator[str]:
    yield from ("", f"{'#' * depth} `{parser.prog}`", "", says)
    described = [row for action in parser._actions if (row := _argument(action))]  # argparse has no other way to ask
    if described:
        yield from ("", "| argument | |", "|---|---|", *described)
    if parser.epilog:
        yield from ("", *_below_the_help(parser.epilog))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _about(verb, verb.description or "", depth + 1)


def _argument(action: argparse.Action) -> str | None:
    """One row of the table; None for what every command has, and for verbs."""
    if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
        return None
    value = _value(action)
    names = [f"{name} {value}".strip() for name in action.option_strings] or [value]
    many = " (several)" if action.nargs in ("*", "+") else ""
    spelled = ", ".join(f"`{name}`" for name in names)
    return f"| {spelled}{many} | {_meaning(action)} |"


def _value(action: argparse.Action) -> str:
    """How the value is called; empty for a flag that takes none."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices:
        return "{" + ",".join(str(choice) for choice in action.choices) + "}"
    name = action.metavar or action.dest.upper()
    return f"[{name}]" if action.nargs == "?" else name


def _meaning(action: argparse.Action) -> str:
    # The help is a format for argparse: its own names in it (%(default)s) are filled as argparse does.
    filled = (action.help or "") % {**vars(action), "prog": ""} if action.help else ""
    return filled.replace("|", "\\|").replace("<", "&lt;")


def _below_the_help(epilog: str) -> Iterator[str]:
    """The examples, and what else stands there, as it is shown."""
    yield from (
        "```text",
        *(line.removeprefix("  ") for line in epilog.removeprefix("examples:\n").splitlines()),
        "```",
    )


if __name__ == "__main__":
    print(page(), end="")
