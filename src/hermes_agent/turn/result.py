"""The end of a turn: its outcome, its cost, and the result dictionary of the contract (§4.2)."""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hermes_agent.models.base import Endpoint, ErrorKind, TokenUsage
from hermes_state.ids import SessionId
from hermes_state.people.usage import Used
from hermes_state.turns.outbox import OutboxItem

Message = dict[str, Any]


@dataclass(slots=True)
class _Sum:
    """Tokens and cost of several model calls."""

    calls: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = None

    def add(self, usage: TokenUsage | None, cost: float | None) -> None:
        self.calls += 1
        if usage is not None:
            self.usage += usage
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


@dataclass(slots=True)
class Spent(_Sum):
    """The sum of a turn's model calls, and each endpoint's part in it, as a fallback has its own price."""

    last_prompt_tokens: int = 0
    notices: tuple[str, ...] = ()
    person_id: str | None = None
    counted: bool = True
    """As in `Used`."""
    _parts: dict[tuple[str, str, str], _Sum] = field(default_factory=dict)
    """The sums by model, provider and address."""

    def add_call(self, endpoint: Endpoint, usage: TokenUsage | None, cost: float | None) -> None:
        self.add(usage, cost)
        route = (endpoint.model, endpoint.provider, endpoint.base_url)
        self._parts.setdefault(route, _Sum()).add(usage, cost)
        self.last_prompt_tokens = self.last_prompt_tokens if usage is None else usage.input_tokens

    def used(self) -> tuple[Used, ...]:
        """The usage of each endpoint, for the session's counters."""
        return tuple(
            Used(
                **part.usage.as_dict(), api_call_count=part.calls, estimated_cost_usd=part.cost,
                cost_status="estimated" if part.cost is not None else "unknown", model=model,
                billing_provider=provider, billing_base_url=base_url, person_id=self.person_id, counted=self.counted,
            )
            for (model, provider, base_url), part in self._parts.items()
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended."""

    text: str | None
    exit_reason: str
    spent: Spent
    endpoint: Endpoint
    failed: bool = False
    partial: bool = False
    interrupted: bool = False
    error: str | None = None
    error_kind: ErrorKind | None = None
    """The kind of the model error; None for every other end."""
    compression_exhausted: bool = False
    reasoning: str | None = None
    transformed: bool = False
    steps: int = 0
    outbox_item: OutboxItem | None = None
    """The reply that was stored for the chat that asked."""
    waits_for: str = ""
    """The permission question for which the turn waits; such a turn has not ended yet."""


class ResultHistory(UserList[Message]):
    """The conversation after the turn, read from the store on first use; most callers never use it."""

    def __init__(self, read: Callable[[], list[Message]]) -> None:
        self._read = read

    @cached_property
    def data(self) -> list[Message]:  # type: ignore[override]
        return self._read()


def result_of(outcome: TurnOutcome, *, session_id: SessionId, history: ResultHistory) -> dict[str, Any]:
    """The result dictionary: the keys that are always present, and those that apply to this turn."""
    result = {**facts_of(outcome, session_id=session_id), "messages": history}
    if outcome.outbox_item is not None:
        result["outbox_item"] = outcome.outbox_item
    if outcome.waits_for:
        result["waits_for"] = outcome.waits_for
    return result


def facts_of(outcome: TurnOutcome, *, session_id: SessionId) -> dict[str, Any]:
    """The result without the conversation; a chat's reply is made from it before the turn is committed."""
    usage, spent, endpoint = outcome.spent.usage, outcome.spent, outcome.endpoint
    result: dict[str, Any] = {
        "final_response": outcome.text, "last_reasoning": outcome.reasoning,
        "api_calls": spent.calls, "completed": not (outcome.failed or outcome.interrupted or outcome.partial),
        "turn_exit_reason": outcome.exit_reason, "failed": outcome.failed, "partial": outcome.partial,
        "interrupted": outcome.interrupted, "response_transformed": outcome.transformed, "response_previewed": False,
        "model": endpoint.model, "provider": endpoint.provider, "base_url": endpoint.base_url,
        **usage.as_dict(), "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "last_prompt_tokens": spent.last_prompt_tokens, "estimated_cost_usd": spent.cost or 0.0,
        "cost_status": "unknown" if spent.cost is None else "estimated", "cost_source": None, "service_tier": None,
        "session_id": session_id,
    }  # fmt: skip
    if spent.notices:
        result["notices"] = spent.notices
    if outcome.error is not None:
        result["error"] = outcome.error
    if outcome.error_kind is not None:
        result["error_kind"] = outcome.error_kind
    if outcome.compression_exhausted:
        result["compression_exhausted"] = True
    return result
