"""Hard spending limits: every attempt of a model call passes here twice, before it is made and after it.

`reserve` takes the most an attempt can come to out of `budget.<scope>.{usd,tokens}`: the most input that the provider
can count, at the dearest of the input prices, and the longest answer. The answer is cut to what the limits leave, and
the provider is told (`Reservation.longest`); when not even a short one fits, the call is not made. `settle` puts what
the provider reports in the place of the reservation; an attempt for which nothing was reported stays counted in full.
The sums are rows that all processes share (`hermes_state.people.budgets`); without any limit in the configuration
nothing is written.

What a limit cannot see: a provider that counts more input than the request has bytes, or that answers at greater length
than it was told. Such a call is counted as reported, and the next ones stop the sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent import process_identity
from hermes_agent.models import provider_table, providers
from hermes_agent.models.base import Endpoint, ModelError, Price, TokenUsage
from hermes_agent.models.prices import price_for
from hermes_config.errors import ConfigError
from hermes_config.sections import SCOPES, BudgetSection
from hermes_state.errors import OverLimit
from hermes_state.ids import ConversationId, PersonId
from hermes_state.people import usage as usage_report
from hermes_state.people.budgets import NANO, Amount, Held, Limit, LongestAnswer, Warned

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB


_NANO_FOR_A_TOKEN = NANO // 1_000_000  # prices are for a million tokens

_LEAST_ANSWER = 64
"""Tokens: a shorter answer is not worth a call."""

_NAMES = {
    "day": "today's spending limit",
    "month": "this month's spending limit",
    "person_day": "your spending limit for today",
    "person_month": "your spending limit for this month",
    "conversation": "this conversation's spending limit",
}
_OTHERWISE = {
    "day": "or go on tomorrow",
    "month": "or go on next month",
    "person_day": "or go on tomorrow",
    "person_month": "or go on next month",
    "conversation": "or begin a new conversation (/new)",
}


@dataclass(slots=True, kw_only=True)
class Reservation:
    """One attempt that may be made. Hand it back once: to `settle`, or to `release`."""

    price: Price | None
    longest: int | None = None
    """The longest answer, in tokens, as the provider is to be told; None: what the endpoint says."""
    cut: str = ""
    """For the person, when the answer ends at `longest`: why it could not be longer."""
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
        most_input: int | None = None,
        longest: int | None = None,
        conversation_id: ConversationId,
        person_id: PersonId | None,
        task: str = "",
    ) -> Reservation:
        """Room for one attempt. Raises `ModelError("budget")` when a limit would be passed: then it is not made.

        `most_input`: what the provider may count at most, where that is not the estimate. `longest`: the answer's
        length, where the caller wants a shorter one than the endpoint allows.
        """
        reservation = Reservation(price=self._price(endpoint), longest=longest)
        if not self._limits:
            return reservation
        if reservation.price is None and self._config.budget.limits_money:
            raise _unknown_price(endpoint, self._config.budget)
        fed = max(estimated_input if most_input is None else most_input, 0)
        wanted, least = self._answer(endpoint, estimated_input, longest)
        each = 0.0 if reservation.price is None else reservation.price.output * _NANO_FOR_A_TOKEN
        try:
            held = reservation.held = await self._db.budgets.reserve(
                self._limits, _most(reservation.price, fed, wanted), answer=LongestAnswer(wanted, each, least),
                conversation_id=conversation_id, person_id=person_id, model=endpoint.model, task=task,
                holder=process_identity.new_holder(),
            )  # fmt: skip
        except OverLimit as over:
            raise _refusal(over) from over
        reservation.longest = wanted - held.cut
        reservation.cut = self._cut(endpoint, held, reservation.longest)
        reservation.notices += map(notice, held.warnings)
        return reservation

    def asks_first(self, endpoint: Endpoint, estimated_input: int, longest: int | None = None) -> str:
        """Why a person is asked before this call, with its estimate; empty when it needs no question."""
        most = self._config.budget.ask_usd
        if most is None:
            return ""
        price = self._price(endpoint)
        if price is None:
            raise _unknown_price(endpoint, self._config.budget)
        cost = _most(price, estimated_input, self._answer(endpoint, estimated_input, longest)[0]).nano_usd
        if cost <= most * NANO:
            return ""
        allowed = amount(round(most * NANO), "usd")
        return f"it may cost up to {amount(cost, 'usd')}, more than budget.ask_usd ({allowed})"

    async def settle(self, reservation: Reservation, usage: TokenUsage | None) -> float | None:
        """Count what the provider reported; in full where it reported nothing. The cost, None when nobody can tell."""
        if usage is not None and not (usage.input_tokens and usage.output_tokens):
            usage = None  # some servers fill the fields with zeros
        cost = None if usage is None or reservation.price is None else cost_of(reservation.price, usage)
        if reservation.held is not None:
            used = None if usage is None else Amount(cost or 0, usage.input_tokens + usage.output_tokens)
            reservation.notices += map(notice, await self._db.budgets.settle(reservation.held, used))
        return None if cost is None else cost / NANO

    async def failed(self, reservation: Reservation, error: BaseException) -> None:
        """The attempt ended without an answer. It counts in full, unless the provider refused it or never got it."""
        if isinstance(error, ModelError) and error.unbilled:
            await self.release(reservation)
        else:
            await self.settle(reservation, None)

    async def release(self, reservation: Reservation) -> None:
        """The attempt was not made, or was refused: nothing is counted."""
        if reservation.held is not None:
            await self._db.budgets.release(reservation.held)

    def _answer(self, endpoint: Endpoint, estimated_input: int, longest: int | None) -> tuple[int, int]:
        """How long an answer may be, and how short one may still be asked for."""
        field, own = provider_table.wire_for(endpoint).longest_answer(endpoint)
        room = max(endpoint.context_length - estimated_input, _LEAST_ANSWER)
        if not field:  # it cannot be told
            return room, room
        wanted = longest or own or min(self._config.limits.budget_answer_tokens, room)
        thinking = dict(endpoint.options).get("thinking")
        thought = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        least = _LEAST_ANSWER + (thought if isinstance(thought, int) else 0)  # the provider refuses less than that
        return wanted, min(wanted, least)

    def _cut(self, endpoint: Endpoint, held: Held, longest: int) -> str:
        if held.cut_by is not None:
            limit = held.cut_by
            hint = f"Raise {key_of(limit)} in config.yaml, {_OTHERWISE[limit.scope]}."
            return f"The answer was cut at {longest:,} tokens: {_NAMES[limit.scope]} leaves no more. {hint}"
        if provider_table.wire_for(endpoint).longest_answer(endpoint).tokens is None:
            hint = "Set model.max_tokens in config.yaml for longer ones."
            return f"The answer was cut at {longest:,} tokens, because spending is limited. {hint}"
        return ""

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


def _refusal(over: OverLimit) -> ModelError:
    running = f" ({amount(over.reserved, over.unit)} of it by calls that have not ended)" if over.reserved else ""
    what = (
        f"{_NAMES[over.scope]} is {amount(over.most, over.unit)}; {amount(over.used, over.unit)} is used{running}, "
        f"and this call could take {amount(over.asked, over.unit)}. It was not made"
    )
    hint = f"Raise budget.{over.scope}.{over.unit} in config.yaml, {_OTHERWISE[over.scope]}."
    return ModelError("budget", what, hint=hint)


def _unknown_price(endpoint: Endpoint, config: BudgetSection) -> ModelError:
    what = f"the price of {endpoint.model} is not known, so {config.money_key} cannot be kept. The call was not made"
    return ModelError("budget", what, hint=f"{price_hint(endpoint.model)}.")


def price_hint(model: str) -> str:
    what = "{input: …, output: …}, dollars for a million tokens; 0 where it costs nothing"
    return f"Set models.{model}.price in config.yaml to {what}"


def unpriced(config: Config) -> tuple[str, str] | None:
    """(what is wrong, what to do) when money is limited and the price of a configured model is unknown."""
    key = config.budget.money_key
    endpoints = (providers.primary(config), *providers.fallbacks(config)) if key else ()
    for endpoint in endpoints:
        if price_for(config, endpoint) is None:
            what = f"the price of {endpoint.model} is not known, so {key} cannot be kept and its calls are refused"
            return what, f"{price_hint(endpoint.model)}."
    return None


def spent_today(db: SessionDB, config: Config, person_id: PersonId) -> str:
    """`today $0.12 of $1.00`. Reads the store: not on an event loop."""
    timed = [limit for limit in limits_of(config.budget) if limit.scope != "conversation"]
    if timed:
        used, limit = max(((_used(db, limit, person_id), limit) for limit in timed), key=_nearest)
        when = "this month" if limit.scope.endswith("month") else "today"
        return f"{when} {amount(used, limit.unit)} of {amount(limit.most, limit.unit)}"
    total = usage_report.report(db, "day", since=db.clock()).total
    if total.unpriced_calls:
        return "cost today not known: the model has no price"
    return f"today {amount(round(total.cost_usd * NANO), 'usd')}, no limit set"


def _used(db: SessionDB, limit: Limit, person_id: PersonId) -> int:
    if limit.scope in ("day", "month"):
        return db.budgets.used(limit.scope)[1].of(limit.unit)
    person = db.people.get(person_id)
    return db.budgets.used(limit.scope, person_id, zone=person.zone if person else None)[1].of(limit.unit)


def _nearest(row: tuple[int, Limit]) -> tuple[float, bool]:
    """The limit of which most is used matters most; among equals money does."""
    used, limit = row
    return (used / limit.most if limit.most else 1.0, limit.unit == "usd")
