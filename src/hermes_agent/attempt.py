"""One attempt at a turn: from an open journal to a result, whatever happens in between.

A turn may need several, when processes are lost under it; each begins with the journal of the turn's row and ends it,
also when it went wrong in a way nobody foresaw. Only two ends write nothing: another process has the conversation now,
or this one is told to leave the turn for the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_agent import assembling, context, hooks
from hermes_agent.prompt.transcript import Content
from hermes_agent.setup import Setup
from hermes_agent.turn import control, recovery
from hermes_agent.turn import result as reporting
from hermes_agent.turn import run as turn
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals, Stop
from hermes_agent.turn.model_step import Asker, Spent
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_agent.turn.state import AgentState
from hermes_config.errors import HermesError
from hermes_state.errors import StaleFence
from hermes_state.ids import LOCAL_SOURCES
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import EndState

if TYPE_CHECKING:
    from hermes_state.people.usage import Used

_log = logging.getLogger("hermes.agent")


class Attempt:
    """Made when a turn has its journal, used once."""

    def __init__(
        self,
        setup: Setup,
        seat: AgentState,
        journal: Journal,
        *,
        listeners: Callbacks,
        signals: Signals,
        stop: Stop,
        request: TurnRequest | None = None,
        task_id: str | None = None,
    ) -> None:
        self._setup, self._seat, self._journal = setup, seat, journal
        self._listeners, self._signals, self._stop = listeners, signals, stop
        self._errand = request
        self._task_id = task_id

    async def run(self, *, said: Content | None = None, pending: recovery.PendingCalls | None = None) -> dict[str, Any]:
        """The turn to its end: the result that other code knows."""
        journal, seat, request = self._journal, self._seat, self._errand
        seat.session_id = journal.session_id
        if request is not None:
            request.began(journal.work)
        if request is not None and request.identity is not None:
            identity = request.identity(journal.work)
        else:
            identity = assembling.identity(self._setup, seat.origin)
        with context.bind(identity, context.CurrentSession(journal.session_id)):
            outcome = await self._outcome(pending)
        seat.session_id, seat.spent = journal.session_id, outcome.spent
        result = await self._reported(outcome, said)
        if result["completed"]:
            seat.title_soon(journal)
        return result

    async def take_up(self) -> dict[str, Any] | None:
        """Bring a turn to its end whose process was lost; None when there is nothing more to answer."""
        db, journal = self._setup.db, self._journal
        most = db.limits.turn_attempts
        lost = journal.work.turn.attempt - 1 - await asyncio.to_thread(db.turns.times_left, journal.work.turn)
        if lost >= most:
            said = f"This turn was given up: the process was lost {most} times while it ran."
            row = {"role": "assistant", "content": said, "timestamp": db.clock(), "finish_reason": "stopped"}
            outcome = turn.TurnOutcome(
                text=said, exit_reason="parked", spent=Spent(), endpoint=self._setup.endpoint, partial=True
            )
            await recovery.close(db, journal, "parked", row, reason=said, reply=self._owing()("parked", outcome))
            self._listeners.tell_status("warn", said)
            return None
        left = await recovery.pending(db, journal)
        if left is None:
            await recovery.close(db, journal, "cancelled", reason="nothing of it is in the conversation")
            return None
        self._listeners.tell_status("lifecycle", "taking up the turn that was interrupted when the process was lost")
        return await self.run(pending=left)

    async def compress(self, focus: str | None) -> bool:
        """A turn that only makes the conversation smaller: whether it did."""
        journal = self._journal
        try:
            running = self._assembled(turn.nothing_owed)
            async with turn.LeaseKept(journal, self._setup.lease_seconds):
                await running.track.ready(journal.session_id, fence=journal.fence)
                done = await running.compactor.compress(running.asker, force=True, focus=focus)
                await journal.commit(reason="compress" if done else "nothing to compress")
        except BaseException as error:
            await recovery.close(self._setup.db, journal, "failed", reason=type(error).__name__)
            raise
        self._seat.session_id = journal.session_id
        if done:
            self._seat.spent = Spent()  # how full the context is now, the next turn tells
        return done

    def _assembled(self, owe: Callable[[EndState, turn.TurnOutcome], Parcel | None]) -> turn.Running:
        journal, setup, request = self._journal, self._setup, self._errand
        facts = {"session_id": journal.session_id, "turn_id": journal.turn_id, "task_id": self._task_id}
        if request is not None:
            rows = journal.work.inbox  # a turn that was left behind may be another person's
            speaker = rows[0].person_id if rows else request.person_id
            if (speaker, request.approver_id) != (setup.person_id, setup.approver_id):
                setup = replace(setup, person_id=speaker, approver_id=request.approver_id)
        return assembling.assemble(
            setup, self._seat.track(journal), journal, self._listeners, self._signals, self._stop, facts,
            self._seat.notes, owe,
        )  # fmt: skip

    def _owing(self) -> Callable[[EndState, turn.TurnOutcome], Parcel | None]:
        """What somebody is owed for the end of this turn, from the turn's own rows."""
        if self._errand is None:
            return turn.nothing_owed
        owe, journal = self._errand.owe, self._journal

        def owed(state: EndState, outcome: turn.TurnOutcome) -> Parcel | None:
            facts = reporting.facts_of(outcome, session_id=journal.session_id)
            return owe(journal.work, TurnEnd(state=state, text=outcome.text, facts=facts))

        return owed

    async def _outcome(self, pending: recovery.PendingCalls | None) -> turn.TurnOutcome:
        """The turn's end, also when it went wrong in a way nobody foresaw: its row never stays open because of us."""
        db, journal, asker = self._setup.db, self._journal, None
        owing = self._owing()
        try:
            running = self._assembled(owing)
            asker = running.asker
            running.track.pace.turn_began()
            await running.track.ready(journal.session_id, fence=journal.fence, begun=journal.begun)
            if self._errand is not None and self._errand.route is not None:
                return await turn.run(running, pending=pending)
            async with control.cancel_requests_obeyed(db, journal, self._signals):
                return await turn.run(running, pending=pending)
        except StaleFence:
            raise  # another process has the conversation now; it is not ours to write the end
        except asyncio.CancelledError:
            if self._signals.abandoned:
                await asyncio.shield(recovery.leave(journal))
            else:
                closing = recovery.close(db, journal, "cancelled", reason="cancelled", used=_used(asker))
                await asyncio.shield(closing)
            raise
        except HermesError as error:
            local = self._setup.platform in LOCAL_SOURCES
            said, kind = error.one_line() if local else error.in_chat(), type(error).__name__
            if not local:  # a chat is told less
                _log.warning("a turn failed: %s", error.one_line(), extra={"action": "turn_failed"})
        except Exception as error:  # noqa: BLE001 - boundary: a turn's row never stays open because of a bug of ours
            kind = type(error).__name__
            said = f"something went wrong inside Hermes ({kind})"
            _log.exception("a turn failed", extra={"action": "turn_failed", "turn_id": journal.turn_id})
        outcome = turn.TurnOutcome(
            text=None, exit_reason=f"local_processing_error({kind})", failed=True, error=said,
            spent=Spent() if asker is None else asker.spent,
            endpoint=self._setup.endpoint if asker is None else asker.endpoint,
        )  # fmt: skip
        reply = owing("failed", outcome)
        outcome.owed = await recovery.close(db, journal, "failed", reason=said, used=_used(asker), reply=reply)
        return outcome

    async def _reported(self, outcome: turn.TurnOutcome, said: Content | None) -> dict[str, Any]:
        """Plug-ins are told, then the caller."""
        db, session_id = self._setup.db, self._journal.session_id
        history = reporting.ResultHistory(lambda: db.get_messages_as_conversation(session_id))
        facts = {
            "session_id": session_id, "task_id": self._task_id, "turn_id": self._journal.turn_id,
            "model": outcome.endpoint.model, "platform": self._setup.platform,
        }  # fmt: skip
        completed = not (outcome.failed or outcome.interrupted)
        if outcome.text and completed:
            await hooks.fire(
                "post_llm_call", user_message=said, assistant_response=outcome.text, conversation_history=history,
                **facts,
            )  # fmt: skip
        await hooks.fire("on_session_end", completed=completed, interrupted=outcome.interrupted, **facts)
        result = reporting.result_of(outcome, session_id=session_id, history=history)
        if self._signals.message is not None:
            result["interrupt_message"] = self._signals.message
        return result


def _used(asker: Asker | None) -> Used | None:
    return None if asker is None else asker.spent.used(asker.endpoint)
