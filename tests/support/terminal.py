"""A person at a terminal: starts a program on a pseudo-terminal, waits for words, types, presses keys.

    with Terminal([sys.executable, "-m", "hermes_cli"], env=…) as terminal:
        terminal.ready("> ")
        terminal.type("hello")
        terminal.press("ctrl-d")
        assert terminal.end() == 0

`shown` is what would stand on the screen if it were long enough: carriage returns and erased lines are applied, colours
left out. For POSIX systems.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_KEYS = {"enter": "\r", "ctrl-c": "\x03", "ctrl-d": "\x04", "tab": "\t", "up": "\x1b[A", "backspace": "\x7f"}
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>]")
_PASTE = "\x1b[200~{}\x1b[201~"


class Terminal:
    """A window of `columns` × `lines` with a program in it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        columns: int = 80,
        lines: int = 50,
        seconds: float = 30.0,
    ) -> None:
        self._seconds = seconds
        self._raw = b""
        self._code: int | None = None
        environment = {**os.environ, "TERM": "xterm", **(env or {})}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.pid, self._window = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            if cwd is not None:
                os.chdir(cwd)
            os.execvpe(command[0], list(command), environment)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._window)

    def type(self, line: str) -> None:
        """A line, with Enter."""
        os.write(self._window, f"{line}\r".encode())

    def keys(self, text: str) -> None:
        """Some characters, without Enter."""
        os.write(self._window, text.encode())

    def paste(self, text: str) -> None:
        """Several lines at once, as a terminal hands them over."""
        os.write(self._window, _PASTE.format(text.replace("\n", "\r")).encode())

    def press(self, key: str) -> None:
        os.write(self._window, _KEYS[key].encode())

    def see(self, words: str, *, times: int = 1, seconds: float | None = None) -> str:
        """Wait until the words stand on the screen so many times; what stands there then."""
        deadline = time.monotonic() + (seconds or self._seconds)
        while (shown := self.shown).count(words) < times:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} was not shown {times} times, but:\n{shown}")
        return shown

    def ready(self, prompt: str = "> ") -> str:
        """Wait until the program waits for a line: the prompt stands last, and nothing behind it."""
        deadline = time.monotonic() + self._seconds
        while not (shown := self.shown).endswith(f"\n{prompt}"):
            if not self._read(deadline):
                raise AssertionError(f"there is no prompt {prompt!r}, but:\n{shown}")
        return shown

    def end(self) -> int:
        """Wait until the program ends; its exit code."""
        deadline = time.monotonic() + self._seconds
        while self._read(deadline):
            pass
        while self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"the program did not end:\n{self.shown}")
            else:
                time.sleep(0.01)
        return self._code

    @property
    def raw(self) -> str:
        return self._raw.decode("utf-8", "replace")

    @property
    def shown(self) -> str:
        return rendered(self.raw)

    def _read(self, deadline: float) -> bool:
        """Some more of what the program writes; False when it has closed its end, or time is up."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._window], [], [], left)[0]:
            return False
        try:
            part = os.read(self._window, 65_536)
        except OSError:  # the way Linux says that the other side has gone
            return False
        self._raw += part
        return bool(part)


def rendered(raw: str) -> str:
    """The lines that remain to be read."""
    lines: list[list[str]] = [[]]
    at = 0
    place = 0
    while place < len(raw):
        sequence = _SEQUENCE.match(raw, place)
        if sequence:
            if sequence[2] == "K":
                del lines[-1][at:]
            elif sequence[2] == "C":
                at += int(sequence[1] or 1)
            place = sequence.end()
            continue
        character = raw[place]
        place += 1
        if character == "\n":
            lines.append([])
            at = 0
        elif character == "\r":
            at = 0
        elif character == "\b":
            at = max(0, at - 1)
        elif character >= " ":
            lines[-1][at : at + 1] = [character]
            at += 1
    *above, last = ("".join(line) for line in lines)
    return "\n".join([*(line.rstrip() for line in above), last])
