"""`python -m hermes_testing.telegram`: the fake in a process of its own.

    python -m hermes_testing.telegram --port 0 --people ada,mallory --announce phone.json

The first line it prints is its address. It ends with SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from hermes_testing.telegram.faults import NAMED, Fault
from hermes_testing.telegram.server import TOKEN, FakeTelegram, announce


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hermes_testing.telegram",
        description="A pretend Telegram on loopback that speaks the real Bot API.",
        epilog="example: python -m hermes_testing.telegram --people ada,mallory --announce phone.json",
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--token", default=TOKEN, help="the bot's token")
    parser.add_argument("--username", default="hermes_demo_bot", help="the bot's username")
    parser.add_argument(
        "--people", default="", help="who is there from the start: ada,mallory or ada=4201,mallory=4202"
    )
    parser.add_argument("--started", default="", help="which of them the bot may write to already: ada")
    parser.add_argument("--flood", choices=tuple(NAMED), default="usual", help="flood control; as real as it is known")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="JSON", help='{"kind": "drop_after", "times": 1}'
    )
    parser.add_argument("--seed", type=int, default=0, help="of the faults' dice")
    parser.add_argument("--announce", type=Path, help="a file to write address and token to, for phones")
    parser.add_argument(
        "--attached", action="store_true", help="end when standard input closes: with whoever started it"
    )
    arguments = parser.parse_args()
    try:
        faults = [Fault.of(json.loads(raw)) for raw in arguments.fault]
        fake = FakeTelegram(
            token=arguments.token, username=arguments.username, flood=NAMED[arguments.flood], faults=faults,
            seed=arguments.seed,
        )  # fmt: skip
        fake.start(arguments.port)
    except (OSError, ValueError) as error:
        parser.exit(1, f"hermes_testing.telegram: {error}\n")
    for named in filter(None, arguments.people.split(",")):
        name, _equals, number = named.partition("=")
        fake.person(name, number=int(number) if number else None, started=name in arguments.started.split(","))
    if arguments.announce is not None:
        announce(arguments.announce, fake.address, arguments.token)
    print(fake.address, flush=True)
    _until_told(attached=arguments.attached)
    fake.stop()


def _until_told(*, attached: bool) -> None:
    told = threading.Event()
    if attached:
        threading.Thread(target=_when_left_alone, args=(told,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: told.set())
    while not told.wait(1.0):  # a wait without end would not let a signal through on every system
        pass


def _when_left_alone(told: threading.Event) -> None:
    sys.stdin.read()  # returns when nobody holds the other end any more
    told.set()


if __name__ == "__main__":
    main()
