"""A bench for tools: a real store, a working directory, and a gate and a person that answer as the test says."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.tools import environment, registry
from hermes_agent.tools.base import Action, GateDecision, ToolContext, ToolResult
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of
from hermes_config.limits import Limits
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, SessionId, TurnId
from hermes_state.session_db import SessionDB


@dataclass
class Gatekeeper:
    """Says yes unless told otherwise, and remembers what it was asked."""

    refuses: tuple[str, ...] = ()
    asked: list[Action] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None

    async def permit(self, action: Action) -> GateDecision:
        self.asked.append(action)
        self.before_answer()
        return GateDecision(action.kind not in self.refuses, "was not approved; do not retry")


@dataclass
class Bench:
    """`call` runs a tool the way a turn does: JSON text in, a result out."""

    ctx: ToolContext
    gate: Gatekeeper
    live: list[str]

    @property
    def workdir(self) -> Path:
        return self.ctx.workdir

    def call(self, name: str, /, **args: Any) -> ToolResult:
        return self.raw(name, json.dumps(args))

    def raw(self, name: str, arguments: str) -> ToolResult:
        return asyncio.run(self.acall(name, arguments))

    async def acall(self, name: str, arguments: str) -> ToolResult:
        tool = registry.Registry().get(name)
        assert tool is not None
        # An event belongs to the loop that waits for it.
        ctx = replace(self.ctx, stop=Stop())
        return await registry.run_call(tool, arguments, ctx)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.workdir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def limited(self, **changes: int) -> None:
        self.ctx.db.limits = self.ctx.db.limits.changed(**changes)

    def as_person(self, person: PersonId | None) -> Bench:
        return Bench(replace(self.ctx, person_id=person), self.gate, self.live)

    def with_(self, **changes: Any) -> Bench:
        return Bench(replace(self.ctx, **changes), self.gate, self.live)


@pytest.fixture
def store(tmp_path: Path, home: Path) -> Iterator[SessionDB]:
    home.mkdir(mode=0o700)
    db = SessionDB(home / "state.db", limits=Limits())
    yield db
    db.close()


@pytest.fixture
def bench(store: SessionDB, home: Path) -> Bench:
    workdir = environment.working_directory(home, started_in=None)
    handle = store.ledger.open(route=None, source="cli", owner=LOCAL_OWNER)
    gate = Gatekeeper()
    live: list[str] = []
    ctx = ToolContext(
        db=store, home=home, workdir=workdir, conversation_id=ConversationId(handle.conversation_id),
        session_id=lambda: SessionId(handle.session_id), turn_id=TurnId("turn_1"), call_id="call_1",
        person_id=LOCAL_OWNER, platform="cli", gate=gate, ask=None, emit=live.append,
        environ=environment.child_environment(os.environ, passed=(), identity={}, home=home),
        stop=Stop(), config=config_of(home, {}),
    )  # fmt: skip
    return Bench(ctx, gate, live)
