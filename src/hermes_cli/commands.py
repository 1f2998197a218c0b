"""The table of commands: what `hermes` can do, on one screen.

A row costs nothing until it is chosen. Only then is its module imported and its `register(parser)` called,
which adds arguments or verbs and sets `run`: a function of the parsed arguments that returns an exit code,
or None for 0. A new command is one line here and one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hermes_cli.parser import Parser


class Command(NamedTuple):
    """One row: a name, what it does in a few words, and the module that does it."""

    name: str
    help: str
    module: str

    def register(self, parser: Parser) -> None:
        """Import the command's module and let it describe its arguments."""
        from importlib import import_module

        import_module(self.module).register(parser)


GROUPS: dict[str, tuple[Command, ...]] = {
    "Set-up": (Command("config", "show, check and change the configuration", "hermes_cli.cmd_config"),),
}

COMMANDS: dict[str, Command] = {row.name: row for rows in GROUPS.values() for row in rows}
