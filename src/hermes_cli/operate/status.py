"""`hermes status` (home, model, gateway, spending) and `hermes gateway status` (health, from locks and heartbeats).

It creates nothing and uses no network. A part that cannot be read becomes its own line, so that a home with a broken
configuration or store still has a status.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gateway.config import Platform, load_gateway_config
from gateway.platforms import registry
from gateway.status import Status, read_status
from hermes_cli.doctor import fixes
from hermes_cli.framework import output, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, add_json, example_platform
from hermes_cli.sessions.list import listing
from hermes_config import config
from hermes_config.errors import ConfigError, HermesError, HomeError
from hermes_config.home import hermes_home
from hermes_config.redaction import redacted
from hermes_config.version import VERSION
from hermes_state import SessionDB
from hermes_state.errors import StateError
from hermes_state.maintenance import stats
from hermes_state.turns.turns import Turn

_NEWEST = 5
_MOST = 1_000
_NOT_KNOWN = "unknown: the configuration does not load"
_NOT_RUNNING = "not running; hermes gateway start starts it"


def register(parser: Parser) -> None:
    parser.add_examples("", "--json")
    add_json(parser)
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> CommandAnswer:
    """Collect the facts of every part; a part that cannot be read adds a problem."""
    home = hermes_home()
    facts: dict[str, Any] = {
        "version": VERSION, "home": str(home), "exists": home.is_dir(), "home_bytes": _size(home),
        "config_loads": False, "model": None, "model_named": "", "database": None, "executor": None,
        "gateway": {"running": False}, "platforms": {}, "mcp_servers": [],
        "prefix_breaks": None, "processes": None, "jobs": None, "questions": [], "budget": [], "conversations": [],
        "warnings": [], "problems": [],
    }  # fmt: skip
    for part in (_folder, _configuration, _executor, _limits, _model, _mcp_servers, _gateway, _stored):
        try:
            part(home, facts)
        except HermesError as error:
            facts["problems"].append(error.one_line())
    facts["problems"] = list(dict.fromkeys(facts["problems"]))
    newest = f"\n\n{listing(facts['conversations'])}" if facts["conversations"] else ""
    return CommandAnswer(facts, drawn=output.facts(_rows(facts), wide=16) + newest, pages=False)


def _folder(home: Path, facts: dict[str, Any]) -> None:
    if not home.exists() and (why_not := fixes.why_no_home(home)):
        raise HomeError(
            f"cannot create the home: {why_not}", where=str(home), hint="Set HERMES_HOME to another folder."
        )


def _configuration(home: Path, facts: dict[str, Any]) -> None:
    config.load()
    facts["config_loads"] = True


def _executor(home: Path, facts: dict[str, Any]) -> None:
    from hermes_agent.execution import executor

    loaded = config.load()
    if loaded.approvals.mode == "off":
        facts["warnings"].append("rm -r and the like run in the sandbox without a question: approvals.mode is off")
    found = executor.sandbox_of(loaded)
    if found.sandbox == "host":
        facts["warnings"].append("commands run without a sandbox: executor is host")
    facts["executor"] = {"sandbox": found.sandbox, "said": found.said, "why": found.why}


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):  # unlike `rglob`, it skips a folder that vanishes
        for name in names:
            try:
                total += Path(place, name).lstat().st_size
            except OSError:  # vanished, or not readable
                continue
    return total


def _model(home: Path, facts: dict[str, Any]) -> None:
    from hermes_agent.models import keys, providers

    loaded = config.load()
    facts["model_named"] = str(providers.model_entry(loaded).get("default") or "")
    endpoint = providers.primary(loaded)
    facts["model"] = {
        "provider": endpoint.provider, "model": endpoint.model, "key_from": endpoint.key_from,
        "keys": keys.described(endpoint),
    }  # fmt: skip


def _mcp_servers(home: Path, facts: dict[str, Any]) -> None:
    if (loaded := config.load()).mcp_servers:
        from hermes_agent.mcp import source

        facts["mcp_servers"] = source.described(loaded)


def _gateway(home: Path, facts: dict[str, Any]) -> None:
    if not home.is_dir():
        return
    seen = read_status(home)
    facts["gateway"] = {"running": seen.running, "pid": seen.pid, "silent": seen.silent, "started_at": seen.started_at}
    heard = _platforms(seen)
    on = [name.value for name, one in load_gateway_config(config.load()).platforms.items() if one.enabled]
    facts["platforms"] = {name: heard.get(name, {"last_contact": None, "problem": ""}) for name in (*on, *heard)}


def _platforms(seen: Status) -> dict[str, dict[str, Any]]:
    return {one.name: {"last_contact": one.last_contact, "problem": one.problem} for one in seen.platforms}


def _limits(home: Path, facts: dict[str, Any]) -> None:
    """Add the configured daily limits; the store adds how much of them is used."""
    from hermes_agent.budget import key_of, limits_of

    used = None if store.exists() else 0
    for limit in limits_of(config.load().budget):
        if limit.scope == "day":
            facts["budget"].append(_spent({"limit": key_of(limit), "unit": limit.unit, "most": limit.most}, used))


def _spent(one: dict[str, Any], used: int | None) -> dict[str, Any]:
    return one | {"used": used, "left": None if used is None else max(0, one["most"] - used)}


def _stored(home: Path, facts: dict[str, Any]) -> None:
    if not store.exists():
        return
    with store.open_store() as db:
        found = stats.store_stats(db)
        facts["database"] = {
            "where": found.where, "bytes": found.database_bytes, "conversations": found.conversations,
            "messages": found.messages,
        }  # fmt: skip
        facts["prefix_breaks"] = db.prefixes.break_count()
        facts["processes"] = db.processes.running_count()
        facts["jobs"] = {"active": db.jobs.active_count(), "next_at": db.jobs.next_due()}
        facts["questions"] = [
            {"id": one.id, "text": redacted(str(one.call.get("text") or "")), "expires_at": one.expires_at}
            for one in db.approvals.pending()
        ]
        if dead := db.outbox.dead_count():
            undelivered = (
                f"{text.counted(dead, 'message')} could not be delivered; hermes outbox list --stuck shows why"
            )
            facts["warnings"].append(undelivered)
        facts["conversations"] = db.list_sessions_rich(order_by_last_active=True, compact_rows=True, limit=_NEWEST)
        used = db.budgets.used("day")[1]
        facts["budget"] = [_spent(one, used.of(one["unit"])) for one in facts["budget"]]


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "hermes", facts["version"]
    yield "home", f"{facts['home']} ({text.size(facts['home_bytes']) if facts['exists'] else 'does not exist yet'})"
    loads = facts["config_loads"]
    if not loads:
        yield "database", _NOT_KNOWN
    elif held := facts["database"]:
        said = f"{text.counted(held['conversations'], 'conversation')}, {text.counted(held['messages'], 'message')}"
        yield "database", f"{held['where']} ({text.size(held['bytes'])}; {said})"
    if model := facts["model"]:
        key = f", key from {'; '.join(model['keys'])}" if model["keys"] else ""
        yield "model", f"{model['provider']}/{model['model']}{key}"
    elif named := facts["model_named"]:
        yield "model", f"{named}, which cannot be used"
    else:
        yield "model", "none; hermes setup chooses one" if loads else _NOT_KNOWN
    if held := facts["executor"]:
        yield "sandbox", held["said"]
    for name, _state, words in facts["mcp_servers"]:
        yield "mcp", f"{name}: {words}"
    yield "gateway", _health(read_status(hermes_home())) if facts["exists"] else _NOT_RUNNING
    for name, one in facts["platforms"].items():
        yield name, _heard(one["last_contact"], one["problem"], time.time())
    if facts["jobs"] and facts["jobs"]["active"]:
        then = facts["jobs"]["next_at"]
        idle = "" if facts["gateway"]["running"] else "; none runs without a gateway"
        yield "jobs", f"{facts['jobs']['active']} active, next {'—' if then is None else text.moment(then)}{idle}"
    if facts["processes"]:
        yield "processes", f"{facts['processes']} in the background; hermes process list shows them"
    if asked := facts["questions"]:
        first = text.shorten(text.harmless(" ".join(asked[0]["text"].split())), 60)
        yield "questions", f"{len(asked)} open, the oldest expires {text.when(asked[0]['expires_at'])}: {first}"
    if facts["prefix_breaks"] is not None:
        yield "prefix", text.counted(facts["prefix_breaks"], "break")
    for one in facts["budget"]:
        yield one["limit"], _allowance(one)
    if not facts["budget"]:
        yield "budget", "no daily limit; hermes config set budget.day.usd 5 sets one" if loads else _NOT_KNOWN
    for line in facts["warnings"]:
        yield "warning", line
    for line in facts["problems"]:
        yield "problem", line
    if facts["problems"]:
        yield "", "hermes doctor shows what to do."


def _allowance(one: dict[str, Any]) -> str:
    from hermes_agent.budget import amount

    if one["used"] is None:
        return f"{amount(one['most'], one['unit'])} a day; the rest is unknown"
    return f"{amount(one['left'], one['unit'])} left today, {amount(one['used'], one['unit'])} used"


NOT_YET = "not connected yet"
"""The problem of a platform between the gateway's start and the first contact."""


def _heard(last_contact: float | None, problem: str, now: float) -> str:
    """Describe the last contact of a platform, and its problem."""
    if not last_contact:
        return problem or NOT_YET
    said = f"heard {text.span(now - last_contact)} ago"
    return f"{said} — {problem}" if problem else said


# -- hermes gateway status ---------------------------------------------------------------------------------------------


def gateway_health(args: argparse.Namespace) -> CommandAnswer:
    """Show the health of the gateway; exit code 0 when one runs, else 1."""
    home = hermes_home()
    seen = read_status(home)
    problem, missing = _configured()
    work, store_problem = ({}, "") if problem else _work(home)
    document = {
        "home": str(home), "running": seen.running, "pid": seen.pid, "silent": seen.silent,
        "started_at": seen.started_at, "heard_at": seen.heard_at, "api": seen.api, "platforms": _platforms(seen),
        "config_problem": problem or None, "store_problem": store_problem or None,
        "missing": [name for name, _ in missing], **work,
    }  # fmt: skip
    lines = [("home", str(home)), ("gateway", _health(seen))]
    lines += [(one.name, _heard(one.last_contact, one.problem, seen.at)) for one in seen.platforms]
    lines += [("api", seen.api or ""), *_work_lines(work, seen.at), *missing, ("database", store_problem)]
    if problem:
        running = "a running gateway keeps the last good one: " if seen.running else ""
        lines.append(("config", running + problem))
    drawn = output.facts(lines, wide=0)
    return CommandAnswer(document, drawn=drawn, code=0 if seen.running else 1)


def _configured() -> tuple[str, list[tuple[str, str]]]:
    """Return the fault of the configuration, and the missing settings of a gateway."""
    from hermes_agent.models import providers

    try:
        loaded = config.load()
        settings = load_gateway_config(loaded)
    except ConfigError as error:
        return error.one_line(), []
    missing = []
    try:
        providers.primary(loaded)
    except HermesError as error:
        missing.append(("model", error.one_line()))
    for platform, one in settings.platforms.items():
        if one.enabled and platform not in (Platform.API_SERVER, Platform.LOCAL):
            try:
                registry.usable(platform.value, one)
            except HermesError as error:
                missing.append((platform.value, error.one_line()))
    missing += [(name, registry.no_such(name).one_line()) for name in settings.unknown_platforms]
    if not any(one.enabled for one in settings.platforms.values()) and not settings.api_server.enabled:
        missing.append(("platforms", f"none is configured; hermes gateway setup {example_platform()} connects one"))
    return "", missing


def _health(seen: Status) -> str:
    if not seen.running and seen.lost_at is not None:
        ago = text.span(seen.at - seen.lost_at)
        return f"not running: it died {ago} ago (killed, or the machine went down); hermes gateway start starts it"
    if not seen.running:
        return _NOT_RUNNING
    process = f"process {seen.pid}" if seen.pid else "an unknown process"
    if seen.silent:
        since = f"for {text.span(seen.at - seen.heard_at)}" if seen.heard_at else "since its start"
        return f"{process} holds the lock but has not responded {since}; run hermes gateway restart --force"
    up = f", up {text.span(seen.at - seen.started_at)}" if seen.started_at else ", starting"
    drains = ", finishing its turns" if seen.facts.get("draining") else ""
    return f"running ({process}{up}{drains})"


def _work(home: Path) -> tuple[dict[str, Any], str]:
    """Return the counts of the store, with or without a running gateway, and the fault of the store."""
    if not (home / "state.db").exists() and not config.load().database_url():
        return {}, ""
    try:
        with store.open_store() as db:
            open_turns = db.turns.list(state="running", limit=_MOST)
            lost, stuck = _lost(db, open_turns)
            last_in, last_out = db.inbox.list(limit=1), db.outbox.list(state="sent", limit=1)
            return {
                "queued": db.inbox.queued_count(), "turns_running": len(open_turns) - lost, "turns_lost": lost,
                "turns_stuck": stuck,
                "deliveries_waiting": db.outbox.owed_count(), "dead_letters": db.outbox.dead_count(),
                "held_answers": db.held_answers.count(),
                "last_message_at": last_in[0].received_at if last_in else None,
                "last_delivery_at": last_out[0].ended_at if last_out else None,
                "prefix_breaks": db.prefixes.break_count(),
            }, ""  # fmt: skip
    except StateError as error:
        return {}, error.one_line()


def _lost(db: SessionDB, open_turns: Sequence[Turn]) -> tuple[int, int]:
    """Count the turns whose process died, and those of them that no gateway recovers: they came from no chat."""
    from hermes_cli.operate.turns import holder_of

    lost = [turn for turn in open_turns if holder_of(db, turn) is None]
    return len(lost), sum(not turn.route for turn in lost)


def _work_lines(work: dict[str, Any], now: float) -> list[tuple[str, str]]:
    if not work:
        return []
    came, went, lost = work["last_message_at"], work["last_delivery_at"], work["turns_lost"]
    stuck = work["turns_stuck"]
    left = f", {lost - stuck} left by a dead process; the next start recovers them" if lost - stuck else ""
    if stuck:
        left += f", {stuck} left by a dead terminal; hermes --resume continues it, hermes turns cancel drops it"
    last_in = f"the last came {text.span(now - came)} ago" if came else "none yet"
    last_out = f"the last went out {text.span(now - went)} ago" if went else "none yet"
    dead, held = work["dead_letters"], work["held_answers"]
    return [
        ("messages", f"{work['queued']} waiting, {work['turns_running']} being answered{left}; {last_in}"),
        ("deliveries", f"{work['deliveries_waiting']} waiting; {last_out}"),
        ("held answers", f"{held} wait for you; hermes outbox list --state held shows them" if held else ""),
        ("prefix", text.counted(work["prefix_breaks"], "break")),
        ("dead letters", f"{dead}; hermes outbox list --stuck shows them" if dead else ""),
    ]
