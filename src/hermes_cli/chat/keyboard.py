"""What a person types at the line chat: a message of one or several lines, or a short answer to a question.

A message is edited with readline where Python has it; what is pasted is one message however many lines it has, and a
line that ends with a backslash goes on in the next. An answer to a question is read by itself: whatever was typed
before the question appeared is thrown away first, so that no key press meant for something else can answer it.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

if sys.platform != "win32":
    import termios

_CONTINUED = "… "
_PASTE_SECONDS = 0.03
"""Lines that arrive faster than anybody types belong to one paste, where the terminal does not say so itself."""
_LOOK_EVERY = 0.1
_BRACKETED = 0x0801


def in_readline(frame: FrameType | None) -> bool:
    """Whether this code runs inside readline, in a hook or a completer, where whatever is raised is swallowed."""
    called = False
    while frame is not None:
        if frame.f_code is Keyboard._line.__code__:
            return called
        called, frame = True, frame.f_back
    return False


class Keyboard:
    """The person's end of standard input, which is a terminal."""

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
        """One message. Raises EOFError at Ctrl-D and KeyboardInterrupt at Ctrl-C."""
        lines = [self._line(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(_CONTINUED))
        return "\n".join(lines)

    def next(self, prompt: str, say: Callable[[str], None]) -> str | None:
        """One message; None when the person leaves, with Ctrl-D or with Ctrl-C twice."""
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
        """Have it told whenever the prompt stands there, for somebody who shows things above it."""
        self._ready = tell
        if self._readline is not None:
            self._readline.set_pre_input_hook(tell)

    def so_far(self) -> str:
        """What stands in the line that is being typed."""
        return "" if self._readline is None else self._readline.get_line_buffer()

    def answer(self, prompt: str, *, seconds: float | None, over: Callable[[], bool]) -> str | None:
        """A line in answer to a question; None when the time is up, when it is `over`, or at Ctrl-D."""
        self._forget_typed()
        sys.stdout.write(prompt)
        sys.stdout.flush()
        if sys.platform == "win32":
            return sys.stdin.readline().strip()
        deadline = None if seconds is None else time.monotonic() + seconds
        while not over() and (deadline is None or time.monotonic() < deadline):
            if select.select([sys.stdin], [], [], _LOOK_EVERY)[0]:
                line = os.read(sys.stdin.fileno(), 4_096)
                return line.decode("utf-8", "replace").strip() if line else None
        return None

    def prefill(self, text: str) -> bool:
        """Put text into the next message's line, to be edited; False where that cannot be done."""
        self._prefilled = text
        return self._readline is not None

    def remember(self, texts: Iterable[str]) -> None:
        """What the arrow keys bring back."""
        if self._readline is not None:
            for text in texts:
                self._readline.add_history(text)

    def complete(
        self, commands: Callable[[], Sequence[str]], files: Callable[[str], Sequence[str]] = lambda word: ()
    ) -> None:
        """What the tab key offers: commands at the beginning of a line, files behind an @."""
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
            line = line.removeprefix(offered).lstrip()  # a command typed behind the words that were put there
        if not self._whole_pastes and sys.platform != "win32":
            while select.select([sys.stdin], [], [], _PASTE_SECONDS)[0]:
                line += "\n" + input()
        return line

    def _prefill_line(self) -> None:
        if self._prefilled and self._readline is not None:
            self._readline.insert_text(self._prefilled)
            self._prefilled = ""

    def _forget_typed(self) -> None:
        if sys.platform != "win32":
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
