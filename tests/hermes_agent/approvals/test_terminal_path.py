"""Through the terminal tool the gate judges exactly the command that was given.

No line is really run here: a tripwire behind the gate stops the test before the tool could go on.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hermes_agent.approvals.gate import CommandGate
from hermes_agent.tools.base import Action, GateDecision, ToolContext
from hermes_agent.tools.registry import Registry, run_call
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of
from hermes_state.ids import ConversationId, PersonId, SessionId, TurnId
from hermes_state.session_db import SessionDB


class Tripwire:
    """The real gate, and a stop behind it."""

    def __init__(self, gate: CommandGate) -> None:
        self.gate = gate
        self.verdicts: list[tuple[str, bool]] = []

    async def permit(self, action: Action) -> GateDecision:
        verdict = await self.gate.permit(action)
        self.verdicts.append((action.text, verdict.allowed))
        return GateDecision(False, verdict.reason or "the tripwire")


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def test_the_terminal_asks_about_exactly_the_command(db: SessionDB, home: Path, workdir: Path) -> None:
    gate = CommandGate(
        db=db, home=home, config=config_of(home, {}), sandbox="bubblewrap",
        conversation_id=ConversationId("c"), turn_id=TurnId("t"),
        person_id=PersonId("ana"), approver=None,
    )  # fmt: skip
    wire = Tripwire(gate)
    ctx = ToolContext(
        db=db, home=home, workdir=workdir, conversation_id=ConversationId("c"), session_id=lambda: SessionId("c"),
        turn_id=TurnId("t"), call_id="call_1", person_id=PersonId("ana"), platform="cli", gate=wire, ask=None,
        emit=lambda text: None, environ={"PATH": "/nowhere", "HOME": "/home/ada"}, stop=Stop(),
        config=config_of(home, {}),
    )  # fmt: skip
    terminal = Registry().get("terminal")
    assert terminal is not None

    table = {
        "ls": True, "echo $HOME; cat x | sort": True, "rm -r build": False, "curl https://a.example/x": False,
        "rm -rf /": False, "cp a /srv/x/a": False, "printf 'a\\n\u202e'": True,
    }  # fmt: skip

    async def call_all() -> None:
        for command, runs in table.items():
            result = await run_call(terminal, json.dumps({"command": command}), ctx)
            assert result.is_error
            assert wire.verdicts[-1][0] == command, "word for word"
            assert wire.verdicts[-1][1] is runs, command

    asyncio.run(call_all())
    assert len(wire.verdicts) == len(table), "asked about once, every time"
    assert list(workdir.iterdir()) == []
