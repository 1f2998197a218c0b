"""`hermes gateway`: run it, start and stop it, see how it is, have it started with the machine."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from hermes_cli import output, text
from hermes_cli.parser import Parser, Verbs, add_json, add_yes, positive
from hermes_config import config
from hermes_config.home import ensure_home, hermes_home

if TYPE_CHECKING:
    from gateway.status import Status

_GRACE = 15.0


def register(parser: Parser) -> None:
    parser.set_defaults(run=_status, json=False)
    verbs = Verbs(parser)
    run = verbs.add("run", _run, help="run the gateway in this terminal until Ctrl-C", example="hermes gateway run")
    run.add_argument("--attached", action="store_true", help="end when standard input closes: with whoever started it")
    verbs.add("start", _start, help="start the gateway in the background", example="hermes gateway start")
    stop = verbs.add(
        "stop", _stop, help="end the gateway; running turns may end first",
        example="hermes gateway stop\nhermes gateway stop --force",
    )  # fmt: skip
    restart = verbs.add("restart", _restart, help="stop it and start it again", example="hermes gateway restart")
    for one in (stop, restart):
        one.add_argument("--force", action="store_true", help="kill it when it does not end in time; nothing is lost")
    add_json(
        verbs.add(
            "status",
            _status,
            help="what the gateway is doing, from evidence; 1 when none runs",
            example="hermes gateway status --json",
        )
    )
    install = verbs.add(
        "install", _install, help="have it started with the machine (systemd user unit)",
        example="hermes gateway install\nhermes gateway install --print",
    )  # fmt: skip
    install.add_argument("--print", action="store_true", help="only print the unit")
    verbs.add("uninstall", _uninstall, help="take the unit out again", example="hermes gateway uninstall")
    logs = verbs.add("logs", _logs, help="the end of the gateway's log", example="hermes gateway logs -f")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    logs.add_argument("-n", "--lines", type=positive, default=40, metavar="N", help="how many lines (default 40)")
    setup = verbs.add(
        "setup", _setup, help="connect a chat platform, step by step", example="hermes gateway setup telegram"
    )
    setup.add_argument("platform", nargs="?", metavar="PLATFORM", help="for example telegram")
    setup.add_argument("--token", metavar="TOKEN", help="do not ask for it (- reads it from standard input)")
    setup.add_argument("--no-pair", action="store_true", help="do not wait for the owner's first message")
    setup.add_argument("--owner", metavar="ID", help="your id there, instead of a message with a code")
    setup.add_argument("--wait", type=positive, default=600, metavar="SECONDS", help="for that message (default 600)")
    add_yes(setup)


def _run(args: argparse.Namespace) -> int:
    import asyncio

    from gateway import main
    from tui_gateway import ws

    ensure_home()
    ws.mount()
    return asyncio.run(main.serve(config.load(), attached=args.attached))


def _start(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_process

    home = ensure_home()
    if gateway_process.manages(home):
        gateway_process.systemd("start", gateway_process.UNIT)
        print("Started by systemd. hermes gateway status shows how it is.")
        return
    pid = gateway_process.start(home)
    print(f"The gateway runs (process {pid}). hermes gateway status shows how it is.")


def _stop(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_process

    home = hermes_home()
    if gateway_process.manages(home):
        gateway_process.systemd("stop", gateway_process.UNIT)
        print("Stopped by systemd.")
    elif gateway_process.stop(home, seconds=_drain() + _GRACE, force=args.force):
        print("The gateway has ended. What was not finished is taken up at the next start.")
    else:
        print("No gateway is running on this home.")


def _restart(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_process

    home = ensure_home()
    if gateway_process.manages(home):
        gateway_process.systemd("restart", gateway_process.UNIT)
        print("Restarted by systemd.")
        return
    gateway_process.stop(home, seconds=_drain() + _GRACE, force=args.force)
    print(f"The gateway runs (process {gateway_process.start_again(home)}).")


def _drain() -> float:
    from gateway.config import load_gateway_config

    return load_gateway_config(config.load()).drain_seconds


def _install(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_process

    home, drain = ensure_home(), _drain()
    if args.print:
        print(gateway_process.unit_text(home, drain=drain), end="")
        return
    print(f"Written: {gateway_process.install(home, drain=drain)}")
    if gateway_process.systemd("daemon-reload") and gateway_process.systemd("enable", "--now", gateway_process.UNIT):
        print("It runs now and after each login; loginctl enable-linger lets it run without one.")
    else:
        print(f"systemd does not answer here. Where it does: systemctl --user enable --now {gateway_process.UNIT}")


def _uninstall(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_process

    print("Taken out." if gateway_process.uninstall() else "It was not installed.")


def _setup(args: argparse.Namespace) -> None:
    from hermes_cli import gateway_setup

    gateway_setup.run(args)


# -- logs ----------------------------------------------------------------------------------------------------


def _logs(args: argparse.Namespace) -> None:
    file = hermes_home() / "logs" / "gateway.log"
    if not file.exists():
        print(f"There is no log yet: {file}")
        return
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-args.lines :]
    for line in lines:
        print(text.harmless(line))
    if args.follow:
        _follow(file)


def _follow(file: Any) -> None:
    """New lines as they come; a file that was put aside is followed by its successor."""
    where, known = file.stat().st_size, file.stat().st_ino
    try:
        while True:
            sys.stdout.flush()
            time.sleep(0.3)
            now = file.stat()
            if now.st_ino != known or now.st_size < where:
                where, known = 0, now.st_ino
            with file.open("rb") as opened:
                opened.seek(where)
                fresh = opened.read()
            end = fresh.rfind(b"\n") + 1
            where += end
            for line in fresh[:end].decode("utf-8", "replace").splitlines():
                print(text.harmless(line))
    except (KeyboardInterrupt, FileNotFoundError):
        return


# -- status --------------------------------------------------------------------------------------------------


def _status(args: argparse.Namespace) -> int:
    from gateway import status

    home = hermes_home()
    seen = status.read_status(home)
    work = _work() if (home / "state.db").exists() or config.load().database_url() else {}
    if args.json:
        output.print_json({"home": str(home), **_as_json(seen), **work})
        return 0 if seen.running else 1
    lines = [("home", str(home)), ("gateway", _gateway(seen))]
    lines += [(one.name, _platform(one, seen.at)) for one in seen.platforms]
    if seen.api:
        lines.append(("api", seen.api))
    lines += _work_lines(work, seen.at)
    wide = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{wide}}{text.harmless(value)}" for name, value in lines))
    return 0 if seen.running else 1


def _gateway(seen: Status) -> str:
    if not seen.running:
        return "not running; hermes gateway start starts it"
    process = f"process {seen.pid}" if seen.pid else "a process that left no number"
    if seen.silent:
        since = f"for {_span(seen.at - seen.heard_at)}" if seen.heard_at else "since its start"
        return f"{process} holds the lock but was not heard of {since}; hermes gateway restart --force"
    up = f", up {_span(seen.at - seen.started_at)}" if seen.started_at else ", starting"
    drains = ", ending its turns" if seen.facts.get("draining") else ""
    return f"runs ({process}{up}{drains})"


def _platform(one: Any, now: float) -> str:
    heard = f"heard {_span(now - one.last_contact)} ago" if one.last_contact else "not connected yet"
    return f"{heard} — {one.problem}" if one.problem else heard


def _work() -> dict[str, Any]:
    """What the store says, whether a gateway runs or not."""
    from hermes_cli import store

    with store.open_store() as db:
        inbox, outbox, turns = db.inbox.counts(), db.outbox.counts(), db.turns.counts()
        last_in, last_out = db.inbox.list(limit=1), db.outbox.list(state="sent", limit=1)
        return {
            "queued": inbox.get("queued", 0), "turns_running": turns.get("running", 0),
            "deliveries_waiting": outbox.get("pending", 0) + outbox.get("sending", 0),
            "dead_letters": outbox.get("failed", 0) + outbox.get("unknown", 0),
            "last_message_at": last_in[0].received_at if last_in else None,
            "last_delivery_at": last_out[0].ended_at if last_out else None,
            "prefix_breaks": db.prefixes.break_count(),
        }  # fmt: skip


def _work_lines(work: dict[str, Any], now: float) -> list[tuple[str, str]]:
    if not work:
        return []
    came, went = work["last_message_at"], work["last_delivery_at"]
    lines = [
        ("messages", f"{work['queued']} waiting, {work['turns_running']} being answered; "
                     + (f"the last came {_span(now - came)} ago" if came else "none yet")),
        ("deliveries", f"{work['deliveries_waiting']} waiting; "
                       + (f"the last went out {_span(now - went)} ago" if went else "none yet")),
        ("prefix", f"{work['prefix_breaks']} breaks"),
    ]  # fmt: skip
    if work["dead_letters"]:
        lines.append(("dead letters", f"{work['dead_letters']}; hermes outbox list --dead shows them"))
    return lines


def _as_json(seen: Status) -> dict[str, Any]:
    return {
        "running": seen.running, "pid": seen.pid, "silent": seen.silent, "started_at": seen.started_at,
        "heard_at": seen.heard_at, "api": seen.api,
        "platforms": {one.name: {"last_contact": one.last_contact, "problem": one.problem} for one in seen.platforms},
    }  # fmt: skip


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
