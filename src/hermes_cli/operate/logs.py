"""`hermes logs`: shows the last lines of the agent and gateway logs, and follows new ones.

The log files rotate (`hermes_config.logs`), so this also reads the previous file, and following continues in the new
file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hermes_cli.framework import text
from hermes_cli.framework.parser import Parser, positive
from hermes_config.home import hermes_home

_NAMES = ("agent", "gateway")
_PAUSE = 0.3


def register(parser: Parser) -> None:
    parser.add_examples("", "gateway -f", "agent -n 200")
    parser.add_argument("which", nargs="?", choices=_NAMES, metavar="WHICH", help="agent or gateway (default: both)")
    add_arguments(parser)
    parser.set_defaults(run=_logs)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="show new lines until Ctrl-C")
    parser.add_argument("-n", "--lines", type=positive, default=40, metavar="N", help="how many lines (default 40)")


def _logs(args: argparse.Namespace) -> None:
    show((args.which,) if args.which else _NAMES, lines=args.lines, follow=args.follow)


def show(names: Sequence[str], *, lines: int, follow: bool) -> None:
    """Print the last lines of these logs; with `follow`, new ones until Ctrl-C."""
    folder = hermes_home() / "logs"
    files = [folder / f"{name}.log" for name in names]
    places = {file: _size_and_inode(file) for file in files}  # before reading: `_follow` prints later lines
    for file in files:
        ends = _last_lines(file, lines, places[file][0])
        if len(files) > 1 and ends:
            print(f"== {file.name} ==")
        for line in ends:
            print(text.harmless(line))
    if not any(file.exists() for file in files) and not follow:
        print(f"There are no logs yet ({folder}).")
    if follow:
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the following
            _follow(places)


def _last_lines(file: Path, most: int, size: int) -> list[str]:
    """Return the last lines of a file of this size and of the previous file."""
    kept: deque[str] = deque(maxlen=most)
    for one, until in ((file.with_name(f"{file.name}.1"), -1), (file, size)):
        if one.exists():
            with one.open("rb") as opened:
                kept.extend(opened.read(until).decode("utf-8", "replace").splitlines())
    return list(kept)


def _follow(places: dict[Path, tuple[int, int]]) -> None:
    while True:
        sys.stdout.flush()
        time.sleep(_PAUSE)
        for file, place in places.items():
            places[file] = _print_news(file, *place)


def _size_and_inode(file: Path) -> tuple[int, int]:
    """Return the size and the inode of a file."""
    if not file.exists():
        return 0, 0
    status = file.stat()
    return status.st_size, status.st_ino


def _print_news(file: Path, where: int, known: int) -> tuple[int, int]:
    """Print the complete lines after `where` of the file with the inode `known`; return where they end, and the inode.

    A rotated file is read to its end before its successor.
    """
    if not file.exists():
        return where, known
    number = file.stat().st_ino
    if known and number != known:
        aside = file.with_name(f"{file.name}.1")
        if aside.exists() and aside.stat().st_ino == known:
            _print(aside, where)
        where = 0
    elif file.stat().st_size < where:
        where = 0
    return where + _print(file, where), number


def _print(file: Path, where: int) -> int:
    with file.open("rb") as opened:
        opened.seek(where)
        fresh = opened.read()
    end = fresh.rfind(b"\n") + 1
    for line in fresh[:end].decode("utf-8", "replace").splitlines():
        print(text.harmless(line))
    return end
