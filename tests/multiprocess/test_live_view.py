"""A turn that runs in one process is watched in another one, through nothing but the store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.gateway.engine import starter
from tests.support.gateways import PretendGateway
from tests.support.processes import Worker

from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

WORKER = Path(__file__).parent / "workers" / "watch_turn.py"


@contextlib.asynccontextmanager
async def begun(db: SessionDB, home: Path, clock: Clock) -> AsyncIterator[tuple[PretendGateway, ConversationId]]:
    """A gateway that tells stories slowly, and a conversation in it."""
    clock.advance(time.time() - clock())
    model = {"provider": "demo", "default": "demo"}
    async with starter(db, home)(model, demo={"tokens_per_second": 60}) as here:
        await here.chat.say("hello")
        await here.chat.heard(1)
        await here.quiet()
        yield here, db.turns.list()[0].conversation_id


def test_another_process_sees_the_answer_while_it_is_made(
    db: SessionDB, home: Path, address: str | Path, clock: Clock
) -> None:
    async def go() -> None:
        async with begun(db, home, clock) as (here, conversation):
            (first,) = db.turns.list()
            with Worker(WORKER, address, conversation) as worker:
                assert await asyncio.to_thread(worker.line) == "ready"
                await here.chat.say("tell me the long story")
                seen = [json.loads(await asyncio.to_thread(worker.line)) for _ in range(4)]
                await here.chat.say("/stop")
                seen += map(json.loads, await asyncio.to_thread(worker.finish))
        (turn,) = [turn for turn in db.turns.list() if turn.id != first.id]
        texts = [text for _, _, text in seen]
        assert {(turn_id, step) for turn_id, step, _ in seen} == {(turn.id, 0)}
        assert texts[0] and "# The conversation that would not be lost".startswith(texts[0][:30])
        assert len(texts) >= 4
        assert all(later.startswith(text) and later != text for text, later in itertools.pairwise(texts))

    asyncio.run(go())


def test_a_watcher_who_comes_in_the_middle_of_a_turn_sees_the_rest_of_it(
    db: SessionDB, home: Path, address: str | Path, clock: Clock
) -> None:
    async def go() -> None:
        async with begun(db, home, clock) as (here, conversation):
            await here.chat.say("tell me the long story")
            await here.until(lambda: len(db.turns.list(state="running")) == 1)
            await asyncio.sleep(0.5)
            assert db.live_views.get(conversation) is None, "nobody watches"
            with Worker(WORKER, address, conversation) as worker:
                assert await asyncio.to_thread(worker.line) == "ready"
                _, _, text = json.loads(await asyncio.to_thread(worker.line))
                assert text.startswith("# The conversation that would not be lost")
                await here.chat.say("/stop")
                await asyncio.to_thread(worker.finish)

    asyncio.run(go())
