"""A request whose place is free: its message is stored together with the beginning of its turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import apsw
import pytest
import uvloop
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import said, until
from tests.hermes_state.turns.test_inbox import ROUTE

from hermes_agent.prompt import transcript
from hermes_config.limits import Limits
from hermes_state import SessionDB
from hermes_state.errors import InvalidValue, NotQueued, SessionNotFound, StoreBusy, StoreFull
from hermes_state.storage.writer import Job
from hermes_state.turns.inbox import Arriving, Inbox
from hermes_state.turns.journal import Journal
from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.stores import TestStores

HOUR = 3_600.0


def arriving(db: SessionDB, number: int, *, surely_new: bool = False) -> Arriving:
    return db.inbox.arriving(
        platform="api_server", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": "hello"},
        surely_new=surely_new,
    )  # fmt: skip


async def opened(db: SessionDB, message: Arriving) -> Journal | None:
    return await Journal.open(db, "s1", holder="test", ttl=60, route=ROUTE, claim=message)


@pytest.mark.parametrize("surely_new", [False, True])
def test_a_message_goes_into_the_store_with_the_turn_that_claims_it(db: SessionDB, surely_new: bool) -> None:
    async def go() -> None:
        db.create_session("s1", "api_server")
        message = arriving(db, 1, surely_new=surely_new)
        stored = message.store(patience=HOUR)
        journal = await opened(db, message)
        assert journal is not None and stored.done(), "which waits for nothing else"
        accepted = stored.result()
        assert accepted.new and [row.id for row in journal.work.inbox] == [accepted.row.id]
        assert journal.work.inbox == (db.inbox.get(accepted.row.id),) == db.inbox.of_turn(journal.turn_id)
        assert journal.work.turn.trace_id == accepted.row.trace_id
        await journal.leave()

    asyncio.run(go())


def test_what_is_surely_new_and_begins_its_turn_at_once_is_written_once(stores: TestStores) -> None:
    """As the turn's own: the index of what waits is not written to for something that never waits."""

    async def go() -> None:
        with contextlib.closing(SessionDB(stores.sqlite())) as db:
            db.create_session("s1", "api_server")
            # Seen from inside, because from outside nobody can tell.
            db._execute_write(
                lambda conn: conn.run(
                    "CREATE TRIGGER seen AFTER INSERT ON inbox BEGIN"
                    " INSERT INTO state_meta (key, value) VALUES (new.message_id, new.state); END"
                )
            )
            for number, surely_new in ((1, True), (2, False)):
                message = arriving(db, number, surely_new=surely_new)
                message.store(patience=HOUR)
                journal = await opened(db, message)
                assert journal is not None
                await journal.commit()
            assert (db.get_meta("1"), db.get_meta("2")) == ("claimed", "queued")

    asyncio.run(go())


@pytest.mark.parametrize("surely_new", [False, True])
def test_a_message_whose_turn_does_not_open_waits(db: SessionDB, surely_new: bool) -> None:
    """Whatever the reason: somebody works there, there is no such place, what is to be said cannot be stored."""

    async def go() -> None:
        db.create_session("s1", "api_server")
        conversation = db.get_conversation_root("s1")
        theirs = db.leases.acquire(conversation, holder="another", ttl=60)
        assert theirs is not None
        busy, nowhere, unsaid = (arriving(db, number, surely_new=surely_new) for number in (1, 2, 3))

        waits = busy.store(patience=HOUR)
        assert await opened(db, busy) is None
        assert db.leases.get(conversation) == theirs

        waits_too = nowhere.store(patience=HOUR)
        with pytest.raises(SessionNotFound):
            await Journal.open(db, "s2", holder="test", ttl=60, route=ROUTE, claim=nowhere)

        db.leases.release(theirs)
        waits_as_well = unsaid.store(patience=HOUR)
        with pytest.raises(InvalidValue):
            said = {"role": "user", "content": "x" * (db.limits.message_bytes + 1)}
            await Journal.open(db, "s1", holder="test", ttl=60, route=ROUTE, claim=unsaid, user=said)

        accepted = [one.result() for one in (waits, waits_too, waits_as_well)]
        assert [(one.new, one.row.state) for one in accepted] == [(True, "queued")] * 3
        assert [row.id for row in db.inbox.queued(ROUTE)] == [one.row.id for one in accepted]
        assert db.turns.list() == () and db.leases.get(conversation) is None
        journal = await opened(db, busy)
        assert journal is not None and [row.message_id for row in journal.work.inbox] == ["1"]

    asyncio.run(go())


@pytest.mark.parametrize("surely_new", [False, True])
def test_a_message_waits_while_a_turn_is_ended_that_was_left_there(db: SessionDB, surely_new: bool) -> None:
    async def go() -> None:
        db.create_session("s1", "api_server")
        lost = await Journal.open(db, "s1", holder="lost", ttl=60, user={"role": "user", "content": "before"})
        assert lost is not None
        await lost.leave()
        message = arriving(db, 1, surely_new=surely_new)
        stored = message.store(patience=HOUR)
        journal = await opened(db, message)
        assert journal is not None and journal.resumed and journal.turn_id == lost.turn_id
        assert stored.result().new and [row.message_id for row in db.inbox.queued(ROUTE)] == ["1"]
        await journal.commit({"role": "assistant", "content": "after"})
        own = await opened(db, message)
        assert own is not None and [row.id for row in own.work.inbox] == [stored.result().row.id]

    asyncio.run(go())


@pytest.mark.parametrize("surely_new", [False, True])
def test_what_comes_behind_a_message_stays_behind_it(db: SessionDB, surely_new: bool) -> None:
    """Also when it comes before the turn of the first one is opened, and in the same commit."""

    async def go() -> None:
        db.create_session("s1", "api_server")
        first, second = (arriving(db, number, surely_new=surely_new) for number in (1, 2))
        stored, behind = first.store(patience=HOUR), second.store()
        journal = await opened(db, first)
        assert journal is not None and [row.message_id for row in journal.work.inbox] == ["1"]
        assert stored.result().row.id < (await behind).row.id
        assert [row.message_id for row in db.inbox.queued(ROUTE)] == ["2"]

    asyncio.run(go())


def test_what_was_thought_new_and_was_here_begins_nothing(db: SessionDB) -> None:
    async def go() -> None:
        db.create_session("s1", "api_server")
        first, again = (arriving(db, 1, surely_new=True) for _ in range(2))
        here = await first.store()
        stored = again.store(patience=HOUR)
        with pytest.raises(NotQueued):
            await opened(db, again)
        assert not stored.result().new and stored.result().row == here.row
        assert db.turns.list() == () and [row.state for row in db.inbox.list()] == ["queued"]

    asyncio.run(go())


def test_what_was_not_stored_is_not_stored_later(stores: TestStores) -> None:
    """Its sender was told so."""

    async def go() -> None:
        address = stores.sqlite()
        with contextlib.closing(SessionDB(address, limits=Limits(write_wait_ms=100))) as db:
            db.create_session("s1", "api_server")
            message = arriving(db, 1, surely_new=True)
            with contextlib.closing(apsw.Connection(str(address))) as another:
                another.execute("BEGIN IMMEDIATE")
                stored = message.store(patience=HOUR)
                with pytest.raises(StoreBusy):
                    await opened(db, message)
                assert isinstance(stored.exception(), StoreBusy)
                another.execute("ROLLBACK")
            with pytest.raises(NotQueued):
                await opened(db, message)
            assert db.inbox.list() == () and db.turns.list() == ()

    asyncio.run(go())


@pytest.mark.parametrize("busy", [True, False])
def test_what_cannot_be_stored_behind_an_opening_that_wrote_nothing_is_not_accepted(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("the disk is full; nothing was written")

    async def go() -> None:
        db.create_session("s1", "api_server")
        if busy:
            db.leases.acquire(db.get_conversation_root("s1"), holder="another", ttl=60)
        monkeypatch.setattr(Inbox, "accept_in", full)
        message = arriving(db, 1, surely_new=True)
        stored = message.store(patience=HOUR)
        if busy:
            assert await opened(db, message) is None
        else:
            with pytest.raises(SessionNotFound):
                await Journal.open(db, "s2", holder="test", ttl=60, route=ROUTE, claim=message)
        assert isinstance(stored.exception(), StoreFull)

    asyncio.run(go())


def test_a_message_that_was_stored_goes_without_the_collector(db: SessionDB) -> None:
    """Full collections are rare in a gateway, so what a turn leaves must not wait for one."""

    def there() -> list[object]:
        return [one for one in gc.get_objects() if type(one) in (Arriving, Job)]

    async def go() -> None:
        db.create_session("s1", "api_server")
        gc.collect()
        kept = there()  # other tests', and kept, so that no new one takes their places
        others = set(map(id, kept))
        gc.disable()
        try:
            for number in range(5):
                message = arriving(db, number, surely_new=True)
                message.store(patience=HOUR)
                journal = await opened(db, message)
                assert journal is not None
                await journal.commit()
                del message, journal
            async with asyncio.timeout(10):
                while [one for one in there() if id(one) not in others]:  # noqa: ASYNC110 - it is silent
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
        del kept

    asyncio.run(go())


def test_a_group_that_is_cut_keeps_a_message_that_its_turn_follows_later(stores: TestStores) -> None:
    """The turn is the first of the next commit: in between, the message waits as any other."""

    async def go() -> None:
        address = stores.sqlite()
        with contextlib.closing(SessionDB(address, limits=Limits(group_commit=2))) as db:
            db.create_session("s1", "api_server")
            other, message = (arriving(db, number, surely_new=True) for number in (1, 2))
            before, stored = other.store(patience=HOUR), message.store(patience=HOUR)
            journal = await opened(db, message)
            assert journal is not None and [row.message_id for row in journal.work.inbox] == ["2"]
            assert (await before).row.id < stored.result().row.id
            assert stored.result().row.state == "queued"

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
        monkeypatch.setattr(Inbox, "accept_in", full)
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
                    patch.setattr(Inbox, "accept_in", full)
                    patch.setattr(Inbox, "accept_claimed_in", full)
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
    made = transcript.user_message

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
                monkeypatch.setattr(transcript, "user_message", broken)
                failed = await here.ask("hello", name="one")
                assert failed.status_code == 502 and "ZeroDivisionError" in failed.text
                assert sorted(row.state for row in here.db.inbox.list()) == ["answered", "error"]
                monkeypatch.setattr(transcript, "user_message", made)
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
