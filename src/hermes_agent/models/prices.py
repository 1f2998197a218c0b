"""The price of a model: `models.<id>.price` of the configuration, else a dated table, else unknown.

    models:
      anthropic/claude-sonnet-4.6:
        price: {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}

The table of providers holds list prices for a million tokens as found in public documentation by `AS_OF`. It is
indicative: prices change, resellers add to them, and tiers by length or priority are not in it (a model that has them
is left out). A model outside the table has no price rather than a guessed one; to limit its spending in money, set its
price in config.yaml.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_agent.models import provider_table
from hermes_agent.models.base import Endpoint, Price
from hermes_agent.models.providers import fault
from hermes_cli import plugins
from hermes_config.config import Config

if TYPE_CHECKING:
    from hermes_config.sections import PriceSection


AS_OF = "2026-11"
_DATE = re.compile(r"[-@](?:latest|preview|\d{8}|\d{4}-\d{2}-\d{2})$")
_FIELDS = ("input", "output", "cache_read", "cache_write")


def price_for(config: Config, endpoint: Endpoint) -> Price | None:
    """`models.<id>.price`, else the shipped table, else None."""
    for name in _names(endpoint):
        entry = _entry(config, name)
        if entry is not None:
            return _configured(config, name, entry)
    rows = provider_table.table()
    own = rows.get(endpoint.provider)
    if (own is not None and own.local) or endpoint.model.endswith(":free"):
        return Price(0.0, 0.0, 0.0, 0.0, source="runs without charge")
    bare = _DATE.sub("", endpoint.model.lower().rpartition("/")[2])
    for row in (own, *rows.values()):  # the endpoint's provider first; else, for a reseller, the model's maker
        listed = {} if row is None else row.prices
        if found := listed.get(bare) or listed.get(bare.replace(".", "-")):
            ours = row is not None and row.name in plugins.built_in("providers")
            return Price(*found, source=f"list price, table of {AS_OF}" if ours else "price of the plug-in")
    return None


def _names(endpoint: Endpoint) -> tuple[str, ...]:
    """The ids under which config.yaml may hold a price, the most exact first."""
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
