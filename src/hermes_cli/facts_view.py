"""One row of the store as a person reads it: names and values under each other, then its text."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from hermes_cli import output, text

_WIDE = 14


def facts(rows: Iterable[tuple[str, Any]], body: str = "") -> str:
    """Lines `name   value`; what is None or empty is left out."""
    lines = [
        f"{output.style(f'{name:<{_WIDE}}', 'dim')}{text.harmless(str(value))}"
        for name, value in rows
        if value not in (None, "", ())
    ]
    return "\n".join([*lines, "", text.harmless_block(body)] if body else lines)


def moment(instant: float | None) -> str:
    """`2026-11-15 10:02:11 (2 min)`, in this machine's zone."""
    if instant is None:
        return ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(instant))} ({text.ago(instant)})"


def tally(counts: dict[str, int]) -> str:
    """`2 pending, 1 unknown`."""
    return ", ".join(f"{number:,} {state}" for state, number in sorted(counts.items()))
