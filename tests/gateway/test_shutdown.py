"""The end of a gateway keeps to one bound, however many of its parts are slow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway.background import BackgroundTasks
from gateway.inbound import lanes
from gateway.inbound.lanes import Lanes
from gateway.outbound.deliverer import Deliverer
from hermes_state import SessionDB
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import Hold, ScriptedModel, always, say


def test_deliveries_have_what_turns_left_of_the_time(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def slow(self: Lanes, seconds: float) -> bool:
        monkeypatch.setattr(time, "monotonic", lambda: seconds + now())
        return False

    async def recorded(self: Deliverer, seconds: float) -> bool:
        given.append(seconds)
        return True

    now = time.monotonic

    async def go() -> None:
        gateway = PretendGateway(db, home, gateway={"drain_seconds": 300})
        await gateway.start()
        monkeypatch.setattr(Lanes, "drain", slow)
        monkeypatch.setattr(Deliverer, "drain", recorded)
        await gateway.runner.stop()

    asyncio.run(go())
    assert given == [pytest.approx(2.0, abs=0.1)], "turns used up their share of the bound, and a moment is left"


def test_what_follows_deliveries_has_what_they_left_of_the_time(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    finish = BackgroundTasks.finish

    async def recorded(tasks: BackgroundTasks, seconds: float, *, cancel: bool = False) -> bool:
        given.append(seconds)
        await asyncio.sleep(0.05)
        return await finish(tasks, seconds, cancel=cancel)

    async def go() -> None:
        async with PretendGateway(db, home, gateway={"drain_seconds": 300}) as here:
            monkeypatch.setattr(BackgroundTasks, "finish", recorded)
            await here.parts.deliverer.drain(100.0)
            monkeypatch.setattr(BackgroundTasks, "finish", finish)

    asyncio.run(go())
    assert given[0] == 100.0 and given[1] <= 99.96


def test_hooks_that_hang_have_what_is_left_of_the_time(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(always(say("Never ", "seen.", hold=hold))) as model, plugin_home(home) as plugged:
            plugged.add(
                "slow",
                """
                import time
                def register(ctx):
                    ctx.register_hook("on_session_finalize", lambda **facts: time.sleep(60))
            """,
            )
            plugged.load("slow")
            here = PretendGateway(db, home, model, gateway={"drain_seconds": 2})
            await here.start()
            await here.chat.say("think for long")
            await here.until(lambda: hold.is_reached)
            began = time.monotonic()
            await here.runner.stop()
            assert time.monotonic() - began < 4, "the hook alone would have five seconds"
            hold.release()

    asyncio.run(go())


def test_a_chat_with_running_work_is_told_of_the_stop_and_of_the_return(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_QUIET_SECONDS", 0.2)

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Never ", "seen.", hold=hold), always(say("Here it is."))) as model:
            first = PretendGateway(db, home, model, gateway={"drain_seconds": 1})
            await first.start()
            await first.chat.say("think for long")
            await first.until(lambda: hold.is_reached)
            began = time.monotonic()
            await first.runner.stop()
            assert time.monotonic() - began < 3, "one bound for all of it"
            assert [text for text in first.chat.chat() if "I am shutting down" in text], first.chat.chat()
            again = PretendGateway(db, home, model, adapter=first.chat)
            await again.start(away=90.0)
            await again.until(lambda: "Here it is." in again.chat.chat())
            told = [text for text in again.chat.chat() if "I was offline for 2m" in text]
            assert len(told) == 1
            await again.runner.stop()
            hold.release()

    asyncio.run(go())
