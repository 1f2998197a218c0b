"""What turns work with: an agent's `Setup`, its `AgentState` between turns, and one `TurnRun`.

`Setup` is frozen: it is made once when an agent is made. Nothing in `AgentState` is the truth: the segment is looked up
again when a turn opens, the transcript's bytes can be dropped at any moment and made again from the store, and the
notes (the to-do list) are lost with the agent.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import context, hooks, process_identity, titles
from hermes_agent.approvals.types import Approver, Yolo
from hermes_agent.budget import Budget
from hermes_agent.models.base import Endpoint, ToolSpec
from hermes_agent.prompt.transcript import TranscriptCache
from hermes_agent.tools.base import Ask, Tool
from hermes_agent.turn import result
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals, Stop
from hermes_agent.turn.model_step import ModelSteps
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_agent.turn.result import Spent, TurnOutcome
from hermes_config.config import Config
from hermes_state.ids import ConversationId, PersonId, SessionId
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import EndState

if TYPE_CHECKING:
    from hermes_agent.approvals.gate import CommandGate
    from hermes_state import SessionDB


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the turns of an agent work with."""

    db: SessionDB
    config: Config
    workdir: Path
    endpoint: Endpoint
    fallbacks: tuple[Endpoint, ...]
    tools: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]
    budget: Budget
    platform: str
    person_id: PersonId | None
    role: str
    """What the person may use; `tools` is made by it."""
    approver: Approver | None = None
    approver_id: PersonId | None = None
    ask: Ask | None = None
    yolo: Yolo = field(default_factory=Yolo)
    holder: str = ""
    """Who we are in leases: process, agent."""
    lease_seconds: float = 60.0
    max_steps: int = 90
    max_retries: int = 3
    extra_text: str = ""
    """What the caller adds to the system text: a personality, a channel's prompt."""
    with_memory: bool = True
    with_context_files: bool = True

    @property
    def home(self) -> Path:
        return self.config.home


class AgentState:
    """What an agent keeps of its conversation from one turn to the next. One for each agent."""

    def __init__(self, setup: Setup, session_id: SessionId | None, origin: Mapping[str, Any]) -> None:
        self._setup = setup
        self.session_id = session_id
        """The segment the conversation is at; None before the first turn of a new one."""
        self.origin = dict(origin)
        """Columns of a session that is made here."""
        self.notes: dict[str, Any] = {}
        self.spent = Spent()
        """What the last turn cost."""
        self._transcript: TranscriptCache | None = None
        self._announced = ""
        self._titles: set[asyncio.Task[None]] = set()

    @property
    def known_session(self) -> SessionId:
        assert self.session_id is not None, "`ready` comes first"
        return self.session_id

    @property
    def warm(self) -> bool:
        """It had a turn here."""
        return self._transcript is not None

    @property
    def nbytes(self) -> int:
        return 0 if self._transcript is None else self._transcript.nbytes

    def message_count(self, session_id: SessionId) -> int | None:
        return None if self._transcript is None else self._transcript.message_count(session_id)

    async def ready(self, history: Sequence[Mapping[str, Any]] = ()) -> None:
        """The conversation exists, and `session_id` names one of its segments: a turn opens on the newest."""
        if self.warm and not history:
            return  # should it be deleted since, opening the next turn says so
        if not history and self._setup.db.engine.dialect == "sqlite" and self._found():
            return  # two rows of a local file, by their keys: less than handing the question to a thread
        if await asyncio.to_thread(self._ensure, history):
            endpoint, platform = self._setup.endpoint, self._setup.platform
            await hooks.fire("on_session_start", session_id=self.session_id, model=endpoint.model, platform=platform)

    def _ensure(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Make the session when there is none, and fill it when it is empty. True when it is new."""
        db, setup = self._setup.db, self._setup
        new = not self._found()
        if new:
            handle = db.ledger.open(
                source=str(self.origin.get("source") or setup.platform), owner=setup.person_id,
                session_id=self.session_id,
                fields={"model": setup.endpoint.model, "cwd": str(setup.workdir), **self.origin},
            )  # fmt: skip
            self.session_id = handle.session_id
        if history and db.message_count(self.known_session) == 0:
            db.append_messages(self.known_session, history)
        return new

    def _found(self) -> bool:
        """Whether the session is there; if so, `session_id` names the newest segment of its conversation."""
        db, known = self._setup.db, self.session_id
        if known is None or db.get_session(known) is None:
            return False
        self.session_id = SessionId(db.get_compression_tip(known))
        return True

    async def begin_anew(self) -> None:
        """The conversation was deleted meanwhile: what is said now begins it again."""
        self._transcript = None
        await self.ready()

    def free(self) -> bool:
        """Take the lease from a process that is gone for certain."""
        db = self._setup.db
        return process_identity.release_gone(db, ConversationId(db.get_conversation_root(self.known_session)))

    def exchange(self, setup: Setup, reason: str) -> None:
        """Another setup from now on; the bytes that were made with the old one go."""
        self._setup, self._transcript = setup, None
        self.announce(reason)

    def announce(self, reason: str) -> None:
        """The next turn renders what the prompt begins with anew."""
        self._announced = reason

    def transcript_of(self, journal: Journal) -> TranscriptCache:
        """The bytes of the conversation that the turn is in."""
        if self._transcript is None or self._transcript.conversation_id != journal.conversation_id:
            self._transcript = TranscriptCache(self._setup, journal.conversation_id)
        if self._announced:
            self._transcript.announce(self._announced)
            self._announced = ""
        return self._transcript

    def release(self) -> None:
        if self._transcript is not None:
            self._transcript.release()

    def title_soon(self, journal: Journal) -> None:
        """Beside the chat; nobody waits for it but `titled`."""
        task = titles.after_turn(self._setup, journal.conversation_id, journal.session_id)
        if task is not None:
            self._titles.add(task)
            task.add_done_callback(self._titles.discard)

    async def titled(self, *, seconds: float) -> None:
        if self._titles:
            await asyncio.wait(set(self._titles), timeout=seconds)


class TurnRun:
    """One run of a turn in this process, made when it has its journal and used once. A recovered turn has several.

    `setup` is the agent's, but for the person who speaks: in a room several people take turns at one agent.
    """

    def __init__(
        self,
        setup: Setup,
        state: AgentState,
        journal: Journal,
        *,
        callbacks: Callbacks,
        signals: Signals,
        stop: Stop,
        request: TurnRequest | None = None,
        task_id: str | None = None,
    ) -> None:
        if request is not None:
            rows = journal.work.inbox  # a turn that is recovered may be another person's
            speaker = rows[0].person_id if rows else request.person_id
            setup = replace(setup, person_id=speaker, approver_id=request.approver_id)
        self.setup, self.state, self.journal, self.request = setup, state, journal, request
        self.callbacks, self.signals, self.stop, self.task_id = callbacks, signals, stop, task_id
        self.transcript = state.transcript_of(journal)
        self.model = ModelSteps(setup, self.transcript, journal, callbacks, stop)

    @functools.cached_property
    def gate(self) -> CommandGate:
        """The way to permission for this turn's calls."""
        # Imported here because together they take 40 ms, which a process that runs no turn need not spend.
        from hermes_agent.approvals.gate import CommandGate
        from hermes_agent.execution import executor

        setup, journal = self.setup, self.journal
        stays_open = self.request is not None and self.request.questions_stay_open
        return CommandGate(
            db=setup.db, home=setup.home, config=setup.config, wall=executor.wall_of(setup.config).wall,
            conversation_id=journal.conversation_id, turn_id=journal.turn_id, person_id=setup.person_id,
            approver=setup.approver, approver_id=setup.approver_id, fence=journal.fence, yolo=setup.yolo,
            platform=setup.platform, workspace=setup.workdir,
            open_seconds=setup.config.approvals.open_hours * 3_600 if stays_open else 0.0,
        )  # fmt: skip

    @property
    def waits_for(self) -> str:
        """The question that nobody answered in time, for which the turn is put down; empty in nearly all turns."""
        gate: CommandGate | None = self.__dict__.get("gate")  # most turns never make it
        return gate.waits[-1] if gate is not None and gate.waits else ""

    @property
    def facts(self) -> dict[str, Any]:
        """What hooks are told with every call and at the end."""
        return {"session_id": self.journal.session_id, "turn_id": self.journal.turn_id, "task_id": self.task_id}

    @property
    def identity(self) -> context.TurnIdentity:
        """Whom the turn is for, as its tools and their children are told."""
        if self.request is not None and self.request.identity is not None:
            return self.request.identity(self.journal.work)
        origin, platform = self.state.origin, self.setup.platform

        def said(name: str) -> str:
            return str(origin.get(name) or "")

        return context.TurnIdentity(
            platform=platform, source=platform, chat_id=said("chat_id"), chat_name=said("display_name"),
            thread_id=said("thread_id"), user_id=said("user_id") or str(self.setup.person_id or ""),
            session_key=said("session_key"),
        )  # fmt: skip

    def reply_for(self, state: EndState, outcome: TurnOutcome) -> Parcel | None:
        """What the chat that asked is sent for this end; None: only the caller waits for it."""
        if self.request is None:
            return None
        facts = result.facts_of(outcome, session_id=self.journal.session_id)
        return self.request.owe(self.journal.work, TurnEnd(state=state, text=outcome.text, facts=facts))
