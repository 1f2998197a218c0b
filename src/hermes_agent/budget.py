"""Hard spending limits: every model call passes here twice, before it is made and after it.

`reserve` takes the most a call can come to — its input as estimated, at the dearest of the input prices, and as many
tokens of answer as it may give — out of `budget.{day,person_day,conversation}.{usd,tokens}`. When that does not fit,
the call is not made. `settle` puts what the provider reports in its place. The sums are rows that all processes share
(`hermes_state.people.budgets`); without any limit in the configuration nothing is written.

What a limit cannot see: input is estimated, so one call may come out dearer than reserved, and the next ones stop the
sooner; the answer of a call without `max_tokens` is taken as `limits.budget_answer_tokens`. A provider that reports no
usage is counted at the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent import process_identity
from hermes_agent.models.base import Endpoint, ModelError, Price, TokenUsage
from hermes_agent.models.prices import price_for
from hermes_agent.prompt import tokens
from hermes_config.errors import ConfigError
from hermes_config.sections import SCOPES, BudgetSection
from hermes_state.errors import OverLimit
from hermes_state.ids import ConversationId, PersonId
from hermes_state.people import usage as usage_report
from hermes_state.people.budgets import NANO, Amount, Held, Limit, Warned

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB


_NANO_FOR_A_TOKEN = NANO // 1_000_000  # prices are for a million tokens

_NAMES = {
    "day": "today's spending limit",
    "person_day": "your spending limit for today",
    "conversation": "this conversation's spending limit",
}
_OTHERWISE = {
    "day": "or go on tomorrow",
    "person_day": "or go on tomorrow",
    "conversation": "or begin a new conversation (/new)",
}


@dataclass(slots=True, kw_only=True)
class Reservation:
    """One call that may be made. Hand it back once: to `settle`, or to `release`."""

    price: Price | None
    model: str = ""
    estimated_input: int = 0
    held: Held | None = None
    """Its row; None while nothing is limited."""
    notices: list[str] = field(default_factory=list)
    """For the person: a limit of which 80 % is used. Look after `reserve` and again after `settle`."""


class Budget:
    """The limits of one configuration, over the store that all processes share."""

    def __init__(self, db: SessionDB, config: Config) -> None:
        self._db, self._config = db, config
        self._limits = limits_of(config.budget)

    async def reserve(
        self,
        endpoint: Endpoint,
        *,
        estimated_input: int,
        max_tokens: int | None,
        conversation_id: ConversationId,
        person_id: PersonId | None,
        task: str = "",
    ) -> Reservation:
        """Room for one call. Raises `ModelError("budget")` when a limit would be passed: then it is not made."""
        reservation = Reservation(
            price=self._price(endpoint), model=endpoint.model, estimated_input=max(0, estimated_input)
        )
        if not self._limits:
            return reservation
        if reservation.price is None and self._config.budget.limits_money:
            raise _unknown_price(endpoint, self._limits)
        answer = max_tokens or min(
            self._config.limits.budget_answer_tokens, max(1, endpoint.context_length - estimated_input)
        )
        estimate = _most(reservation.price, reservation.estimated_input, answer)
        try:
            reservation.held = await self._db.budgets.reserve(
                self._limits, estimate, conversation_id=conversation_id, person_id=person_id, model=endpoint.model,
                task=task, holder=process_identity.new_holder(),
            )  # fmt: skip
        except OverLimit as over:
            small = _most(reservation.price, reservation.estimated_input, 0)
            raise _refusal(over, small) from over
        reservation.notices += map(notice, reservation.held.warnings)
        return reservation

    async def settle(self, reservation: Reservation, usage: TokenUsage | None) -> float | None:
        """The call was answered: count what it used. Its cost in dollars, None when nobody can tell."""
        if usage is not None and not usage.input_tokens and not usage.output_tokens:
            usage = None  # some servers fill the field with zeros
        cost = None if usage is None or reservation.price is None else cost_of(reservation.price, usage)
        if reservation.held is not None:
            used = None if usage is None else Amount(cost or 0, usage.input_tokens + usage.output_tokens)
            reservation.notices += map(notice, await self._db.budgets.settle(reservation.held, used))
        return None if cost is None else cost / NANO

    async def release(self, reservation: Reservation, *, received: str = "") -> None:
        """The call failed. Nothing is counted, or, when part of an answer had been `received`, what that came to."""
        if received:
            arrived = tokens.of_text(received, reservation.model)
            await self.settle(reservation, TokenUsage(input_tokens=reservation.estimated_input, output_tokens=arrived))
        elif reservation.held is not None:
            await self._db.budgets.release(reservation.held)

    def _price(self, endpoint: Endpoint) -> Price | None:
        try:
            return price_for(self._config, endpoint)
        except ConfigError as error:
            raise ModelError("budget", error.what, where=error.where, hint=error.hint) from error


def limits_of(config: BudgetSection) -> tuple[Limit, ...]:
    """The configured limits in the units of the store."""
    found = []
    for scope in SCOPES:
        allowed = config.of(scope)
        if allowed.usd is not None:
            found.append(Limit(scope, "usd", round(allowed.usd * NANO)))
        if allowed.tokens is not None:
            found.append(Limit(scope, "tokens", allowed.tokens))
    return tuple(found)


def cost_of(price: Price, usage: TokenUsage) -> int:
    """Nano-dollars. What was read from or written to a cache has its own price where the provider has one."""
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    fresh = max(0, usage.input_tokens - read - written)
    for_read = price.input if price.cache_read is None else price.cache_read
    for_written = price.input if price.cache_write is None else price.cache_write
    dollars_for_million = (
        fresh * price.input + read * for_read + written * for_written + usage.output_tokens * price.output
    )
    return round(dollars_for_million * _NANO_FOR_A_TOKEN)


def _most(price: Price | None, fed: int, answer: int) -> Amount:
    """The most a call can come to: all of its input might be written to a cache, which is dearer."""
    if price is None:
        return Amount(0, fed + answer)
    dearest = max(price.input, price.cache_write or 0.0)
    return Amount(math.ceil((fed * dearest + answer * price.output) * _NANO_FOR_A_TOKEN), fed + answer)


# -- words ------------------------------------------------------------------------------------------------------------


def key_of(limit: Limit) -> str:
    return f"budget.{limit.scope}.{limit.unit}"


def amount(value: int, unit: str) -> str:
    """`$1.20`, `$0.0042`, `12,000 tokens`."""
    if unit == "tokens":
        return f"{value:,} tokens"
    whole, _, fraction = f"{value / NANO:,.{2 if value >= 100 * NANO else 4}f}".partition(".")
    return f"${whole}.{fraction.rstrip('0'):0<2}"


def notice(warned: Warned) -> str:
    limit = warned.limit
    share = f"{warned.used * 100 // limit.most} % of " if limit.most else ""
    used, most = amount(warned.used, limit.unit), amount(limit.most, limit.unit)
    return f"{share}{_NAMES[limit.scope]} is used: {used} of {most} ({key_of(limit)})."


def _refusal(over: OverLimit, without_answer: Amount) -> ModelError:
    running = f" ({amount(over.reserved, over.unit)} of it by calls that have not ended)" if over.reserved else ""
    what = (
        f"{_NAMES[over.scope]} is {amount(over.most, over.unit)}; {amount(over.used, over.unit)} is used{running}, "
        f"and this call could take {amount(over.asked, over.unit)}. It was not made"
    )
    hint = f"Raise budget.{over.scope}.{over.unit} in config.yaml, {_OTHERWISE[over.scope]}."
    needed = without_answer.nano_usd if over.unit == "usd" else without_answer.tokens
    if over.used + needed < over.most:
        hint = f"{hint} A smaller model.max_tokens reserves less."
    return ModelError("budget", what, hint=hint)


def _unknown_price(endpoint: Endpoint, limits: Iterable[Limit]) -> ModelError:
    key = next(key_of(limit) for limit in limits if limit.unit == "usd")
    return ModelError(
        "budget",
        f"the price of {endpoint.model} is not known, so {key} cannot be kept. The call was not made",
        hint=f"Set models.{endpoint.model}.price to {{input: …, output: …}}, dollars for a million tokens; 0 where it "
        "costs nothing.",
    )


def spent_today(db: SessionDB, config: Config, person_id: PersonId) -> str:
    """`today $0.12 of $1.00`. Reads the store: not on an event loop."""
    daily = [limit for limit in limits_of(config.budget) if limit.scope != "conversation"]
    if daily:
        used, limit = max(((_used(db, limit, person_id), limit) for limit in daily), key=_nearest)
        return f"today {amount(used, limit.unit)} of {amount(limit.most, limit.unit)}"
    total = usage_report.report(db, "day", since=db.clock()).total
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
