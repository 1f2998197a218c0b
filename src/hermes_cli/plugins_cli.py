"""`hermes NAME` where NAME is a plug-in's. Looked at only when we have no command of that name ourselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hermes_cli import plugins
from hermes_cli.commands import Command
from hermes_cli.parser import Parser
from hermes_config.errors import HermesError


def find(name: str) -> Command | None:
    """The command, with the plug-ins of this home loaded to look for it."""
    plugins.discover_plugins()
    row = plugins.get_plugin_cli_commands().get(name)
    return None if row is None else _OfPlugin(row)


class _OfPlugin(Command):
    __slots__ = ("_row",)

    def __init__(self, row: plugins.PluginCliCommand) -> None:
        super().__init__(row.name, row.description or row.help, "")
        self._row = row

    def register(self, parser: Parser) -> None:
        self._call(self._row.setup_fn, parser)
        parser.set_defaults(run=self._run)

    def _run(self, args: argparse.Namespace) -> int | None:
        code = self._call(self._row.handler_fn, args)
        return code if isinstance(code, int) else None

    def _call(self, fn: Callable[..., Any], argument: Any) -> Any:
        try:
            return plugins.resolve_plugin_command_result(fn(argument))
        except HermesError:
            raise
        except Exception as error:  # boundary: a plug-in's command
            plugins.complain(error, plugin=self._row.plugin, action="command_failed", command=self.name)
            raise plugins.PluginError(
                f"the plug-in {self._row.plugin} failed ({type(error).__name__})",
                hint="HERMES_PLUGINS_DEBUG=1 shows where.",
            ) from error
