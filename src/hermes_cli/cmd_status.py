"""`hermes status`: where the data is and how large, which model, how the gateway is, what is left to spend.

Nothing is made and nothing is asked of the network. What cannot be told is said in its own line: a home whose
configuration or store is broken still has a status.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_cli import doctor_places, output, store, text
from hermes_cli.parser import Parser, add_json
from hermes_config import config
from hermes_config.errors import HermesError, HomeError
from hermes_config.home import hermes_home
from hermes_config.version import VERSION

_NEWEST = 5
_NOT_KNOWN = "not known: the configuration does not load"


def register(parser: Parser) -> None:
    parser.epilog = "examples:\n  hermes status\n  hermes status --json"
    add_json(parser)
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> None:
    facts = _facts()
    if args.json:
        output.print_json(facts)
        return
    rows = list(_rows(facts))
    print("\n".join(f"{output.style(f'{name:<16}', 'dim')}{text.harmless(said)}" for name, said in rows))
    if facts["conversations"]:
        from hermes_cli.cmd_sessions_list import listing

        print(f"\n{listing(facts['conversations'])}")


def _facts() -> dict[str, Any]:
    home = hermes_home()
    facts: dict[str, Any] = {
        "version": VERSION, "home": str(home), "exists": home.is_dir(), "home_bytes": _size(home),
        "config_loads": False, "model": None, "database": None, "executor": None,
        "gateway": {"running": False}, "platforms": {},
        "prefix_breaks": None, "budget": [], "conversations": [], "problems": [],
    }  # fmt: skip
    for part in (_folder, _configuration, _executor, _limits, _model, _gateway, _stored):
        try:
            part(home, facts)
        except HermesError as error:
            facts["problems"].append(error.one_line())
    facts["problems"] = list(dict.fromkeys(facts["problems"]))
    return facts


def _folder(home: Path, facts: dict[str, Any]) -> None:
    if not home.exists() and (why_not := doctor_places.hindrance(home)):
        raise HomeError(f"no home can be made: {why_not}", where=str(home), hint="Set HERMES_HOME to another folder.")


def _configuration(home: Path, facts: dict[str, Any]) -> None:
    config.load()
    facts["config_loads"] = True


def _executor(home: Path, facts: dict[str, Any]) -> None:
    from hermes_agent.execution import executor

    found = executor.wall_of(config.load().tree)
    facts["executor"] = {"wall": found.wall, "said": found.said, "why": found.why}


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):  # it passes over a folder that goes meanwhile, as `rglob` does not
        for name in names:
            try:
                total += Path(place, name).lstat().st_size
            except OSError:  # it is gone, or not ours to see
                continue
    return total


def _model(home: Path, facts: dict[str, Any]) -> None:
    from hermes_agent.models import providers

    shown = providers.describe(providers.primary(config.load()))
    facts["model"] = {"provider": shown.provider, "model": shown.model, "key_from": shown.key_from}


def _gateway(home: Path, facts: dict[str, Any]) -> None:
    from gateway import status

    if not home.is_dir():
        return
    seen = status.read_status(home)
    facts["gateway"] = {"running": seen.running, "pid": seen.pid, "silent": seen.silent, "started_at": seen.started_at}
    heard = {one.name: {"last_contact": one.last_contact, "problem": one.problem} for one in seen.platforms}
    from gateway.config import load_gateway_config

    on = [name.value for name, one in load_gateway_config(config.load()).platforms.items() if one.enabled]
    facts["platforms"] = {name: heard.get(name, {"last_contact": None, "problem": ""}) for name in (*on, *heard)}


def _limits(home: Path, facts: dict[str, Any]) -> None:
    """What the configuration allows a day; how much of it is used is for the store to say, once there is one."""
    from hermes_agent.budget import key_of, limits_of

    used = None if store.exists() else 0
    for limit in limits_of(config.load().budget):
        if limit.scope == "day":
            facts["budget"].append(_spent({"limit": key_of(limit), "unit": limit.unit, "most": limit.most}, used))


def _spent(one: dict[str, Any], used: int | None) -> dict[str, Any]:
    return one | {"used": used, "left": None if used is None else max(0, one["most"] - used)}


def _stored(home: Path, facts: dict[str, Any]) -> None:
    from hermes_state.maintenance import stats

    if not store.exists():
        return
    with store.open_store() as db:
        found = stats.store_stats(db)
        facts["database"] = {
            "where": found.where, "bytes": found.database_bytes, "conversations": found.conversations,
            "messages": found.messages,
        }  # fmt: skip
        facts["prefix_breaks"] = db.prefixes.break_count()
        facts["conversations"] = db.list_sessions_rich(order_by_last_active=True, compact_rows=True, limit=_NEWEST)
        used = db.budgets.used("day")[1]
        facts["budget"] = [_spent(one, used.of(one["unit"])) for one in facts["budget"]]


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "hermes", facts["version"]
    yield (
        "home",
        f"{facts['home']} ({text.size(facts['home_bytes'])})"
        if facts["exists"]
        else f"{facts['home']} (not there yet)",
    )
    loads = facts["config_loads"]
    if not loads:
        yield "database", _NOT_KNOWN
    elif held := facts["database"]:
        said = f"{text.counted(held['conversations'], 'conversation')}, {text.counted(held['messages'], 'message')}"
        yield "database", f"{held['where']} ({text.size(held['bytes'])}; {said})"
    if model := facts["model"]:
        yield (
            "model",
            f"{model['provider']}/{model['model']}" + (f", key from {model['key_from']}" if model["key_from"] else ""),
        )
    else:
        yield "model", "none; hermes setup chooses one" if loads else _NOT_KNOWN
    if held := facts["executor"]:
        yield "commands", held["said"]
    from hermes_cli.gateway_status import heard

    yield "gateway", _running(facts["gateway"])
    for name, one in facts["platforms"].items():
        yield name, heard(one["last_contact"], one["problem"], time.time())
    if facts["prefix_breaks"] is not None:
        yield "prefix", text.counted(facts["prefix_breaks"], "break")
    for one in facts["budget"]:
        yield one["limit"], _allowance(one)
    if not facts["budget"]:
        yield "budget", "no limit a day; hermes config set budget.day.usd 5 sets one" if loads else _NOT_KNOWN
    for line in facts["problems"]:
        yield "problem", line
    if facts["problems"]:
        yield "", "hermes doctor says what to do."


def _allowance(one: dict[str, Any]) -> str:
    from hermes_agent.budget import amount

    if one["used"] is None:
        return f"{amount(one['most'], one['unit'])} a day; what is left is not known"
    return f"{amount(one['left'], one['unit'])} left today, {amount(one['used'], one['unit'])} used"


def _running(seen: dict[str, Any]) -> str:
    if not seen["running"]:
        return "not running; hermes gateway start starts it"
    if seen["silent"]:
        return f"process {seen['pid']} holds the lock and is silent; hermes gateway restart --force"
    from hermes_cli.gateway_status import span

    up = f", up {span(time.time() - seen['started_at'])}" if seen["started_at"] else ""
    return f"runs (process {seen['pid']}{up})"
