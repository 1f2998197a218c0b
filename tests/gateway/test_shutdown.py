"""The end of a gateway keeps to one bound, however many of its parts are slow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway.inbound.lanes import Lanes
from gateway.outbound import deliverer
from gateway.outbound.deliverer import Deliverer
from hermes_state import SessionDB


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
    assert given == [2.0], "turns used up the whole bound, and a moment is left"


def test_what_follows_deliveries_has_what_they_left_of_the_time(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    finish = deliverer._finish

    async def recorded(tasks: set[asyncio.Task[object]], seconds: float) -> bool:
        given.append(seconds)
        await asyncio.sleep(0.05)
        return await finish(tasks, seconds)

    async def go() -> None:
        async with PretendGateway(db, home, gateway={"drain_seconds": 300}) as here:
            monkeypatch.setattr(deliverer, "_finish", recorded)
            await here.parts.deliverer.drain(100.0)
            monkeypatch.setattr(deliverer, "_finish", finish)

    asyncio.run(go())
    assert given[0] == 100.0 and given[1] <= 99.96
