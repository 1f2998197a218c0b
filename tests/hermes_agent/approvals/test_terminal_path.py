"""The table through the terminal tool: what is not harmless does not reach a shell.

No line of the table is really run here: a tripwire behind the gate stops the test before the tool could go on.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from hermes_agent.approvals.gate import CommandGate
from hermes_agent.tools.base import Action, ToolContext, Verdict
from hermes_agent.tools.registry import Registry, run_call
from hermes_state.ids import ConversationId, PersonId, SessionId, TurnId
from hermes_state.session_db import SessionDB

from .test_judge import lines


class Tripwire:
    """The real gate, and a stop behind it."""

    def __init__(self, gate: CommandGate) -> None:
        self.gate = gate
        self.verdicts: list[tuple[str, bool]] = []

    async def permit(self, action: Action) -> Verdict:
        verdict = await self.gate.permit(action)
        self.verdicts.append((action.text, verdict.allowed))
        return Verdict(False, verdict.reason or "the tripwire")


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def test_the_terminal_asks_about_exactly_the_command(db: SessionDB, home: Path, workdir: Path) -> None:
    gate = CommandGate(
        db=db, home=home, config={}, conversation_id=ConversationId("c"), turn_id=TurnId("t"),
        person_id=PersonId("ana"), approver=None,
    )  # fmt: skip
    wire = Tripwire(gate)
    ctx = ToolContext(
        db=db, home=home, workdir=workdir, conversation_id=ConversationId("c"), session_id=lambda: SessionId("c"),
        turn_id=TurnId("t"), call_id="call_1", person_id=PersonId("ana"), platform="cli", gate=wire, ask=None,
        emit=lambda text: None, environ={"PATH": "/nowhere", "HOME": "/home/ada"}, stop=asyncio.Event(), config={},
    )  # fmt: skip
    terminal = Registry().get("terminal")
    assert terminal is not None

    # The table speaks of the usual home; here it is another.
    told = [(level, re.sub(r"(?:~|\$HOME)/\.hermes", str(home), command)) for level, command in lines()]
    table = [(level, command) for level, command in told if "/home/ada" not in command and "\0" not in command]
    # The home and the folder beside the project are temporary ones here, in which nobody is asked about a write.
    near = re.compile(r"\.\.|~|HOME|--global")
    table = [(level, command) for level, command in table if level != "folder" or not near.search(command)]

    async def call_all() -> None:
        for level, command in table:
            result = await run_call(terminal, json.dumps({"command": command}), ctx)
            assert result.is_error
            assert wire.verdicts[-1][0] == command, "word for word"
            assert level == "run" or not wire.verdicts[-1][1], command

    asyncio.run(call_all())
    assert len(wire.verdicts) == len(table), "asked about once, every time"
    assert list(workdir.iterdir()) == []
