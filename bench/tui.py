"""The terminal, measured from another process: how quickly `hermes` starts, paints, hears keys and shows much.

A key is timed from the moment it is written to a pseudo-terminal to the moment the changed cell of the editor's line
comes out of it, while an answer of the demo model streams at 200 tokens a second. A hole is a screen of the long
conversation, met while scrolling up page by page, with more empty lines together than there are anywhere in it.
Commands without a window are given as a ratio to `python -c pass`, run in turns with them. `--quick` takes fewer
rounds.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_ROWS, _COLUMNS = 24, 80
_EDITOR = re.compile(rf"\x1b\[{_ROWS - 1};\d+H([^\n\x1b]*)".encode())
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_CONFIG = "model: demo\nauto_title: false\ndemo:\n  tokens_per_second: 200\n"
_PAINT, _KEY, _OPEN = 0.600, 0.016, 0.700
_STARTS = (
    ("hermes --version", ("--version",), 3.0),
    ("hermes --help", ("--help",), 3.0),
    ("hermes sessions list, piped", ("sessions", "list"), 6.0),
)
_PAGE_UP, _EMPTY_TOGETHER = b"\x1b[5~", 2
_PARTS = ("paint", "keys", "long", "scroll", "start")
Row = tuple[str, str, bool]
"""(what, the figure and its bound, whether it holds)."""
_LONG = "20261101_100000_aaaaaaaa"
_PROMPT = "❯ ".encode()


def _environment(home: Path) -> dict[str, str]:
    """As after an installation: modules are compiled once, here into the folder of the measurement."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "HERMES_HOME": str(home), "PYTHONPYCACHEPREFIX": str(home.parent / "compiled")}


class Window:
    """`hermes` in a terminal of 80 × 24."""

    def __init__(self, home: Path, *arguments: str) -> None:
        environment = {
            **_environment(home), "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "", "LINES": "",
        }  # fmt: skip
        self.began = time.perf_counter()
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "hermes_cli", *arguments], environment)
        self.out = b""

    def read(self, seconds: float) -> bool:
        if not select.select([self._end], [], [], max(0.0, seconds))[0]:
            return False
        try:
            self.out += os.read(self._end, 1 << 16)
        except OSError:
            return False
        return True

    def until(self, seen: Callable[[bytes], bool], seconds: float = 30.0) -> float:
        """When it was seen."""
        deadline = time.perf_counter() + seconds
        while not seen(self.out):
            if not self.read(deadline - time.perf_counter()) and time.perf_counter() >= deadline:
                raise SystemExit(f"bench: it was not seen in {seconds:.0f} s:\n{self.out[-2000:]!r}")
        return time.perf_counter()

    def write(self, keys: bytes) -> float:
        at = time.perf_counter()
        os.write(self._end, keys)
        return at

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            self.read(0.05)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
        os.close(self._end)


def _plain(out: bytes) -> bytes:
    return _COLOURS.sub(b"", out)


def first_paint(home: Path) -> float:
    window = Window(home)
    try:
        return window.until(lambda out: _PROMPT in out) - window.began
    finally:
        window.close()


def keys(home: Path, count: int) -> list[float]:
    """Seconds from key to cell, while the long story streams."""
    window = Window(home)
    try:
        window.until(lambda out: b"ready" in _plain(out))
        window.write(b"tell me the long story\r")
        window.until(lambda out: b"writing" in _plain(out))
        found = []
        for number in range(count):
            mark, key = len(window.out), b"abcdefghijklmnopqrst"[number % 20 :][:1]
            if number and number % 20 == 0:
                window.write(b"\x15")  # Ctrl+U: a fresh line
                _drain(window, 0.1)
                mark = len(window.out)
            at = window.write(key)
            seen = window.until(lambda out, mark=mark, key=key: _typed(out[mark:], key), 5.0)
            found.append(seen - at)
            _drain(window, 0.023 + number % 7 / 300)
        return found
    finally:
        window.close()


def _typed(out: bytes, key: bytes) -> bool:
    return any(key in found for found in _EDITOR.findall(_plain(out)))


def _drain(window: Window, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        window.read(until - time.perf_counter())


def long_home(folder: Path) -> Path:
    """A home with a conversation of 5,000 messages."""
    from hermes_state import SessionDB

    home = folder / "long"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(_CONFIG)
    db = SessionDB(home / "state.db")
    db.create_session(_LONG, "cli")
    for number in range(2_500):
        db.append_message(_LONG, "user", f"Question {number}: what of the *thing* we spoke of?")
        code = f"```python\ndef f{number}(x):\n    return x * {number}\n```"
        db.append_message(_LONG, "assistant", f"Answer {number}.\n\n- one point\n- another\n\n{code}\n\nThat is all.")
    db.close()
    return home


def opened(home: Path) -> float:
    window = Window(home, "--resume", _LONG)
    try:
        return window.until(lambda out: b"Answer 2499." in _plain(out)) - window.began
    finally:
        window.close()


def scrolled(home: Path, pages: int) -> tuple[int, float]:
    """(holes, the median time of a page) on the way up from the end."""
    from tests.support.screen_terminal import Grid

    window, grid, holes, times = Window(home, "--resume", _LONG), Grid(_COLUMNS, _ROWS), 0, []
    try:
        window.until(lambda out: b"Answer 2499." in _plain(out) and b"ready" in _plain(out))
        _drain(window, 0.3)
        fed = 0
        for _ in range(pages):
            mark, at = len(window.out), window.write(_PAGE_UP)
            times.append(window.until(lambda out, mark=mark: len(out) > mark, 5.0) - at)
            _drain(window, 0.06)
            grid.feed(window.out[fed:].decode("utf-8", "replace"))
            fed = len(window.out)
            holes += _has_hole(grid.text)
    finally:
        window.close()
    return holes, statistics.median(times)


def _has_hole(screen: str) -> bool:
    empty = longest = 0
    for line in screen.split("\n")[: _ROWS - 2]:
        empty = 0 if line.strip(" ▁▂▃▄▅▆▇█") else empty + 1
        longest = max(longest, empty)
    return longest > _EMPTY_TOGETHER


def starts(home: Path, rounds: int) -> list[Row]:
    """Each command, in turns with a Python that does nothing."""
    hermes, environment = str(Path(sys.executable).with_name("hermes")), _environment(home)
    rows = []
    for what, arguments, most in _STARTS:
        pairs = [
            (_run([sys.executable, "-c", "pass"], environment), _run([hermes, *arguments], environment))
            for _ in range(rounds + 1)
        ][1:]
        floor, took = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = took / floor
        rows.append((what, f"{ratio:6.2f} ×   ≤ {most:.0f} ×   ({took * 1000:.0f} ms)", ratio <= most))
    return rows


def _run(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _bounded(what: str, measured: float, most: float, more: str = "") -> Row:
    return what, f"{measured * 1000:6.1f} ms  ≤ {most * 1000:.0f} ms{more}", measured <= most


def measured(parts: Sequence[str], folder: Path, *, quick: bool) -> Iterator[Row]:
    rounds, count = (3, 60) if quick else (9, 300)
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(_CONFIG)
    first_paint(home)  # warms the disk's cache
    if "paint" in parts:
        paint = statistics.median(first_paint(home) for _ in range(rounds))
        yield _bounded("first paint, median", paint, _PAINT)
    if "keys" in parts:
        pressed = sorted(keys(home, count))
        p50, p95 = pressed[len(pressed) // 2], pressed[int(len(pressed) * 0.95)]
        more = f"   (median {p50 * 1000:.1f}, worst {pressed[-1] * 1000:.1f} of {len(pressed)})"
        yield _bounded("key to cell while 200 tokens/s stream, p95", p95, _KEY, more)
    if {"long", "scroll", "start"} & set(parts):
        long = long_home(folder)
    if "long" in parts:
        opening = statistics.median(opened(long) for _ in range(rounds))
        yield _bounded("5,000 messages, start to the last one painted, median", opening, _OPEN)
    if "scroll" in parts:
        pages = 20 if quick else 150
        holes, page = scrolled(long, pages)
        yield (
            f"holes in {pages} pages of it, scrolled up",
            f"{holes:6}     = 0   ({page * 1000:.0f} ms a page)",
            not holes,
        )
    if "start" in parts:
        yield from starts(long, 5 if quick else 15)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tui", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a verdict")
    parser.add_argument("--only", choices=_PARTS, action="append", help="this part; may be given again")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path()) as name:
        for what, figure, holds in measured(args.only or _PARTS, Path(name).resolve(), quick=args.quick):
            print(f"  {'✓' if holds else '✗'} {what:<54} {figure}", flush=True)
            failed += not holds
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
