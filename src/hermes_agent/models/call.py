"""One call to a model, and bounded retry of one.

A call is repeated after a temporary error: rate limits, overload, server errors, the network, an incomplete answer.
Waits double and are jittered. A pause that the provider asks for is kept, but a pause longer than
`limits.model_retry_wait_ms` fails the call at once, so that a fallback is tried instead of making a person wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hermes_agent.models import errors
from hermes_agent.models.base import Endpoint, ModelError, OnDelta, Reply
from hermes_agent.models.provider_table import wire_for
from hermes_agent.models.stream_reader import Lines, error_of
from hermes_config import config
from hermes_config.limits import Limits

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 20.0


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry that is about to happen, reported before its wait."""

    attempt: int
    """The number of the failed attempt, from 1."""
    max_retries: int
    wait: float
    error: ModelError


OnRetry = Callable[[Retry], None]


async def call(
    endpoint: Endpoint, body: bytes, on_delta: OnDelta | None = None, *, bounds: Limits | None = None
) -> Reply:
    """One attempt. Raises `ModelError`; cancellation closes the connection. `bounds`: the configured ones, if known."""
    temporary = endpoint.refreshed and not endpoint.api_key
    if not endpoint.more_keys and not temporary:
        return await _call(endpoint, body, on_delta, bounds)
    from hermes_agent.models import keys  # few endpoints need it

    with_key = keys.call_with_credential if temporary else keys.call_with_keys
    return await with_key(endpoint, lambda keyed: _call(keyed, body, on_delta, bounds))


async def _call(endpoint: Endpoint, body: bytes, on_delta: OnDelta | None, bounds: Limits | None) -> Reply:
    from hermes_agent.models import http  # late: it imports httpx2, which takes longer than most commands

    bounds = bounds or config.load_or_last_good()[0].limits
    wire = wire_for(endpoint)
    try:
        async with asyncio.timeout(bounds.model_first_byte_ms / 1000) as timer:
            answer = await http.post(endpoint, wire.path(), wire.headers(endpoint), body, bounds)
            try:
                lines = Lines(endpoint, answer, bounds, timer)
                if answer.status_code != 200:
                    raise await error_of(lines, endpoint, answer)
                reply = await wire.read(lines, on_delta)
                await lines.drain()
                return reply
            finally:
                await answer.close()
    except ModelError as error:
        raise errors.placed(error, endpoint) from error.__cause__
    except TimeoutError as error:
        raise errors.from_network(endpoint, error) from error


async def retried(
    attempt: Callable[[], Awaitable[Reply]],
    *,
    max_retries: int = 3,
    on_retry: OnRetry | None = None,
    first_wait: float = _FIRST_WAIT,
    bounds: Limits | None = None,
) -> Reply:
    """Run `attempt` and repeat it after temporary errors; return its result."""
    bounds = bounds or config.load_or_last_good()[0].limits
    number = 0
    while True:
        number += 1
        try:
            return await attempt()
        except ModelError as error:
            wait = wait_before(error, number, first_wait=first_wait, longest=bounds.model_retry_wait_ms / 1000)
            if wait is None or number > max_retries:
                raise
            if on_retry is not None:
                on_retry(Retry(number, max_retries, wait, error))
        await asyncio.sleep(wait)


def wait_before(error: ModelError, attempt: int, *, first_wait: float, longest: float) -> float | None:
    """Seconds until the next attempt; None for no attempt, if the provider asks for more than `longest`."""
    if not error.retryable:
        return None
    if error.retry_after is None:
        return min(_LONGEST_WAIT, first_wait * 2.0 ** (attempt - 1)) * random.uniform(0.8, 1.2)
    return None if error.retry_after > longest else error.retry_after + first_wait * random.random()
