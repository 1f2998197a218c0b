"""`hermes plugins`: which plug-ins there are, which are loaded and why the others are not; enable and disable one."""

from __future__ import annotations

import argparse
from typing import Any

from hermes_cli import output, plugins, plugins_found, text
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_cli.plugins_found import Found, Wishes
from hermes_config import config
from hermes_config.errors import UsageError

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
    if not wishes.enabled and not plugins_found.truthy("HERMES_SAFE_MODE"):
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
    there = plugins_found.look(loaded.home, packages=True)
    found = next((plugin for plugin in there if plugin.key == name), None)
    found = found or next((plugin for plugin in there if name in plugin.names), None)
    if found is None:
        from difflib import get_close_matches

        near = get_close_matches(name, [plugin.key for plugin in there], n=1)
        hint = f"Did you mean {near[0]}?" if near else "hermes plugins list shows what there is."
        raise UsageError(f"there is no plug-in {name[:60]!r}", hint=hint)
    return found, Wishes.of(loaded)
