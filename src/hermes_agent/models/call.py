"""One call to a model, and a call with bounded retry.

A call is sent again after a passing fault: rate limits, overload, server errors, the network. Waits double and are
jittered; a pause the provider asks for is kept, and when it asks for more than `limits.model_retry_wait_ms` the call
fails at once, so that a fallback can be tried instead of a person waiting. Once text was shown it is not taken back:
the call fails with what had arrived, unless the caller can cope with the text coming again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from hermes_agent.models import errors, http
from hermes_agent.models.base import Delta, Endpoint, ModelError, OnDelta, Reply
from hermes_agent.models.provider_table import wire_for
from hermes_config import config
from hermes_config.limits import Limits

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 20.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Told before a wait."""

    attempt: int
    """The one that failed, from 1."""
    max_retries: int
    wait: float
    error: ModelError


OnRetry = Callable[[Retry], None]


async def call(
    endpoint: Endpoint, body: bytes, on_delta: OnDelta | None = None, *, bounds: Limits | None = None
) -> Reply:
    """One attempt. Raises `ModelError`; cancellation closes the connection. `bounds`: the configured ones, if known."""
    bounds = bounds or config.load_or_last_good()[0].limits
    wire = wire_for(endpoint)
    try:
        async with asyncio.timeout(bounds.model_first_byte_ms / 1000) as timer:
            response = await http.post(endpoint, wire.path(), wire.headers(endpoint), body, bounds)
            try:
                lines = http.Lines(endpoint, response, bounds, timer)
                if response.status_code != 200:
                    raise await http.error_of(lines, endpoint, response)
                reply = await wire.read(lines, on_delta)
                await lines.drain()
                return reply
            finally:
                await response.aclose()
    except ModelError as error:
        raise errors.placed(error, endpoint) from error.__cause__
    except TimeoutError as error:
        raise errors.from_network(endpoint, error) from error


async def call_with_retry(
    endpoint: Endpoint,
    body: bytes,
    on_delta: OnDelta | None = None,
    *,
    max_retries: int = 3,
    on_retry: OnRetry | None = None,
    retry_after_text: bool = False,
    first_wait: float = _FIRST_WAIT,
    bounds: Limits | None = None,
) -> Reply:
    """`call`, again after a passing fault. Not again once text was shown, unless the caller can take it back."""
    shown = False

    def watch(delta: Delta) -> None:
        nonlocal shown
        shown = shown or delta.kind == "text"
        if on_delta is not None:
            on_delta(delta)

    attempt = 0
    while True:
        attempt += 1
        try:
            return await call(endpoint, body, watch if on_delta is not None else None, bounds=bounds)
        except ModelError as error:
            wait = wait_before(error, attempt, first_wait=first_wait)
            if wait is None or attempt > max_retries or (shown and not retry_after_text):
                raise
            if on_retry is not None:
                on_retry(Retry(attempt, max_retries, wait, error))
        await asyncio.sleep(wait)


def wait_before(error: ModelError, attempt: int, *, first_wait: float = _FIRST_WAIT) -> float | None:
    """Seconds until the next attempt; None when there is to be none."""
    if not error.retryable:
        return None
    jitter = random.uniform(0.8, 1.2)
    if error.retry_after is None:
        return float(min(_LONGEST_WAIT, first_wait * 2 ** (attempt - 1)) * jitter)
    longest = config.load_or_last_good()[0].limits.model_retry_wait_ms / 1000
    if error.retry_after > longest:
        return None
    return error.retry_after + first_wait * random.random()
