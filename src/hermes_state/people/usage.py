"""Tokens, calls and cost of sessions, by model.

Three tables hold them. Lists read the session's own counters. `session_model_usage` splits the same calls by model,
provider and task, because one session may switch models, and auxiliary calls (a title, a summary) cost money too
without being part of the chat. `usage_days` splits them by day and person besides, for reports. Amounts that count
against a spending limit are in `budgets`. A session's route (model, provider) comes from its first accounted call;
later calls only fill empty columns. This module knows no prices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from hermes_state import columns
from hermes_state.columns import texts
from hermes_state.conversations import sessions
from hermes_state.errors import InvalidValue
from hermes_state.ids import checked_id
from hermes_state.storage.base import Connection, Row, Store, in_transaction
from hermes_state.storage.statements import Queries

Q = Queries("usage")

_MOST = 10**15  # a sum of thousands of these still fits a column
_NAME_BYTES = 300  # five names and a session id share one index entry; PostgreSQL allows about 2,700 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The usage of one or several model calls, and their route."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api_call_count: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    cost_source: str | None = None
    pricing_version: str | None = None
    model: str | None = None
    billing_provider: str | None = None
    billing_base_url: str | None = None
    billing_mode: str | None = None
    person_id: str | None = None
    """Whose call it was; None means the owner of the conversation."""
    counted: bool = True
    """Whether it counts against the limits of days and months (`budgets`); not while the configuration has none."""

    def checked(self) -> Used:
        """The same with every value storable; else `InvalidValue`."""
        changed = {}
        for name, check in _CHECKS.items():
            given = getattr(self, name)
            value = check(name, given)
            if value != given or type(value) is not type(given):
                changed[name] = value
        return replace(self, **changed) if changed else self

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts, in the order of the statements' parameters."""
        tokens = (self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens)
        return (*tokens, self.reasoning_tokens, self.api_call_count)

    @property
    def costs(self) -> tuple[float | None, float | None]:
        return self.estimated_cost_usd, self.actual_cost_usd

    @property
    def route(self) -> tuple[str | None, ...]:
        return self.model, self.billing_provider, self.billing_base_url, self.billing_mode

    @property
    def something(self) -> bool:
        """Whether there is anything to account for."""
        return any(self.counts) or bool(self.estimated_cost_usd) or bool(self.actual_cost_usd)


class UsageCounts(Store):
    """The part of `SessionDB` that accounts for model calls."""

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
        *,
        absolute: bool = False,
        **more: Any,
    ) -> None:
        """Add to the session's counters, or with `absolute` set them; an unknown session is created.

        The other keywords are those of `Used`.
        """
        used = Used(input_tokens=input_tokens, output_tokens=output_tokens, model=model, **more).checked()
        checked_id(session_id)
        self.engine.write(lambda conn: account(conn, session_id, used, self.clock(), absolute=absolute))

    @in_transaction
    def record_auxiliary_usage(self, conn: Connection, /, session_id: str, task: str, **used: Any) -> None:
        """Record a call outside the chat: not part of the session's own counters, and with its own route."""
        if used.get("estimated_cost_usd") is not None:  # else a call that costs nothing looks like one without a price
            used.setdefault("cost_status", "estimated")
        call = Used(api_call_count=1, **used).checked()
        checked_id(session_id)
        name = _name("task", task) or ""
        sessions.ensure(conn, session_id, "unknown", {}, self.clock())
        _by_model(conn, session_id, call, call.route, self.clock(), task=name)


def account(conn: Connection, session_id: str, used: Used, now: float, *, absolute: bool = False) -> None:
    """Like `update_token_counts`, inside a larger transaction; `used` must be `checked`."""
    costs = (*used.costs, used.cost_status, used.cost_source, used.pricing_version)
    counted = (*used.counts, *costs, session_id)
    look, params = (Q.route, (session_id,)) if absolute else (Q.add, counted)
    rows = conn.rows(look, params)
    if not rows:
        sessions.ensure(conn, session_id, "unknown", {}, now)
        rows = conn.rows(look, params)
    calls, *stored = rows[0]
    if absolute:
        conn.run(Q.set, counted)
    else:
        calls -= used.api_call_count
    if not used.something:
        return
    route = _route(stored, used, first_call=not calls)
    if route != tuple(stored):
        conn.run(Q.set_route, (*route, session_id))
    if not absolute:
        # A call that names another model than the session's is complete: its other columns stay unknown instead of
        # taking the session's. A call that names none, or the same one, is on the session's route.
        own = used.route if used.model not in (None, route[0]) else _filled(used.route, route)
        _by_model(conn, session_id, used, own, now, task="")


def _route(stored: list[str | None], used: Used, *, first_call: bool) -> tuple[str | None, ...]:
    """The session's route after this call. The first call replaces what was guessed before it."""
    names = used.model is not None and used.billing_provider is not None
    if first_call and names and (used.model, used.billing_provider) != tuple(stored[:2]):
        return used.route
    return _filled(stored, used.route)


def _filled(first: Sequence[str | None], second: Sequence[str | None]) -> tuple[str | None, ...]:
    return tuple(a if a is not None else b for a, b in zip(first, second, strict=True))


def _by_model(
    conn: Connection, session_id: str, used: Used, route: tuple[str | None, ...], now: float, *, task: str
) -> None:
    model, provider, base_url, mode = (name or "" for name in route)
    conn.run(
        Q.by_model,
        (
            session_id, model or "unknown", provider, base_url, mode, task, *used.counts,
            used.estimated_cost_usd or 0.0, used.actual_cost_usd or 0.0, used.cost_status, used.cost_source, now, now,
        ),
    )  # fmt: skip
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    day = time.strftime("%Y-%m-%d", time.localtime(now))
    conn.run(
        Q.by_day,
        (
            day, used.person_id, model or "unknown", provider, task, used.api_call_count,
            used.api_call_count if cost is None else 0, used.input_tokens, used.output_tokens, used.cache_read_tokens,
            used.cache_write_tokens, cost or 0.0, session_id,
        ),
    )  # fmt: skip
    if not used.counted:
        conn.run(Q.not_counted)


def _count(name: str, value: object) -> int:
    what = f"a number of at most {_MOST}"
    return 0 if value is None else int(columns.number(name, value, least=-_MOST, most=_MOST, what=what))


def _cost(name: str, value: object) -> float | None:
    return None if value is None else columns.number(name, value, what="a finite number")


def _name(name: str, value: object) -> str | None:
    if value is None:
        return None
    text = str(columns.clean(str(value)))
    if len(text.encode()) > _NAME_BYTES:
        raise InvalidValue(f"{name} is too long ({len(text.encode())} bytes, max {_NAME_BYTES}): {text[:40]!r}…")
    return text


_KINDS: dict[object, Callable[[str, Any], Any]] = {
    "bool": lambda _, value: bool(value),
    "int": _count,
    "float | None": _cost,
    "str | None": _name,
}
_CHECKS = {field.name: _KINDS[field.type] for field in fields(Used)}

By = Literal["day", "person", "model", "conversation"]


@dataclass(slots=True)
class Line:
    """One sum. `key` is a day, or the id of its subject; empty for usage without an owner."""

    key: str
    name: str = ""
    """The name for people, if it differs from the key."""
    calls: int = 0
    unpriced_calls: int = 0
    """Those of `calls` whose cost is unknown and not in `cost_usd`."""
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
    """Days in order; everything else most expensive first. `since` counts from the beginning of its day."""
    from hermes_state.people.budgets import day_of  # late: every program that opens the store imports this module

    first = day_of(since) if since > 0 else ""

    def run(conn: Connection) -> Report:
        dated = conn.rows(Q.days, (first,))
        undated = [(day_of(row[0]), *row[1:]) for row in conn.rows(Q.undated)]
        lines, total = _summed([*dated, *(row for row in undated if row[0] >= first)], by)
        names = _names(conn, by, lines)
        for key, line in lines.items():
            line.name = names.get(key, "")
        return Report(tuple(sorted(lines.values(), key=_day if by == "day" else _by_cost)), total)

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


def _by_cost(line: Line) -> tuple[float, int, str]:
    return (-line.cost_usd, -(line.input_tokens + line.output_tokens), line.key)
