"""The terminal window, measured through a pseudo-terminal from another process: first paint, keys, a long conversation.

A key is timed from the moment it is written to the terminal to the moment the changed cell of the editor's line comes
out of it, while an answer of the demo model streams at 200 tokens a second. `--quick` takes fewer rounds.
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
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

_ROWS, _COLUMNS = 24, 80
_EDITOR = re.compile(rf"\x1b\[{_ROWS - 1};\d+H([^\n\x1b]*)".encode())
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_CONFIG = "model: demo\nauto_title: false\ndemo:\n  tokens_per_second: 200\n"
_PAINT, _KEY, _OPEN = 0.600, 0.016, 0.700
_LONG = "20261101_100000_aaaaaaaa"
_PROMPT = "❯ ".encode()


class Window:
    """`hermes` in a terminal of 80 × 24."""

    def __init__(self, home: Path, *arguments: str) -> None:
        environment = {
            **os.environ, "HERMES_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "",
            "LINES": "",
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tui", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a verdict")
    args = parser.parse_args()
    rounds, count = (3, 60) if args.quick else (9, 300)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path()) as name:
        folder = Path(name).resolve()
        home = folder / "home"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text(_CONFIG)
        first_paint(home)  # warms the disk's cache
        paint = statistics.median(first_paint(home) for _ in range(rounds))
        pressed = sorted(keys(home, count))
        long = long_home(folder)
        opening = statistics.median(opened(long) for _ in range(rounds))
    p50, p95 = pressed[len(pressed) // 2], pressed[int(len(pressed) * 0.95)]
    rows = [
        ("first paint, median", paint, _PAINT),
        ("key to cell while 200 tokens/s stream, p95", p95, _KEY),
        ("5,000 messages, start to the last one painted, median", opening, _OPEN),
    ]
    for what, measured, most in rows:
        print(f"  {'✓' if measured <= most else '✗'} {what:<54} {measured * 1000:7.1f} ms  ≤ {most * 1000:.0f} ms")
    print(f"    key to cell, median {p50 * 1000:.1f} ms, worst {pressed[-1] * 1000:.1f} ms of {len(pressed)}")
    return 0 if all(measured <= most for _, measured, most in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
