"""`hermes plugins` (list, enable and disable plug-ins), and `hermes NAME` for a plug-in's command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hermes_cli import plugins
from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, sentence
from hermes_cli.plugins import discovery
from hermes_cli.plugins.discovery import FoundPlugin, PluginSettings
from hermes_config import config
from hermes_config.errors import HermesError, UsageError
from hermes_config.sections import PLUGIN

_COLUMNS = output.columns("Name", "Status", "Version", "From", "Description…")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    verbs.add("list", _list, "list plug-ins, and why one is not loaded", json=True)
    for name, run, about in (
        ("enable", _enable, "load a plug-in from now on: its code runs with your rights"),
        ("disable", _disable, "stop loading a plug-in"),
    ):
        verbs.add(name, run, about, "NAME").add_argument("name", metavar="NAME", help="as hermes plugins list shows it")


def _list(args: argparse.Namespace) -> CommandAnswer:
    wanted = PluginSettings.of(config.load())  # a mistake there is reported here, in full
    manager = plugins.get_plugin_manager()
    manager.discover(force=True, packages=True)
    rows = [_facts(row) for row in manager.plugins.values()]
    missing = "plugins.enabled names it, but there is no such plug-in"
    rows += [{"name": name, "status": "missing", "reason": missing, "notes": []} for name in manager.missing]
    if not rows:
        where = config.load().home / "plugins"
        return CommandAnswer(rows, f"There are no plug-ins. They are folders in {where}, or installed packages.")
    shown = ("name", "status", "version", "from", "description")
    cells = [tuple(row.get(name, "") for name in shown) for row in rows]
    lines = [output.table(_COLUMNS, cells)]
    said = [f"{row['name']} adds {', '.join(row['commands'])}" for row in rows if row.get("commands")]
    said += [f"{row['name']}: {why}" for row in rows for why in (row["reason"], *row["notes"]) if why]
    if said:
        lines += ["", *map(text.harmless, said)]
    if not wanted.enabled and not discovery.truthy("HERMES_SAFE_MODE"):
        lines.append("\nNone is enabled: hermes plugins enable NAME")
    return CommandAnswer(rows, drawn="\n".join(lines))


def _facts(row: plugins.LoadedPlugin) -> dict[str, Any]:
    from hermes_agent.commands import registry

    manifest, added = row.found.manifest, plugins.get_plugin_commands().values()
    clashes = [name for command in added if command.plugin == row.found.key and registry.is_ours(name := command.name)]
    added_here = [
        *(f"hermes {one.name}" for one in plugins.get_plugin_cli_commands().values() if one.plugin == row.found.key),
        *(f"/{one.name}" for one in added if one.plugin == row.found.key and one.name not in clashes),
    ]
    executors = [one.name for one in plugins.get_executors().values() if one.plugin == row.found.key]
    platforms = [one.name for one in plugins.get_platforms().values() if one.plugin == row.found.key]
    return {
        "name": row.found.key,
        "status": row.state,
        "version": manifest.version,
        "from": row.found.source,
        "description": manifest.description,
        "kind": manifest.kind,
        "where": str(row.found.folder or row.found.entry_point or ""),
        "commands": added_here,
        "reason": row.reason,
        "notes": [
            *row.notes,
            *(f"its command /{name} was left out: Hermes has one of that name" for name in clashes),
            *filter(None, map(_fault_of_platform, platforms)),
            *_faults_of_providers(row.found.key),
            *(f"brings the executor {name}; {PLUGIN}{name} as the setting executor uses it" for name in executors),
        ],
    }


def _fault_of_platform(name: str) -> str:
    """Why a platform cannot be connected, whatever is configured; empty when it can."""
    from gateway.platforms import registry

    try:
        registry.descriptor(name)
    except HermesError as error:
        return error.one_line()
    return ""


def _faults_of_providers(plugin: str) -> list[str]:
    """Why providers of this plug-in are left out."""
    from hermes_agent.models import provider_table

    rows = plugins.get_providers()
    return [
        f"its provider {name} is left out, because a field is wrong: {why}"
        for name, why in provider_table.faults().items()
        if rows[name].plugin == plugin
    ]


def _enable(args: argparse.Namespace) -> None:
    found, wanted = _known(args.name)
    kept = sorted(wanted.disabled - found.names)
    if len(kept) < len(wanted.disabled):
        config.set_value("plugins.disabled", kept)
    if not found.names & wanted.enabled:
        config.set_value("plugins.enabled", [*sorted(wanted.enabled), found.key])
    print(f"Hermes loads {found.key} at its next start; the plug-in runs with your rights.")


def _disable(args: argparse.Namespace) -> None:
    found, wanted = _known(args.name)
    kept = sorted(wanted.enabled - found.names)
    if len(kept) < len(wanted.enabled):
        config.set_value("plugins.enabled", kept)
    print(f"Hermes no longer loads {found.key} from its next start on.")


def _known(name: str) -> tuple[FoundPlugin, PluginSettings]:
    loaded = config.load()
    there = discovery.look(loaded.home, packages=True)
    found = next((plugin for plugin in there if plugin.key == name), None)
    found = found or next((plugin for plugin in there if name in plugin.names), None)
    if found is None:
        from difflib import get_close_matches

        near = get_close_matches(name, [plugin.key for plugin in there], n=1)
        hint = f"Did you mean {near[0]}?" if near else "hermes plugins list shows all plug-ins."
        raise UsageError(f"there is no plug-in {name[:60]!r}", hint=hint)
    return found, PluginSettings.of(loaded)


def parser_of(name: str) -> Parser | None:
    """Load the plug-ins of the home and return the parser of a plug-in's command; None if there is none."""
    plugins.discover_plugins()
    row = plugins.get_plugin_cli_commands().get(name)
    if row is None:
        return None
    parser = Parser(prog=f"hermes {name}", description=sentence(row.description or row.help))
    _call(row, row.setup_fn, parser)
    parser.set_defaults(run=lambda args: _run(row, args))
    return parser


def _run(row: plugins.PluginCliCommand, args: argparse.Namespace) -> int | None:
    code = _call(row, row.handler_fn, args)
    return code if isinstance(code, int) else None


def _call(row: plugins.PluginCliCommand, fn: Callable[..., Any], argument: Any) -> Any:
    try:
        return plugins.resolve_plugin_command_result(fn(argument))
    except HermesError:
        raise
    except Exception as error:  # boundary: a plug-in's command
        plugins.complain(error, plugin=row.plugin, action="command_failed", command=row.name)
        raise plugins.PluginError(
            f"the plug-in {row.plugin} failed ({type(error).__name__})", hint="HERMES_PLUGINS_DEBUG=1 shows where."
        ) from error
