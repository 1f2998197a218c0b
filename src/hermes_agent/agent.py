"""`AIAgent`: the door to the mind that other code knows.

An agent belongs to one conversation. It keeps the prompt's bytes warm between turns and nothing else that matters: two
agents for one conversation, in one process or in two, take turns by the lease and see each other's messages. The core
is `arun_conversation`; `run_conversation` is the same for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import assembling, context, holders, hooks, loop_thread, reporting, turn
from hermes_agent.approvals.base import Approver, Yolo
from hermes_agent.asking import Spent
from hermes_agent.listeners import Listeners
from hermes_agent.models.base import Endpoint
from hermes_agent.setup import Setup
from hermes_agent.signals import Signals
from hermes_agent.tools.base import Ask
from hermes_agent.track import Track
from hermes_config import log_guard
from hermes_config.errors import HermesError
from hermes_state.errors import StaleFence
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, SessionId
from hermes_state.journal import Journal

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns import Turn

_log = logging.getLogger("hermes.agent")
_ATTEMPTS = 3
Content = str | list[Any]


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
        """The configuration says which model, unless `endpoint` does. `origin`: columns of a new session, user_id …"""
        super().__init__()
        log_guard.install()
        self._yolo = Yolo(on=yolo)
        self._setup: Setup = assembling.setup(
            session_db=session_db, config=config, endpoint=endpoint, fallbacks=fallbacks, model=model,
            provider=provider, base_url=base_url, api_key=api_key,
            platform=platform, person_id=person_id, workdir=workdir, approver=approver, approver_id=approver_id,
            ask=ask, yolo=self._yolo, max_steps=max_iterations, max_tokens=max_tokens, enabled=enabled_toolsets,
            disabled=disabled_toolsets, extra_text=ephemeral_system_prompt or "", with_memory=not skip_memory,
            with_context_files=not skip_context_files,
        )  # fmt: skip
        self._session_id = None if session_id is None else SessionId(session_id)
        self._origin = dict(origin or {})
        self._track: Track | None = None
        self._signals = Signals()
        self._notes: dict[str, Any] = {}
        self._looked_back = False
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

    def interrupt(self, message: str | None = None) -> None:
        self._signals.stop(message)

    def clear_interrupt(self) -> None:
        self._signals.clear()

    @property
    def is_interrupted(self) -> bool:
        return self._signals.stopped

    def steer(self, text: str) -> bool:
        return self._signals.steer(text)

    # -- turns -------------------------------------------------------------------------------------------

    def run_conversation(self, user_message: Content, *args: Any, **options: Any) -> dict[str, Any]:
        """`arun_conversation` for callers without an event loop."""
        try:
            return loop_thread.run(self.arun_conversation(user_message, *args, **options))
        except KeyboardInterrupt:
            self.interrupt()
            raise

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
    ) -> dict[str, Any]:
        """One turn. The store is the history; `conversation_history` only fills a session that has no rows yet."""
        if stream_callback is not None:
            self.stream_delta_callback = stream_callback
        stop = self._signals.bind()
        try:
            await asyncio.to_thread(self._ensure_session, conversation_history or ())
            if not self._looked_back:
                self._looked_back = True
                await self._resume(stop)
            user = self._user_row(user_message, persist_user_message, persist_user_timestamp, platform_message_id)
            journal = await Journal.open(
                self._setup.db,
                self._known_session(),
                holder=self._setup.holder,
                ttl=self._setup.lease_seconds,
                user=user,
            )
            if journal is None:
                raise ConversationBusy(where=str(self._session_id))
            return await self._run(journal, stop, task_id=task_id)
        finally:
            self._signals.clear()

    async def resume_unfinished(self) -> dict[str, Any] | None:
        """Take up a turn of this conversation whose process was lost; its result, or None when there is none."""
        stop = self._signals.bind()
        try:
            await asyncio.to_thread(self._ensure_session, ())
            self._looked_back = True
            return await self._resume(stop)
        finally:
            self._signals.clear()

    async def compress(self, focus: str | None = None) -> bool:
        """`/compress`: now, whatever the thresholds say. True when the conversation is smaller."""
        await asyncio.to_thread(self._ensure_session, ())
        journal = await Journal.open(
            self._setup.db, self._known_session(), holder=self._setup.holder, ttl=self._setup.lease_seconds
        )
        if journal is None:
            raise ConversationBusy(where=str(self._session_id))
        running = assembling.assemble(
            self._setup, self._tracked(journal), journal, self, self._signals, asyncio.Event(), {}, self._notes
        )
        try:
            await running.track.ready(journal.session_id, fence=journal.fence)
            done = await running.compactor.compress(running.asker, force=True, focus=focus)
            await journal.commit(reason="compress" if done else "nothing to compress")
        except BaseException as error:
            await journal.give_up("failed", reason=type(error).__name__)
            raise
        self._session_id = journal.session_id
        return done

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

    async def _run(
        self, journal: Journal, stop: asyncio.Event, *, task_id: str | None, pending: turn.Pending | None = None
    ) -> dict[str, Any]:
        self._session_id = journal.session_id
        facts = {"session_id": journal.session_id, "turn_id": journal.turn_id, "task_id": task_id}
        running = assembling.assemble(
            self._setup, self._tracked(journal), journal, self, self._signals, stop, facts, self._notes
        )
        running.track.pace.turn_began()
        identity = assembling.identity(self._setup, self._origin)
        with context.bind(identity, context.CurrentSession(journal.session_id)):
            outcome = await self._outcome(running, journal, pending)
        self._session_id = journal.session_id
        self._spent = outcome.spent
        hooks.fire(
            "on_session_end", session_id=journal.session_id, task_id=task_id, turn_id=journal.turn_id,
            completed=not (outcome.failed or outcome.interrupted), interrupted=outcome.interrupted,
            model=outcome.endpoint.model, platform=self.platform,
        )  # fmt: skip
        result = reporting.result_of(outcome, session_id=journal.session_id, history=self._history(journal))
        if self._signals.message is not None:
            result["interrupt_message"] = self._signals.message
        if result["completed"]:
            self._maybe_title(journal)
        return result

    async def _outcome(self, running: turn.Running, journal: Journal, pending: turn.Pending | None) -> turn.Outcome:
        """The turn's end, also when it went wrong in a way nobody foresaw: its row never stays open because of us."""
        try:
            await running.track.ready(journal.session_id, fence=journal.fence)
            return await turn.run(running, pending=pending)
        except StaleFence:
            raise  # another process has the conversation now; it is not ours to write the end
        except asyncio.CancelledError:
            await asyncio.shield(journal.give_up("cancelled", reason="cancelled"))
            raise
        except HermesError as error:
            await journal.give_up("failed", reason=error.one_line())
            return _broken(running, error.one_line(), type(error).__name__)
        except Exception as error:  # noqa: BLE001 - boundary: a turn's row never stays open because of a bug of ours
            _log.exception("a turn failed", extra={"action": "turn_failed", "turn_id": journal.turn_id})
            await journal.give_up("failed", reason=type(error).__name__)
            return _broken(
                running, f"something went wrong inside Hermes ({type(error).__name__})", type(error).__name__
            )

    async def _resume(self, stop: asyncio.Event) -> dict[str, Any] | None:
        db = self._setup.db
        waiting = await asyncio.to_thread(self._unfinished)
        if not waiting:
            return None
        left = waiting[-1]
        journal = await Journal.resume(
            db, left.id, self._known_session(), holder=self._setup.holder, ttl=self._setup.lease_seconds
        )
        if journal is None:
            return None
        if journal.work.turn.attempt > _ATTEMPTS:
            said = f"This turn was given up: the process was lost {_ATTEMPTS} times while it ran."
            await journal.give_up("parked", {"role": "assistant", "content": said}, reason=said)
            self.tell("status_callback", "warn", said)
            return None
        self.tell("status_callback", "lifecycle", "taking up the turn that was interrupted when the process was lost")
        messages = await asyncio.to_thread(db.get_messages, journal.session_id)
        return await self._run(journal, stop, task_id=None, pending=turn.pending(messages))

    def _unfinished(self) -> tuple[Turn, ...]:
        conversation = ConversationId(self._setup.db.get_conversation_root(self._known_session()))
        holders.release_gone(self._setup.db, conversation)
        return self._setup.db.turns.unfinished(conversation_id=conversation)

    def _user_row(
        self, message: Content, persist: Content | None, timestamp: float | None, platform_id: str | None
    ) -> dict[str, Any]:
        """What is stored for the person's words; what the model gets beside them is stored with it, as it is sent."""
        stored = message if persist is None else persist
        added = hooks.added_context(
            hooks.fire(
                "pre_llm_call", session_id=self._session_id, user_message=message, model=self.model,
                platform=self.platform, sender_id=self._setup.person_id,
            )
        )  # fmt: skip
        sent = message
        if added:
            sent = f"{message}\n\n{added}" if isinstance(message, str) else [*message, {"type": "text", "text": added}]
        row: dict[str, Any] = {
            "role": "user", "content": stored, "timestamp": timestamp, "person_id": self._setup.person_id,
            "platform_message_id": platform_id,
        }  # fmt: skip
        if sent != stored and isinstance(sent, str):
            row["api_content"] = sent
        return row

    def _ensure_session(self, history: Sequence[Mapping[str, Any]]) -> None:
        """The conversation exists, and `session_id` names its newest segment."""
        db = self._setup.db
        if self._session_id is not None and db.get_session(self._session_id) is not None:
            self._session_id = SessionId(db.get_compression_tip(self._session_id))
            return
        handle = db.ledger.open(
            source=str(self._origin.get("source") or self.platform), owner=self._setup.person_id,
            session_id=self._session_id,
            fields={"model": self.model, "cwd": str(self._setup.workdir), **self._origin},
        )  # fmt: skip
        self._session_id = handle.session_id
        if history:
            db.append_messages(handle.session_id, history)
        hooks.fire("on_session_start", session_id=handle.session_id, model=self.model, platform=self.platform)

    def _known_session(self) -> SessionId:
        assert self._session_id is not None, "_ensure_session comes first"
        return self._session_id

    def _tracked(self, journal: Journal) -> Track:
        if self._track is None or self._track.conversation_id != journal.conversation_id:
            self._track = Track(self._setup, journal.conversation_id)
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


def _broken(running: turn.Running, said: str, kind: str) -> turn.Outcome:
    return turn.Outcome(
        text=None, exit_reason=f"local_processing_error({kind})", spent=running.asker.spent,
        endpoint=running.asker.endpoint, failed=True, error=said,
    )  # fmt: skip
