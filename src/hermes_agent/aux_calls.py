"""Auxiliary model calls outside the conversation (summary, title): one question, one text, within the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes_agent.models import call, provider_table
from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_agent.prompt import tokens
from hermes_state.ids import ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_agent.turn.state import Setup

Permit = Callable[[Endpoint, str], Coroutine[Any, Any, None]]
"""Called with the endpoint and the reason to ask. Raises `ModelError("budget")` unless the person approves."""


async def ask(
    setup: Setup,
    endpoint: Endpoint,
    prompt: str,
    *,
    task: str,
    system: str,
    max_tokens: int,
    conversation_id: ConversationId,
    session_id: SessionId,
    permit: Permit | None = None,
    seconds: float | None = None,
) -> str:
    """Ask the model and return its text. Temporary errors are retried, after the pause the provider asks for.

    `permit` asks a person about an expensive call (`budget.ask_usd`); without it such a call is refused. Raises
    `ModelError` or `TimeoutError`; the caller must be able to continue without an answer.
    """
    wire = provider_table.wire_for(endpoint)
    head, fragments = wire.head(endpoint, system, ()), wire.fragments([{"role": "user", "content": prompt}])
    size = len(wire.join(head, fragments, wire.ending(endpoint, max_tokens)))
    own = wire.longest_answer(endpoint).tokens
    longest = max_tokens if own is None else min(max_tokens, own)
    estimated = tokens.estimate(size, endpoint.model)
    if why := setup.budget.asks_first(endpoint, estimated, longest):
        if permit is None:
            raise ModelError("budget", f"{why}; the call was not made, because nobody can be asked here")
        await permit(endpoint, why)

    async def attempt() -> Reply:
        reservation = await setup.budget.reserve(
            endpoint, estimated_input=estimated, most_input=size, longest=longest,
            conversation_id=conversation_id, person_id=setup.person_id, task=task,
        )  # fmt: skip
        body = wire.join(head, fragments, wire.ending(endpoint, reservation.longest))
        try:
            reply = await call.call(endpoint, body, bounds=setup.config.limits)
        except BaseException as error:
            await setup.budget.failed(reservation, error)
            raise
        cost = await setup.budget.settle(reservation, reply.usage)
        if reply.usage is not None:
            await asyncio.to_thread(
                setup.db.record_auxiliary_usage, session_id, task, model=endpoint.model,
                billing_provider=endpoint.provider, billing_base_url=endpoint.base_url, estimated_cost_usd=cost,
                **reply.usage.as_dict(),
            )  # fmt: skip
        return reply

    async with asyncio.timeout(seconds):
        reply = await call.retried(attempt, max_retries=setup.max_retries, bounds=setup.config.limits)
    return (reply.content or "").strip()
