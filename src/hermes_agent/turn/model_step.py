"""One model step: compress if due, reserve budget, send, read, settle; and retries and fallbacks.

A temporary error is retried on the same endpoint; after a permanent one the next endpoint of the fallback chain is
asked. The next turn starts with the primary endpoint again. Each endpoint has its own bytes, so switching to another
and back keeps every prefix.

The conversation is compressed before a request that would nearly fill the window, after a request that was too large,
and on demand; with at most two summary calls a turn. A compression is applied by one rotation: from then on the turn
writes to the new segment, its context variables name it, and the next request starts from the compacted bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_agent import aux_calls, context, hooks
from hermes_agent.compression import policy
from hermes_agent.models.base import Delta, Endpoint, ModelError, Reply, TokenUsage
from hermes_agent.models.call import Retry, call, retried
from hermes_agent.models.provider_table import wire_for
from hermes_agent.prompt import sent_request, tokens
from hermes_agent.turn.control import Interrupted, until_stopped
from hermes_agent.turn.result import Spent
from hermes_config.recent import Recent
from hermes_state.turns.model_calls import ModelCall

if TYPE_CHECKING:
    from hermes_agent.prompt.transcript import Body
    from hermes_agent.turn.state import TurnRun
    from hermes_state.ids import TurnId

_log = logging.getLogger("hermes.agent")

# Errors that another endpoint may avoid. An invalid request is invalid everywhere.
_ELSEWHERE = ModelError.RETRYABLE | {"auth", "billing", "model_not_found", "policy"}
_OVERFLOW = frozenset({"context_overflow", "payload_too_large"})
_CUT = {
    "length": "The model reached its output limit, so this answer is cut off. Say “go on” for the rest.",
    "content_filter": "The provider's content filter cut this answer off.",
}
"""Finish reason of an answer that is not whole → what the person is told."""
_SUMMARISER = (
    "You write summaries of conversations between a person and an assistant. You answer with the summary alone."
)


@dataclass(slots=True)
class _Sent:
    """The last attempt of a call: the hash of its bytes, those that closed them, and its cost."""

    sha256: str
    ending: bytes
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class _Unstored:
    """A reply that is not stored yet. If the store refuses it, the recovered turn takes it from here."""

    asked: tuple[object, ...]
    """The request: a recovered turn that would send it again gets the reply."""
    reply: Reply
    call: ModelCall
    spent: Spent


_unstored: Recent[TurnId, _Unstored] = Recent(256)
"""By turn, because a turn is recovered by another agent."""


class ModelSteps:
    """The model calls of one turn."""

    def __init__(self, turn: TurnRun) -> None:
        self._setup, self._transcript, self._journal = turn.setup, turn.transcript, turn.journal
        self._callbacks, self._stop = turn.agent, turn.stop
        # Weak, because the turn refers to this object: a cycle would stay in memory until the garbage collector runs.
        self._turn: TurnRun = weakref.proxy(turn)
        self._chain = (turn.setup.endpoint, *turn.setup.fallbacks)
        self._at = 0
        self._summary_calls_left = policy.SUMMARY_CALLS
        self._summary_asked = False
        self._compressions = 0
        self._shown: list[str] = []
        """The part of the current answer that was already shown."""
        self._retries = 0
        self._less_thinking = False
        """Whether requests leave out the thinking of earlier turns, because the server refused its signature."""
        self._sent: _Sent | None = None
        self.spent = Spent(person_id=turn.setup.person_id, counted=turn.setup.budget.configured)

    @property
    def endpoint(self) -> Endpoint:
        return self._chain[self._at]

    async def next_reply(self) -> Reply:
        """Get the model's next step, after compressing a conversation whose request is or was too large."""
        estimate = await self._compress_if_due()
        while True:
            try:
                reply = await self._ask()
            except ModelError as error:
                again = error.kind in _OVERFLOW and self._compressions < policy.PASSES
                if not again or not await self.compress(must=True):
                    raise
            else:
                pace, counted = self._transcript.pace, self.spent.last_prompt_tokens
                pace.counted(self._window(), estimated=estimate, reported=counted)
                return reply

    # -- asking --------------------------------------------------------------------------------------------

    async def _ask(self) -> Reply:
        """One step, from the first endpoint of the chain that answers."""
        while True:
            try:
                return await self._try_endpoint()
            except ModelError as error:
                self._log_failure(error)
                said = {"type": error.kind, "message": error.one_line()}
                await hooks.fire(
                    "api_request_error", **self._facts(), reason=error.kind, status_code=error.status,
                    retryable=error.retryable, error=said,
                )  # fmt: skip
                if error.kind not in _ELSEWHERE or self._at + 1 >= len(self._chain):
                    raise
                self._discard_shown()
                failed, self._at = self.endpoint, self._at + 1
                self._callbacks.tell_status(
                    "warn",
                    f"{failed.provider}/{failed.model}: {error.what}; going on with "
                    f"{self.endpoint.provider}/{self.endpoint.model}",
                )  # fmt: skip

    async def _try_endpoint(self) -> Reply:
        """One step from the current endpoint: attempts until one is answered or another would be useless."""
        endpoint = self.endpoint
        transcript = self._transcript.of(endpoint)
        # Cached bytes are joined at once; rows that must be read first are read in a thread.
        cold = transcript.nbytes == 0
        body = await asyncio.to_thread(transcript.body, endpoint) if cold else transcript.body(endpoint)
        self._transcript.watch.check(body, endpoint)
        if (kept := self._kept(endpoint, body)) is not None:
            return kept
        if why := self._setup.budget.asks_first(endpoint, tokens.estimate(body.weight, endpoint.model)):
            await until_stopped(self._turn.permit_call(endpoint, why), self._stop)
        began = time.time()
        await hooks.fire("pre_api_request", **self._facts(), started_at=began, message_count=body.rows)
        self._retries, self._sent = 0, None
        try:
            reply = await until_stopped(self._attempts(endpoint, body), self._stop)
        except Interrupted:
            self._record(endpoint, body, began, "interrupted")
            raise Interrupted("".join(self._shown)) from None
        except ModelError as error:
            self._record(endpoint, body, began, error.kind)
            raise
        made = self._record(endpoint, body, began, reply.finish_reason, reply.usage)
        _unstored[self._journal.turn_id] = _Unstored(_request_key(endpoint, body), reply, made, self.spent)
        if reply.usage is not None and reply.usage.input_tokens:
            transcript.measured(body, endpoint, reply.usage.input_tokens)
        await hooks.fire(
            "post_api_request", **self._facts(), ended_at=time.time(), api_duration=time.time() - began,
            finish_reason=reply.finish_reason, usage=reply.usage,
        )  # fmt: skip
        return reply

    async def _attempts(self, endpoint: Endpoint, body: Body) -> Reply:
        """Attempts as the error allows. If the signature of earlier thinking is refused, they leave it out."""

        def attempts() -> Awaitable[Reply]:
            return retried(
                lambda: self._attempt(endpoint, body), max_retries=self._setup.max_retries,
                on_retry=self._report_retry, bounds=self._setup.config.limits,
            )  # fmt: skip

        try:
            return await attempts()
        except ModelError as error:
            if self._less_thinking or endpoint.wire != "anthropic" or not error.refuses_thinking:
                raise
            self._log_failure(error, "; asking again without the thinking of earlier turns")
            self._less_thinking = True
            return await attempts()

    async def _attempt(self, endpoint: Endpoint, body: Body) -> Reply:
        """One request with its own budget reservation. Cancelling it closes the connection."""
        budget = self._setup.budget
        reservation = await budget.reserve(
            endpoint, estimated_input=tokens.estimate(body.weight, endpoint.model), most_input=body.most_tokens,
            conversation_id=self._journal.conversation_id, person_id=self._setup.person_id,
        )  # fmt: skip
        longest = reservation.longest
        content = body.content if longest is None else body.ended(wire_for(endpoint).ending(endpoint, longest))
        self._shown.clear()
        ending = content[len(body.content) - body.ending :]
        if self._less_thinking and endpoint.wire == "anthropic":
            from hermes_agent.models import anthropic  # most turns never need it here

            content = anthropic.without_earlier_thinking(content)
        self._sent = _Sent(self._transcript.watch.hash_of(content), ending)
        calling = call(endpoint, content, self._show_delta, bounds=self._setup.config.limits)
        reply, cost = await budget.paid(reservation, calling)
        self._sent.cost = cost
        self.spent.add_call(endpoint, reply.usage, cost)
        self.notify(*reservation.notices)
        if reply.tool_calls or reply.finish_reason not in _CUT:
            return reply
        if reservation.cut and reply.finish_reason == "length":
            said = f"({reservation.cut})"
            self._show_delta(Delta("text", f"\n\n{said}" if reply.content else said))
            return replace(reply, content=f"{reply.content}\n\n{said}" if reply.content else said)
        if reply.content:
            self.notify(_CUT[reply.finish_reason])
        return reply

    def _kept(self, endpoint: Endpoint, body: Body) -> Reply | None:
        """The reply that an earlier run of this turn got to this very request, and that the store refused."""
        kept = _unstored.get(self._journal.turn_id)
        if kept is None or kept.spent is self.spent or kept.asked != _request_key(endpoint, body):
            return None
        self.spent = kept.spent
        self._journal.record_call(kept.call)
        return kept.reply

    def ended(self) -> None:
        """The turn's end is stored."""
        _unstored.pop(self._journal.turn_id, None)

    def _record(
        self, endpoint: Endpoint, body: Body, began: float, outcome: str, usage: TokenUsage | None = None
    ) -> ModelCall:
        """Note the call for the turn's receipt; the journal stores it with the next row."""
        sent = self._sent
        made = ModelCall(
            session_id=body.session_id, model=endpoint.model, provider=endpoint.provider, outcome=outcome,
            at=began, seconds=time.time() - began, retries=self._retries, **_counted(usage),
            cost_usd=None if sent is None else sent.cost, sha256=None if sent is None else sent.sha256,
            request=None if sent is None else sent_request.parts(endpoint, body, sent.ending),
        )  # fmt: skip
        self._journal.record_call(made)
        return made

    def notify(self, *notices: str) -> None:
        """Tell the person something: now as a status line, and in a chat together with the answer."""
        self.spent.notices += notices
        for notice in notices:
            self._callbacks.tell_status("warn", notice)

    def _show_delta(self, delta: Delta) -> None:
        if delta.kind == "text":
            self._shown.append(delta.text)
            self._callbacks.tell("stream_delta_callback", delta.text)
        elif delta.kind == "reasoning":
            self._callbacks.tell("reasoning_callback", delta.text)
        else:
            self._callbacks.tell("tool_gen_callback", delta.text)

    def _log_failure(self, error: ModelError, then: str = "") -> None:
        """Log the failure without the error's text, which may quote the conversation."""
        status = f" {error.status}" if error.status else ""
        _log.warning(
            "a model call failed: %s%s (%s)%s", error.kind, status, self.endpoint.where, then,
            extra={"action": "model.failed"},
        )  # fmt: skip

    def _discard_shown(self) -> None:
        """Discard the shown part of the answer: a new answer begins."""
        if self._shown:
            self._shown.clear()
            self._callbacks.tell("stream_delta_callback", None)

    def _report_retry(self, retry: Retry) -> None:
        self._retries = retry.attempt
        self._log_failure(retry.error, f"; retry {retry.attempt} of {retry.max_retries}")
        when = f"in {retry.wait:.0f} s" if retry.wait >= 1 else "now"
        what = retry.error.what.rstrip(".")
        self._discard_shown()
        self._callbacks.tell_status(
            "lifecycle", f"{what}; trying again {when} ({retry.attempt} of {retry.max_retries})"
        )

    def _facts(self) -> dict[str, Any]:
        endpoint = self.endpoint
        return {
            "session_id": self._journal.session_id, "turn_id": self._journal.turn_id, "platform": self._setup.platform,
            "model": endpoint.model, "provider": endpoint.provider, "base_url": endpoint.base_url,
            "api_mode": endpoint.wire, "api_call_count": self.spent.calls,
        }  # fmt: skip

    # -- compression ---------------------------------------------------------------------------------------

    def _window(self) -> policy.ContextWindow:
        return policy.window_for(self.endpoint, self._setup.config.compression)

    async def _compress_if_due(self) -> int:
        """Compress if the next request would nearly fill the window; return the request's estimated tokens."""
        transcript = self._transcript.of(self.endpoint)
        if transcript.nbytes == 0:  # a fallback endpoint with another wire format
            await asyncio.to_thread(transcript.refresh)
        estimate = transcript.estimate_tokens(self.endpoint)
        if policy.due(self._window(), estimated=estimate, compactions=self._compressions, pace=self._transcript.pace):
            await self.compress()
        return estimate

    async def compress(self, *, force: bool = False, must: bool = False, focus: str | None = None) -> bool:
        """Compress; True if the conversation got smaller. `force`: a person asked; `must`: the request does not fit."""
        from hermes_agent.compression import compress as compression  # most turns never need it

        old = self._journal.session_id
        job = compression.Compression(
            db=self._setup.db, writer=self._journal, session_id=old, summarise=self._summarise,
            window=replace(self._window(), prefix_tokens=self._transcript.prefix_tokens(self.endpoint)),
            focus=focus, force=force, must=must, calls_left=self._summary_calls_left,
        )  # fmt: skip
        self._callbacks.compressing = True
        self._summary_asked = False
        try:
            outcome = await compression.compress(job)
        finally:
            self._callbacks.compressing = False
        self._summary_calls_left -= outcome.summary_calls
        if outcome.kind != "rotated":
            if outcome.reason:
                self._callbacks.tell_status("warn", outcome.reason)
            return False
        self._compressions += 1
        self._transcript.pace.compacted()
        await self._move_to_new_segment(old)
        size = f"about {outcome.before_tokens:,} → {outcome.after_tokens:,} tokens"
        self._callbacks.tell_status("lifecycle", f"The conversation was compressed: {size}")
        if outcome.fallback:
            self.notify(
                f"No summary could be made ({outcome.reason}), so the older part of this conversation was only"
                " shortened: its details are missing from my context. /uncompress brings them back."
            )
        return True

    async def _move_to_new_segment(self, old: str) -> None:
        """Update everything in this turn that names the old segment to the new one."""
        new = self._journal.session_id
        context.set_current_session_id(new)
        self._transcript.announce("compression")
        await self._transcript.ready(new, fence=self._journal.fence)
        facts: dict[str, Any] = {
            "platform": self._setup.platform, "session_id": new, "old_session_id": old, "in_place": False,
            "compression_count": self._compressions,
        }  # fmt: skip
        self._callbacks.tell("event_callback", "session:compress", facts)

    async def _summarise(self, prompt: str, max_tokens: int) -> str:
        began, read = time.time(), self._journal.session_id

        def record(endpoint: Endpoint, reply: Reply, cost: float | None) -> None:
            self._journal.record_call(
                ModelCall(
                    session_id=read, model=endpoint.model, provider=endpoint.provider, outcome=reply.finish_reason,
                    task="compression", at=began, seconds=time.time() - began, cost_usd=cost, **_counted(reply.usage),
                )
            )  # fmt: skip

        # A summary that is not usable is asked for once more, from the conversation's own model.
        ask = aux_calls.ask if self._summary_asked else aux_calls.ask_beside
        self._summary_asked = True
        question = ask(
            self._setup, self.endpoint, prompt, task="compression", system=_SUMMARISER, max_tokens=max_tokens,
            conversation_id=self._journal.conversation_id, session_id=read, permit=self._turn.permit_call,
            on_reply=record,
        )  # fmt: skip
        return await until_stopped(question, self._stop)


def _request_key(endpoint: Endpoint, body: Body) -> tuple[object, ...]:
    return endpoint, body.session_id, body.epoch, body.head_id, body.rows


def _counted(usage: TokenUsage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    return {name: value for name, value in usage.as_dict().items() if name in names}
