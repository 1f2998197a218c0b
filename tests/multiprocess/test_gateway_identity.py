"""Two hundred turns at once, each asking who it is, from a tool and from a child process: each sees only itself."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway
from tests.support.stores import EngineName

from hermes_state import SessionDB
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, call, say

CHATS, ROUNDS = 40, 5
NAMES = ("USER_ID", "CHAT_ID", "KEY", "ID", "MESSAGE_ID")
CHILD = "; ".join(f'printf "%s=%s\\n" {name} "$HERMES_SESSION_{name}"' for name in NAMES)


def improvise(request: ScriptedRequest) -> Step:
    """A child process and a tool say who it is, after a pause in which others get ahead; that is the answer."""
    if request.messages[-1]["role"] == "user":
        pause = (sum(request.last_user_text.encode()) % 7) / 50
        return say(calls=[call("terminal", {"command": f"sleep {pause}; {CHILD}"}), call("whoami_tool", {})])
    return say("\n".join(request.results.values()))


PLUGIN = """
import time
from gateway.session_context import get_session_env

def handler(args, **facts):
    time.sleep(0.01)
    return {"tool": [get_session_env(f"HERMES_SESSION_{name}") for name in ("USER_ID", "CHAT_ID", "KEY", "ID")]}

def register(ctx):
    schema = {"description": "Who this turn is for.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("whoami_tool", "whoami", schema, handler)
"""


def test_each_turn_sees_only_itself(db: SessionDB, engine: EngineName, home: Path, pytestconfig: pytest.Config) -> None:
    """With PostgreSQL, which has no part in it, fewer turns; as many with `--long`."""
    fewer = engine == "postgresql" and not pytestconfig.getoption("--long")
    asyncio.run(each_turn_sees_only_itself(db, home, 2 if fewer else ROUNDS))


async def each_turn_sees_only_itself(db: SessionDB, home: Path, rounds: int) -> None:
    before = dict(os.environ)
    people = [str(1_000 + number) for number in range(CHATS)]
    owners = [f"telegram:{person}" for person in people]
    with ScriptedModel(improvise=improvise) as model:
        gateway = PretendGateway(
            db, home, model, gateway={"owners": owners}, approvals={"mode": "off"},
            display={"busy_input_mode": "queue"},
        )  # fmt: skip
        with plugin_home(home) as plugged:
            plugged.add("whoami", PLUGIN)
            plugged.load("whoami")
            await gateway.start()
            for number in range(rounds):
                said = (gateway.chat.say(f"who am I? {number}", person) for person in people)
                await asyncio.gather(*said)
            await gateway.quiet(seconds=60)
            answers = {person: gateway.chat.chat(person) for person in people}
            rows = {row.message_id: row for row in db.inbox.list(limit=1_000)}
            await gateway.runner.stop()
    assert dict(os.environ) == before
    turns = 0
    for person, texts in answers.items():
        told = [text for text in texts if "USER_ID" in text]
        assert len(told) == rounds, texts
        own = [row for row in rows.values() if row.chat_id == person]
        sessions = {db.turns.get(row.turn_id).session_id for row in own}  # type: ignore[union-attr,arg-type]
        messages = []
        for text in told:
            child = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
            assert (child["USER_ID"], child["CHAT_ID"]) == (person, person)
            assert child["KEY"] == f"agent:main:telegram:dm:{person}"
            assert child["ID"] in sessions
            assert f'["{person}", "{person}", "{child["KEY"]}", "{child["ID"]}"]' in text, "what the tool saw"
            assert not set(re.findall(r"\b1\d{3}\b", text)) - {person}, "it names somebody else"
            messages.append(child["MESSAGE_ID"])
            turns += 1
        assert sorted(messages) == sorted(row.message_id for row in own), "each turn has its own message's id"
    assert turns == CHATS * rounds
