"""`hermes gateway`: run it, start and stop it, see how it is, have it started with the machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hermes_cli.framework import prompts, text
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_yes, positive
from hermes_cli.operate import logs
from hermes_config import config
from hermes_config.errors import ConfigError
from hermes_config.home import ensure_home, hermes_home

_GRACE = 15.0
_FORCED_SECONDS = 3.0


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
        one.add_argument("--force", action="store_true", help="do not wait for running turns; nothing is lost")
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
    log = verbs.add("logs", _logs, help="the end of the gateway's log", example="hermes gateway logs -f")
    logs.add_arguments(log)
    setup = verbs.add(
        "setup", _setup, help="connect a chat platform, step by step", example="hermes gateway setup telegram"
    )
    setup.add_argument("platform", nargs="?", metavar="PLATFORM", help="for example telegram")
    setup.add_argument("--token", metavar="WHERE", help=f"do not ask for it: {prompts.WHERE}")
    setup.add_argument("--no-pair", action="store_true", help="do not wait for the owner's first message")
    setup.add_argument("--owner", metavar="ID", help="your id there, instead of a message with a code")
    setup.add_argument("--wait", type=positive, default=600, metavar="SECONDS", help="for that message (default 600)")
    add_yes(setup)


def _run(args: argparse.Namespace) -> int:
    from gateway import main
    from tui_gateway import ws

    ensure_home()
    ws.mount()
    return main.run_until_ended(config.load(), attached=args.attached)


def _start(args: argparse.Namespace) -> None:
    from hermes_cli.operate import gateway_process

    home = ensure_home()
    if gateway_process.manages(home):
        gateway_process.systemd("start", gateway_process.UNIT)
        print("Started by systemd. hermes gateway status shows how it is.")
        return
    pid = gateway_process.start(home)
    print(f"The gateway runs (process {pid}). hermes gateway status shows how it is.")


def _stop(args: argparse.Namespace) -> None:
    from gateway import status
    from hermes_cli.operate import gateway_process

    home = hermes_home()
    if gateway_process.manages(home):
        gateway_process.systemd("stop", gateway_process.UNIT)
        print("Stopped by systemd.")
    elif status.is_running(home) and _end(home, _drain_or_default(), args.force):
        print("The gateway has ended. What was not finished is taken up at the next start.")
    else:
        print("No gateway is running on this home.")


def _restart(args: argparse.Namespace) -> None:
    from hermes_cli.operate import gateway_process

    home = ensure_home()
    if gateway_process.manages(home):
        gateway_process.systemd("restart", gateway_process.UNIT)
        print("Restarted by systemd.")
        return
    _end(home, _drain(), args.force)
    print(f"The gateway runs (process {gateway_process.start_again(home)}).")


def _end(home: Path, drain: float, force: bool) -> bool:
    """Whether one was running. Whoever waits is told for how long, and how not to."""
    from hermes_cli.operate import gateway_process

    def waits() -> None:
        print(f"Ending: running turns have up to {drain:g} s; --force ends it now, and nothing is lost.",
              file=sys.stderr, flush=True)  # fmt: skip

    if force:
        return gateway_process.stop(home, seconds=_FORCED_SECONDS, force=True)
    return gateway_process.stop(home, seconds=drain + _GRACE, waits=waits)


def _drain_or_default() -> float:
    """A gateway can be ended whatever somebody wrote into its configuration meanwhile."""
    from gateway.config import GatewayConfig

    try:
        return _drain()
    except ConfigError as error:
        print(f"hermes: {text.harmless(error.one_line())}", file=sys.stderr)
        return GatewayConfig().drain_seconds


def _drain() -> float:
    from gateway.config import load_gateway_config

    return load_gateway_config(config.load()).drain_seconds


def _install(args: argparse.Namespace) -> None:
    from hermes_cli.operate import gateway_process

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
    from hermes_cli.operate import gateway_process

    print("Taken out." if gateway_process.uninstall() else "It was not installed.")


def _status(args: argparse.Namespace) -> int:
    from hermes_cli.operate.status import show

    return show(args)


def _setup(args: argparse.Namespace) -> None:
    from hermes_cli.setup import telegram

    telegram.run(args)


def _logs(args: argparse.Namespace) -> None:
    logs.show(("gateway",), lines=args.lines, follow=args.follow)
