"""`hermes config`: where the configuration is, what it says, whether it is right, and changing one key of it.

Secrets are never printed. Variables, which stand in `.env`, are the business of `config_variables`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hermes_cli import output, text
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_config import config, sections, yaml_file
from hermes_config.errors import UsageError
from hermes_config.home import hermes_home
from hermes_config.limits import table


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    path = verbs.add("path", _path, help="print where config.yaml is", example="hermes config path")
    edit = verbs.add(
        "edit",
        _edit,
        help="open config.yaml in $EDITOR; what would not load is not kept",
        example="hermes config edit\nhermes config edit --env",
    )
    for verb in (path, edit):
        verb.add_argument("--env", action="store_true", help=".env instead, where keys and tokens are")
    check = verbs.add("check", _check, help="check config.yaml and .env", example="hermes config check")
    verbs.add(
        "repair",
        _repair,
        help="make config.yaml and .env load again; what they said is kept beside them",
        example="hermes config repair",
    )
    show = verbs.add("show", _show, help="show the configuration, or one key", example="hermes config show sessions")
    show.add_argument("key", nargs="?", metavar="KEY", help="a key such as sessions.retention_days")
    get = verbs.add("get", _show, help="print one key", example="hermes config get model.default")
    get.add_argument("key", metavar="KEY", help="a key such as sessions.retention_days")
    unset = verbs.add(
        "unset",
        _unset,
        help="take one key out, so that its default holds",
        example="hermes config unset sessions.retention_days",
    )
    unset.add_argument("key", metavar="KEY", help="a key such as sessions.retention_days")
    change = verbs.add(
        "set",
        _set,
        help="set one key, leaving the rest of the file as it is; a variable is set in .env",
        example="""hermes config set sessions.retention_days 30
                   hermes config set state.synchronous normal
                   hermes config set OPENAI_API_KEY""",
    )
    change.add_argument("key", metavar="KEY", help="a key such as sessions.retention_days")
    change.add_argument(
        "value",
        nargs="?",
        metavar="VALUE",
        help="30, true, text, [a, b]; of a secret - (piped in), @FILE, or asked for",
    )
    bounds = verbs.add("limits", _limits, help="show every limit in force", example="hermes config limits")
    for verb in (check, show, get, bounds):
        add_json(verb)


def _path(args: argparse.Namespace) -> None:
    print(hermes_home() / (".env" if args.env else "config.yaml"))


def _edit(args: argparse.Namespace) -> None:
    from hermes_cli import config_edit  # only this verb needs it

    config_edit.run(".env" if args.env else "config.yaml")


def _repair(args: argparse.Namespace) -> None:
    from hermes_cli import config_repair  # only this verb needs it

    config_repair.run()


def _check(args: argparse.Namespace) -> None:
    from gateway.config import load_gateway_config  # only this verb needs it

    loaded = config.load()
    loaded.require("executor")
    load_gateway_config(loaded)
    facts: dict[str, Any] = {
        "home": str(loaded.home),
        "config.yaml": (loaded.home / "config.yaml").exists(),
        ".env": len(loaded.dotenv),
        "notes": [*notes(loaded), *_hook_notes(loaded)],
        "without effect": sections.table().without_effect(loaded.tree),
        "ok": True,
    }
    if args.json:
        output.print_json(facts)
        return
    found = "see the notes" if facts["notes"] else "no mistake found"
    config_file = f"read, {found}" if facts["config.yaml"] else "not there; the defaults hold"
    print(f"home         {loaded.home}\nconfig.yaml  {config_file}\n.env         {len(loaded.dotenv)} variables")
    for note in facts["notes"]:
        print(f"note         {note}")
    if facts["without effect"]:
        print(f"no effect    {', '.join(facts['without effect'])}: kept, and not used here")


def _hook_notes(loaded: config.Config) -> list[str]:
    from gateway import hooks

    enabled = hooks.enabled_hooks(loaded)
    return [
        f"the hook {text.harmless(name)} is not loaded; to load it: {hooks.how_to_enable(name, enabled)}"
        for name in hooks.hooks_off(loaded)
    ]


def notes(loaded: config.Config) -> list[str]:
    """Keys that look mistyped, values that cannot be, keys of older homes that mean something else here, or nothing."""
    from hermes_agent.approvals.policy import read_policy  # only this verb needs it

    policy = read_policy(loaded.tree).notes
    told = {note.partition(" ")[0] for note in policy}
    unfit = [problem.note for problem in loaded.problems if problem.key not in told]
    found = [*sections.table().mistyped(loaded.tree), *unfit, *policy]
    if backend := config.unsupported_backend(loaded.tree):
        found.append(backend)
    compression = loaded.tree.get("compression")
    if isinstance(compression, Mapping) and "in_place" in compression:
        found.append(
            "compression.in_place has no effect: a compression always goes on in a new segment and can be undone"
        )
    return found


def _show(args: argparse.Namespace) -> None:
    from hermes_cli import config_variables  # only the verbs of one key need them
    from hermes_config import redaction

    path = [] if args.key is None else args.key.split(".")
    if not all(path):
        raise UsageError(f"{args.key!r} is not a key", hint="Write section.name; hermes config show shows what is set.")
    name = config_variables.variable(args.key or "")
    if name and (found := config_variables.shown(name)) is not None:
        output.print_json(found) if args.json else print(text.harmless(found))
        return
    value: Any = config.load().tree
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            raise UsageError(f"{args.key} is not set in config.yaml", where=str(hermes_home() / "config.yaml"))
        value = value[name]
    plain = redaction.presentable(value, path)
    if args.json:
        output.print_json(plain)
    elif isinstance(plain, dict | list):
        import yaml

        shown = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip() if plain else "(empty)"
        output.page(text.harmless_block(shown))
    else:
        print(text.harmless_block(str(plain)))


def _set(args: argparse.Namespace) -> None:
    from gateway.config import load_gateway_config
    from hermes_cli import config_variables

    if name := config_variables.variable(args.key):
        given = config_variables.value_of(name, args.value)
        config_variables.keep(name, given)
        config_variables.warn(name, args.value, given)
        return
    if near := sections.table().meant(args.key):
        raise UsageError(
            f"{args.key[:80]} is not a known key; nothing was saved",
            hint=f"Did you mean {near}? A key for another program is written with hermes config edit.",
        )
    written = config_variables.value_of(args.key, args.value)
    value = yaml_file.value_of(written)
    saved = config.set_value(args.key, value, check=load_gateway_config)
    print(f"{args.key} is set in {saved.file}")
    row = sections.table().find(args.key.split("."))
    if row is None and not sections.table().is_known(args.key):
        print("Nothing here reads it; it is kept for whoever does.")
    elif row is not None and row.unused:
        print("Hermes does not use it; it is kept for hermes-agent.")
    elif row is not None and row.restart:
        print("It takes effect when the gateway and open terminal windows are started again.")
    if saved.backup:
        print(f"The file had to be rewritten without its comments; the old text is in {saved.backup}")
    config_variables.warn(args.key, args.value, written)


def _unset(args: argparse.Namespace) -> None:
    from hermes_cli import config_variables

    if name := config_variables.variable(args.key):
        config_variables.drop(name)
        return
    saved = config.unset_value(args.key)
    if saved is None:
        raise UsageError(f"{args.key[:80]} is not set in config.yaml", where=str(hermes_home() / "config.yaml"))
    print(f"{args.key} is taken out of {saved.file}; its default holds")
    if saved.backup:
        print(f"The file had to be rewritten without its comments; the old text is in {saved.backup}")


def _limits(args: argparse.Namespace) -> None:
    loaded = config.load()
    changed = loaded.tree.get("limits") or {}
    values = asdict(loaded.limits)
    rows = [(row, values[row.name]) for row in table()]
    if args.json:
        output.print_json(values)
        return
    columns = (
        output.Column("limit"),
        output.Column("value", right=True),
        output.Column("unit"),
        output.Column("set"),
        output.Column("at the bound", shrinks=True),
    )
    cells = [(row.name, f"{value:,}", row.unit, "·" if row.name in changed else "", row.rule) for row, value in rows]
    output.page(output.table(columns, cells))
