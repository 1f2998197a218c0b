"""Somebody at a terminal looks on while the gateway answers a phone."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.gateway.engine import Start, starter

from gateway.turns import live_view
from hermes_agent import AIAgent
from hermes_agent.turn.request import TurnRequest
from hermes_state import SessionDB
from hermes_state.turns.turns import Work
from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow

PACED = {"provider": "demo", "default": "demo"}


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


def test_what_the_phone_is_told_is_seen_while_it_is_made(gateway: Start, db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with gateway(PACED, demo={"tokens_per_second": 60}) as here:
            await here.chat.say("hello")
            await here.chat.heard(1)
            await here.quiet()
            (turn,) = db.turns.list()
            assert live_view.made(home, turn.conversation_id) is None
            live_view.look_on(home, turn.conversation_id)
            await here.chat.say("tell me the long story")

            def told() -> str:
                found = live_view.made(home, turn.conversation_id)
                return "" if found is None or found.turn_id == turn.id else "".join(found.steps)

            await here.until(lambda: len(told()) > 100)
            assert told().startswith("# The conversation that would not be lost")
            await here.chat.say("/stop")
            await here.until(lambda: live_view.made(home, turn.conversation_id) is None)

    asyncio.run(go())


def test_nothing_is_written_down_for_nobody_or_for_somebody_who_has_gone(
    gateway: Start, db: SessionDB, home: Path
) -> None:
    async def go() -> None:
        with ScriptedModel(say("One."), say("Two.")) as model:
            async with gateway(model) as here:
                await here.chat.say("one")
                await here.chat.heard(1)
                await here.quiet()
                assert not (home / "beside").exists()
                live_view.look_on(home, db.turns.list()[0].conversation_id)
                (eye,) = (home / "beside").iterdir()
                assert eye.stat().st_mode & 0o077 == 0
                os.utime(eye, (time.time() - 60,) * 2)
                seen = set()

                async def look() -> None:
                    while True:
                        seen.update(file.suffix for file in (home / "beside").iterdir())
                        await asyncio.sleep(0)

                looking = asyncio.create_task(look())
                await here.chat.say("two")
                await here.chat.heard(2)
                looking.cancel()
                assert seen == {".eye"}

    asyncio.run(go())
    live_view.forget(home)
    assert list((home / "beside").iterdir()) == []


def test_a_disk_that_hangs_holds_up_nobody(gateway: Start, db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("One."), say("Two.")) as model:
            async with gateway(model) as here:
                await here.chat.say("one")
                await here.chat.heard(1)
                await here.quiet()
                live_view.look_on(home, db.turns.list()[0].conversation_id)
                (eye,) = (home / "beside").iterdir()
                hanging = eye.with_suffix(".live")
                os.mkfifo(hanging)  # whoever opens it to write waits for a reader
                try:
                    await here.chat.say("two")
                    await here.chat.heard(2)
                    assert here.chat.chat() == ["One.", "Two."]
                finally:
                    reader = os.open(hanging, os.O_RDONLY | os.O_NONBLOCK)
                await here.until(lambda: not hanging.exists())
                assert b"Two." in os.read(reader, 10_000)
                os.close(reader)

    asyncio.run(go())


def test_a_turn_that_raises_leaves_no_file_open(
    gateway: Start, db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: AIAgent, *args: object, request: TurnRequest, **more: object) -> None:
        assert request.began is not None
        request.began(Work(db.turns.list()[0], ()))
        raise RuntimeError("a defect")

    async def go() -> None:
        with ScriptedModel(say("One.")) as model:
            async with gateway(model) as here:
                await here.chat.say("one")
                await here.chat.heard(1)
                await here.quiet()
                live_view.look_on(home, db.turns.list()[0].conversation_id)
                monkeypatch.setattr(AIAgent, "arun_conversation", fails)
                await here.chat.say("two")
                await here.chat.heard(2)
                await here.until(lambda: not [*(home / "beside").glob("*.live")])

    asyncio.run(go())
