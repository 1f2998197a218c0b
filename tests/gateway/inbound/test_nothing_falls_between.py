"""Moments in which a message could fall between two chairs: edits, stops, ends and stores that fail half-way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.gateway.engine import QUEUE, ROUTE, STEER, Start, answers, starter, told, user_texts
from tests.support.gateways import PretendGateway

from gateway import main, periodic_tasks
from gateway.inbound import lanes, terminal_messages, worker
from gateway.inbound.stored_message import payload
from gateway.platforms.base import Attachment, MessageType
from gateway.routes.source import SessionSource
from hermes_agent.receipts import receipt
from hermes_state import SessionDB
from hermes_state.errors import OutcomeUnknown, StoreFull
from hermes_state.ids import LOCAL_OWNER
from hermes_state.storage.base import Connection
from hermes_state.turns.inbox import Inbox
from hermes_state.turns.journal import Journal
from hermes_state.turns.turns import Turns
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, say

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

ONE_AT_A_TIME = {"max_concurrent_sessions": 1, **QUEUE}


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


def _photo(here: PretendGateway, ref: str) -> Attachment:
    here.chat.files[ref] = b"\x89PNG\r\n\x1a\n" + b"0" * 64
    return Attachment(ref=ref, kind=MessageType.PHOTO, name=f"{ref}.png")


# -- edits -----------------------------------------------------------------------------------------------------


def test_an_edit_of_a_message_whose_turn_waits_for_room_is_read_in_its_place(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("other", hold=hold), say("one"), say("two")) as model:
            async with gateway(model, **ONE_AT_A_TIME) as here:
                await here.chat.say("hold the room", user="7")
                await hold.reached()
                await here.chat.say("frist", message_id="a")
                await here.chat.say("second", message_id="b")
                await here.chat.say("first", message_id="a", version=1)
                hold.release()
                await here.quiet()
                found = here.outcomes()
            assert {name: found[name] for name in ("a", "a.1", "b")} == {
                "a": "superseded", "a.1": "answered", "b": "answered",
            }  # fmt: skip
            assert answers(here) == ["one", "two"]
            assert "first" in model.requests[1].body.decode()
            assert "frist" not in model.requests[1].body.decode()

    asyncio.run(go())


# -- what waits, while it is looked at -----------------------------------------------------------------------


def test_what_changes_in_a_lane_while_its_next_row_is_read_costs_no_message(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server far away takes a while to answer; the message is edited meanwhile."""
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def slow(db: SessionDB, read: Callable[..., Any], *args: Any) -> Any:
        found = await asyncio.to_thread(read, *args)
        looking.set()
        await go_on.wait()
        return found

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("yes"))) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first")
                await hold.reached()
                for number in range(6):
                    await here.chat.say(f"waits {number}")
                monkeypatch.setattr(worker, "look", slow)
                hold.release()
                await looking.wait()  # one of those that were not in memory any more
                (number,) = {row.id for row in here.db.inbox.list(state="queued", limit=10)[-1:]}
                row = here.db.inbox.get(number)
                assert row is not None
                await here.chat.say("said anew", message_id=row.message_id, version=1)
                go_on.set()
                await here.quiet()
                assert here.outcomes()[row.message_id] == "superseded"
                assert here.outcomes()[f"{row.message_id}.1"] == "answered"
                assert here.db.inbox.counts().get("queued", 0) == 0
            assert user_texts(here.db)[-2:] == ["said anew", "waits 5"]

    asyncio.run(go())


# -- stops and ends --------------------------------------------------------------------------------------------


def test_a_turn_stopped_while_its_files_hang_does_not_come_back_later(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_STOP_SECONDS", 0.1)

    async def hangs(*args: Any, **more: Any) -> None:
        await asyncio.sleep(60)

    async def go() -> None:
        with ScriptedModel(always(say("yes"))) as model:
            async with gateway(model) as here:
                monkeypatch.setattr(here.chat, "fetch", hangs)
                await here.chat.say("look", message_id="a", attachments=(_photo(here, "p"),))
                await here.until(lambda: here.parts.lanes.busy(ROUTE))
                await here.chat.say("/stop")
                await here.quiet()
                assert here.outcomes()["a"] == "dropped"

    asyncio.run(go())


@pytest.mark.parametrize("when", ["opened", "committed"])
def test_a_gateway_that_ends_while_a_turn_is_written_loses_no_message(
    gateway: Start, db: SessionDB, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is held by somebody else for longer than the end may take."""

    async def go() -> None:
        free, taken, hold = threading.Event(), threading.Event(), Hold()

        def occupied(conn: Connection) -> None:
            taken.set()
            free.wait(20)

        with ScriptedModel(say("yes", hold=hold), always(say("yes"))) as model:
            here = gateway(model, gateway={"drain_seconds": 0.2})
            await here.start()
            fetch, fetching, go_on = here.chat.fetch, asyncio.Event(), asyncio.Event()

            async def slowly(*args: Any, **more: Any) -> None:
                fetching.set()
                await go_on.wait()
                await fetch(*args, **more)

            monkeypatch.setattr(here.chat, "fetch", slowly)
            await here.chat.say("look", message_id="a", attachments=(_photo(here, "p"),))
            await fetching.wait()
            if when == "committed":
                go_on.set()
                await hold.reached()
            blocked = asyncio.create_task(asyncio.to_thread(db.engine.write, occupied))
            await asyncio.to_thread(taken.wait, 5)
            go_on.set()
            hold.release()
            await asyncio.sleep(0.3)
            ending = asyncio.create_task(here.runner.stop())
            await asyncio.sleep(0.7)
            free.set()
            await asyncio.gather(blocked, ending)
            async with gateway(model) as later:
                await later.quiet()
                assert later.outcomes()["a"] == "answered"
                assert [*here.chat.chat(), *later.chat.chat()] == ["yes"]

    asyncio.run(go())


# -- a store that fails for a while ----------------------------------------------------------------------------


def test_a_message_whose_storing_had_no_answer_is_answered_when_it_comes_again(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Inbox.aaccept

    async def lost(self: Inbox, **facts: Any) -> Any:
        await store(self, **facts)
        monkeypatch.setattr(Inbox, "aaccept", store)
        raise OutcomeUnknown("the connection broke while it was committed")

    async def go() -> None:
        with ScriptedModel(always(say("yes"))) as model:
            async with gateway(model) as here:
                monkeypatch.setattr(Inbox, "aaccept", lost)
                with pytest.raises(OutcomeUnknown):
                    await here.chat.say("hello", message_id="a")
                assert (await here.chat.say("hello", message_id="a")).state == "duplicate"
                await here.quiet()
                assert here.outcomes() == {"a": "answered"}
                assert answers(here)[-1:] == ["yes"]

    asyncio.run(go())


def test_words_that_came_too_late_are_answered_though_the_store_failed_between(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Inbox.get
    failed: list[int] = []

    def fails(self: Inbox, row_id: int) -> Any:
        if len(failed) < 3:
            failed.append(row_id)
            raise StoreFull("no room on the disk")
        return get(self, row_id)

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), say("two")) as model:
            async with gateway(model, **STEER) as here:
                await here.chat.say("first", message_id="a")
                await hold.reached()
                await here.chat.say("too late", message_id="b")
                monkeypatch.setattr(Inbox, "get", fails)
                hold.release()
                await here.until(lambda: len(failed) == 3)
                await here.quiet()
                assert here.outcomes() == {"a": "answered", "b": "answered"}

    asyncio.run(go())


def test_a_lane_waits_for_a_store_that_fails_and_does_not_spin(gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fails(self: Inbox, row_id: int) -> Any:
        asked.append(row_id)
        raise StoreFull("no room on the disk")

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("yes"))) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first")
                await hold.reached()
                for number in range(6):
                    await here.chat.say(f"waits {number}")
                with monkeypatch.context() as broken:
                    broken.setattr(Inbox, "get", fails)
                    hold.release()
                    await here.until(lambda: asked)
                    await asyncio.sleep(0.5)
                    assert len(asked) < 10
                await here.quiet()
                assert set(here.outcomes().values()) == {"answered"}

    asyncio.run(go())


def test_what_looks_after_things_survives_a_store_that_fails(gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def fails(*args: Any) -> Any:
        rounds.append(1)
        if len(rounds) < 3:
            raise StoreFull("no room on the disk")
        return []

    async def go() -> None:
        monkeypatch.setattr(periodic_tasks, "FIRST_EXPIRY_SECONDS", 0)
        monkeypatch.setattr(periodic_tasks, "expired", fails)
        async with gateway() as here:
            with monkeypatch.context() as quick:
                quick.setattr(here.runner, "_rest", lambda seconds: asyncio.sleep(0.01))
                await here.until(lambda: len(rounds) > 3)

    asyncio.run(go())


def test_a_turn_whose_end_could_not_be_stored_goes_on_when_the_store_does(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease, in the name of a process that lives, would have to run out else: a minute.

    A full store may refuse the answer and have room for a failure a moment later: the turn fails with neither. The
    answer was paid for, so the model is not asked again.
    """
    commit, failed = Turns.commit_in, list[int]()

    def fails(self: Turns, *args: Any, **more: Any) -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise StoreFull("no room on the disk")
        return commit(self, *args, **more)

    async def go() -> None:
        monkeypatch.setattr(periodic_tasks, "_RECOVER_SECONDS", 0.1)
        monkeypatch.setattr(Turns, "commit_in", fails)
        with ScriptedModel(say("here it is")) as model:
            async with gateway(model) as here:
                await here.chat.say("hello", message_id="a")
                await here.until(lambda: here.chat.chat() == ["here it is"])
                await here.quiet()
                assert here.outcomes() == {"a": "answered"}
                assert len(model.requests) == 1
                made = receipt.receipt_of(here.db, here.db.turns.list()[0])
                why = "the database was full or away"
                assert [one["why"] for one in made["attempts"]] == ["the message came", why, why]
                assert made["totals"]["calls"] == 1

    asyncio.run(go())


def test_a_step_that_the_store_refused_is_not_asked_for_again(gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step's calls run once the step is stored, and the turn goes on from there."""
    append, failed = Journal.append, list[int]()

    async def fails(self: Journal, *rows: Any) -> list[int]:
        if rows[0]["role"] == "assistant" and len(failed) < 2:
            failed.append(1)
            raise StoreFull("no room on the disk")
        return await append(self, *rows)

    async def go() -> None:
        monkeypatch.setattr(periodic_tasks, "_RECOVER_SECONDS", 0.1)
        monkeypatch.setattr(Journal, "append", fails)
        steps = (say("I look.", calls=[call("search_files", {"pattern": "*.none"})]), say("nothing there"))
        with ScriptedModel(*steps) as model:
            async with gateway(model) as here:
                await here.chat.say("hello", message_id="a")
                await here.until(lambda: here.chat.chat()[-1:] == ["nothing there"])
                await here.quiet()
                assert here.outcomes() == {"a": "answered"}
                assert len(model.requests) == 2
                made = receipt.receipt_of(here.db, here.db.turns.list()[0])
                assert len(made["attempts"]) == 3
                assert made["totals"]["calls"] == 2

    asyncio.run(go())


def test_what_was_typed_at_a_terminal_is_answered_though_it_could_not_be_shown(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("yes"))) as model:
            async with gateway(model) as here:
                await here.chat.say("hello")
                await here.quiet()
                tried: list[Any] = []
                put = here.parts.lanes.say

                async def fails(new_item: Any) -> Any:
                    tried.append(new_item)
                    if len(tried) < 3:
                        raise StoreFull("no room on the disk")
                    return await put(new_item)

                monkeypatch.setattr(here.parts.lanes, "say", fails)
                source: SessionSource = here.chat.source()
                await asyncio.to_thread(
                    terminal_messages.hand_in, here.db, source, "from the desk", home=Path(), person_id=LOCAL_OWNER
                )
                await here.until(lambda: len(tried) >= 3)
                await here.until(lambda: here.db.inbox.counts().get("answered") == 2)
                await here.quiet()
                assert here.chat.chat() == ["yes", "(from the terminal) from the desk", "yes"]

    asyncio.run(go())


def test_a_delivery_that_cannot_be_written_down_for_a_while_is_known_in_the_end(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.turns.outbox import Outbox

    sent, real_sleep = Outbox.sent_in, asyncio.sleep
    tries: list[float] = []

    def fails(self: Outbox, conn: Connection, *args: Any, **more: Any) -> bool:
        tries.append(time.monotonic())
        if len(tries) <= 12:
            raise StoreFull("no room on the disk")
        return sent(self, conn, *args, **more)

    async def short(seconds: float, *args: Any) -> None:
        await real_sleep(min(seconds, 0.01))

    async def go() -> None:
        with ScriptedModel(always(say("yes"))) as model:
            async with gateway(model) as here:
                monkeypatch.setattr(Outbox, "sent_in", fails)
                monkeypatch.setattr("gateway.outbound.deliverer.asyncio.sleep", short)
                await here.chat.say("hello", message_id="a")
                await here.until(lambda: here.db.outbox.counts() == {"sent": 1})
                assert here.chat.chat() == ["yes"]

    asyncio.run(go())


# -- what is said to people ------------------------------------------------------------------------------------


def test_a_turn_that_cannot_be_taken_up_is_told_of_once(gateway: Start, db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), always(say("in the end"))) as model:
            here = gateway(model, gateway={"drain_seconds": 0.1})
            await here.start()
            await here.chat.say("hello", message_id="a")
            await hold.reached()
            await here.runner.stop()
            hold.release()
            async with gateway({"provider": "nowhere", "default": "nothing"}) as later:
                for _ in range(3):
                    await later.parts.lanes.recover()
                    await later.quiet()
                assert len(told(later, "failed")) == 1
            async with gateway(model) as good:
                await good.quiet()
                assert good.outcomes() == {"a": "answered"}

    asyncio.run(go())


# -- one conversation, two places ------------------------------------------------------------------------------


async def _topic_of_the_same_conversation(here: PretendGateway) -> SessionSource:
    """A second place that leads to the conversation of the first."""
    topic, store = here.chat.source(thread_id="5"), here.parts.services.store
    await here.chat.say("hello")
    await here.chat.heard(1)
    await here.chat.say("hello there", source=topic)
    await here.chat.heard(2)
    await here.quiet()
    shared = await asyncio.to_thread(store._entries.get, ROUTE)
    assert shared is not None
    await asyncio.to_thread(store.switch_session, store.key(topic), shared.session_id)
    return topic


async def _stop_reaches_the_long_turn(here: PretendGateway) -> None:
    began = time.monotonic()
    await here.chat.say("/stop")
    await here.until(lambda: here.outcomes()["long"] != "claimed")
    assert time.monotonic() - began < 5, "the stop reached the model's answer"
    await here.quiet()
    assert here.outcomes()["long"] == "dropped"
    assert here.outcomes()["other"] == "answered"


def test_a_place_that_waits_for_a_conversation_leaves_the_turn_of_the_other_alone(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("a"), say("b"), say("never", hold=hold), always(say("two"))) as model:
            async with gateway(model, **QUEUE) as here:
                topic = await _topic_of_the_same_conversation(here)
                await here.chat.say("something long", message_id="long")
                await hold.reached()
                await here.chat.say("and here", source=topic, message_id="other")
                await asyncio.sleep(0.5)
                await _stop_reaches_the_long_turn(here)

    asyncio.run(go())


def test_a_place_whose_file_was_slow_leaves_the_turn_of_the_other_alone(
    gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same agent in hand: it was fetched before either of them wrote anything."""

    async def go() -> None:
        hold, slow = Hold(), asyncio.Event()
        with ScriptedModel(say("a"), say("b"), say("never", hold=hold), always(say("two"))) as model:
            async with gateway(model, **QUEUE) as here:
                topic = await _topic_of_the_same_conversation(here)
                store, fetch = here.parts.services.store, here.chat.fetch

                async def slowly(*args: Any, **more: Any) -> None:
                    await slow.wait()
                    await fetch(*args, **more)

                monkeypatch.setattr(here.chat, "fetch", slowly)
                await here.chat.say("look", source=topic, message_id="other", attachments=(_photo(here, "p"),))
                await here.until(lambda: (turn := here.parts.lanes.running(store.key(topic))) and turn.agent)
                await here.chat.say("something long", message_id="long")
                await hold.reached()
                slow.set()
                await asyncio.sleep(0.5)
                await _stop_reaches_the_long_turn(here)

    asyncio.run(go())


# -- more of the store -----------------------------------------------------------------------------------------


def test_a_long_reply_arrives_once_though_the_store_failed_between_its_pieces(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.turns.outbox import Outbox

    progress = Outbox.progress_in
    tries: list[int] = []

    def fails(self: Outbox, conn: Connection, item: Any, **more: Any) -> bool:
        tries.append(item.id)
        if 1 < len(tries) < 5:
            raise StoreFull("no room on the disk")
        return progress(self, conn, item, **more)

    async def go() -> None:
        words = "\n\n".join(f"part {number} " + "x" * 80 for number in range(6))
        with ScriptedModel(say(words)) as model:
            async with starter(db, home)(model, adapter=PretendAdapter(limit=100)) as here:
                monkeypatch.setattr(Outbox, "progress_in", fails)
                await here.chat.say("tell me", message_id="a")
                await here.until(lambda: here.db.outbox.counts().get("sending", 0) == 0 and len(tries) > 5)
                await here.quiet()
                assert here.db.outbox.counts() == {"sent": 1}
                assert [text.split(" x")[0].strip() for text in here.chat.chat()] == [f"part {n}" for n in range(6)]

    asyncio.run(go())


@pytest.mark.parametrize("when", ["taken", "ended"])
def test_a_command_waits_for_a_store_that_fails(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    name = "take_command_in" if when == "taken" else "end_command_in"
    real, tries = getattr(Inbox, name), []

    def fails(self: Inbox, conn: Connection, *args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) < 4:
            raise StoreFull("no room on the disk")
        return real(self, conn, *args, **more)

    async def go() -> None:
        async with PretendGateway(db, home) as here:
            monkeypatch.setattr(Inbox, name, fails)
            await here.chat.say("/help", message_id="a")
            await here.chat.heard(1)
            await here.quiet()
            assert here.outcomes() == {"a": "answered"}
            assert len(here.chat.messages) == 1

    asyncio.run(go())


def test_a_deliverer_outlives_a_defect_of_its_own(gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with gateway() as here:
            with monkeypatch.context() as broken:

                def fails(**facts: Any) -> Any:
                    raise KeyError("a defect")

                broken.setattr(here.db.outbox, "next_due", fails)
                await asyncio.sleep(1.5)
            await here.parts.lanes.tell(here.chat.source(), "still here", what="test", occasion=1)
            await here.chat.heard(1)

    asyncio.run(go())


def test_a_row_that_no_lane_has_is_found(gateway: Start, db: SessionDB, clock: Clock) -> None:
    """Whoever stored it was cancelled before its lane heard of it, or was another process."""

    async def go() -> None:
        with ScriptedModel(always(say("yes"))) as model:
            async with gateway(model) as here:
                await here.chat.say("hello", message_id="a")
                await here.quiet()
                event = here.chat.event("and me?", message_id="b")
                db.inbox.accept(
                    platform="telegram", chat_id="42", message_id="b", route=ROUTE, payload=payload(event, now=clock()),
                    person_id=db.inbox.list(limit=1)[0].person_id,
                )  # fmt: skip
                clock.advance(120)
                await here.parts.lanes.recover()
                await here.quiet()
                assert here.outcomes() == {"a": "answered", "b": "answered"}

    asyncio.run(go())


def test_a_gateway_that_ends_begins_no_turn_that_waited_for_room(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("yes"))) as model:
            here = gateway(model, **ONE_AT_A_TIME)
            await here.start()
            await here.chat.say("hold the room", user="7")
            await hold.reached()
            await here.chat.say("me too", message_id="b")
            ending = asyncio.create_task(here.runner.stop())
            await asyncio.sleep(0.2)
            hold.release()
            await ending
            assert here.outcomes()["b"] == "queued"
            async with gateway(model, **ONE_AT_A_TIME) as later:
                await later.quiet()
                assert later.outcomes()["b"] == "answered"

    asyncio.run(go())


def test_the_heart_beats_on_after_a_full_disk(gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[dict[str, Any]] = []

    def fails(home: Path, **facts: Any) -> None:
        beats.append(facts)
        if len(beats) < 3:
            raise OSError(28, "No space left on device")

    async def go() -> None:
        async with gateway() as here:
            with monkeypatch.context() as broken:
                broken.setattr(main.status, "write_runtime_status", fails)
                broken.setattr(main.status, "HEARTBEAT_SECONDS", 0.01)
                beating = asyncio.create_task(main._beat(here.runner, None))
                await here.until(lambda: len(beats) > 3)
                beating.cancel()
                await asyncio.wait({beating})

    asyncio.run(go())


# -- whom it was from ------------------------------------------------------------------------------------------


def test_what_waits_from_somebody_who_was_shut_out_meanwhile_reaches_no_model(gateway: Start, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("yes"))) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first", user="7", message_id="a")
                await hold.reached()
                await here.chat.say("second", user="7", message_id="b")
                file = home / "config.yaml"
                told_before = yaml.safe_load(file.read_text(encoding="utf-8"))
                told_before["platforms"]["telegram"]["allowed_users"] = ["8"]
                file.write_text(yaml.safe_dump(told_before), encoding="utf-8")
                hold.release()
                await here.quiet()
                assert here.outcomes() == {"a": "answered", "b": "dropped"}
            assert len(model.requests) == 1

    asyncio.run(go())
