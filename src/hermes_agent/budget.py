"""Hard spending limits, checked before and after every attempt of a model call.

`reserve` takes the maximum cost of an attempt out of `budget.<scope>.{usd,tokens}`: the most input that the provider
can count, at the highest input price, and the longest answer. The answer is limited to what the budget leaves, and the
provider is told (`Reservation.longest`); if not even a short answer fits, the call is not made. `settle` replaces the
reservation by the reported usage; an attempt without a report stays counted in full.
The sums are rows that all processes share (`hermes_state.people.budgets`); without any limit in the configuration
nothing is written.

A provider can exceed a limit if it counts more input tokens than the request has bytes, or if its answer is longer than
allowed. Such a call is counted as reported, which leaves less for the next calls.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent import process_identity
from hermes_agent.models import provider_table, providers
from hermes_agent.models.base import Endpoint, ModelError, Price, Reply, TokenUsage, is_own_machine
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
    from hermes_state.turns.children import Child


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


@dataclass(slots=True, kw_only=True)
class Reservation:
    """The permission for one attempt. Pass it exactly once to `settle`, `failed` or `release`."""

    price: Price | None
    longest: int | None = None
    """The longest answer, in tokens, to ask the provider for; None: the endpoint's own limit."""
    cut: str = ""
    """Tells the person why the answer could not be longer, if it ends at `longest`."""
    held: Held | None = None
    """The reservation's row in the store; None without limits."""
    notices: list[str] = field(default_factory=list)
    """Warns the person about a limit that is 80 % used. Read it after `reserve` and again after `settle`."""


class Budget:
    """The limits of one configuration, kept in the store that all processes share."""

    def __init__(
        self, db: SessionDB, config: Config, *, conversation_usd: float | None = None, child: Child | None = None
    ) -> None:
        """`conversation_usd`: a lower limit for the conversation than the configured one. `child`: the conversation
        works for others; what it spends counts for them, too."""
        self._db, self._config, self.conversation_usd = db, config, conversation_usd
        self._section = _lower(config.budget, conversation_usd)
        self.configured = bool(limits_of(config.budget))
        """Whether the configuration has limits; a job or a delegated task may have one without them."""
        own = "the budget of this job" if child is None else "delegation.budget_usd"
        self._child = child is not None
        self._money_key = config.budget.money_key or own
        self._limits = limits_of(self._section)
        self._prices: dict[tuple[str, str], Price | None] = {}
        self._above: dict[ConversationId, tuple[Limit, ...]] = {}
        for parent, usd in () if child is None else db.children.above(child):
            limits = tuple(one for one in limits_of(_lower(config.budget, usd)) if one.scope == "conversation")
            if limits:
                self._above[parent] = limits
        above = (one.unit for limits in self._above.values() for one in limits)
        self._keeps_money = self._section.limits_money or "usd" in above

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
        """Reserve budget for one attempt. Raises `ModelError("budget")` if the attempt could exceed a limit.

        `most_input`: the most tokens the provider may count, if that is not the estimate. `longest`: the answer's
        length, if the caller wants a shorter answer than the endpoint allows.
        """
        reservation = Reservation(price=self._price(endpoint), longest=longest)
        wanted, least = self._answer_lengths(endpoint, estimated_input, longest)
        if not self._limits and not self._above:
            if self._section.ask_usd is not None:  # the answer may be as long as it was estimated
                reservation.longest, reservation.cut = wanted, self._cut_notice(endpoint, None, wanted)
            return reservation
        if reservation.price is None and self._keeps_money:
            raise _unknown_price(endpoint, self._money_key)
        fed = max(estimated_input if most_input is None else most_input, 0)
        each = 0.0 if reservation.price is None else reservation.price.output * _NANO_FOR_A_TOKEN
        try:
            held = reservation.held = await self._db.budgets.reserve(
                self._limits, _highest_cost(reservation.price, fed, wanted), answer=LongestAnswer(wanted, each, least),
                conversation_id=conversation_id, person_id=person_id, model=endpoint.model, task=task,
                holder=process_identity.new_holder(), above=self._above, configured=self.configured,
            )  # fmt: skip
        except OverLimit as over:
            raise self._refusal(over) from over
        reservation.longest = wanted - held.cut
        reservation.cut = self._cut_notice(endpoint, held, reservation.longest)
        reservation.notices += map(notice, held.warnings)
        return reservation

    async def spend(
        self,
        usd: float | None,
        *,
        what: str,
        setting: str,
        task: str,
        model: str,
        conversation_id: ConversationId,
        person_id: PersonId | None,
    ) -> None:
        """Count a fixed price before it is paid. Raises `ModelError("budget")` if it could exceed a limit.

        `usd`: None if the price is not known, which `setting` would tell.
        """
        if usd is None and self._section.limits_money:
            why = f"the price of {what} is not known, so {self._money_key} cannot be kept. It was not asked for"
            raise ModelError("budget", why, hint=f"Set {setting}, in dollars.")
        if usd is None or not self._limits:
            return
        try:
            held = await self._db.budgets.reserve(
                self._limits, Amount(math.ceil(usd * NANO), 0), conversation_id=conversation_id, person_id=person_id,
                model=model, task=task, holder=process_identity.new_holder(), above=self._above,
                configured=self.configured,
            )  # fmt: skip
        except OverLimit as over:
            raise self._refusal(over) from over
        await self._db.budgets.settle(held, None)

    def asks_first(self, endpoint: Endpoint, estimated_input: int, longest: int | None = None) -> str:
        """The reason to ask a person before this call, with its estimated cost; empty if nobody need be asked."""
        most = self._section.ask_usd
        if most is None:
            return ""
        price = self._price(endpoint)
        if price is None:
            raise _unknown_price(endpoint, self._money_key)
        cost = _highest_cost(
            price, estimated_input, self._answer_lengths(endpoint, estimated_input, longest)[0]
        ).nano_usd
        if cost <= most * NANO:
            return ""
        allowed = amount(round(most * NANO), "usd")
        return f"it may cost up to {amount(cost, 'usd')}, more than budget.ask_usd ({allowed})"

    async def settle(self, reservation: Reservation, usage: TokenUsage | None) -> float | None:
        """Count the reported usage, or the full reservation without a report. Returns the cost; None if unknown."""
        if usage is not None and not (usage.input_tokens and usage.output_tokens):
            usage = None  # some servers fill the fields with zeros
        price, cost = reservation.price, None
        if price is not None and usage is not None:
            cost = cost_of(price, usage)
        elif price is not None and not _highest_cost(price, 1, 1).nano_usd:
            cost = 0  # whatever was used
        if reservation.held is not None:
            used = None if usage is None else Amount(cost or 0, usage.input_tokens + usage.output_tokens)
            reservation.notices += map(notice, await self._db.budgets.settle(reservation.held, used))
        return None if cost is None else cost / NANO

    async def paid(self, reservation: Reservation, calling: Awaitable[Reply]) -> tuple[Reply, float | None]:
        """Wait for the answer of an attempt and count what it cost; returns both. Cancelling it counts, too."""
        try:
            reply = await calling
        except BaseException as error:
            await self.failed(reservation, error)
            raise
        return reply, await self.settle(reservation, reply.usage)

    async def failed(self, reservation: Reservation, error: BaseException) -> None:
        """Count an attempt without an answer in full, unless the provider refused it or never received it."""
        if isinstance(error, ModelError) and error.unbilled:
            await self.release(reservation)
        else:
            await self.settle(reservation, None)

    async def release(self, reservation: Reservation) -> None:
        """Count nothing: the attempt was not made, or the provider refused it."""
        if reservation.held is not None:
            await self._db.budgets.release(reservation.held)

    def _answer_lengths(self, endpoint: Endpoint, estimated_input: int, longest: int | None) -> tuple[int, int]:
        """The longest and the shortest answer, in tokens, that the call may ask for."""
        field, own = provider_table.wire_for(endpoint).longest_answer(endpoint)
        room = max(endpoint.context_length - estimated_input, _LEAST_ANSWER)
        if not field:  # this provider cannot be told a maximum
            return room, room
        wanted = longest or own or min(self._config.limits.budget_answer_tokens + endpoint.thinking_tokens, room)
        return wanted, min(wanted, _LEAST_ANSWER + endpoint.thinking_tokens)

    def _cut_notice(self, endpoint: Endpoint, held: Held | None, longest: int) -> str:
        if held is not None and held.cut_by is not None:
            hint = self._raise_hint(held.cut_by)
            return f"The answer was cut at {longest:,} tokens: {_NAMES[held.cut_by.scope]} leaves no more. {hint}"
        if provider_table.wire_for(endpoint).longest_answer(endpoint).tokens is None:
            hint = "Set model.max_tokens in config.yaml for longer ones."
            return f"The answer was cut at {longest:,} tokens, because spending is limited. {hint}"
        return ""

    def _refusal(self, over: OverLimit) -> ModelError:
        verb, of_it = ("are", "of them") if over.unit == "tokens" else ("is", "of it")
        running = f" ({amount(over.reserved, over.unit)} {of_it} by calls that have not ended)" if over.reserved else ""
        most, used, asked = (amount(value, over.unit) for value in (over.most, over.used, over.asked))
        what = f"{_NAMES[over.scope]} is {most}; {used} {verb} used{running}, and this call could take {asked}"
        return ModelError(
            "budget", f"{what}. It was not made", hint=self._raise_hint(Limit(over.scope, over.unit, over.most))
        )

    def _raise_hint(self, limit: Limit) -> str:
        key, later = f"{key_of(limit)} in config.yaml", "or begin a new conversation (/new)"
        if limit.scope != "conversation":
            later = f"or go on {'next month' if limit.scope.endswith('month') else 'tomorrow'}"
        elif limit not in limits_of(self._config.budget):
            if not self._child or limit not in self._limits:
                return "A job's limit is set when it is made: hermes cron add --budget."
            key, later = "delegation.budget_usd in config.yaml", "or delegate less at once"
        return f"Raise {key}, {later}."

    def _price(self, endpoint: Endpoint) -> Price | None:
        key = (endpoint.provider, endpoint.model)
        try:
            if key not in self._prices:
                self._prices[key] = price_for(self._config, endpoint)
            return self._prices[key]
        except ConfigError as error:
            raise ModelError("budget", error.what, where=error.where, hint=error.hint) from error


def _lower(config: BudgetSection, usd: float | None) -> BudgetSection:
    """The limits with a lower one for the conversation."""
    if usd is None:
        return config
    configured = config.conversation
    return config.changed(
        conversation=configured.changed(usd=usd if configured.usd is None else min(configured.usd, usd))
    )


def limits_of(config: BudgetSection) -> tuple[Limit, ...]:
    """The configured limits, in the store's units."""
    found = []
    for scope in SCOPES:
        allowed = config.of(scope)
        if allowed.usd is not None:
            found.append(Limit(scope, "usd", round(allowed.usd * NANO)))
        if allowed.tokens is not None:
            found.append(Limit(scope, "tokens", allowed.tokens))
    return tuple(found)


def cost_of(price: Price, usage: TokenUsage) -> int:
    """The cost in nano-dollars. Cached input has its own price if the provider has one."""
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    fresh = max(0, usage.input_tokens - read - written)
    for_read = price.input if price.cache_read is None else price.cache_read
    for_written = price.input if price.cache_write is None else price.cache_write
    dollars_for_million = (
        fresh * price.input + read * for_read + written * for_written + usage.output_tokens * price.output
    )
    return round(dollars_for_million * _NANO_FOR_A_TOKEN)


def _highest_cost(price: Price | None, fed: int, answer: int) -> Amount:
    """The highest possible cost of a call: all input might be written to a cache, which costs more."""
    if price is None:
        return Amount(0, fed + answer)
    dearest = max(price.input, price.cache_write or 0.0)
    return Amount(math.ceil((fed * dearest + answer * price.output) * _NANO_FOR_A_TOKEN), fed + answer)


# -- texts ------------------------------------------------------------------------------------------------------------


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


def _unknown_price(endpoint: Endpoint, limit: str) -> ModelError:
    what = f"the price of {endpoint.model} is not known, so {limit} cannot be kept. The call was not made"
    return ModelError("budget", what, hint=f"{price_hint(endpoint.model)}.")


def price_hint(model: str) -> str:
    what = "{input: …, output: …}, dollars for a million tokens; 0 where it costs nothing"
    return f"Set models.{model}.price in config.yaml to {what}"


def unpriced(config: Config) -> tuple[str, str, str] | None:
    """(problem, hint, command) if spending is limited and the price of something configured is unknown."""
    model, limit, speech = unpriced_model(config), _money_key(config), config.stt
    if model is not None:
        what = f"the price of {model} is not known, so {limit} cannot be kept and its calls are refused"
        return what, f"{price_hint(model)}.", "hermes setup"
    elsewhere = speech.enabled and not speech.command and speech.base_url and not is_own_machine(speech.base_url)
    if elsewhere and speech.usd_per_message is None and config.budget.limits_money:
        what = f"the price of a transcription by {speech.base_url} is not known, so {limit} cannot be kept"
        return (
            f"{what} and none is made",
            "stt.usd_per_message is in dollars.",
            "hermes config set stt.usd_per_message 0.01",
        )
    return None


def unpriced_model(config: Config, *, limited: bool = False) -> str | None:
    """The first configured model without a known price, if spending is limited, or is about to be."""
    if not limited and not _money_key(config):
        return None
    beside = filter(None, (providers.auxiliary(config, task) for task in providers.AUXILIARY_TASKS))
    endpoints = (providers.primary(config), *providers.fallbacks(config), *beside)
    return next((one.model for one in endpoints if price_for(config, one) is None), None)


def _money_key(config: Config) -> str:
    """The first setting that needs prices; empty if none does."""
    of_children = "delegation.budget_usd" if config.delegation.budget_usd is not None else ""
    return config.budget.money_key or of_children


def spent_today(db: SessionDB, config: Config, person_id: PersonId) -> str:
    """Today's spend and limit: `today $0.12 of $1.00`. Reads the store, so do not call it on an event loop."""
    timed = [limit for limit in limits_of(config.budget) if limit.scope != "conversation"]
    if timed:
        used, limit = max(((_used(db, limit, person_id), limit) for limit in timed), key=_used_share)
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


def _used_share(row: tuple[int, Limit]) -> tuple[float, bool]:
    """Sort key: the limit with the largest used share first; among equals, money before tokens."""
    used, limit = row
    return (used / limit.most if limit.most else 1.0, limit.unit == "usd")
