"""A gateway that runs for long removes by itself what is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway import housekeeping
from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_testing.clock import Clock


def test_what_ended_long_ago_goes_while_the_gateway_runs(
    db: SessionDB, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_FIRST_TIDY_SECONDS", 0.05)
    row = db.inbox.accept(platform="telegram", chat_id="42", message_id="1", route=SessionKey("r"), payload={}).row
    db.inbox.finish([row.id], "answered")
    clock.advance((db.limits.inbox_done_days + 1) * 86_400)

    async def go() -> None:
        async with PretendGateway(db, home) as here:
            await here.until(lambda: db.inbox.get(row.id) is None)

    asyncio.run(go())
