"""`hermes usage`: what models were used and what it cost, the spending limits and what is left of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, store, text
from hermes_cli.framework import parser as arguments
from hermes_cli.framework.parser import Parser, add_json
from hermes_config import config

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.budgets import Limit, OpenCall
    from hermes_state.people.usage import By, Line, Report

_DAYS = 30
_CONVERSATIONS = 3
_WAYS = {"day": "Day", "person": "Person", "model": "Model", "conversation": "Conversation"}
_WHOSE = {"day": "everybody, today", "person_day": "each person, today", "conversation": "each conversation"}
_NOBODY = {"person": "nobody known", "conversation": "deleted conversations"}


def register(parser: Parser) -> None:
    examples = ("", "--by model --since 7d", "--by person --since 2026-11-01 --json")
    parser.epilog = "examples:\n" + "\n".join(f"  hermes usage {flags}".rstrip() for flags in examples)
    parser.add_argument("--by", choices=tuple(_WAYS), default="day", help="what one line stands for (default: day)")
    parser.add_argument(
        "--since", type=arguments.instant, metavar="WHEN", help=f"2026-11-01, 7d … (default: the last {_DAYS} days)"
    )
    add_json(parser)
    parser.set_defaults(run=_usage)


@dataclass(frozen=True, slots=True)
class _Standing:
    """A limit, and how much of it somebody has used."""

    limit: Limit
    whose: str
    subject: str
    period: str
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit.most - self.used)


def _usage(args: argparse.Namespace) -> None:
    since = time.time() - (_DAYS - 1) * 86_400 if args.since is None else args.since
    found, standings, calls = _looked_up(args.by, since) if store.exists() else _nothing_yet()
    if args.json:
        output.print_json(_document(args.by, since, found, standings, calls))
        return
    parts = [_spent(args.by, since, found), _limits(standings), *_unsettled(calls)]
    output.page("\n\n".join(parts))


def _looked_up(by: By, since: float) -> tuple[Report, list[_Standing], list[OpenCall]]:
    from hermes_agent import process_identity
    from hermes_agent.budget import limits_of
    from hermes_state.people import usage

    with store.open_store() as db:
        found = usage.report(db, by, since=since)
        standings = [one for limit in limits_of(config.load().budget) for one in _standings(db, limit)]
        calls = [
            replace(call, lost=call.lost or process_identity.is_gone(call.holder)) for call in db.budgets.open_calls()
        ]
    return found, standings, calls


def _nothing_yet() -> tuple[Report, list[_Standing], list[OpenCall]]:
    """Before the first conversation: the limits hold already, and all of them is left."""
    from hermes_agent.budget import limits_of
    from hermes_state.people.usage import Line, Report

    limits = limits_of(config.load().budget)
    return Report((), Line("total")), [_Standing(limit, _WHOSE[limit.scope], "", "", 0) for limit in limits], []


def _standings(db: SessionDB, limit: Limit) -> list[_Standing]:
    """Everybody's day; each person who used something today; the conversations that used most."""
    if limit.scope == "day":
        period, used = db.budgets.used("day")
        return [_Standing(limit, _WHOSE["day"], "", period, used.of(limit.unit))]
    if limit.scope == "person_day":
        return list(_people(db, limit)) or [_Standing(limit, _WHOSE["person_day"], "", "", 0)]
    return [
        _Standing(limit, f"conversation {conversation}", conversation, "", used.of(limit.unit))
        for conversation, used in db.budgets.largest(limit=_CONVERSATIONS)
    ] or [_Standing(limit, _WHOSE["conversation"], "", "", 0)]


def _people(db: SessionDB, limit: Limit) -> Iterator[_Standing]:
    from hermes_state.ids import PersonId

    for person_id in db.budgets.spenders():
        person = db.people.get(PersonId(person_id))
        period, used = db.budgets.used("person_day", person_id, zone=person.zone if person else None)
        name = (person.display_name or person.role) if person else person_id
        if used.of(limit.unit):
            yield _Standing(limit, f"{name}, today", person_id, period, used.of(limit.unit))


# -- for people -------------------------------------------------------------------------------------------------------


def _spent(by: str, since: float, found: Report) -> str:
    day = _date(since)
    if not found.lines:
        return f"Nothing was used since {day}."
    columns = (
        output.Column(_WAYS[by], shrinks=True, keeps=16),
        *(output.Column(title, right=True) for title in ("Calls", "Input", "Cached", "Output", "Cost")),
    )
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
    from hermes_agent.budget import amount
    from hermes_state.people.budgets import NANO

    if line.unpriced_calls and line.unpriced_calls >= line.calls:
        return "–"
    return amount(round(line.cost_usd * NANO), "usd") + ("+" if line.unpriced_calls else "")


def _limits(standings: Sequence[_Standing]) -> str:
    from hermes_agent.budget import amount, key_of

    if not standings:
        return "No spending limit is set; hermes config set budget.day.usd 5 would set one."
    columns = (
        output.Column("Limit"),
        output.Column("Whose", shrinks=True, keeps=16),
        *(output.Column(title, right=True) for title in ("Used", "Of", "Left")),
    )
    rows = [
        (
            key_of(one.limit),
            one.whose,
            *(amount(value, one.limit.unit) for value in (one.used, one.limit.most, one.left)),
        )
        for one in standings
    ]
    return output.table(columns, rows)


def _unsettled(calls: Sequence[OpenCall]) -> Iterator[str]:
    """What is counted at an estimate."""
    from hermes_agent.budget import amount

    for lost, words in ((False, "being made"), (True, "cut off when a process was lost")):
        some = [call for call in calls if call.lost == lost]
        if some:
            reserved = amount(sum(call.amount.nano_usd for call in some), "usd")
            used = amount(sum(call.amount.tokens for call in some), "tokens")
            yield f"{text.counted(len(some), 'call')} {words}, counted as estimated: {reserved}, {used}."


# -- for programs -----------------------------------------------------------------------------------------------------


def _document(
    by: str, since: float, found: Report, standings: Sequence[_Standing], calls: Sequence[OpenCall]
) -> dict[str, Any]:
    return {
        "by": by,
        "since": _date(since),
        "lines": [asdict(line) for line in found.lines],
        "total": asdict(found.total),
        "limits": [_limit(one) for one in standings],
        "open_calls": [
            {
                "person_id": call.person_id or None, "conversation_id": call.conversation_id or None,
                "model": call.model, "task": call.task, "usd": _plain(call.amount.nano_usd, "usd"),
                "tokens": call.amount.tokens, "made_at": call.made_at, "lost": call.lost,
            }
            for call in calls
        ],
    }  # fmt: skip


def _limit(one: _Standing) -> dict[str, Any]:
    unit = one.limit.unit
    return {
        "key": f"budget.{one.limit.scope}.{unit}", "scope": one.limit.scope, "unit": unit,
        "subject": one.subject or None, "period": one.period or None, "limit": _plain(one.limit.most, unit),
        "used": _plain(one.used, unit), "left": _plain(one.left, unit),
    }  # fmt: skip


def _plain(value: int, unit: str) -> float:
    """Dollars, or a number of tokens."""
    from hermes_state.people.budgets import NANO

    return value / NANO if unit == "usd" else value


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))
