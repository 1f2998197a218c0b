"""`budget:` — how much may be spent: by one conversation, by one person a day, by everybody a day.

    budget:
      day: {usd: 10}
      person_day: {usd: 2, tokens: 500000}
      conversation: {usd: 5}

A limit that is not there does not limit; 0 allows nothing that costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hermes_config.section import Section
from hermes_config.yaml_file import Document

Scope = Literal["day", "person_day", "conversation"]
SCOPES: tuple[Scope, ...] = ("day", "person_day", "conversation")

_MOST_USD = 1_000_000_000
_MOST_TOKENS = 10**15


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one scope may use; None for as much as it likes."""

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    day: Allowance = Allowance()
    person_day: Allowance = Allowance()
    conversation: Allowance = Allowance()

    def of(self, scope: Scope) -> Allowance:
        return {"day": self.day, "person_day": self.person_day, "conversation": self.conversation}[scope]

    @property
    def limits_money(self) -> bool:
        return any(self.of(scope).usd is not None for scope in SCOPES)


def read_budget(source: Document) -> BudgetConfig:
    """From a document; raises `ConfigError` with file, line, key and reason."""
    Section(source, "budget", known=SCOPES, closed=True)
    return BudgetConfig(**{scope: _allowance(source, scope) for scope in SCOPES})


def _allowance(source: Document, scope: Scope) -> Allowance:
    section = Section(source, f"budget.{scope}", known=("usd", "tokens"), closed=True)
    return Allowance(
        usd=section.amount("usd", maximum=_MOST_USD),
        tokens=section.maybe_whole("tokens", minimum=0, maximum=_MOST_TOKENS),
    )
