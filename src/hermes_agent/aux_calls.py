"""Small calls beside the conversation: a summary, a title. One question, one text, counted like any other call."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from hermes_agent.models import call, provider_table
from hermes_agent.models.base import Endpoint
from hermes_agent.prompt import tokens
from hermes_state.ids import ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_agent.turn.state import Setup


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
    seconds: float = 120.0,
) -> str:
    """The model's text. Raises `ModelError` or `TimeoutError`; the caller has a way on without an answer."""
    wire = provider_table.wire_for(endpoint)
    small = replace(endpoint, max_tokens=max_tokens)
    body = wire.join(wire.head(small, system, ()), wire.fragments([{"role": "user", "content": prompt}]))
    reservation = await setup.budget.reserve(
        small, estimated_input=tokens.estimate(len(body), endpoint.model), max_tokens=max_tokens,
        conversation_id=conversation_id, person_id=setup.person_id, task=task,
    )  # fmt: skip
    try:
        reply = await asyncio.wait_for(call.call(small, body), seconds)
    except BaseException:
        await setup.budget.release(reservation)
        raise
    cost = await setup.budget.settle(reservation, reply.usage)
    if reply.usage is not None:
        await asyncio.to_thread(
            setup.db.record_auxiliary_usage, session_id, task, model=endpoint.model, billing_provider=endpoint.provider,
            billing_base_url=endpoint.base_url, estimated_cost_usd=cost, **asdict(reply.usage),
        )  # fmt: skip
    return (reply.content or "").strip()
