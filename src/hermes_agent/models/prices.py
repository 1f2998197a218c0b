"""What a model costs."""

from __future__ import annotations

from hermes_agent.models.base import Endpoint, Price
from hermes_config.config import Config


def price_for(config: Config, endpoint: Endpoint) -> Price | None:
    """`models.<id>.price`, else the shipped table, else None."""
    raise NotImplementedError
