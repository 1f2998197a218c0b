"""From a message to its answer through a whole gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.gateway.engine import Start, starter

from hermes_state import SessionDB
from hermes_testing.scripted_model import ScriptedModel, say


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


def test_a_message_is_answered(gateway: Start) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Yes.")) as model:
            async with gateway(model) as here:
                receipt = await here.chat.say("hello")
                assert receipt.state == "accepted"
                await here.chat.heard(1)
                await here.chat.say("still there?")
                await here.chat.heard(2)
                await here.quiet()
            assert here.chat.chat() == ["Hi.", "Yes."]
            assert here.outcomes() == {"in-1": "answered", "in-2": "answered"}
            assert "hello" in model.requests[1].body.decode()

    asyncio.run(go())
