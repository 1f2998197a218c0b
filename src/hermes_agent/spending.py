"""What the day has cost of what it may cost, in words for the line under an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.budget import amount, limits_of
from hermes_state.people import usage
from hermes_state.people.budgets import NANO

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId
    from hermes_state.people.budgets import Limit


def today(db: SessionDB, config: Config, person_id: PersonId) -> str:
    """`today $0.12 of $1.00`. Reads the store: not on an event loop."""
    daily = [limit for limit in limits_of(config.budget) if limit.scope != "conversation"]
    if daily:
        used, limit = max(((_used(db, limit, person_id), limit) for limit in daily), key=_nearest)
        return f"today {amount(used, limit.unit)} of {amount(limit.most, limit.unit)}"
    total = usage.report(db, "day", since=db.clock()).total
    if total.unpriced_calls:
        return "cost today not known: the model has no price"
    return f"today {amount(round(total.cost_usd * NANO), 'usd')}, no limit set"


def _used(db: SessionDB, limit: Limit, person_id: PersonId) -> int:
    if limit.scope == "day":
        return db.budgets.used("day")[1].of(limit.unit)
    person = db.people.get(person_id)
    return db.budgets.used("person_day", person_id, zone=person.zone if person else None)[1].of(limit.unit)


def _nearest(row: tuple[int, Limit]) -> tuple[float, bool]:
    """The limit of which most is used matters most; among equals money does."""
    used, limit = row
    return (used / limit.most if limit.most else 1.0, limit.unit == "usd")
