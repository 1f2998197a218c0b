"""`hermes config`: show, check, edit and change the configuration. Secrets are never printed.

A name like OPENAI_API_KEY is a variable and is stored in `.env`, which only its owner can read; a key of config.yaml
has a dot, or small letters. A secret is typed, piped in or read from a file; on the command line it is accepted with a
warning about the shell's history. `edit` opens a copy and saves it only if it loads.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent import home_inventory
from hermes_agent.home_inventory import NotAcknowledged
from hermes_cli.framework import output, prompts, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs
from hermes_cli.maintenance import inventory_table
from hermes_config import config, redaction, schema, sections, yaml_file
from hermes_config.errors import ConfigError, UsageError
from hermes_config.home import ensure_home, hermes_home, private_open, write_atomic


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    path = verbs.add("path", _path, "print the path of config.yaml")
    edit = verbs.add("edit", _edit, "open config.yaml in $EDITOR; a text that does not load is not saved", "", "--env")
    for verb in (path, edit):
        verb.add_argument("--env", action="store_true", help="use .env instead, which holds keys and tokens")
    verbs.add("check", _check, "check config.yaml and .env", json=True)
    verbs.add("repair", _repair, "make config.yaml and .env load again; the old text is saved beside them")
    verbs.add("show", _show, "show the configuration", json=True).set_defaults(key=None)
    get = verbs.add("get", _show, "print one key", "model.default", json=True)
    unset = verbs.add("unset", _unset, "remove one key, so that its default applies", "sessions.retention_days")
    change = verbs.add(
        "set", _set, "set one key in config.yaml, or a variable in .env; the rest of the file stays unchanged",
        "sessions.retention_days 30", "state.synchronous normal", "OPENAI_API_KEY",
    )  # fmt: skip
    for verb in (get, unset, change):
        verb.add_argument("key", metavar="KEY", help="a key such as sessions.retention_days")
    accept = verbs.add(
        "acknowledge", _acknowledge, "accept that Hermes does not use these entries, so that it starts",
        "terminal.backend", "hooks.pre_tool_call 'jobs/Morning briefing'",
    )  # fmt: skip
    accept.add_argument("names", nargs="+", metavar="NAME", help="as hermes config check lists it")
    value = "30, true, text, [a, b]; for a secret - (piped in), @FILE, or nothing (Hermes asks)"
    change.add_argument("value", nargs="?", metavar="VALUE", help=value)
    verbs.add("limits", _limits, "show every limit in force", json=True)


def _path(args: argparse.Namespace) -> None:
    print(hermes_home() / (".env" if args.env else "config.yaml"))


def _repair(args: argparse.Namespace) -> None:
    from hermes_cli.maintenance import config_repair

    config_repair.run()


def _check(args: argparse.Namespace) -> CommandAnswer:
    loaded = config.load()
    loaded.require("executor")
    _readable(loaded)
    entries = home_inventory.of(loaded)
    facts: dict[str, Any] = {
        "home": str(loaded.home),
        "config.yaml": (loaded.home / "config.yaml").exists(),
        ".env": len(loaded.dotenv),
        "notes": [*notes(loaded), *hook_notes(loaded)],
        "entries": inventory_table.document(entries),
        "ok": not any(one.stops_start for one in entries),
    }
    found = "see the notes" if facts["notes"] else "no mistake found"
    config_file = f"read, {found}" if facts["config.yaml"] else "does not exist; Hermes uses the defaults"
    rows = [("home", loaded.home), ("config.yaml", config_file), (".env", text.counted(len(loaded.dotenv), "variable"))]
    rows += [("note", note) for note in facts["notes"]]
    table = inventory_table.drawn(entries)
    drawn = output.facts(rows, wide=13) + (f"\n\n{table}" if table else "")
    error = None if facts["ok"] else NotAcknowledged("Hermes does not start like this")
    return CommandAnswer(facts, drawn=drawn, error=error)


def _readable(loaded: config.Config) -> None:
    """Raise for what other packages cannot read."""
    from gateway.config import load_gateway_config
    from hermes_agent.models import providers

    load_gateway_config(loaded)
    providers.check(loaded)


def hook_notes(loaded: config.Config) -> list[str]:
    """Name the hooks that are not loaded, and the command that loads each."""
    from gateway import hooks

    enabled = hooks.enabled_hooks(loaded)
    return [
        f"the hook {text.harmless(name)} is not loaded; to load it: {hooks.how_to_enable(name, enabled)}"
        for name in hooks.hooks_off(loaded)
    ]


def notes(loaded: config.Config) -> list[str]:
    """Return notes about mistyped or repeated keys, invalid values, and approvals that differ from hermes-agent."""
    from hermes_agent.approvals import policy

    unfit = [problem.note for problem in loaded.problems]
    return [*sections.table().mistyped(loaded.tree), *_repeated(loaded), *unfit, *policy.notes(loaded)]


def _repeated(loaded: config.Config) -> list[str]:
    """Name the keys that config.yaml has more than once: only the last of each counts."""
    try:
        found = yaml_file.repeated_keys((loaded.home / "config.yaml").read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):  # no file, or it changed since it was loaded
        return []
    said = "the key {} is set more than once; the last one counts (line {})"
    return [said.format(text.harmless(key), line) for key, line in found]


def _show(args: argparse.Namespace) -> CommandAnswer:
    path = [] if args.key is None else args.key.split(".")
    if not all(path):
        raise UsageError(
            f"{args.key!r} is not a key", hint="Write section.name; hermes config show lists the set keys."
        )
    name = _variable(args.key or "")
    if name and (found := _shown_variable(name)) is not None:
        return CommandAnswer(found, found)
    value: Any = config.load().tree
    if path == ["model", "default"] and isinstance(value.get("model"), str):
        path = path[:1]  # `model: NAME` is the short form
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            raise UsageError(f"{args.key} is not set in config.yaml", where=str(hermes_home() / "config.yaml"))
        value = value[name]
    plain = redaction.presentable(value, path)
    shown = str(plain)
    if isinstance(plain, dict | list):
        import yaml

        shown = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip() if plain else "(empty)"
    return CommandAnswer(plain, drawn=text.harmless_block(shown))


def _set(args: argparse.Namespace) -> None:
    if name := _variable(args.key):
        given = _value_of(name, args.value)
        _keep(name, given)
        _warn(name, args.value, given)
        return
    if near := sections.table().meant(args.key):
        raise UsageError(
            f"{args.key[:80]} is not a known key; nothing was saved",
            hint=f"Did you mean {near}? A key for another program is written with hermes config edit.",
        )
    written = _value_of(args.key, args.value)
    value = yaml_file.value_of(written)
    try:
        saved = config.set_value(args.key, value, check=_readable)
    except ConfigError as error:
        if error.reason == "must be a text" and not redaction.is_covered_name(args.key.rpartition(".")[2]):
            form = f"hermes config set {args.key} {shlex.quote(json.dumps(written, ensure_ascii=False))}"
            error.hint = f"Nothing was saved. As a text: {form}"
        raise
    print(f"{args.key} is set in {saved.file}")
    row = sections.table().find(args.key.split("."))
    if row is None and not sections.table().is_known(args.key):
        print("Hermes does not read it; it is kept for other programs.")
    elif row is not None and row.unused:
        print("Hermes does not use it; it is kept for hermes-agent.")
    elif row is not None and row.restart:
        print("It takes effect when the gateway and open terminal windows are restarted.")
    if saved.backup:
        print(f"The file had to be rewritten without its comments; the old text is in {saved.backup}")
    _warn(args.key, args.value, written)


def _unset(args: argparse.Namespace) -> None:
    if name := _variable(args.key):
        _drop(name)
        return
    saved = config.unset_value(args.key)
    if saved is None:
        raise UsageError(f"{args.key[:80]} is not set in config.yaml", where=str(hermes_home() / "config.yaml"))
    print(f"{args.key} is removed from {saved.file}; its default applies")
    if saved.backup:
        print(f"The file had to be rewritten without its comments; the old text is in {saved.backup}")


def _acknowledge(args: argparse.Namespace) -> None:
    """Add entries to `acknowledged:`, each by its name."""
    loaded = config.load()
    loaded.require("acknowledged")
    entries = home_inventory.of(loaded)
    unsafe = {one.name: one for one in entries if one.use == "unsafe"}
    if wrong := [name for name in args.names if name not in unsafe]:
        listed = f"There are: {', '.join(sorted(unsafe))}." if unsafe else "No entry needs it."
        raise UsageError(f"{wrong[0]!r:.80} is not an entry that is unsafe to ignore", hint=listed)
    kept = [one for one in loaded.acknowledged if not {one, home_inventory.name_of(one)} & {*args.names}]
    new = [unsafe[name].as_acknowledged for name in dict.fromkeys(args.names)]
    saved = config.set_value("acknowledged", kept + new)
    for name in dict.fromkeys(args.names):
        print(text.harmless(f"{name} is acknowledged in {saved.file}"))
    if left := [one for one in entries if one.stops_start and one.name not in args.names]:
        print(text.harmless(f"{len(left)} left: {home_inventory.command(left)}"))


def _limits(args: argparse.Namespace) -> CommandAnswer:
    loaded = config.load()
    changed = loaded.tree.get("limits") or {}
    values = schema.plain(loaded.limits)
    columns = output.columns("limit", ">value", "unit", "set", "at the bound…")
    cells = [
        (name, f"{values[name]:,}", row.kind.name, "·" if name in changed else "", row.about)
        for name, row in loaded.limits.settings.items()
    ]
    return CommandAnswer(values, drawn=output.table(columns, cells))


# -- edit --------------------------------------------------------------------------------------------------------------


def _edit(args: argparse.Namespace) -> None:
    """Edit `config.yaml` or `.env` until the text loads, then replace the file in one step."""
    home, name = ensure_home(), ".env" if args.env else "config.yaml"
    file = home / name
    before = file.read_bytes() if file.exists() else b""
    with tempfile.TemporaryDirectory(prefix=".edit-", dir=home) as folder:
        draft = Path(folder) / name
        with private_open(draft, "wb") as opened:
            opened.write(before)
        while True:
            prompts.open_editor(draft, instead="use hermes config set KEY VALUE")
            after = draft.read_bytes()
            if after == before:
                print("Nothing was changed.")
                return
            fault = _fault(home, Path(folder), name)
            if fault is None:
                break
            print(text.harmless(f"hermes: {fault.what} (line {fault.line or '?'})"), file=sys.stderr)
            if not sys.stdin.isatty() or not _again():
                raise UsageError("the text would not load, so nothing was saved", where=str(file))
        if (file.read_bytes() if file.exists() else b"") != before:
            raise UsageError("another program has changed the file, so nothing was saved", where=str(file))
        write_atomic(file, after)
    print(f"Saved: {file}")


def _fault(home: Path, folder: Path, name: str) -> ConfigError | None:
    """Return the fault of the new text together with the other, unchanged file."""
    from gateway.config import load_gateway_config

    other = "config.yaml" if name == ".env" else ".env"
    if (home / other).exists():
        shutil.copyfile(home / other, folder / other)
    try:
        load_gateway_config(config.load(folder))
    except ConfigError as error:
        return error if error.file.endswith(name) else None
    return None


def _again() -> bool:
    print("Edit again? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


# -- variables ---------------------------------------------------------------------------------------------------------


def _variable(key: str) -> str:
    """Return the variable for this key; empty for a key of config.yaml."""
    if not (key.isascii() and key.isidentifier()):
        return ""
    if key.isupper():
        return key
    known = sections.table().is_known(key) or _in_yaml(key) is not None
    meant = redaction.is_secret_name(key) and "_" in key and not known
    return key.upper() if meant else ""


def _value_of(key: str, given: str | None) -> str:
    """Return the new value: VALUE itself; for a secret also the text from its source, or a typed answer."""
    if not redaction.is_covered_name(key.rpartition(".")[2]):
        if given is None:
            raise UsageError("the following arguments are required: VALUE", hint="See hermes config set --help.")
        return given
    if given is not None:
        value = prompts.read_source(given, key)
    elif sys.stdin.isatty():
        value = prompts.secret(f"{key}; it is not shown: ")
    else:
        raise UsageError("there is no VALUE, and no terminal to ask for one", hint="Pipe it in, with - as the VALUE.")
    value = given if value is None else value
    if not value:
        raise UsageError(f"{key} got no value", hint=f"hermes config unset {key} removes it.")
    return value


def _warn(key: str, given: str | None, value: str) -> None:
    """Warn that a secret given on the command line may be in the shell's history."""
    if value == given and redaction.is_covered_name(key.rpartition(".")[2]):
        ways = f"Next time use hermes config set {key}, which asks for it, or - (piped in) or @FILE as the value."
        print(f"Your shell's history may now contain the secret. {ways}")


def _keep(name: str, value: str) -> None:
    """Set a variable in `.env`, and remove it from config.yaml, where nothing reads it."""
    config.put_variable(name, value)
    prompts.say_kept(name, value, hermes_home())
    if isinstance(_in_yaml(name), str | int | float):
        config.unset_value(name)
        print("It was also in config.yaml, where nothing reads it, and is removed there.")


def _shown_variable(name: str) -> str | None:
    """Return the value of a variable, covered if it is a secret; None when it is only in config.yaml."""
    loaded = config.load()
    if value := loaded.dotenv.get(name):
        return str(redaction.presentable(value, [name]))
    if name in loaded.tree:
        return None
    hint = "It is set in the environment." if loaded.environ(name) else ""
    raise UsageError(f"{name} is not set in .env", where=str(loaded.home / ".env"), hint=hint)


def _drop(name: str) -> None:
    """Remove a variable from `.env` and from config.yaml."""
    files = [hermes_home() / ".env"] if config.remove_variable(name) else []
    if _in_yaml(name) is not None and (saved := config.unset_value(name)):
        files.append(saved.file)
    if not files:
        raise UsageError(f"{name} is not set in .env", where=str(hermes_home() / ".env"))
    print(f"{name} is removed from {' and '.join(map(str, files))}")


def _in_yaml(name: str) -> Any:
    try:
        return config.load().tree.get(name)
    except ConfigError:  # a broken file does not concern a variable
        return None
