"""The objects of a turn: the agent's frozen `Setup`, made once, and the `TurnRun` of one run of the turn."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import context
from hermes_agent.approvals.types import Approver, Yolo
from hermes_agent.budget import Budget
from hermes_agent.models.base import Endpoint, ModelError, ToolSpec
from hermes_agent.tools.base import Action, Ask, Tool
from hermes_agent.turn import result
from hermes_agent.turn.control import Stop
from hermes_agent.turn.model_step import ModelSteps
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_agent.turn.result import TurnOutcome
from hermes_config.config import Config
from hermes_state.ids import PersonId
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import EndState

if TYPE_CHECKING:
    from hermes_agent.agent import AIAgent
    from hermes_agent.approvals.gate import CommandGate
    from hermes_state import SessionDB
    from hermes_state.turns.children import Child


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The store, endpoints, tools and limits that all turns of an agent use."""

    db: SessionDB
    config: Config
    workdir: Path
    endpoint: Endpoint
    fallbacks: tuple[Endpoint, ...]
    specs: tuple[ToolSpec, ...]
    """The tools that the prompt lists."""
    budget: Budget
    platform: str
    person_id: PersonId | None
    role: str
    """The person's role; it decides which tools the agent has."""
    approver: Approver | None = None
    approver_id: PersonId | None = None
    ask: Ask | None = None
    yolo: Yolo = field(default_factory=Yolo)
    holder: str = ""
    """The agent's name in leases: process and agent."""
    lease_seconds: float = 60.0
    max_steps: int = 90
    max_retries: int = 3
    extra_text: str = ""
    """The caller's addition to the system text: a personality, a channel's prompt."""
    with_memory: bool = True
    with_context_files: bool = True
    child: Child | None = None
    """The delegated work that the agent does; None for a conversation of people."""

    @property
    def home(self) -> Path:
        return self.config.home


class TurnRun:
    """One run of a turn in this process, created with the turn's journal. A recovered turn has several runs.

    `setup` is the agent's, except for the person who wrote: in a group several people share one agent.
    """

    def __init__(
        self,
        agent: AIAgent,
        setup: Setup,
        journal: Journal,
        *,
        stop: Stop,
        request: TurnRequest | None = None,
        task_id: str | None = None,
    ) -> None:
        if request is not None:
            rows = journal.work.inbox  # a recovered turn may belong to another person
            speaker = rows[0].person_id if rows else request.person_id
            if (speaker, request.approver_id) != (setup.person_id, setup.approver_id):
                setup = replace(setup, person_id=speaker, approver_id=request.approver_id)
        self.agent, self.setup, self.journal, self.request = agent, setup, journal, request
        self.signals, self.stop, self.task_id = agent.signals, stop, task_id
        self.transcript = agent.transcript_of(journal)
        self.model = ModelSteps(self)

    @functools.cached_property
    def gate(self) -> CommandGate:
        """The permission gate of this turn's calls."""
        # Imported here because these imports take 40 ms, which a process without turns should not spend.
        from hermes_agent.approvals.gate import CommandGate
        from hermes_agent.execution import executor

        setup, journal = self.setup, self.journal
        stays_open = self.request is not None and self.request.questions_stay_open
        return CommandGate(
            db=setup.db, home=setup.home, config=setup.config, sandbox=executor.sandbox_of(setup.config).sandbox,
            conversation_id=journal.conversation_id, turn_id=journal.turn_id, person_id=setup.person_id,
            approver=setup.approver, approver_id=setup.approver_id, fence=journal.fence, yolo=setup.yolo,
            platform=setup.platform, workspace=setup.workdir,
            task_id=None if setup.child is None else setup.child.turn_id,
            asks_for="" if setup.child is None else setup.child.goal,
            open_seconds=setup.config.approvals.open_hours * 3_600 if stays_open else 0.0,
        )  # fmt: skip

    async def permit_call(self, endpoint: Endpoint, why: str) -> None:
        """Ask the person about an expensive model call."""
        gate = replace(self.gate, open_seconds=0.0)  # a turn cannot be suspended before the model was asked
        verdict = await gate.permit(Action("spend", f"a call to {endpoint.model}", str(self.setup.workdir), why))
        if not verdict.allowed:
            how = verdict.reason.removeprefix("it was not approved: ").partition(". ")[0].partition(" (")[0]
            how = f"{how[:1].lower()}{how[1:]}"
            what = f"{endpoint.model} was not asked: {why}, and {how}"
            raise ModelError("budget", what, hint="Raise budget.ask_usd in config.yaml.")

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools there are now: a server may have come or gone since the turn began."""
        return self.agent.current_tools()

    @property
    def role(self) -> str:
        """The role of the person who wrote."""
        return self.setup.role if self.request is None else self.request.role or self.setup.role

    @property
    def waits_for(self) -> str:
        """The unanswered question for which the turn is suspended; empty in nearly all turns."""
        gate: CommandGate | None = self.__dict__.get("gate")  # most turns never create the gate
        return gate.waits[-1] if gate is not None and gate.waits else ""

    @property
    def facts(self) -> dict[str, Any]:
        """The ids that every hook call of this turn gets."""
        return {"session_id": self.journal.session_id, "turn_id": self.journal.turn_id, "task_id": self.task_id}

    @property
    def identity(self) -> context.TurnIdentity:
        """The turn's origin, as its tools and their child processes see it."""
        if self.request is not None and self.request.identity is not None:
            return self.request.identity(self.journal.work)
        origin, platform = self.agent.origin, self.setup.platform

        def column(name: str) -> str:
            return str(origin.get(name) or "")

        return context.TurnIdentity(
            platform=platform, source=platform, chat_id=column("chat_id"), chat_name=column("display_name"),
            thread_id=column("thread_id"), user_id=column("user_id") or str(self.setup.person_id or ""),
            session_key=column("session_key"),
        )  # fmt: skip

    def reply_for(self, state: EndState, outcome: TurnOutcome) -> NewOutboxItem | None:
        """The reply to the chat for this end of the turn; None: only the caller gets the result."""
        if self.request is None:
            return None
        facts = result.facts_of(outcome, session_id=self.journal.session_id)
        return self.request.make_reply(self.journal.work, TurnEnd(state=state, text=outcome.text, facts=facts))
