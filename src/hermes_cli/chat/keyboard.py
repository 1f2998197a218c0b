"""Reads typed lines in the line chat: a message of one or several lines, or a short answer to a question.

A message is edited with readline if Python has it. A pasted text is one message, however many lines it has, and a line
that ends with a backslash continues on the next. An answer to a question is read separately: everything typed before
the question appeared is discarded, so that no earlier key press can answer it.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

_CONTINUED = "… "
_PASTE_SECONDS = 0.03
"""Lines that arrive faster than a person types are one paste, if the terminal does not mark pastes itself."""
_LOOK_EVERY = 0.1
_BRACKETED = 0x0801


def in_readline(frame: FrameType | None) -> bool:
    """Whether this code runs inside readline (a hook or a completer), which swallows exceptions."""
    called = False
    while frame is not None:
        if frame.f_code is Keyboard._line.__code__:
            return called
        called, frame = True, frame.f_back
    return False


class Keyboard:
    """Reads standard input, which is a terminal."""

    def __init__(self) -> None:
        self._prefilled = ""
        self._whole_pastes = False
        self._ready: Callable[[], None] = lambda: None
        try:
            import readline  # only now: a pipe does not need it
        except ImportError:
            self._readline = None
            return
        self._readline = readline
        gnu = "libedit" not in (readline.__doc__ or "")
        if gnu:
            readline.parse_and_bind("set enable-bracketed-paste on")
            readline.parse_and_bind("tab: complete")
            version = int(vars(readline).get("_READLINE_RUNTIME_VERSION", 0))  # not in the stubs
            self._whole_pastes = version >= _BRACKETED and os.environ.get("TERM", "dumb") != "dumb"
        readline.set_startup_hook(self._prefill_line)
        readline.set_completer_delims(" \n")

    def message(self, prompt: str) -> str:
        """Read one message. Raises EOFError at Ctrl-D and KeyboardInterrupt at Ctrl-C."""
        lines = [self._line(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(_CONTINUED))
        return "\n".join(lines)

    def next(self, prompt: str, say: Callable[[str], None]) -> str | None:
        """Read one message; None when the person leaves with Ctrl-D or two Ctrl-C."""
        warned = False
        while True:
            try:
                return self.message(prompt)
            except EOFError:
                say("")
                return None
            except KeyboardInterrupt:
                say("" if warned else "\n(Ctrl-C again leaves)")
                if warned:
                    return None
                warned = True

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever the prompt is shown, so that the caller can show text above it."""
        self._ready = tell
        if self._readline is not None:
            self._readline.set_pre_input_hook(tell)

    def so_far(self) -> str:
        """Return the text typed so far."""
        return "" if self._readline is None else self._readline.get_line_buffer()

    def answer(self, prompt: str, *, seconds: float | None, over: Callable[[], bool]) -> str | None:
        """Read the answer to a question; None when the time is up, when `over` is true, or at Ctrl-D."""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        sys.stdout.write(prompt)
        sys.stdout.flush()
        deadline = None if seconds is None else time.monotonic() + seconds
        while not over() and (deadline is None or time.monotonic() < deadline):
            if select.select([sys.stdin], [], [], _LOOK_EVERY)[0]:
                line = os.read(sys.stdin.fileno(), 4_096)
                return line.decode("utf-8", "replace").strip() if line else None
        return None

    def prefill(self, text: str) -> bool:
        """Put text into the next prompt for editing; False without readline."""
        self._prefilled = text
        return self._readline is not None

    def remember(self, texts: Iterable[str]) -> None:
        """Add texts to the history of the arrow keys."""
        if self._readline is not None:
            for text in texts:
                self._readline.add_history(text)

    def complete(
        self, commands: Callable[[], Sequence[str]], files: Callable[[str], Sequence[str]] = lambda word: ()
    ) -> None:
        """Set the completions of the tab key: commands at the beginning of a line, files after an @."""
        readline = self._readline
        if readline is None:
            return

        def offered(text: str, state: int) -> str | None:
            if text.startswith("@"):
                fitting = list(files(text))
            elif text.startswith("/") and not readline.get_begidx():
                fitting = [f"{word} " for word in commands() if word.startswith(text)]
            else:
                return None
            return fitting[state] if state < len(fitting) else None

        readline.set_completer(offered)

    def _line(self, prompt: str) -> str:
        if self._readline is None:
            self._ready()
        offered, line = self._prefilled, input(prompt)
        if offered and line.startswith(offered) and line.removeprefix(offered).lstrip().startswith("/"):
            line = line.removeprefix(offered).lstrip()  # a command typed after the prefilled text
        if not self._whole_pastes:
            while select.select([sys.stdin], [], [], _PASTE_SECONDS)[0]:
                line += "\n" + input()
        return line

    def _prefill_line(self) -> None:
        if self._prefilled and self._readline is not None:
            self._readline.insert_text(self._prefilled)
            self._prefilled = ""
