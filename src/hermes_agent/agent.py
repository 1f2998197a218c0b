"""`AIAgent`: the door to the mind that other code knows.

An agent belongs to one conversation. It keeps the prompt's bytes warm between turns and nothing else that matters: two
agents for one conversation, in one process or in two, take turns by the lease and see each other's messages. The core
is `arun_conversation`; `run_conversation` is the same for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import assembling, context, holders, hooks, loop_thread, recovery, reporting, signals, turn, user_row
from hermes_agent.approvals.base import Approver, Yolo
from hermes_agent.asking import Asker, Interrupted, Spent
from hermes_agent.errand import Ending, Errand
from hermes_agent.listeners import Listeners
from hermes_agent.models.base import Endpoint
from hermes_agent.setup import Setup
from hermes_agent.signals import Signals
from hermes_agent.tools.base import Ask
from hermes_agent.track import Track
from hermes_agent.user_row import Content
from hermes_config import log_guard
from hermes_config.errors import HermesError
from hermes_state.errors import SessionNotFound, StaleFence
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, SessionId
from hermes_state.journal import Journal
from hermes_state.outbox import Parcel
from hermes_state.turns import EndState

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.usage import Used

_log = logging.getLogger("hermes.agent")


class ConversationBusy(HermesError):
    """Another turn is running in this conversation."""

    default_hint = "Wait until it is done, or stop it there."


class AIAgent(Listeners):
    """One conversation's agent. Callbacks are attributes, set by whoever shows the turn to a person."""

    def __init__(
        self,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        endpoint: Endpoint | None = None,
        fallbacks: Sequence[Endpoint] | None = None,
        session_db: SessionDB | None = None,
        session_id: str | None = None,
        config: Config | None = None,
        platform: str = "cli",
        person_id: PersonId | None = LOCAL_OWNER,
        role: str | None = None,
        workdir: Path | None = None,
        approver: Approver | None = None,
        approver_id: PersonId | None = None,
        ask: Ask | None = None,
        yolo: bool = False,
        max_iterations: int | None = None,
        max_tokens: int | None = None,
        enabled_toolsets: Sequence[str] | None = None,
        disabled_toolsets: Sequence[str] = (),
        ephemeral_system_prompt: str | None = None,
        skip_memory: bool = False,
        skip_context_files: bool = False,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """The configuration says which model, unless `endpoint` does. `origin`: columns of a new session, user_id …

        `role`: what the person may use, where the store does not have the last word on it.
        """
        super().__init__()
        log_guard.install()
        self._yolo = Yolo(on=yolo)
        self._setup: Setup = assembling.setup(
            session_db=session_db, config=config, endpoint=endpoint, fallbacks=fallbacks, model=model,
            provider=provider, base_url=base_url, api_key=api_key, role=role,
            platform=platform, person_id=person_id, workdir=workdir, approver=approver, approver_id=approver_id,
            ask=ask, yolo=self._yolo, max_steps=max_iterations, max_tokens=max_tokens, enabled=enabled_toolsets,
            disabled=disabled_toolsets, extra_text=ephemeral_system_prompt or "", with_memory=not skip_memory,
            with_context_files=not skip_context_files,
        )  # fmt: skip
        self._session_id = None if session_id is None else SessionId(session_id)
        self._origin = dict(origin or {})
        self._track: Track | None = None
        self._announced = ""
        self._signals = Signals()
        self._notes: dict[str, Any] = {}
        self._spent = Spent()
        self._titles: set[asyncio.Task[None]] = set()

    # -- what surfaces read ------------------------------------------------------------------------------

    @property
    def session_id(self) -> SessionId | None:
        """The segment the conversation is at; None before the first turn of a new one."""
        return self._session_id

    @property
    def model(self) -> str:
        return self._setup.endpoint.model

    @property
    def provider(self) -> str:
        return self._setup.endpoint.provider

    @property
    def base_url(self) -> str:
        return self._setup.endpoint.base_url

    @property
    def platform(self) -> str:
        return self._setup.platform

    @property
    def context_length(self) -> int:
        return self._setup.endpoint.context_length

    @property
    def valid_tool_names(self) -> frozenset[str]:
        return frozenset(self._setup.tools)

    @property
    def spent(self) -> Spent:
        """What the last turn came to."""
        return self._spent

    @property
    def nbytes(self) -> int:
        """Memory that `release` would give back."""
        return 0 if self._track is None else self._track.nbytes

    # -- what a person can do to a running turn ------------------------------------------------------------

    def interrupt(self, message: str | None = None, *, reason: str | None = None) -> None:
        """Stop the running turn. `message` is what the person said meanwhile, `reason` what its row tells later."""
        self._signals.stop(message, reason)

    @property
    def in_turn(self) -> bool:
        """Somebody has it at work: it takes one turn at a time."""
        return self._signals.running

    def clear_interrupt(self) -> None:
        self._signals.clear()

    @property
    def is_interrupted(self) -> bool:
        return self._signals.stopped

    def steer(self, text: str, inbox_id: int | None = None) -> bool:
        """True when the running turn takes the text in; a stored message it came with is claimed as it does."""
        return self._signals.steer(text, inbox_id)

    def abandon(self) -> None:
        """The turn is about to be cancelled and must stay open: another process will take it up."""
        self._signals.abandoned = True

    # -- turns -------------------------------------------------------------------------------------------

    def run_conversation(self, user_message: Content, *args: Any, **options: Any) -> dict[str, Any]:
        """`arun_conversation` for callers without an event loop. Ctrl-C stops the turn and keeps what was done."""
        return loop_thread.run(self.arun_conversation(user_message, *args, **options), interrupt=self.interrupt)

    def chat(self, text: str) -> str:
        result = self.run_conversation(text)
        return str(result.get("final_response") or result.get("error") or "")

    async def arun_conversation(
        self,
        user_message: Content,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
        stream_callback: Callable[[str], Any] | None = None,
        persist_user_message: Content | None = None,
        persist_user_timestamp: float | None = None,
        platform_message_id: str | None = None,
        errand: Errand | None = None,
    ) -> dict[str, Any]:
        """One turn. The store is the history; `conversation_history` only fills a session that has no rows yet."""
        if stream_callback is not None:
            self.stream_delta_callback = stream_callback
        stop = self._signals.bind()
        try:
            await self._session_ready(conversation_history or ())
            person = self._setup.person_id if errand is None else errand.person_id
            user = await self._user_row(
                user_message, persist_user_message, persist_user_timestamp, platform_message_id, person
            )
            journal = await self._open(user, stop, errand)
            result = await self._run(journal, stop, task_id=task_id, said=user_message, errand=errand)
            if late := self._signals.end():
                result["pending_steer"] = signals.words(late)
            return result
        finally:
            self._signals.clear()

    async def resume_unfinished(self, *, errand: Errand | None = None) -> dict[str, Any] | None:
        """Take up a turn of this conversation whose process was lost; its result, or None when there is none."""
        stop = self._signals.bind()
        try:
            await self._session_ready(())
            return await self._resume(stop, errand)
        finally:
            self._signals.clear()

    async def compress(self, focus: str | None = None, *, errand: Errand | None = None) -> bool:
        """`/compress`: now, whatever the thresholds say. True when the conversation is smaller."""
        stop = self._signals.bind()
        try:
            await self._session_ready(())
            journal = await self._open(None, stop, errand)
            try:
                done = await self._compress(journal, stop, focus)
            except BaseException as error:
                await recovery.close(self._setup.db, journal, "failed", reason=type(error).__name__)
                raise
            self._session_id = journal.session_id
            return done
        except Interrupted:
            return False
        finally:
            self._signals.clear()

    async def aclose(self) -> None:
        """Wait a moment for what goes on beside the turns, and give the memory back."""
        if self._titles:
            await asyncio.wait(set(self._titles), timeout=5)
        self.release()

    def close(self) -> None:
        self.release()

    def release(self) -> None:
        if self._track is not None:
            self._track.release()

    # -- inside ------------------------------------------------------------------------------------------

    async def _open(self, user: Mapping[str, Any] | None, stop: asyncio.Event, errand: Errand | None) -> Journal:
        """A new turn. One that a lost process left in this conversation is brought to its end first."""
        setup = self._setup
        route, claim = (None, ()) if errand is None else (errand.route, errand.inbox_ids)
        freed = False
        while True:
            try:
                journal = await Journal.open(
                    setup.db, self._known_session(), holder=setup.holder, ttl=setup.lease_seconds, user=user,
                    route=route, claim=claim, left_open=self._is_abandoned,
                )  # fmt: skip
            except SessionNotFound:
                if self._track is None or errand is not None:
                    raise  # on an errand the route decides where it goes
                self.release()
                self._track = None  # it was deleted meanwhile: what is said now begins it anew
                await self._session_ready(())
                continue
            if journal is None:
                if freed or not await asyncio.to_thread(self._free):
                    raise ConversationBusy(where=str(self._session_id))
                freed = True
            elif journal.resumed:
                await self._take_up(journal, stop, errand)
            else:
                return journal

    async def _resume(self, stop: asyncio.Event, errand: Errand | None) -> dict[str, Any] | None:
        setup = self._setup
        await asyncio.to_thread(self._free)
        journal = await Journal.resume(
            setup.db, self._known_session(), holder=setup.holder, ttl=setup.lease_seconds, left_open=self._is_abandoned
        )
        return None if journal is None else await self._take_up(journal, stop, errand)

    def _is_abandoned(self) -> bool:
        return self._signals.abandoned

    def _free(self) -> bool:
        """Take the lease from a process that is gone for certain."""
        conversation = ConversationId(self._setup.db.get_conversation_root(self._known_session()))
        return holders.release_gone(self._setup.db, conversation)

    async def _take_up(self, journal: Journal, stop: asyncio.Event, errand: Errand | None) -> dict[str, Any] | None:
        """Bring a turn to its end whose process was lost; None when there is nothing more to answer."""
        db, most = self._setup.db, self._setup.db.limits.turn_attempts
        if journal.work.turn.attempt > most:
            said = f"This turn was given up: the process was lost {most} times while it ran."
            row = {"role": "assistant", "content": said, "timestamp": db.clock(), "finish_reason": "stopped"}
            outcome = turn.Outcome(
                text=said, exit_reason="parked", spent=Spent(), endpoint=self._setup.endpoint, partial=True
            )
            owed = self._owing(journal, errand)("parked", outcome)
            await recovery.close(db, journal, "parked", row, reason=said, reply=owed)
            self.tell_status("warn", said)
            return None
        left = await recovery.pending(db, journal)
        if left is None:
            await recovery.close(db, journal, "cancelled", reason="nothing of it is in the conversation")
            return None
        self.tell_status("lifecycle", "taking up the turn that was interrupted when the process was lost")
        return await self._run(journal, stop, task_id=None, pending=left, errand=errand)

    async def _compress(self, journal: Journal, stop: asyncio.Event, focus: str | None) -> bool:
        running = self._assembled(journal, stop, None)
        async with turn.lease_kept(journal, self._setup.lease_seconds):
            await running.track.ready(journal.session_id, fence=journal.fence)
            done = await running.compactor.compress(running.asker, force=True, focus=focus)
            await journal.commit(reason="compress" if done else "nothing to compress")
        return done

    def _assembled(
        self, journal: Journal, stop: asyncio.Event, task_id: str | None, errand: Errand | None = None
    ) -> turn.Running:
        facts = {"session_id": journal.session_id, "turn_id": journal.turn_id, "task_id": task_id}
        setup = self._setup
        if errand is not None:
            rows = journal.work.inbox  # a turn that was left behind may be another person's
            speaker = rows[0].person_id if rows else errand.person_id
            if (speaker, errand.approver_id) != (setup.person_id, setup.approver_id):
                setup = replace(setup, person_id=speaker, approver_id=errand.approver_id)
        return assembling.assemble(
            setup, self._tracked(journal), journal, self, self._signals, stop, facts, self._notes,
            self._owing(journal, errand),
        )  # fmt: skip

    def _owing(self, journal: Journal, errand: Errand | None) -> Callable[[EndState, turn.Outcome], Parcel | None]:
        """What somebody is owed for the end of this turn, from the turn's own rows."""
        if errand is None:
            return turn.nothing_owed
        owe = errand.owe

        def owed(state: EndState, outcome: turn.Outcome) -> Parcel | None:
            facts = reporting.facts_of(outcome, session_id=journal.session_id)
            return owe(journal.work, Ending(state=state, text=outcome.text, facts=facts))

        return owed

    async def _run(
        self,
        journal: Journal,
        stop: asyncio.Event,
        *,
        task_id: str | None,
        said: Content | None = None,
        pending: recovery.Pending | None = None,
        errand: Errand | None = None,
    ) -> dict[str, Any]:
        self._session_id = journal.session_id
        if errand is not None:
            errand.began(journal.work)
        if errand is not None and errand.identity is not None:
            identity = errand.identity(journal.work)
        else:
            identity = assembling.identity(self._setup, self._origin)
        with context.bind(identity, context.CurrentSession(journal.session_id)):
            outcome = await self._outcome(journal, stop, task_id, pending, errand)
        self._session_id = journal.session_id
        self._spent = outcome.spent
        history = self._history(journal)
        facts = {
            "session_id": journal.session_id, "task_id": task_id, "turn_id": journal.turn_id,
            "model": outcome.endpoint.model, "platform": self.platform,
        }  # fmt: skip
        if outcome.text and not (outcome.failed or outcome.interrupted):
            await hooks.fire(
                "post_llm_call", user_message=said, assistant_response=outcome.text, conversation_history=history,
                **facts,
            )  # fmt: skip
        completed = not (outcome.failed or outcome.interrupted)
        await hooks.fire("on_session_end", completed=completed, interrupted=outcome.interrupted, **facts)
        result = reporting.result_of(outcome, session_id=journal.session_id, history=history)
        if self._signals.message is not None:
            result["interrupt_message"] = self._signals.message
        if result["completed"]:
            self._maybe_title(journal)
        return result

    async def _outcome(
        self,
        journal: Journal,
        stop: asyncio.Event,
        task_id: str | None,
        pending: recovery.Pending | None,
        errand: Errand | None,
    ) -> turn.Outcome:
        """The turn's end, also when it went wrong in a way nobody foresaw: its row never stays open because of us."""
        db, asker = self._setup.db, None
        try:
            running = self._assembled(journal, stop, task_id, errand)
            asker = running.asker
            running.track.pace.turn_began()
            await running.track.ready(journal.session_id, fence=journal.fence, own=_own(journal))
            return await turn.run(running, pending=pending)
        except StaleFence:
            raise  # another process has the conversation now; it is not ours to write the end
        except asyncio.CancelledError:
            if self._signals.abandoned:
                await asyncio.shield(asyncio.to_thread(db.leases.release, journal.lease))
            else:
                closing = recovery.close(db, journal, "cancelled", reason="cancelled", used=self._used(asker))
                await asyncio.shield(closing)
            raise
        except HermesError as error:
            said, kind = error.one_line(), type(error).__name__
        except Exception as error:  # noqa: BLE001 - boundary: a turn's row never stays open because of a bug of ours
            kind = type(error).__name__
            said = f"something went wrong inside Hermes ({kind})"
            _log.exception("a turn failed", extra={"action": "turn_failed", "turn_id": journal.turn_id})
        outcome = turn.Outcome(
            text=None, exit_reason=f"local_processing_error({kind})", failed=True, error=said,
            spent=Spent() if asker is None else asker.spent,
            endpoint=self._setup.endpoint if asker is None else asker.endpoint,
        )  # fmt: skip
        owed = self._owing(journal, errand)("failed", outcome)
        outcome.owed = await recovery.close(db, journal, "failed", reason=said, used=self._used(asker), reply=owed)
        return outcome

    def _used(self, asker: Asker | None) -> Used | None:
        return None if asker is None else asker.spent.used(asker.endpoint)

    async def _user_row(
        self,
        message: Content,
        persist: Content | None,
        timestamp: float | None,
        platform_id: str | None,
        person_id: PersonId | None,
    ) -> dict[str, Any]:
        """What is stored for the person's words; what the model gets beside them is stored with it, as it is sent."""
        added = hooks.added_context(
            await hooks.fire(
                "pre_llm_call", session_id=self._session_id, user_message=copy.deepcopy(message), model=self.model,
                platform=self.platform, sender_id=person_id,
            )
        )  # fmt: skip
        return user_row.made(
            message, persist=persist, added=added, timestamp=timestamp, person_id=person_id,
            platform_message_id=platform_id,
        )  # fmt: skip

    async def _session_ready(self, history: Sequence[Mapping[str, Any]]) -> None:
        """The conversation exists, and `session_id` names one of its segments: a turn opens on the newest."""
        if self._track is not None and not history:
            return  # it had a turn here; should it be deleted since, opening the next one says so
        if await asyncio.to_thread(self._ensure_session, history):
            await hooks.fire("on_session_start", session_id=self._session_id, model=self.model, platform=self.platform)

    def _ensure_session(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Make the session when there is none, and fill it when it is empty. True when it is new."""
        db = self._setup.db
        if self._session_id is not None and db.get_session(self._session_id) is not None:
            self._session_id = SessionId(db.get_compression_tip(self._session_id))
            new = False
        else:
            handle = db.ledger.open(
                source=str(self._origin.get("source") or self.platform), owner=self._setup.person_id,
                session_id=self._session_id,
                fields={"model": self.model, "cwd": str(self._setup.workdir), **self._origin},
            )  # fmt: skip
            self._session_id, new = handle.session_id, True
        if history and db.message_count(self._session_id) == 0:
            db.append_messages(self._session_id, history)
        return new

    def _known_session(self) -> SessionId:
        assert self._session_id is not None, "_ensure_session comes first"
        return self._session_id

    def announce(self, reason: str) -> None:
        """Something may have changed what the prompt begins with (a role was given): the next turn renders it anew."""
        self._announced = reason

    def _tracked(self, journal: Journal) -> Track:
        if self._track is None or self._track.conversation_id != journal.conversation_id:
            self._track = Track(self._setup, journal.conversation_id)
        if self._announced:
            self._track.announce(self._announced)
            self._announced = ""
        return self._track

    def _history(self, journal: Journal) -> reporting.History:
        db, session_id = self._setup.db, journal.session_id
        return reporting.History(lambda: db.get_messages_as_conversation(session_id))

    def _maybe_title(self, journal: Journal) -> None:
        from hermes_agent import titling

        task = titling.after_turn(self._setup, journal.conversation_id, journal.session_id)
        if task is not None:
            self._titles.add(task)
            task.add_done_callback(self._titles.discard)


def _own(journal: Journal) -> tuple[dict[str, Any], int] | None:
    """The row a turn was opened with, where it is known to the last digit: its time may be what the store made it."""
    if journal.user is None or journal.user[0].get("timestamp") is None:
        return None
    return dict(journal.user[0]), journal.user[1]
