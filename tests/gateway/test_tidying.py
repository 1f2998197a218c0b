"""A gateway that runs for long removes by itself what is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway import periodic_tasks
from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_testing.clock import Clock


def test_what_ended_long_ago_goes_while_the_gateway_runs(
    db: SessionDB, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_tasks, "_FIRST_TIDY_SECONDS", 0.05)
    row = db.inbox.accept(platform="telegram", chat_id="42", message_id="1", route=SessionKey("r"), payload={}).row
    db.inbox.finish([row.id], "answered")
    clock.advance((db.limits.inbox_done_days + 1) * 86_400)

    async def go() -> None:
        async with PretendGateway(db, home) as here:
            await here.until(lambda: db.inbox.get(row.id) is None)

    asyncio.run(go())


def test_the_search_index_follows_the_transcript_while_the_gateway_runs(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a large import of another process, of which one short feed takes in only a part; and deletions."""
    monkeypatch.setattr(periodic_tasks, "_FEED_SECONDS", 0.05)
    monkeypatch.setattr(periodic_tasks, "_FEED_MS", 1)
    db.create_session("old", "cli")
    db.append_messages("old", [{"role": "user", "content": f"zebra {n}"} for n in range(3_000)])

    async def go() -> None:
        async with PretendGateway(db, home) as here:
            await here.until(lambda: db.search_status()["behind"] == 0)
            db.delete_session("old")
            await here.until(lambda: not db.engine.read(lambda conn: conn.rows("SELECT 1 FROM search_forget LIMIT 1")))

    asyncio.run(go())
