"""One model step: reserve, send, read, settle — and what is done when it fails.

A passing fault is retried on the same endpoint, a lasting one moves on to the next of the fallback chain; the primary
comes first again at the next turn. An endpoint keeps its own bytes, so going over to another and back breaks nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hermes_agent import hooks
from hermes_agent.models.base import Delta, Endpoint, ModelError, Reply, Usage
from hermes_agent.models.call import Retry, call_with_retry
from hermes_agent.prompt import tokens
from hermes_agent.prompt.transcript import Body, TranscriptCache
from hermes_agent.setup import Setup
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals, Stop
from hermes_state.people.usage import Used
from hermes_state.turns.journal import Journal

T = TypeVar("T")

# What another endpoint may well manage. A request that is wrong in itself is wrong everywhere.
_ELSEWHERE = ModelError.RETRYABLE | {"auth", "billing", "model_not_found", "policy"}


class Interrupted(Exception):
    """The person stopped the turn; `text` is what was shown until then."""

    def __init__(self, text: str) -> None:
        super().__init__("interrupted")
        self.text = text


async def until_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """What the work gives. It is cancelled, and `Interrupted` raised, as soon as the person stops the turn."""
    task = asyncio.current_task()
    assert task is not None, "a turn is a task"
    before, told = task.cancelling(), False

    def cancel() -> None:
        nonlocal told
        told = True
        task.cancel()

    if stop.is_set():
        work.close()
        raise Interrupted("")
    stop.tell(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if told and task.cancelling() == before + 1:  # nobody else wants it ended
            raise Interrupted("") from None
        raise
    finally:
        stop.forget(cancel)
        if told:
            task.uncancel()


@dataclass(slots=True)
class Spent:
    """What the calls of a turn came to."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    last_prompt_tokens: int = 0
    cost: float | None = None
    notices: tuple[str, ...] = ()
    person_id: str | None = None

    def add(self, usage: Usage | None, cost: float | None) -> None:
        self.calls += 1
        if usage is None:
            return
        self.last_prompt_tokens = usage.input_tokens
        self.usage += usage
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def used(self, endpoint: Endpoint) -> Used:
        """For the session's counters."""
        u = self.usage
        return Used(
            input_tokens=u.input_tokens, output_tokens=u.output_tokens, cache_read_tokens=u.cache_read_tokens,
            cache_write_tokens=u.cache_write_tokens, reasoning_tokens=u.reasoning_tokens, api_call_count=self.calls,
            estimated_cost_usd=self.cost, cost_status="estimated" if self.cost is not None else "unknown",
            model=endpoint.model, billing_provider=endpoint.provider, billing_base_url=endpoint.base_url,
            person_id=self.person_id,
        )  # fmt: skip


class _Heard:
    """What has arrived of an answer. All of it is paid for; the text alone was shown as the answer."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.all: list[str] = []


class Asker:
    """Asks the model, for one turn."""

    def __init__(
        self, setup: Setup, track: TranscriptCache, journal: Journal, listeners: Callbacks, signals: Signals
    ) -> None:
        self._setup, self._track, self._journal = setup, track, journal
        self._listeners, self._signals = listeners, signals
        self._chain = (setup.endpoint, *setup.fallbacks)
        self._at = 0
        self.spent = Spent(person_id=setup.person_id)

    @property
    def endpoint(self) -> Endpoint:
        return self._chain[self._at]

    async def ask(self, stop: Stop) -> Reply:
        """The model's next step; moves along the chain when an endpoint gives up."""
        while True:
            heard = _Heard()
            try:
                return await self._try(stop, heard)
            except ModelError as error:
                said = {"type": error.kind, "message": error.one_line()}
                await hooks.fire(
                    "api_request_error", **self._facts(), reason=error.kind, status_code=error.status,
                    retryable=error.retryable, error=said,
                )  # fmt: skip
                if error.kind not in _ELSEWHERE or self._at + 1 >= len(self._chain) or heard.text:
                    raise
                failed, self._at = self.endpoint, self._at + 1
                self._listeners.tell_status(
                    "warn",
                    f"{failed.provider}/{failed.model}: {error.what}; going on with "
                    f"{self.endpoint.provider}/{self.endpoint.model}",
                )  # fmt: skip

    async def _try(self, stop: Stop, heard: _Heard) -> Reply:
        endpoint = self.endpoint
        conversation = self._track.of(endpoint)
        # Bytes that are there are joined at once; what has to be read first is read beside the loop.
        cold = conversation.nbytes == 0
        body = await asyncio.to_thread(conversation.body, endpoint) if cold else conversation.body(endpoint)
        self._track.watch.check(body, endpoint)
        estimate = tokens.estimate(body.weight, endpoint.model)
        reservation = await self._setup.budget.reserve(
            endpoint, estimated_input=estimate, max_tokens=endpoint.max_tokens,
            conversation_id=self._journal.conversation_id, person_id=self._setup.person_id,
        )  # fmt: skip
        began = time.time()
        try:
            await hooks.fire("pre_api_request", **self._facts(), started_at=began, message_count=body.rows)
            reply = await self._send(endpoint, body, stop, heard)
        except BaseException:
            await self._setup.budget.release(reservation, received="".join(heard.all))
            raise
        cost = await self._setup.budget.settle(reservation, reply.usage)
        self.spent.add(reply.usage, cost)
        self.spent.notices += tuple(reservation.notices)
        for notice in reservation.notices:
            self._listeners.tell_status("warn", notice)
        if reply.usage is not None and reply.usage.input_tokens:
            conversation.measured(body, endpoint, reply.usage.input_tokens)
        await hooks.fire(
            "post_api_request", **self._facts(), ended_at=time.time(), api_duration=time.time() - began,
            finish_reason=reply.finish_reason, usage=reply.usage,
        )  # fmt: skip
        return reply

    async def _send(self, endpoint: Endpoint, body: Body, stop: Stop, heard: _Heard) -> Reply:
        """The call, given up at once when the person stops the turn: cancelling closes the connection."""
        call = call_with_retry(
            endpoint, body.content, lambda delta: self._hear(delta, heard),
            max_retries=self._setup.max_retries, on_retry=self._say_retry,
            bounds=self._setup.config.limits,
        )  # fmt: skip
        try:
            return await until_stopped(call, stop)
        except Interrupted:
            raise Interrupted("".join(heard.text)) from None

    def _hear(self, delta: Delta, heard: _Heard) -> None:
        heard.all.append(delta.text)
        if delta.kind == "text":
            heard.text.append(delta.text)
            self._listeners.tell_text(delta.text)
        elif delta.kind == "reasoning":
            self._listeners.tell_reasoning(delta.text)
        else:
            self._listeners.tell_tool_named(delta.text)

    def _say_retry(self, retry: Retry) -> None:
        when = f"in {retry.wait:.0f} s" if retry.wait >= 1 else "now"
        what = retry.error.what.rstrip(".")
        self._listeners.tell_status(
            "lifecycle", f"{what}; trying again {when} ({retry.attempt} of {retry.max_retries})"
        )

    def _facts(self) -> dict[str, Any]:
        endpoint = self.endpoint
        return {
            "session_id": self._journal.session_id, "turn_id": self._journal.turn_id, "platform": self._setup.platform,
            "model": endpoint.model, "provider": endpoint.provider, "base_url": endpoint.base_url,
            "api_mode": endpoint.wire, "api_call_count": self.spent.calls,
        }  # fmt: skip
