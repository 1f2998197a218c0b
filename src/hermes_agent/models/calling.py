"""One call to a model, and a call with bounded retry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hermes_agent.models.base import Endpoint, ModelError, OnDelta, Reply


@dataclass(frozen=True, slots=True)
class Retry:
    """Told before a wait."""

    attempt: int
    """The one that failed, from 1."""
    max_retries: int
    wait: float
    error: ModelError


OnRetry = Callable[[Retry], None]


async def call(endpoint: Endpoint, body: bytes, on_delta: OnDelta | None = None) -> Reply:
    """One attempt. Raises `ModelError`; cancellation closes the connection."""
    raise NotImplementedError


async def call_with_retry(
    endpoint: Endpoint,
    body: bytes,
    on_delta: OnDelta | None = None,
    *,
    max_retries: int = 3,
    on_retry: OnRetry | None = None,
    retry_after_text: bool = False,
) -> Reply:
    """`call`, again after a passing fault. Not again once text was shown, unless the caller can take it back."""
    raise NotImplementedError
