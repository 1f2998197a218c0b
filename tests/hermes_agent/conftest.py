"""What tests of the agent can ask for: an agent on a real store, talking to a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel

MakeAgent = Callable[..., AIAgent]


class Person:
    """Answers what it is asked."""

    def __init__(self, answer: Choice) -> None:
        self.answer, self.asked = answer, list[ApprovalQuestion]()

    async def ask(self, question: ApprovalQuestion) -> Choice:
        self.asked.append(question)
        return self.answer


@pytest.fixture
def quiet_home(home: Path) -> Path:
    """A home whose agents do nothing beside their turns."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("auto_title: false\n")
    return home


@pytest.fixture
def make_agent(db: SessionDB, quiet_home: Path, tmp_path: Path) -> MakeAgent:
    """`make_agent(model, session_id=…)`: on the test's store and home, in an empty folder."""
    work = tmp_path / "work"
    work.mkdir()

    def make(model: ScriptedModel, **options: Any) -> AIAgent:
        options.setdefault("endpoint", model.endpoint())
        options.setdefault("workdir", work)
        return AIAgent(session_db=db, config=configuration.load(quiet_home), **options)

    return make


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return asyncio.run
