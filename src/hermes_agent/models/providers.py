"""From configuration to endpoints."""

from __future__ import annotations

from dataclasses import dataclass

from hermes_agent.models.base import Endpoint
from hermes_config.config import Config


@dataclass(frozen=True, slots=True)
class Description:
    """An endpoint as a person may see it: no secret in it."""

    provider: str
    model: str
    wire: str
    base_url: str
    context_length: int
    max_tokens: int | None
    key_from: str


def primary(config: Config, *, model: str | None = None, provider: str | None = None) -> Endpoint:
    """The configured model, or what `--model` and `--provider` say. Raises `ConfigError`, one line."""
    raise NotImplementedError


def fallbacks(config: Config) -> tuple[Endpoint, ...]:
    """`fallback_providers` in order, then the legacy `fallback_model`; those without a key are left out."""
    raise NotImplementedError


def describe(endpoint: Endpoint) -> Description:
    raise NotImplementedError
