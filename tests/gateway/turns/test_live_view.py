"""The gateway shows a turn to watchers elsewhere, and writes nothing while there are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import Start, starter
from tests.support.gateways import PretendGateway

from hermes_agent import AIAgent
from hermes_agent.turn.request import TurnRequest
from hermes_state import SessionDB
from hermes_state.errors import StoreFull
from hermes_state.ids import ConversationId
from hermes_state.turns.live_views import LiveViews
from hermes_state.turns.turns import Work
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow

PACED = {"provider": "demo", "default": "demo"}


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every write of the live view, by name."""
    made: list[str] = []
    for name in ("watch", "show_in", "clear_in"):
        original = getattr(LiveViews, name)

        def counted(self: LiveViews, *args: Any, _name: str = name, _original: Any = original) -> Any:
            made.append(_name)
            return _original(self, *args)

        monkeypatch.setattr(LiveViews, name, counted)
    return made


async def begun(here: PretendGateway, db: SessionDB) -> ConversationId:
    await here.chat.say("hello")
    await here.chat.heard(1)
    await here.quiet()
    return db.turns.list()[0].conversation_id


@pytest.mark.parametrize("watched_before", [False, True])
def test_a_turn_that_nobody_watches_writes_nothing(
    gateway: Start, db: SessionDB, clock: Clock, writes: list[str], watched_before: bool
) -> None:
    async def go() -> None:
        async with gateway(PACED, demo={"tokens_per_second": 60}) as here:
            conversation = await begun(here, db)
            if watched_before:
                db.live_views.watch(conversation)
                clock.advance(11)
            before = list(writes)
            await here.chat.say("tell me the long story")
            await here.until(lambda: len(db.turns.list(state="running")) == 1)
            await asyncio.sleep(1.2)  # longer than both pauses of the view
            await here.chat.say("/stop")
            await here.quiet()
            assert writes == before

    asyncio.run(go())


def test_a_store_that_fails_holds_up_nobody(
    gateway: Start, db: SessionDB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> bool:
        raise StoreFull("the disk is full")

    async def go() -> None:
        async with gateway(PACED, demo={"tokens_per_second": 60}) as here:
            conversation = await begun(here, db)
            db.live_views.watch(conversation)
            monkeypatch.setattr(LiveViews, "show_in", full)
            await here.chat.say("tell me the long story")
            await here.until(lambda: "cannot show this turn to terminals: the disk is full" in caplog.text)
            await here.chat.say("/stop")
            await here.quiet()
            assert caplog.text.count("cannot show this turn to terminals") == 1
            assert {turn.state for turn in db.turns.list()} == {"cancelled", "done"}

    asyncio.run(go())


def test_a_turn_that_raises_shows_nothing_any_more(
    gateway: Start, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = asyncio.Event()

    async def fails(self: AIAgent, *args: object, request: TurnRequest, **more: object) -> None:
        assert request.began is not None and self.stream_delta_callback is not None
        request.began(Work(db.turns.list()[0], ()))
        self.stream_delta_callback("half an ans")
        await shown.wait()
        raise RuntimeError("a defect")

    async def go() -> None:
        with ScriptedModel(say("One.")) as model:
            async with gateway(model) as here:
                conversation = await begun(here, db)
                db.live_views.watch(conversation)
                monkeypatch.setattr(AIAgent, "arun_conversation", fails)
                await here.chat.say("two")
                await here.until(lambda: db.live_views.get(conversation) is not None)
                shown.set()
                await here.until(lambda: db.live_views.get(conversation) is None)

    asyncio.run(go())
