"""What models were used for, summed up: by day, by person, by model, by conversation.

Read from the days (`usage_days`), and for what they do not know — old homes, imports — from `session_model_usage`,
where a call is dated by the last one like it. Days are those of this machine's zone. What deleted conversations used
is in every sum but that by conversation, where it stands in one line of its own; importing a conversation that was
deleted here counts it once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hermes_state.budgets import day_of
from hermes_state.engine.base import Connection, Row
from hermes_state.rows import texts
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("usage_report")

By = Literal["day", "person", "model", "conversation"]


@dataclass(slots=True)
class Line:
    """One sum. `key` is a day, or the id of what it is about; empty for what belongs to nobody any more."""

    key: str
    name: str = ""
    """How people know it, where that is not its key."""
    calls: int = 0
    unpriced_calls: int = 0
    """Those of `calls` whose cost is not known, and not in `cost_usd`."""
    input_tokens: int = 0
    """All input, cached or not."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def add(self, sums: Row) -> None:
        calls, unpriced, fed, read, written, answered, cost = sums
        self.calls += int(calls)
        self.unpriced_calls += max(0, int(unpriced))
        self.input_tokens += int(fed)
        self.cache_read_tokens += int(read)
        self.cache_write_tokens += int(written)
        self.output_tokens += int(answered)
        self.cost_usd += float(cost)


@dataclass(frozen=True, slots=True)
class Report:
    lines: tuple[Line, ...]
    total: Line


def report(store: Store, by: By, *, since: float = 0.0) -> Report:
    """Days in order; everything else dearest first. `since` counts from the beginning of its day."""
    first = day_of(since) if since > 0 else ""

    def run(conn: Connection) -> Report:
        dated = conn.rows(Q.days, (first,))
        undated = [(day_of(row[0]), *row[1:]) for row in conn.rows(Q.undated)]
        lines, total = _summed([*dated, *(row for row in undated if row[0] >= first)], by)
        names = _names(conn, by, lines)
        for key, line in lines.items():
            line.name = names.get(key, "")
        return Report(tuple(sorted(lines.values(), key=_day if by == "day" else _dearest)), total)

    return store.engine.read(run, snapshot=True)


def _summed(rows: list[Row], by: By) -> tuple[dict[str, Line], Line]:
    lines: dict[str, Line] = {}
    total = Line("total")
    for day, person, model, provider, conversation, *sums in rows:
        named = f"{provider}/{model}" if provider and not model.startswith(f"{provider}/") else model
        key = {"day": day, "person": person, "model": named, "conversation": conversation}[by]
        lines.setdefault(key, Line(key)).add(tuple(sums))
        total.add(tuple(sums))
    return lines, total


def _names(conn: Connection, by: By, lines: dict[str, Line]) -> dict[str, str]:
    asked = (texts(key for key in lines if key),)
    if by == "person":
        return {key: name or role for key, name, role, _zone in conn.rows(Q.people, asked)}
    if by == "conversation":
        return {root: title or preview or "" for root, title, preview in conn.rows(Q.titles, asked)}
    return {}


def _day(line: Line) -> tuple[str]:
    return (line.key,)


def _dearest(line: Line) -> tuple[float, int, str]:
    return (-line.cost_usd, -(line.input_tokens + line.output_tokens), line.key)
