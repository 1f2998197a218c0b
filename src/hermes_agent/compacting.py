"""Compression inside a turn: before a call that would not fit, after one that did not, and on request.

At most two summary calls a turn. What `compression` decides is applied by one rotation; from then on the turn writes
to the new segment, its context variables name it, and the next request starts from the compacted bytes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hermes_agent import aux_calls, context
from hermes_agent.compression import policy
from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_agent.prompt.transcript import TranscriptCache
from hermes_agent.setup import Setup
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Stop
from hermes_agent.turn.model_step import Asker, until_stopped
from hermes_state.turns.journal import Journal

_OVERFLOW = frozenset({"context_overflow", "payload_too_large"})
_SYSTEM = "You write summaries of conversations between a person and an assistant. You answer with the summary alone."


class Compactor:
    """Compression for one turn."""

    def __init__(
        self, setup: Setup, track: TranscriptCache, journal: Journal, listeners: Callbacks, stop: Stop
    ) -> None:
        self._setup, self._track, self._journal, self._listeners = setup, track, journal, listeners
        self._stop = stop
        self._calls_left = policy.SUMMARY_CALLS
        self._estimate = 0
        self._last_window: tuple[Endpoint, policy.ContextWindow] | None = None
        self.count = 0

    async def before_call(self, asker: Asker) -> None:
        """Compress when the next request would come too near to the window."""
        window = self._window(asker)
        conversation = self._track.of(asker.endpoint)
        if conversation.nbytes == 0:  # an endpoint of another format took over
            await asyncio.to_thread(conversation.refresh)
        self._estimate = estimate = conversation.estimate_tokens(asker.endpoint)
        if policy.due(window, estimated=estimate, compactions=self.count, pace=self._track.pace):
            await self.compress(asker)

    def counted(self, asker: Asker) -> None:
        """After a step: what the provider counted says whether the last compression was worth it."""
        self._track.pace.counted(self._window(asker), estimated=self._estimate, reported=asker.spent.last_prompt_tokens)

    async def asked(self, asker: Asker, stop: Stop) -> Reply:
        """The model's step; a request that was too large is made smaller and sent again."""
        while True:
            try:
                reply = await asker.ask(stop)
            except ModelError as error:
                again = error.kind in _OVERFLOW and policy.again_after_overflow(self.count)
                if not again or not await self.compress(asker, must=True):
                    raise
            else:
                self.counted(asker)
                return reply

    async def compress(
        self, asker: Asker, *, force: bool = False, must: bool = False, focus: str | None = None
    ) -> bool:
        """True when the conversation is smaller now. `force`: a person asked; `must`: it does not fit as it is."""
        from hermes_agent.compression import compress as compression

        old = self._journal.session_id
        window = replace(self._window(asker), prefix_tokens=self._track.prefix_tokens(asker.endpoint))
        outcome = await compression.compress(
            db=self._setup.db, writer=self._journal.writer, session_id=old,
            summarise=lambda prompt, max_tokens: self._summarise(asker, prompt, max_tokens),
            window=window, focus=focus, force=force, must=must, calls_left=self._calls_left,
        )  # fmt: skip
        self._calls_left -= outcome.summary_calls
        if outcome.kind != "rotated":
            if outcome.reason:
                self._listeners.tell_status("warn", outcome.reason)
            return False
        self.count += 1
        self._track.pace.compacted()
        await self.moved(old)
        self._listeners.tell_status(
            "lifecycle",
            f"The conversation was compressed: about {outcome.before_tokens:,} → {outcome.after_tokens:,} tokens",
        )  # fmt: skip
        return True

    def _window(self, asker: Asker) -> policy.ContextWindow:
        """Of the model that is asked now; a turn asks one model, as a rule."""
        known = self._last_window
        if known is None or known[0] is not asker.endpoint:
            window = policy.window_for(asker.endpoint, self._setup.config.compression)
            known = self._last_window = (asker.endpoint, window)
        return known[1]

    async def moved(self, old: str) -> None:
        """The one place where everything of this turn that names the segment is brought in line."""
        new = self._journal.session_id
        context.set_current_session_id(new)
        self._track.announce("compression")
        await self._track.ready(new, fence=self._journal.fence)
        facts: dict[str, Any] = {
            "platform": self._setup.platform, "session_id": new, "old_session_id": old, "in_place": False,
            "compression_count": self.count,
        }  # fmt: skip
        self._listeners.tell_event("session:compress", facts)

    async def _summarise(self, asker: Asker, prompt: str, max_tokens: int) -> str:
        call = aux_calls.ask(
            self._setup, asker.endpoint, prompt, task="compression", system=_SYSTEM, max_tokens=max_tokens,
            conversation_id=self._journal.conversation_id, session_id=self._journal.session_id,
        )  # fmt: skip
        return await until_stopped(call, self._stop)
