"""What commands print: tables, JSON, pages, colours, and the question before something is destroyed.

A person at a terminal gets columns that fit the window, colours and a pager; a pipe gets the same text
whole, plain and at once. Cells are made harmless here, so a command passes stored text as it is. Tables are
drawn by hand: the one library worth having for it costs more start-up time than the rest of the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_cli import text
from hermes_config.errors import UsageError

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_GAP = "  "
_NARROWEST = 8


class Column(NamedTuple):
    """A column of a table. One that `shrinks` is shortened when the window is too narrow, others before it `keeps`."""

    title: str
    right: bool = False
    shrinks: bool = False
    keeps: int = _NARROWEST


def is_terminal() -> bool:
    return sys.stdout.isatty()


def style(content: str, name: str) -> str:
    """The text in a colour or weight, where a person will see it."""
    if not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return content
    return f"\x1b[{_STYLES[name]}m{content}\x1b[0m"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, window: int | None = None) -> str:
    """Rows under titles, as wide as the window (of the terminal by default, without limit in a pipe)."""
    cells = [[text.harmless(cell) for cell in row] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(text.width, line)) for line in zip(titles, *cells, strict=True)]
    if window is None and is_terminal():
        import shutil

        window = shutil.get_terminal_size().columns
    if window is not None:
        widths = _fit(columns, widths, window)
    lines = [style(_line(columns, titles, widths), "dim")]
    lines += [_line(columns, row, widths) for row in cells]
    return "\n".join(lines)


def _fit(columns: Sequence[Column], widths: list[int], window: int) -> list[int]:
    """Take the missing columns from the widest one that may shrink, again and again."""
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


def print_json(value: Any) -> None:
    """One JSON document and a newline, in real characters where the stream can carry them and they do no harm."""
    import json

    document = json.dumps(value, ensure_ascii=False, indent=2 if is_terminal() else None, default=str)
    try:
        document.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a stream that is not Unicode: escapes lose nothing
        document = json.dumps(value, indent=2 if is_terminal() else None, default=str)
    print(text.harmless_json(document))


def page(content: str) -> None:
    """Print a text; at a terminal that it does not fit, through `$PAGER` (or less)."""
    if not is_terminal():
        print(content)
        return
    import shutil

    if content.count("\n") + 2 < shutil.get_terminal_size().lines:
        print(content)
        return
    # LESSSECURE: a pager opened on a stranger's text needs no shell and no editor.
    environment = {"LESS": "FRX", "LESSCHARSET": "utf-8", **os.environ, "LESSSECURE": "1"}
    try:
        command = words_of(os.environ.get("PAGER", "less")) or ["cat"]
        give_terminal(command, content.encode("utf-8", "replace") + b"\n", environment)
    except OSError:  # no such pager: the text itself is what was asked for
        print(content)


def words_of(command: str) -> list[str]:
    """A command as a variable of the environment holds it. One with an open quote names nothing that exists."""
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def give_terminal(command: Sequence[str], given: bytes | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run a pager or an editor, and return its exit code. Raises OSError when it cannot be started.

    Ctrl-C is a key of that program as long as it runs: if we ended over it, it would be killed before it could put the
    terminal right. One that does end by Ctrl-C takes us with it.
    """
    import signal
    import subprocess

    # A handler that does nothing, since a signal that is ignored would be ignored by the child, too.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(command, input=given, env=env, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    return code


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before something is destroyed. Without a terminal nobody can answer: `--yes` is needed then."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("this asks before it changes anything, and there is no terminal to ask", hint="Add --yes.")
    print(f"{text.harmless(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
