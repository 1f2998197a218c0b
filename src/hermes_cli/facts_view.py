"""Rows of the store as a person reads them: one as names and values under each other, many as a page of a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from hermes_cli import output, text

_WIDE = 14
_BEGINNING = 60


def facts(rows: Iterable[tuple[str, Any]], body: str = "") -> str:
    """Lines `name   value`; what is None or empty is left out."""
    lines = [
        f"{output.style(f'{name:<{_WIDE}}', 'dim')}{text.harmless(str(value))}"
        for name, value in rows
        if value not in (None, "", ())
    ]
    return "\n".join([*lines, "", text.harmless_block(body)] if body else lines)


def columns(moment: str, last: str) -> tuple[output.Column, ...]:
    """Of what came in or goes out: the words for when that was, and for what became of it."""
    return (
        output.Column("ID", right=True),
        output.Column("State"),
        output.Column(moment, right=True),
        output.Column("Chat", shrinks=True, keeps=14),
        output.Column("Text", shrinks=True, keeps=16),
        output.Column(last, shrinks=True),
    )


def page(
    columns: Sequence[output.Column], cells: Sequence[Sequence[str]], *, counts: dict[str, int], full: int
) -> None:
    """Rows that begin with their number; below, how many of each state there are, and how to see older ones."""
    output.page(output.table(columns, cells))
    print(f"In all: {tally(counts)}.", file=sys.stderr)
    if len(cells) == full:
        print(f"--before {cells[-1][0]} shows older ones.", file=sys.stderr)


def beginning(said: str) -> str:
    """Of a message, as much as a list needs: also in a pipe, where nothing else would bound a column."""
    return text.shorten(" ".join(said.split()), _BEGINNING)


def moment(instant: float | None) -> str:
    """`2026-11-15 10:02:11 (2 min)`, in this machine's zone."""
    if instant is None:
        return ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(instant))} ({text.ago(instant)})"


def tally(counts: dict[str, int]) -> str:
    """`2 pending, 1 unknown`."""
    return ", ".join(f"{number:,} {state}" for state, number in sorted(counts.items()))
