"""What a model costs: `models.<id>.price` of the configuration, else a dated table, else nobody knows.

    models:
      anthropic/claude-sonnet-4.6:
        price: {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}

The table holds list prices for a million tokens as found in public documentation by `AS_OF`. It is indicative: prices
change, resellers add to them, and tiers by length or priority are not in it (a model that has them is left out). A
model that is not in the table has no price rather than a guessed one; whoever sets a money limit names it then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_agent.models.base import Endpoint, Price
from hermes_agent.models.providers import fault
from hermes_config.config import Config

if TYPE_CHECKING:
    from hermes_config.sections import PriceSection


AS_OF = "2026-11"
FREE = frozenset({"demo", "ollama", "lmstudio", "llamacpp", "vllm", "local"})
"""Providers that run on the person's own machine."""

# (input, output, cache read, cache write of five minutes) for a million tokens. None: writing to the cache costs
# nothing extra.
_PRICES: dict[str, tuple[float, float, float, float | None]] = {
    "claude-opus-5": (5, 25, 0.5, 6.25),
    "claude-opus-4-8": (5, 25, 0.5, 6.25),
    "claude-opus-4-7": (5, 25, 0.5, 6.25),
    "claude-opus-4-6": (5, 25, 0.5, 6.25),
    "claude-opus-4-5": (5, 25, 0.5, 6.25),
    "claude-opus-4-1": (15, 75, 1.5, 18.75),
    "claude-opus-4": (15, 75, 1.5, 18.75),
    "claude-sonnet-4-6": (3, 15, 0.3, 3.75),
    "claude-sonnet-4-5": (3, 15, 0.3, 3.75),
    "claude-sonnet-4": (3, 15, 0.3, 3.75),
    "claude-3-7-sonnet": (3, 15, 0.3, 3.75),
    "claude-3-5-sonnet": (3, 15, 0.3, 3.75),
    "claude-haiku-4-5": (1, 5, 0.1, 1.25),
    "claude-3-5-haiku": (0.8, 4, 0.08, 1.0),
    "gpt-5.2": (1.75, 14, 0.175, None),
    "gpt-5.1": (1.25, 10, 0.125, None),
    "gpt-5": (1.25, 10, 0.125, None),
    "gpt-5-mini": (0.25, 2, 0.025, None),
    "gpt-5-nano": (0.05, 0.4, 0.005, None),
    "gpt-4.1": (2, 8, 0.5, None),
    "gpt-4.1-mini": (0.4, 1.6, 0.1, None),
    "gpt-4.1-nano": (0.1, 0.4, 0.025, None),
    "gpt-4o": (2.5, 10, 1.25, None),
    "gpt-4o-mini": (0.15, 0.6, 0.075, None),
    "o3": (2, 8, 0.5, None),
    "o4-mini": (1.1, 4.4, 0.275, None),
}
_DATE = re.compile(r"[-@](?:latest|preview|\d{8}|\d{4}-\d{2}-\d{2})$")
_FIELDS = ("input", "output", "cache_read", "cache_write")


def price_for(config: Config, endpoint: Endpoint) -> Price | None:
    """`models.<id>.price`, else the shipped table, else None."""
    for name in _names(endpoint):
        entry = _entry(config, name)
        if entry is not None:
            return _configured(config, name, entry)
    if endpoint.provider in FREE or endpoint.model.endswith(":free"):
        return Price(0.0, 0.0, 0.0, 0.0, source="runs without charge")
    bare = _DATE.sub("", endpoint.model.lower().rpartition("/")[2])
    found = _PRICES.get(bare) or _PRICES.get(bare.replace(".", "-"))
    return Price(*found, source=f"list price, table of {AS_OF}") if found else None


def _names(endpoint: Endpoint) -> tuple[str, ...]:
    """The ids under which a person may have written a price, the most exact first."""
    dotted = re.sub(r"(?<=\d)-(?=\d)", ".", endpoint.model)  # as OpenRouter spells what Anthropic calls 4-6
    spelled = (endpoint.model, dotted) if endpoint.provider == "anthropic" else (endpoint.model,)
    return tuple(dict.fromkeys(name for one in spelled for name in (f"{endpoint.provider}/{one}", one)))


def _entry(config: Config, name: str) -> PriceSection | None:
    config.require(f"models.{name}.price")
    return config.models[name].price if name in config.models else None


def _configured(config: Config, name: str, entry: PriceSection) -> Price:
    for field in ("input", "output"):
        if getattr(entry, field) is None:
            raise fault(config, f"models.{name}.price.{field}", "is missing")
    amounts = {field: value for field in _FIELDS if (value := getattr(entry, field)) is not None}
    return Price(**amounts, source="config.yaml")
