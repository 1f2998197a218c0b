"""`hermes usage`: shows model use and cost, and the spending limits with the rest of each."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hermes_agent import process_identity
from hermes_agent.budget import amount, key_of, limits_of
from hermes_cli.framework import output, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, add_json, instant
from hermes_config import config
from hermes_state import SessionDB
from hermes_state.ids import PersonId
from hermes_state.people import usage
from hermes_state.people.budgets import NANO, Limit, OpenCall
from hermes_state.people.usage import Line, Report

_DAYS = 30
_CONVERSATIONS = 3
_WAYS = {"day": "Day", "person": "Person", "model": "Model", "conversation": "Conversation"}
_WHOSE = {
    "day": "everybody, today", "month": "everybody, this month", "person_day": "each person, today",
    "person_month": "each person, this month", "conversation": "each conversation",
}  # fmt: skip
_NOBODY = {"person": "unknown person", "conversation": "deleted conversations"}


def register(parser: Parser) -> None:
    parser.add_examples("", "--by model --since 7d", "--by person --since 2026-11-01 --json")
    parser.add_argument("--by", choices=tuple(_WAYS), default="day", help="group by this (default: day)")
    since = f"2026-11-01, 7d … (default: the last {_DAYS} days)"
    parser.add_argument("--since", type=instant, metavar="WHEN", help=since)
    add_json(parser)
    parser.set_defaults(run=_usage)


@dataclass(frozen=True, slots=True)
class _LimitUse:
    """A limit, and how much of it a person or conversation has used."""

    limit: Limit
    whose: str
    subject: str
    period: str
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit.most - self.used)


def _usage(args: argparse.Namespace) -> CommandAnswer:
    since = time.time() - (_DAYS - 1) * 86_400 if args.since is None else args.since
    limits, found, calls, beside = limits_of(config.load().budget), Report((), Line("total")), [], 0
    if store.exists():
        with store.open_store() as db:
            found = usage.report(db, args.by, since=since)
            uses = [one for limit in limits for one in _uses_of(db, limit)]
            open_calls = db.budgets.open_calls()
            beside = _beside(db, open_calls) if limits else 0
        calls = [replace(call, lost=call.lost or process_identity.is_gone(call.holder)) for call in open_calls]
    else:  # before the first conversation nothing of any limit is used
        uses = [_LimitUse(limit, _WHOSE[limit.scope], "", "", 0) for limit in limits]
    parts = [_spent(args.by, since, found), _limits(uses), *_unsettled(calls), *_explained(beside)]
    return CommandAnswer(_document(args.by, since, found, uses, calls), drawn="\n\n".join(parts))


def _uses_of(db: SessionDB, limit: Limit) -> list[_LimitUse]:
    """Return the use of a limit: in total, per person who used it, or by the conversations that used most."""
    if limit.scope in ("day", "month"):
        period, used = db.budgets.used(limit.scope)
        return [_LimitUse(limit, _WHOSE[limit.scope], "", period, used.of(limit.unit))]
    if limit.scope != "conversation":
        return list(_people(db, limit)) or [_LimitUse(limit, _WHOSE[limit.scope], "", "", 0)]
    return [
        _LimitUse(limit, f"conversation {conversation}", conversation, "", used.of(limit.unit))
        for conversation, used in db.budgets.largest(limit=_CONVERSATIONS)
    ] or [_LimitUse(limit, _WHOSE["conversation"], "", "", 0)]


def _people(db: SessionDB, limit: Limit) -> Iterator[_LimitUse]:
    for person_id in db.budgets.spenders():
        person = db.people.get(PersonId(person_id))
        period, used = db.budgets.used(limit.scope, person_id, zone=person.zone if person else None)
        name = (person.display_name or person.role) if person else person_id
        if used.of(limit.unit):
            when = _WHOSE[limit.scope].partition(", ")[2]
            yield _LimitUse(limit, f"{name}, {when}", person_id, period, used.of(limit.unit))


# -- for people -------------------------------------------------------------------------------------------------------


def _spent(by: str, since: float, found: Report) -> str:
    day = _date(since)
    if not found.lines:
        return f"Nothing was used since {day}."
    columns = output.columns(f"{_WAYS[by]}…16", ">Calls", ">Input", ">Cached", ">Output", ">Cost")
    rows = [_cells(line, line.name or line.key or _NOBODY.get(by, "–")) for line in found.lines]
    if len(rows) > 1:
        rows.append(_cells(found.total, "total"))
    unpriced = found.total.unpriced_calls
    note = f" The price of {text.counted(unpriced, 'call')} is not known (–, +)." if unpriced else ""
    return f"{output.table(columns, rows)}\nSince {day}.{note}"


def _cells(line: Line, name: str) -> tuple[str, ...]:
    numbers = (line.calls, line.input_tokens, line.cache_read_tokens, line.output_tokens)
    return (name, *(f"{number:,}" for number in numbers), _cost(line))


def _cost(line: Line) -> str:
    if line.unpriced_calls and line.unpriced_calls >= line.calls:
        return "–"
    return amount(round(line.cost_usd * NANO), "usd") + ("+" if line.unpriced_calls else "")


def _limits(uses: Sequence[_LimitUse]) -> str:
    if not uses:
        return "No spending limit is set; hermes config set budget.day.usd 5 sets one."
    columns = output.columns("Limit", "Whose…16", ">Used", ">Of", ">Left")
    rows = []
    for one in uses:
        amounts = (amount(value, one.limit.unit) for value in (one.used, one.limit.most, one.left))
        rows.append((key_of(one.limit), one.whose, *amounts))
    return output.table(columns, rows)


def _unsettled(calls: Sequence[OpenCall]) -> Iterator[str]:
    """Describe the calls whose cost is only estimated."""
    for lost, words in ((False, "being made"), (True, "cut off when their process died")):
        some = [call for call in calls if call.lost == lost]
        if some:
            reserved = amount(sum(call.amount.nano_usd for call in some), "usd")
            used = amount(sum(call.amount.tokens for call in some), "tokens")
            yield f"{text.counted(len(some), 'call')} {words}, counted as estimated: {reserved}, {used}."


def _beside(db: SessionDB, calls: Sequence[OpenCall]) -> int:
    """What counts against today's limits and is neither in the account of calls nor an open call, in nano-dollars."""
    _period, used = db.budgets.used("day")
    account = usage.report(db, "day", since=time.time()).total.cost_usd
    return used.nano_usd - round(account * NANO) - sum(call.amount.nano_usd for call in calls)


def _explained(beside: int) -> Iterator[str]:
    if beside > NANO // 100_000:  # less is the rounding of sums
        much = amount(beside, "usd")
        why = "a call without reported usage counts in full, and the calls of a turn get their row at its end"
        yield f"{much} of today's use has no row above: {why}."


# -- for programs -----------------------------------------------------------------------------------------------------


def _document(
    by: str, since: float, found: Report, uses: Sequence[_LimitUse], calls: Sequence[OpenCall]
) -> dict[str, Any]:
    return {
        "by": by,
        "since": _date(since),
        "lines": [asdict(line) for line in found.lines],
        "total": asdict(found.total),
        "limits": [_limit(one) for one in uses],
        "open_calls": [
            {
                "person_id": call.person_id or None, "conversation_id": call.conversation_id or None,
                "model": call.model, "task": call.task, "usd": _plain(call.amount.nano_usd, "usd"),
                "tokens": call.amount.tokens, "made_at": call.made_at, "lost": call.lost,
            }
            for call in calls
        ],
    }  # fmt: skip


def _limit(one: _LimitUse) -> dict[str, Any]:
    unit = one.limit.unit
    return {
        "key": key_of(one.limit), "scope": one.limit.scope, "unit": unit,
        "subject": one.subject or None, "period": one.period or None, "limit": _plain(one.limit.most, unit),
        "used": _plain(one.used, unit), "left": _plain(one.left, unit),
    }  # fmt: skip


def _plain(value: int, unit: str) -> float:
    """Dollars, or a number of tokens."""
    return value / NANO if unit == "usd" else value


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))
