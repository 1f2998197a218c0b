"""Putting an agent's parts together: from configuration to a `Setup`, from a setup and a journal to a running turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import context, process_identity
from hermes_agent.approvals.types import Approver, Yolo
from hermes_agent.budget import Budget
from hermes_agent.compacting import Compactor
from hermes_agent.models import providers
from hermes_agent.models.base import Endpoint
from hermes_agent.prompt.transcript import TranscriptCache
from hermes_agent.setup import Setup
from hermes_agent.tools import environment, registry
from hermes_agent.tools.base import Ask, ToolContext
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals, Stop
from hermes_agent.turn.model_step import Asker
from hermes_agent.turn.run import Running, TurnOutcome, nothing_owed
from hermes_agent.turn.tool_calls import Workbench
from hermes_config import config as configuration
from hermes_state.ids import PersonId
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import EndState

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB


def setup(
    *,
    session_db: SessionDB | None,
    config: Config | None,
    endpoint: Endpoint | None,
    fallbacks: Sequence[Endpoint] | None,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    api_key: str | None,
    platform: str,
    person_id: PersonId | None,
    role: str | None,
    workdir: Path | None,
    approver: Approver | None,
    approver_id: PersonId | None,
    ask: Ask | None,
    yolo: Yolo,
    max_steps: int | None,
    max_tokens: int | None,
    enabled: Sequence[str] | None,
    disabled: Sequence[str],
    extra_text: str,
    with_memory: bool,
    with_context_files: bool,
) -> Setup:
    loaded = config or configuration.load()
    db = session_db if session_db is not None else _default_store(loaded)
    role = role or _role(db, person_id)
    known = registry.shared()
    tools = known.offered(loaded, role=role, platform=platform, enabled=enabled, disabled=disabled)
    return Setup(
        db=db, config=loaded, workdir=environment.working_directory(loaded.home, started_in=workdir),
        endpoint=endpoint or _endpoint(loaded, model, provider, base_url, api_key, max_tokens),
        fallbacks=providers.fallbacks(loaded) if fallbacks is None else tuple(fallbacks),
        tools={tool.name: tool for tool in tools}, specs=known.described(tools),
        budget=Budget(db, loaded), platform=platform, person_id=person_id, role=role, approver=approver,
        approver_id=approver_id, ask=ask, yolo=yolo, holder=process_identity.new_holder(),
        max_steps=max_steps or loaded.agent.max_turns,
        max_retries=loaded.agent.api_max_retries, extra_text=extra_text, with_memory=with_memory,
        with_context_files=with_context_files,
    )  # fmt: skip


def assemble(
    setup: Setup,
    track: TranscriptCache,
    journal: Journal,
    listeners: Callbacks,
    signals: Signals,
    stop: Stop,
    facts: Mapping[str, Any],
    notes: dict[str, Any],
    owe: Callable[[EndState, TurnOutcome], Parcel | None] = nothing_owed,
) -> Running:
    """A turn that can be run. `notes` is small state that lives as long as the agent: the to-do list."""
    # Imported here because together they take 40 ms, which a process that runs no turn need not spend.
    from hermes_agent.approvals.gate import CommandGate
    from hermes_agent.execution import executor

    gate = CommandGate(
        db=setup.db, home=setup.home, config=setup.config, wall=executor.wall_of(setup.config).wall,
        conversation_id=journal.conversation_id, turn_id=journal.turn_id, person_id=setup.person_id,
        approver=setup.approver, approver_id=setup.approver_id, fence=journal.fence, yolo=setup.yolo,
        platform=setup.platform, workspace=setup.workdir,
    )  # fmt: skip

    def for_call(call_id: str, mark: str) -> ToolContext:
        return ToolContext(
            db=setup.db, home=setup.home, workdir=setup.workdir, conversation_id=journal.conversation_id,
            session_id=lambda: journal.session_id, turn_id=journal.turn_id, call_id=call_id,
            person_id=setup.person_id, platform=setup.platform, gate=gate.for_call(call_id, mark=mark),
            ask=setup.ask,
            emit=lambda text: listeners.tell_tool_progress("tool.output", "", text, None),
            environ=environment.child_environment(
                os.environ, passed=setup.config.terminal.env_passthrough, identity=context.child_environment(),
                home=setup.home,
            ),
            stop=stop, config=setup.config, agent=notes,
        )  # fmt: skip

    bench = Workbench(
        journal=journal,
        tools=setup.tools,
        context=for_call,
        asking=lambda call_id, reason: gate.for_call(call_id, extra_reasons=(reason,)),
        was_waiting=gate.was_waiting,
        listeners=listeners,
        signals=signals,
        clock=setup.db.clock,
        facts=facts,
    )
    return Running(
        setup=setup, track=track, journal=journal, asker=Asker(setup, track, journal, listeners, signals), bench=bench,
        listeners=listeners, signals=signals, stop=stop, compactor=Compactor(setup, track, journal, listeners, stop),
        owe=owe,
    )  # fmt: skip


def identity(setup: Setup, origin: Mapping[str, Any]) -> context.TurnIdentity:
    """Who the turn is for, as its tools and their children are told."""

    def said(name: str) -> str:
        return str(origin.get(name) or "")

    return context.TurnIdentity(
        platform=setup.platform, source=setup.platform, chat_id=said("chat_id"), chat_name=said("display_name"),
        thread_id=said("thread_id"), user_id=said("user_id") or str(setup.person_id or ""),
        session_key=said("session_key"),
    )  # fmt: skip


def _endpoint(
    config: Config,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    api_key: str | None,
    max_tokens: int | None,
) -> Endpoint:
    found = providers.primary(config, model=model, provider=provider)
    changes: dict[str, Any] = {"base_url": base_url, "api_key": api_key, "max_tokens": max_tokens}
    return replace(found, **{name: value for name, value in changes.items() if value is not None})


def _role(db: SessionDB, person_id: PersonId | None) -> str:
    """What the person may use; somebody unknown is a guest."""
    if person_id is None:
        return "guest"
    known = db.people.get(person_id)
    if known is not None:
        return known.role
    return db.people.owner().role if person_id == "owner" else "guest"


def _default_store(config: Config) -> SessionDB:
    from hermes_state import SessionDB

    return SessionDB(config.database_url(), limits=config.limits)
