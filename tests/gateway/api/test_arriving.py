"""A request whose place is free: its message is stored together with the beginning of its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import said, until
from tests.hermes_state.test_inbox import ROUTE

from hermes_agent import user_row
from hermes_state import SessionDB
from hermes_state.errors import NotQueued, StoreFull
from hermes_state.inbox import Arriving, Inbox
from hermes_state.journal import Journal
from hermes_testing.scripted_model import ScriptedModel, always, say

HOUR = 3_600.0


def arriving(db: SessionDB, number: int) -> Arriving:
    return db.inbox.arriving(
        platform="api_server", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": "hello"}
    )


async def opened(db: SessionDB, message: Arriving) -> Journal | None:
    return await Journal.open(db, "s1", holder="test", ttl=60, route=ROUTE, claim=message.ids)


def test_a_message_goes_into_the_store_with_the_turn_that_claims_it(db: SessionDB) -> None:
    async def go() -> None:
        db.create_session("s1", "api_server")
        message = arriving(db, 1)
        stored = message.store(patience=HOUR)
        journal = await opened(db, message)
        assert journal is not None and stored.done(), "which waits for nothing else"
        assert [row.id for row in journal.work.inbox] == [stored.result().row.id]
        await journal.leave()

    asyncio.run(go())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_crowd_that_comes_in_one_moment_is_stored(
    db: SessionDB, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def go() -> None:
        db.create_session("s1", "api_server")
        crowd = [arriving(db, number).store(patience=0.000_1) for number in range(64)]
        assert len({accepted.row.id for accepted in await asyncio.gather(*crowd)}) == 64

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(go())


def test_a_turn_does_not_begin_without_its_message(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise StoreFull("the disk is full; nothing was written")

    async def go() -> None:
        db.create_session("s1", "api_server")
        first, again, lost = arriving(db, 1), arriving(db, 1), arriving(db, 2)
        await first.store()
        await again.store()
        with pytest.raises(NotQueued):
            await opened(db, again)
        monkeypatch.setattr(Inbox, "_accept_in", full)
        stored = lost.store(patience=HOUR)
        with pytest.raises(NotQueued):
            await opened(db, lost)
        assert isinstance(stored.exception(), StoreFull)
        assert db.turns.list() == () and db.leases.get(db.get_conversation_root("s1")) is None

    asyncio.run(go())


def test_what_cannot_be_stored_reaches_no_model(door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise StoreFull("the disk is full; nothing was written")

    async def go() -> None:
        with ScriptedModel(always(say("Hi."))) as model:
            async with door(model) as here:
                assert said(await here.ask("hello", name="one")) == "Hi."
                with monkeypatch.context() as patch:
                    patch.setattr(Inbox, "_accept_in", full)
                    answer = await here.ask("hello?", name="one")
                    assert answer.status_code == 503 and "disk is full" in answer.text
                assert said(await here.ask("and now?", name="one")) == "Hi."
            assert len(model.requests) == 2 and len(here.db.inbox.list()) == 2

    asyncio.run(go())


def test_a_turn_that_takes_long_to_prepare_keeps_no_message_out_of_the_store(
    door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that cannot be prepared: its sender hears of it."""
    ready = asyncio.Event()
    made = user_row.made

    async def go() -> None:
        with ScriptedModel(always(say("Hi."))) as model:
            async with door(model) as here:
                prepared = here.runner.parts.lanes._turns._message

                async def slowly(*args: Any, **more: Any) -> Any:
                    await ready.wait()
                    return await prepared(*args, **more)

                def broken(*_: Any, **__: Any) -> Any:
                    raise ZeroDivisionError

                monkeypatch.setattr(here.runner.parts.lanes._turns, "_message", slowly)
                asked = asyncio.create_task(here.ask("hello", name="one"))
                await until(here.db.inbox.list)
                assert here.db.inbox.list()[0].state == "queued" and not model.requests
                ready.set()
                assert said(await asked) == "Hi."
                monkeypatch.setattr(user_row, "made", broken)
                failed = await here.ask("hello", name="one")
                assert failed.status_code == 502 and "ZeroDivisionError" in failed.text
                assert sorted(row.state for row in here.db.inbox.list()) == ["answered", "error"]
                monkeypatch.setattr(user_row, "made", made)
                assert said(await here.ask("hello", name="one")) == "Hi."

    asyncio.run(go())


def test_of_two_that_come_at_once_each_gets_its_own_answer(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("two"), say("three")) as model:
            async with door(model) as here:
                answers = await asyncio.gather(*(here.ask(f"hello {at}", name="one") for at in range(3)))
                assert sorted(map(said, answers)) == ["one", "three", "two"]
                assert {row.state for row in here.db.inbox.list()} == {"answered"}
                assert len(here.db.turns.list()) == 3
            assert len(model.requests) == 3

    asyncio.run(go())
