"""`hermes plugins`: which plug-ins there are, which are loaded and why the others are not; enable and disable one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hermes_cli import plugins
from hermes_cli.commands import Command
from hermes_cli.framework import output, text
from hermes_cli.framework.parser import Parser, Verbs, add_json
from hermes_cli.plugins import discovery
from hermes_cli.plugins.discovery import Found, Wishes
from hermes_config import config
from hermes_config.errors import HermesError, UsageError

_COLUMNS = (
    output.Column("Name"),
    output.Column("Status"),
    output.Column("Version"),
    output.Column("From"),
    output.Column("Description", shrinks=True),
)


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add("list", _list, help="list plug-ins, and why one is not loaded", example="hermes plugins list")
    add_json(listing)
    for name, run, help_text in (
        ("enable", _enable, "load a plug-in from now on: its code runs with your rights"),
        ("disable", _disable, "do not load a plug-in any more"),
    ):
        verb = verbs.add(name, run, help=help_text, example=f"hermes plugins {name} NAME")
        verb.add_argument("name", metavar="NAME", help="as `hermes plugins list` shows it")


def _list(args: argparse.Namespace) -> None:
    wishes = Wishes.of(config.load())  # a mistake there is told here, in full
    manager = plugins.get_plugin_manager()
    manager.discover(force=True, packages=True)
    rows = [_facts(row) for row in manager.plugins.values()]
    missing = "it is under plugins.enabled, and there is no such plug-in"
    rows += [{"name": name, "status": "missing", "reason": missing, "notes": []} for name in manager.missing]
    if args.json:
        output.print_json(rows)
        return
    if not rows:
        print(f"There are no plug-ins. They are folders in {config.load().home / 'plugins'}, or installed packages.")
        return
    cells = [
        (row["name"], row["status"], row.get("version", ""), row.get("from", ""), row.get("description", ""))
        for row in rows
    ]
    print(output.table(_COLUMNS, cells))
    said = [f"{row['name']}: {why}" for row in rows for why in (row["reason"], *row["notes"]) if why]
    if said:
        print("", *map(text.harmless, said), sep="\n")
    if not wishes.enabled and not discovery.truthy("HERMES_SAFE_MODE"):
        print("\nNone is enabled: hermes plugins enable NAME")


def _facts(row: plugins.LoadedPlugin) -> dict[str, Any]:
    from hermes_agent.commands import registry

    manifest, added = row.found.manifest, plugins.get_plugin_commands().values()
    clashes = [name for command in added if command.plugin == row.found.key and registry.is_ours(name := command.name)]
    return {
        "name": row.found.key,
        "status": row.state,
        "version": manifest.version,
        "from": row.found.source,
        "description": manifest.description,
        "kind": manifest.kind,
        "where": str(row.found.folder or row.found.entry_point or ""),
        "reason": row.reason,
        "notes": [*row.notes, *(f"its command /{name} was left out: Hermes has one of that name" for name in clashes)],
    }


def _enable(args: argparse.Namespace) -> None:
    found, wishes = _known(args.name)
    kept = sorted(wishes.disabled - found.names)
    if len(kept) < len(wishes.disabled):
        config.set_value("plugins.disabled", kept)
    if not found.names & wishes.enabled:
        config.set_value("plugins.enabled", [*sorted(wishes.enabled), found.key])
    print(f"{found.key} is loaded the next time Hermes starts, and runs with your rights.")


def _disable(args: argparse.Namespace) -> None:
    found, wishes = _known(args.name)
    kept = sorted(wishes.enabled - found.names)
    if len(kept) < len(wishes.enabled):
        config.set_value("plugins.enabled", kept)
    if found.source == "bundled" and not found.names & wishes.disabled:
        config.set_value("plugins.disabled", [*sorted(wishes.disabled), found.key])
    print(f"{found.key} is not loaded any more the next time Hermes starts.")


def _known(name: str) -> tuple[Found, Wishes]:
    loaded = config.load()
    there = discovery.look(loaded.home, packages=True)
    found = next((plugin for plugin in there if plugin.key == name), None)
    found = found or next((plugin for plugin in there if name in plugin.names), None)
    if found is None:
        from difflib import get_close_matches

        near = get_close_matches(name, [plugin.key for plugin in there], n=1)
        hint = f"Did you mean {near[0]}?" if near else "hermes plugins list shows what there is."
        raise UsageError(f"there is no plug-in {name[:60]!r}", hint=hint)
    return found, Wishes.of(loaded)


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
