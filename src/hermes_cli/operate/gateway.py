"""`hermes gateway`: run, start and stop the gateway, show its health, install it as a service."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from gateway import status
from gateway.config import GatewayConfig, load_gateway_config
from hermes_agent import home_inventory
from hermes_cli.framework import prompts, text
from hermes_cli.framework.parser import Parser, Verbs, positive
from hermes_cli.operate import gateway_process, logs
from hermes_cli.operate.status import NOT_YET, gateway_health
from hermes_config import config
from hermes_config.errors import ConfigError
from hermes_config.home import ensure_home, hermes_home

_GRACE = 15.0
_FORCED_SECONDS = 3.0
_FIRST_CONTACT_SECONDS, _PAUSE = 5.0, 0.05


def register(parser: Parser) -> None:
    parser.set_defaults(run=gateway_health, json=False)
    verbs = Verbs(parser)
    run = verbs.add("run", _run, "run the gateway in this terminal until Ctrl-C")
    run.add_argument(
        "--attached", action="store_true", help="end when standard input closes, so together with the parent process"
    )
    verbs.add("start", _start, "start the gateway in the background")
    stop = verbs.add("stop", _stop, "stop the gateway after its running turns", "", "--force")
    restart = verbs.add("restart", _restart, "stop the gateway and start it again")
    for one in (stop, restart):
        one.add_argument("--force", action="store_true", help="do not wait for running turns; nothing is lost")
    health = "show the gateway's health, from locks and heartbeats; exit code 1 when none runs"
    verbs.add("status", gateway_health, health, "--json", json=True)
    install = verbs.add("install", _install, "start the gateway with the machine (systemd user unit)", "", "--print")
    install.add_argument("--print", action="store_true", help="only print the unit")
    verbs.add("uninstall", _uninstall, "remove the systemd unit")
    logs.add_arguments(verbs.add("logs", _logs, "show the end of the gateway's log", "-f"))
    setup = verbs.add("setup", _setup, "connect a chat platform, step by step", "{platform}", yes=True)
    setup.add_argument("platform", nargs="?", metavar="PLATFORM", help="for example {platform}")
    setup.add_argument("--token", metavar="WHERE", help=f"the bot's token: {prompts.SECRET_FROM}")
    setup.add_argument("--no-pair", action="store_true", help="do not wait for the owner's first message")
    setup.add_argument("--owner", metavar="ID", help="your id on the platform, instead of a message with a code")
    setup.add_argument(
        "--wait", type=positive, default=600, metavar="SECONDS", help="how long to wait for that message (default 600)"
    )


def _run(args: argparse.Namespace) -> int:
    from gateway import main
    from tui_gateway import ws

    ensure_home()
    ws.mount()
    return main.run_until_ended(config.load(), attached=args.attached)


def _start(args: argparse.Namespace) -> None:
    home = ensure_home()
    home_inventory.require_acknowledged(config.load())  # also here: the started process would report it only in a log
    if gateway_process.manages(home):
        gateway_process.systemd("start", gateway_process.UNIT)
        print("Started by systemd. hermes gateway status shows its health.")
        return
    began = time.time()
    _say_running(home, gateway_process.start(home), began)


def _stop(args: argparse.Namespace) -> None:
    home = hermes_home()
    if gateway_process.manages(home):
        gateway_process.systemd("stop", gateway_process.UNIT)
        print("Stopped by systemd.")
    elif status.is_running(home) and _end(home, _drain_or_default(), args.force):
        print("The gateway has stopped. Its unfinished turns continue at the next start.")
    else:
        print("No gateway is running on this home.")


def _restart(args: argparse.Namespace) -> None:
    home = ensure_home()
    home_inventory.require_acknowledged(config.load())  # before anything is stopped
    if gateway_process.manages(home):
        gateway_process.systemd("restart", gateway_process.UNIT)
        print("Restarted by systemd.")
        return
    _end(home, _drain(), args.force)
    began = time.time()
    _say_running(home, gateway_process.start_again(home), began)


def _say_running(home: Path, pid: int, began: float) -> None:
    """Say that the gateway runs and, when they are known or after a few seconds, how its platforms are."""
    print(f"The gateway is running (process {pid}). hermes gateway status shows its health.", flush=True)
    until = time.monotonic() + _FIRST_CONTACT_SECONDS
    while True:
        seen = status.read_status(home)
        known = seen.heard_at is not None and seen.heard_at >= began and all(map(_is_known, seen.platforms))
        if known or not seen.running or time.monotonic() >= until:
            break
        time.sleep(_PAUSE)
    for one in seen.platforms:
        print(text.harmless(f"{one.name}: {one.problem or ('connected' if one.last_contact else NOT_YET)}"))


def _is_known(one: status.PlatformStatus) -> bool:
    return one.last_contact is not None or one.problem not in ("", NOT_YET)


def _end(home: Path, drain: float, force: bool) -> bool:
    """Stop the gateway; return whether one was running. A message says how long that takes and how to skip the wait."""

    def waits() -> None:
        said = f"Stopping: running turns have up to {drain:g} s. --force stops the gateway now; nothing is lost."
        print(said, file=sys.stderr, flush=True)

    if force:
        return gateway_process.stop(home, seconds=_FORCED_SECONDS, force=True)
    return gateway_process.stop(home, seconds=drain + _GRACE, waits=waits)


def _drain_or_default() -> float:
    """Return the drain time; the default if the configuration does not load, so that stopping always works."""
    try:
        return _drain()
    except ConfigError as error:
        print(f"hermes: {text.harmless(error.one_line())}", file=sys.stderr)
        return GatewayConfig().drain_seconds


def _drain() -> float:
    return load_gateway_config(config.load()).drain_seconds


def _install(args: argparse.Namespace) -> None:
    home, drain = ensure_home(), _drain()
    if args.print:
        print(gateway_process.unit_text(home, drain=drain), end="")
        return
    print(f"Written: {gateway_process.install(home, drain=drain)}")
    if gateway_process.systemd("daemon-reload") and gateway_process.systemd("enable", "--now", gateway_process.UNIT):
        print("The gateway runs now and after each login; loginctl enable-linger runs it without a login.")
    else:
        print(f"systemd does not answer here. When it does, run: systemctl --user enable --now {gateway_process.UNIT}")


def _uninstall(args: argparse.Namespace) -> None:
    print("The unit is removed." if gateway_process.uninstall() else "The unit was not installed.")


def _setup(args: argparse.Namespace) -> None:
    from hermes_cli.setup import platform

    platform.run(args)


def _logs(args: argparse.Namespace) -> None:
    logs.show(("gateway",), lines=args.lines, follow=args.follow)
