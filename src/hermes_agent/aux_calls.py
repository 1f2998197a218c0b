"""Auxiliary model calls outside the conversation (summary, title): one question, one text, within the budget.

`ask_beside` asks the model that `auxiliary.<task>` names, and the conversation's own if that one cannot answer. Budget
and usage count for the model that was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes_agent.models import call, provider_table, providers
from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_agent.prompt import tokens
from hermes_state.ids import ConversationId, PersonId, SessionId

if TYPE_CHECKING:
    from hermes_agent.budget import Budget
    from hermes_agent.prompt.transcript import Content
    from hermes_agent.turn.state import Setup
    from hermes_config.limits import Limits
    from hermes_state import SessionDB

_log = logging.getLogger("hermes.agent")

Permit = Callable[[Endpoint, str], Coroutine[Any, Any, None]]
"""Called with the endpoint and the reason to ask. Raises `ModelError("budget")` unless the person approves."""


async def ask_beside(
    setup: Setup, main: Endpoint, prompt: str, *, task: str, max_tokens: int, seconds: float | None = None, **more: Any
) -> str:
    """`ask` the task's own model; `main` without one, if the question is too long for it, or if it fails.

    `seconds`: the time limit of each of the two; by default the first gets half of `limits.summary_seconds`.
    """
    cheaper = providers.auxiliary(setup.config, task)
    if cheaper is not None and cheaper != main:
        try:
            if tokens.of_text(prompt, cheaper.model) + max_tokens > cheaper.context_length:
                raise ModelError("context_overflow", "the question is too long for it")
            most = setup.db.limits.summary_seconds / 2 if seconds is None else seconds
            return await ask(setup, cheaper, prompt, task=task, max_tokens=max_tokens, seconds=most, **more)
        except (ModelError, TimeoutError) as error:
            kind = error.kind if isinstance(error, ModelError) else "timeout"
            _log.warning(
                "auxiliary.%s: %s could not be asked (%s); asking %s", task, cheaper.where, kind, main.where,
                extra={"action": "auxiliary_failed"},
            )  # fmt: skip
    return await ask(setup, main, prompt, task=task, max_tokens=max_tokens, seconds=seconds, **more)


async def ask(
    setup: Setup,
    endpoint: Endpoint,
    prompt: Content,
    *,
    task: str,
    system: str,
    max_tokens: int,
    conversation_id: ConversationId,
    session_id: SessionId,
    permit: Permit | None = None,
    seconds: float | None = None,
    on_reply: Callable[[Endpoint, Reply, float | None], None] | None = None,
) -> str:
    """Ask the model and return its text. Temporary errors are retried, after the pause the provider asks for.

    `permit` asks a person about an expensive call (`budget.ask_usd`); without it such a call is refused. `on_reply`
    gets the endpoint, the reply and its cost. Raises `ModelError` or `TimeoutError`; the caller must be able to
    continue without an answer.
    """
    wire = provider_table.wire_for(endpoint)
    head, fragments = wire.head(endpoint, system, ()), wire.fragments([{"role": "user", "content": prompt}])
    own, longest = wire.longest_answer(endpoint).tokens, max_tokens + endpoint.thinking_tokens
    longest = longest if own is None else min(longest, own)
    size = tokens.weight(wire.join(head, fragments, wire.ending(endpoint, longest)))
    estimated = tokens.estimate(size, endpoint.model)
    if permit is not None and (why := setup.budget.asks_first(endpoint, estimated, longest)):
        await permit(endpoint, why)
    asked = send(
        setup.db, setup.budget, endpoint, lambda most: wire.join(head, fragments, wire.ending(endpoint, most)),
        estimated=estimated, most_input=size, longest=longest, conversation_id=conversation_id, session_id=session_id,
        person_id=setup.person_id, task=task, max_retries=setup.max_retries, limits=setup.config.limits,
        permitted=permit is not None,
    )  # fmt: skip
    async with asyncio.timeout(seconds):
        reply, cost = await asked
    if on_reply is not None:
        on_reply(endpoint, reply, cost)
    return (reply.content or "").strip()


async def send(
    db: SessionDB,
    budget: Budget,
    endpoint: Endpoint,
    body: Callable[[int | None], bytes],
    *,
    estimated: int,
    most_input: int,
    longest: int | None,
    conversation_id: ConversationId,
    session_id: SessionId,
    person_id: PersonId | None,
    task: str,
    max_retries: int,
    limits: Limits,
    permitted: bool = False,
) -> tuple[Reply, float | None]:
    """Make one call with retries; count its usage under `task`. Returns the reply and its cost.

    `body` renders the request for an answer of at most so many tokens (None: the endpoint's own limit). A call that
    would have to be asked about (`budget.ask_usd`) is refused, unless it was `permitted`.
    """
    if not permitted and (why := budget.asks_first(endpoint, estimated, longest)):
        what = f"{why}; the call was not made, because nobody can be asked here"
        raise ModelError("budget", what, hint="Raise budget.ask_usd in config.yaml.")
    costs: list[float | None] = []

    async def attempt() -> Reply:
        reservation = await budget.reserve(
            endpoint, estimated_input=estimated, most_input=most_input, longest=longest,
            conversation_id=conversation_id, person_id=person_id, task=task,
        )  # fmt: skip
        calling = call.call(endpoint, body(reservation.longest), bounds=limits)
        reply, cost = await budget.paid(reservation, calling)
        costs.append(cost)
        if reply.usage is not None:
            await asyncio.to_thread(
                db.record_auxiliary_usage, session_id, task, model=endpoint.model,
                billing_provider=endpoint.provider, billing_base_url=endpoint.base_url, estimated_cost_usd=cost,
                counted=budget.configured, **reply.usage.as_dict(),
            )  # fmt: skip
        return reply

    reply = await call.retried(attempt, max_retries=max_retries, bounds=limits)
    return reply, costs[-1]
