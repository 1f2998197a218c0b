"""A turn of which nothing is heard any more is stopped, and the person is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.inbound import lanes
from hermes_agent import AIAgent
from hermes_state import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say

pytestmark = pytest.mark.slow

SECONDS = 1.5
"""Far longer than a turn takes that is heard of, on a busy machine too."""


ASKS = say(calls=[call("clarify", {"question": "Which city?", "choices": ["Lisbon", "Porto"]})])


def gateway(db: SessionDB, home: Path, model: ScriptedModel, **config: Any) -> PretendGateway:
    return PretendGateway(db, home, model, streaming={"enabled": False}, agent={"gateway_timeout": SECONDS}, **config)


def test_a_silent_turn_is_stopped_told_and_does_not_hold_up_the_chat(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("never", hold=Hold()), say("Here.")) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("hello")
                await here.until(lambda: any("and the tools were silent" in text for text in here.chat.chat()))
                await here.quiet()
                await here.chat.say("still there?")
                await here.until(lambda: "Here." in here.chat.chat())
                await here.quiet()
            (stopped,) = db.inbox.list(state="dropped")
            assert stopped.reason == "no sign of life for 1.5 seconds"
            assert len(here.chat.chat()) == 2, "told once"

    asyncio.run(go())


def test_a_silent_turn_that_does_not_heed_the_interrupt_is_cancelled(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AIAgent, "interrupt", lambda self, *args, **more: None)
    monkeypatch.setattr(lanes, "_STOP_SECONDS", 0.2)

    async def go() -> None:
        with ScriptedModel(say("never", hold=Hold()), say("Here.")) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("hello")
                await here.chat.say("still there?")
                await here.until(lambda: "Here." in here.chat.chat())
                await here.quiet()

    asyncio.run(go())


def test_waiting_for_a_person_is_no_silence(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(ASKS, say("Booked.")) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("book a trip")
                shown = await here.until(lambda: next((one for one in here.chat.messages if one.buttons), None))
                await asyncio.sleep(1.5 * SECONDS)
                await here.chat.press(shown.buttons[1][0])
                await here.until(lambda: "Booked." in here.chat.chat())
                await here.quiet()

    asyncio.run(go())


def test_the_time_a_person_took_is_not_counted_against_the_command_they_allow(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        tidies = call("terminal", {"command": "rm -rf old; sleep 0.5"})  # longer than the pause between two looks
        with ScriptedModel(say(calls=[tidies]), say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                (here.parts.services.home / "workspace").mkdir(exist_ok=True)
                await here.chat.say("tidy up")
                shown = await here.until(lambda: next((one for one in here.chat.messages if one.buttons), None))
                await asyncio.sleep(1.5 * SECONDS)
                await here.chat.say("/approve", reply_to_message_id=shown.id)
                await here.quiet()
            assert here.chat.chat()[-1] == "Tidied up."

    asyncio.run(go())


def test_waiting_for_room_is_no_silence(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(ASKS, say("Booked."), say("And yours.")) as model:
            async with gateway(db, home, model, max_concurrent_sessions=1) as here:
                await here.chat.say("book a trip")
                shown = await here.until(lambda: next((one for one in here.chat.messages if one.buttons), None))
                await here.chat.say("hello", "8")
                await asyncio.sleep(1.5 * SECONDS)
                await here.chat.press(shown.buttons[1][0])
                await here.until(lambda: "And yours." in here.chat.chat("8"))
                await here.quiet()
            assert set(here.outcomes().values()) == {"answered"}

    asyncio.run(go())
