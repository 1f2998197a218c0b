"""`hermes gateway status`: what the gateway is doing, from evidence.

The lock says whether one runs; what it wrote last, and the rows of the store, say the rest. It works with a
configuration that cannot be read, too: that is when it is needed most, and the mistake is one of its lines.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli import cmd_turns, output, store, text
from hermes_config import config
from hermes_config.errors import ConfigError, HermesError
from hermes_config.home import hermes_home
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.status import Status

_MOST = 1_000


def show(args: argparse.Namespace) -> int:
    """0 when a gateway runs, else 1."""
    from gateway import status

    home = hermes_home()
    seen = status.read_status(home)
    problem, missing = _configured()
    work, store_problem = ({}, "") if problem else _work(home)
    if args.json:
        facts: dict[str, Any] = {"config_problem": problem or None, "store_problem": store_problem or None}
        facts["missing"] = [name for name, _ in missing]
        output.print_json({"home": str(home), **_as_json(seen), **facts, **work})
        return 0 if seen.running else 1
    lines = [("home", str(home)), ("gateway", _gateway(seen))]
    lines += [(one.name, heard(one.last_contact, one.problem, seen.at)) for one in seen.platforms]
    if seen.api:
        lines.append(("api", seen.api))
    lines += _work_lines(work, seen.at)
    lines += missing
    if store_problem:
        lines.append(("database", store_problem))
    if problem:
        running = "a running gateway goes on with the last good one: " if seen.running else ""
        lines.append(("config", running + problem))
    wide = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{wide}}{text.harmless(value)}" for name, value in lines))
    return 0 if seen.running else 1


def _configured() -> tuple[str, list[tuple[str, str]]]:
    """What is wrong with the configuration, and what a gateway needs and has not got."""
    from gateway.config import load_gateway_config
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
    if not settings.get_connected_platforms() and not settings.api_server.enabled:
        missing.append(("platforms", "none is configured; hermes gateway setup telegram connects one"))
    return "", missing


def _gateway(seen: Status) -> str:
    if not seen.running:
        return "not running; hermes gateway start starts it"
    process = f"process {seen.pid}" if seen.pid else "a process that left no number"
    if seen.silent:
        since = f"for {span(seen.at - seen.heard_at)}" if seen.heard_at else "since its start"
        return f"{process} holds the lock but was not heard of {since}; hermes gateway restart --force"
    up = f", up {span(seen.at - seen.started_at)}" if seen.started_at else ", starting"
    drains = ", ending its turns" if seen.facts.get("draining") else ""
    return f"runs ({process}{up}{drains})"


def heard(last_contact: float | None, problem: str, now: float) -> str:
    """How a platform is: when it was last heard of, and what is wrong."""
    if not last_contact:
        return problem or "not connected yet"
    said = f"heard {span(now - last_contact)} ago"
    return f"{said} — {problem}" if problem else said


def _work(home: Path) -> tuple[dict[str, Any], str]:
    """What the store says, whether a gateway runs or not; and what is wrong with it."""
    if not (home / "state.db").exists() and not config.load().database_url():
        return {}, ""
    try:
        return _counted(), ""
    except StateError as error:
        return {}, error.one_line()


def _counted() -> dict[str, Any]:
    with store.open_store() as db:
        open_turns = db.turns.list(state="running", limit=_MOST)
        lost = sum(cmd_turns.holder_of(db, turn) is None for turn in open_turns)
        last_in, last_out = db.inbox.list(limit=1), db.outbox.list(state="sent", limit=1)
        return {
            "queued": db.inbox.queued_count(), "turns_running": len(open_turns) - lost, "turns_lost": lost,
            "deliveries_waiting": db.outbox.owed_count(), "dead_letters": db.outbox.dead_count(),
            "last_message_at": last_in[0].received_at if last_in else None,
            "last_delivery_at": last_out[0].ended_at if last_out else None,
            "prefix_breaks": db.prefixes.break_count(),
        }  # fmt: skip


def _work_lines(work: dict[str, Any], now: float) -> list[tuple[str, str]]:
    if not work:
        return []
    came, went, lost = work["last_message_at"], work["last_delivery_at"], work["turns_lost"]
    left = f", {lost} left by a lost process and taken up by the next start" if lost else ""
    lines = [
        ("messages", f"{work['queued']} waiting, {work['turns_running']} being answered{left}; "
                     + (f"the last came {span(now - came)} ago" if came else "none yet")),
        ("deliveries", f"{work['deliveries_waiting']} waiting; "
                       + (f"the last went out {span(now - went)} ago" if went else "none yet")),
        ("prefix", text.counted(work["prefix_breaks"], "break")),
    ]  # fmt: skip
    if work["dead_letters"]:
        lines.append(("dead letters", f"{work['dead_letters']}; hermes outbox list --stuck shows them"))
    return lines


def _as_json(seen: Status) -> dict[str, Any]:
    return {
        "running": seen.running, "pid": seen.pid, "silent": seen.silent, "started_at": seen.started_at,
        "heard_at": seen.heard_at, "api": seen.api,
        "platforms": {one.name: {"last_contact": one.last_contact, "problem": one.problem} for one in seen.platforms},
    }  # fmt: skip


def span(seconds: float) -> str:
    """To the second, as long as that says something."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
