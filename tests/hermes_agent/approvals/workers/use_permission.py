"""Worker: ADDRESS COMMAND WORKDIR. Tries four times to run a command under a permission that was given once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.processes import say, wait_for_go

from hermes_agent.approvals.gate import CommandGate
from hermes_agent.tools.base import Action
from hermes_config.config import of as config_of
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.session_db import SessionDB


async def main(address: str, command: str, workdir: str) -> None:
    gate = CommandGate(
        db=SessionDB(address), home=Path("/home/ada/.hermes"), config=config_of(Path(), {}), sandbox="bubblewrap",
        conversation_id=ConversationId("c1"), turn_id=TurnId("t1"), person_id=PersonId("ana"), approver=None,
    )  # fmt: skip
    say("ready")
    await asyncio.to_thread(wait_for_go)
    tries = [gate.for_call(f"call_{n}").permit(Action("command", command, workdir)) for n in range(4)]
    for verdict in await asyncio.gather(*tries):
        say("allowed" if verdict.allowed else "denied")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
