"""Output of commands: answers as lines or JSON, tables, name-value lines, pages, colours and progress.

A command returns a `CommandAnswer`, and `main` prints it: one JSON document with `--json`, else lines for people.

A terminal gets columns that fit the window, colours and a pager; a pipe gets the same text uncut and plain. This module
makes cells and values harmless, so a command passes stored text unchanged. Tables are drawn by hand: the best library
for it costs more start-up time than the rest of the command.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from hermes_cli.framework import text
from hermes_config.errors import HermesError

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_GAP = "  "
_NARROWEST = 8


class Column(NamedTuple):
    """A column of a table. In a narrow window a column that `shrinks` gets shorter, at first only down to `keeps`."""

    title: str
    right: bool = False
    shrinks: bool = False
    keeps: int = _NARROWEST


def columns(*titles: str) -> tuple[Column, ...]:
    """Make columns from titles: `>Age` is right-aligned, `Title…` may shrink, `Title…20` shrinks below 20 last."""
    made = []
    for spec in titles:
        title, shrinks, keeps = spec.removeprefix(">").partition("…")
        made.append(Column(title, spec.startswith(">"), bool(shrinks), int(keeps or _NARROWEST)))
    return tuple(made)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def window() -> int | None:
    """Return the columns of the terminal; None for a pipe, which gets uncut lines."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def complain(line: str) -> None:
    """Print an error as one line on stderr; at a terminal it is wrapped between words."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
    print("\n".join(text.wrapped(f"hermes: {line}", columns or None)), file=sys.stderr, flush=True)


def style(content: str, name: str) -> str:
    """Return the text in a colour or weight if stdout is a terminal that shows colours."""
    if not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return content
    return f"\x1b[{_STYLES[name]}m{content}\x1b[0m"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Draw rows under titles, as wide as the window; without a limit in a pipe."""
    cells = [[text.harmless(cell) for cell in row] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(text.width, line)) for line in zip(titles, *cells, strict=True)]
    if (available := window()) is not None:
        widths = _fit(columns, widths, available)
    lines = [style(_line(columns, titles, widths), "dim")]
    lines += [_line(columns, row, widths) for row in cells]
    return "\n".join(lines)


def _fit(columns: Sequence[Column], widths: list[int], window: int) -> list[int]:
    """Shorten the widest column that may shrink, one character at a time, until the table fits."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - window
    for floors in ([column.keeps for column in columns], [_NARROWEST] * len(columns)):
        while excess > 0:
            shrinkable = [i for i, column in enumerate(columns) if column.shrinks and fitted[i] > floors[i]]
            if not shrinkable:
                break
            fitted[max(shrinkable, key=fitted.__getitem__)] -= 1
            excess -= 1
    return fitted


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = (
        text.pad(text.shorten(cell, wide), wide, right=column.right)
        for column, cell, wide in zip(columns, cells, widths, strict=True)
    )
    return _GAP.join(parts).rstrip()


class CommandAnswer:
    """The answer of a command: a `document` for programs; `sentences`, then the `drawn` text, for people.

    `print` makes sentences harmless; `drawn` comes from `table`, `facts` and `style` and is paged if `pages`. `notes`
    go to stderr. `error` is raised after the answer is printed: the command succeeded only in part.
    """

    def __init__(
        self, document: Any, *sentences: str, drawn: str | Callable[[], str] = "", pages: bool = True,
        notes: Iterable[str] = (), code: int = 0, error: HermesError | None = None,
    ) -> None:  # fmt: skip
        self._document, self._sentences, self._drawn, self._pages = document, sentences, drawn, pages
        self._notes, self._code, self._error = notes, code, error

    def print(self, *, as_json: bool) -> int:
        """Print it and return the exit code."""
        if as_json:
            print_json(self._document)
        else:
            for sentence in self._sentences:
                print(text.harmless(sentence))
            if drawn := self._drawn() if callable(self._drawn) else self._drawn:
                page(drawn) if self._pages else print(drawn)
            for note in self._notes:
                print(text.harmless(note), file=sys.stderr)
        if self._error is not None:
            raise self._error
        return self._code


def list_answer(
    document: Any, columns: Sequence[Column], cells: Sequence[Sequence[str]], *, nothing: str, notes: Iterable[str] = ()
) -> CommandAnswer:
    """Make the answer of a list command: a table with `notes` below it, or the sentence `nothing` for an empty list."""
    return (
        CommandAnswer(document, drawn=lambda: table(columns, cells), notes=notes)
        if cells
        else CommandAnswer(document, nothing)
    )


def print_json(value: Any) -> None:
    """Print one JSON document; characters that the stream cannot carry or a terminal would obey become escapes."""
    import json

    document = json.dumps(value, ensure_ascii=False, indent=2 if is_terminal() else None, default=str)
    try:
        document.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a stream that is not Unicode: escapes lose nothing
        document = json.dumps(value, indent=2 if is_terminal() else None, default=str)
    print(text.harmless_json(document))


def page(content: str) -> None:
    """Print a text; at a terminal, a text longer than the window goes through `$PAGER` (or less)."""
    if not is_terminal():
        print(content)
        return
    window = shutil.get_terminal_size()
    if sum(1 + len(line) // window.columns for line in content.split("\n")) + 1 < window.lines:
        print(content)
        return
    # LESSSECURE: the pager shows text from strangers, so it gets no shell and no editor.
    environment = {"LESS": "FRX", "LESSCHARSET": "utf-8", **os.environ, "LESSSECURE": "1"}
    try:
        command = words_of(os.environ.get("PAGER", "less")) or ["cat"]
        give_terminal(command, content.encode("utf-8", "replace") + b"\n", environment)
    except OSError:  # there is no such pager
        print(content)


def words_of(command: str) -> list[str]:
    """Split a command from an environment variable into words; with an open quote it stays one word."""
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def give_terminal(command: Sequence[str], given: bytes | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run a pager or an editor, and return its exit code. Raises OSError when it cannot be started.

    While that program runs, it alone handles Ctrl-C: if Hermes exited, the program would die before it restores the
    terminal. If Ctrl-C ends the program, Hermes ends too.
    """
    import signal
    import subprocess

    # An empty handler instead of SIG_IGN: the child would inherit an ignored signal.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(command, input=given, env=env, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    return code


_WIDE = 14
_BEGINNING = 60


def facts(rows: Iterable[tuple[str, Any]], body: str = "", *, wide: int = _WIDE) -> str:
    """Draw lines `name   value` without empty values, names at least `wide` columns wide; `body` follows."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "", ())]
    wide = max([wide, *(len(name) + len(_GAP) for name, _ in shown)])
    lines = [f"{style(f'{name:<{wide}}', 'dim')}{text.harmless(value)}" for name, value in shown]
    return "\n".join([*lines, "", text.harmless_block(body)] if body else lines)


def beginning(said: str) -> str:
    """Return the start of a message for a list, short in a pipe too, where columns have no limit."""
    return text.shorten(" ".join(said.split()), _BEGINNING)


def tally(counts: dict[str, int]) -> str:
    """`2 pending, 1 unknown`."""
    return ", ".join(f"{number:,} {state}" for state, number in sorted(counts.items()))


_FIRST_AFTER = 0.3
_REDRAW_EVERY = 0.1
_LINE_EVERY = 5.0
_BAR = 16


class Progress:
    """`with Progress("copying", unit="messages") as progress: … progress.update(done, total)`."""

    def __init__(
        self, label: str, *, unit: str = "", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._unit = f" {unit}" if unit else ""
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._started = clock()
        self._next = self._started + (_FIRST_AFTER if self._terminal else _LINE_EVERY)
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn and self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def update(self, done: int, total: int | None = None) -> None:
        """Report progress. Frequent calls are cheap: the line is redrawn at most every 0.1 s."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_REDRAW_EVERY if self._terminal else _LINE_EVERY)
        self._drawn = True
        words = self._words(done, total, now - self._started)
        if self._terminal:
            available = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{text.shorten(f'{self._bar(done, total)}{words}', available)}\x1b[K")
        else:
            self._stream.write(f"{words}\n")
        self._stream.flush()

    def _bar(self, done: int, total: int | None) -> str:
        if not total:
            return ""
        filled = min(_BAR, _BAR * done // total)
        return f"{'█' * filled}{'░' * (_BAR - filled)} "

    def _words(self, done: int, total: int | None, elapsed: float) -> str:
        rate = done / elapsed if elapsed > 0 else 0.0
        words = f"{self._label}  {done:,}"
        if total:
            words += f" of {total:,}{self._unit} ({min(100, 100 * done // total)} %)"
        else:
            words += self._unit
        words += f" · {rate:,.0f}/s"
        if total and rate and done < total:
            words += f" · {_clock_time((total - done) / rate)} left"
        return words


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds) + 1, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
