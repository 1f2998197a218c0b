"""Order, busy policy, albums, edits, stops: what people notice of lanes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OpenStore
from tests.gateway.engine import QUEUE, ROUTE, STEER, Start, answers, starter, told, user_texts

from gateway.platforms.base import Attachment, MessageType
from hermes_config.limits import Limits
from hermes_state import SessionDB
from hermes_state.turns.journal import Journal
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, say, saying

pytestmark = pytest.mark.slow


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


def test_three_messages_while_busy_are_three_turns_in_order(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), say("two"), say("three"), say("four")) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first")
                await hold.reached()
                for text in ("second", "third", "fourth"):
                    await here.chat.say(text)
                hold.release()
                await here.quiet()
            assert answers(here) == ["one", "two", "three", "four"]
            assert user_texts(here.db) == ["first", "second", "third", "fourth"]
            assert set(here.outcomes().values()) == {"answered"}
            assert len(told(here, "busy")) == 1, "told once, not three times"

    asyncio.run(go())


def test_by_default_a_new_message_interrupts(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("instead")) as model:
            async with gateway(model) as here:
                await here.chat.say("do this")
                await hold.reached()
                await here.chat.say("no, that")
                await here.quiet()
            assert answers(here) == ["instead"]
            assert here.outcomes() == {"in-1": "dropped", "in-2": "answered"}
            assert user_texts(here.db) == ["do this", "no, that"], "what was said stays in the conversation"
            assert "stop" in told(here, "busy")[0]

    asyncio.run(go())


def test_a_word_can_be_steered_into_the_running_turn(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        steps = (say(calls=[call("todo", {"todos": []})], hold=hold), say("short"))
        with ScriptedModel(*steps) as model:
            async with gateway(model, **STEER) as here:
                await here.chat.say("write a poem")
                await hold.reached()
                await here.chat.say("a short one")
                hold.release()
                await here.quiet()
            assert answers(here) == ["short"]
            assert here.outcomes() == {"in-1": "answered", "in-2": "answered"}
            assert "a short one" in model.requests[1].body.decode()

    asyncio.run(go())


def test_a_steered_word_that_came_too_late_is_a_message(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("done", hold=hold), say("and that")) as model:
            async with gateway(model, **STEER) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("too late")
                hold.release()
                await here.quiet()
            assert answers(here) == ["done", "and that"]
            assert set(here.outcomes().values()) == {"answered"}

    asyncio.run(go())


def test_an_edit_of_a_steered_word_is_read_and_the_old_one_is_not(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("done", hold=hold), say("and that")) as model:
            async with gateway(model, **STEER) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("wrong word", message_id="m2")
                await here.chat.say("right word", message_id="m2", version=1)
                hold.release()
                await here.quiet()
            assert user_texts(here.db) == ["first", "right word"]
            assert (here.outcomes()["m2"], here.outcomes()["m2.1"]) == ("superseded", "answered")

    asyncio.run(go())


def test_a_steered_word_that_was_edited_before_the_turn_took_it_in_does_not_reach_it(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        steps = (say(calls=[call("todo", {"todos": []})], hold=hold), say("done"), say("and that"))
        with ScriptedModel(*steps) as model:
            async with gateway(model, **STEER) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("wrong word", message_id="m2")
                await here.chat.say("right word", message_id="m2", version=1)
                hold.release()
                await here.quiet()
            assert not any("wrong word" in request.body.decode() for request in model.requests)
            assert user_texts(here.db) == ["first", "right word"]
            assert (here.outcomes()["m2"], here.outcomes()["m2.1"]) == ("superseded", "answered")

    asyncio.run(go())


def test_an_album_is_one_turn(gateway: Start) -> None:
    async def go() -> None:
        with ScriptedModel(say("nice")) as model:
            async with gateway(model) as here:
                for number in range(3):
                    photo = Attachment(ref=f"p{number}", kind=MessageType.PHOTO, name=f"{number}.png")
                    here.chat.files[f"p{number}"] = b"\x89PNG\r\n\x1a\n" + b"0" * 64
                    await here.chat.say("look" if not number else "", album="a", attachments=(photo,))
                await here.quiet()
            assert answers(here) == ["nice"]
            assert list(here.outcomes().values()) == ["answered"] * 3
            sent = model.requests[0].body.decode()
            assert sent.count("it was not seen") == 3

    asyncio.run(go())


def test_the_new_caption_of_an_album_that_is_being_answered_is_read(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("nice")) as model:
            async with gateway(model) as here:
                for number, text in enumerate(("look", "", "look closer")):
                    name = f"{number % 2}.png"
                    photo = Attachment(ref=name, kind=MessageType.PHOTO, name=name)
                    here.chat.files[name] = b"\x89PNG\r\n\x1a\n" + b"0" * 64
                    await here.chat.say(
                        text, message_id=f"m{number % 2}", version=number // 2, album="a", attachments=(photo,)
                    )
                    if number == 1:
                        await hold.reached()
                await here.quiet()
            assert answers(here) == ["nice"]
            assert here.outcomes() == {"m0": "dropped", "m1": "dropped", "m0.1": "answered"}
            assert "look closer" in model.requests[1].last_user_text

    asyncio.run(go())


def test_a_message_that_becomes_stop_by_an_edit_does_not_wait(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold)) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first", message_id="m1")
                await hold.reached()
                await here.chat.say("/stpo", message_id="m2")
                await here.chat.say("/stop", message_id="m2", version=1)
                await here.quiet()
            assert here.outcomes() == {"m1": "dropped", "m2": "superseded", "m2.1": "answered"}

    asyncio.run(go())


def test_an_edit_that_changes_nothing_does_not_disturb_the_turn_and_a_later_one_does(gateway: Start) -> None:
    async def go() -> None:
        hold, later = Hold(), Hold()
        with ScriptedModel(say("one", hold=hold), say("never", hold=later), say("two")) as model:
            async with gateway(model) as here:
                await here.chat.say("see example.org", message_id="m1")
                await hold.reached()
                await here.chat.say("see example.org", message_id="m1", version=1)
                hold.release()
                await here.quiet()
                assert answers(here) == ["one"]
                await here.chat.say("see example.com", message_id="m2")
                await later.reached()
                await here.chat.say("see example.com", message_id="m2", version=1)
                await here.chat.say("see example.net", message_id="m2", version=2)
                await here.quiet()
            assert answers(here) == ["one", "two"]
            out = here.outcomes()
            assert (out["m1"], out["m1.1"]) == ("answered", "silent")
            assert (out["m2"], out["m2.2"]) == ("dropped", "answered")

    asyncio.run(go())


@pytest.mark.parametrize("when", ["waiting", "running", "running, others wait", "answered"])
def test_an_edit_is_read_in_its_place_or_in_place_of_the_turn_or_noted(gateway: Start, when: str) -> None:
    async def go() -> None:
        hold = Hold()
        steps = {
            "waiting": (say("one", hold=hold), say("two"), say("three")),
            "running": (say("never", hold=hold), say("new")),
            "running, others wait": (say("never", hold=hold), say("new"), say("two")),
            "answered": (say("one"),),
        }
        with ScriptedModel(*steps[when]) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first", message_id="m1")
                if when == "answered":
                    await here.quiet()
                    await here.chat.say("first, better", message_id="m1", version=1)
                else:
                    await hold.reached()
                if when == "waiting":
                    await here.chat.say("second", message_id="m2")
                    await here.chat.say("third", message_id="m3")
                    await here.chat.say("second, better", message_id="m2", version=1)
                    hold.release()
                if when == "running, others wait":
                    await here.chat.say("second", message_id="m2")
                if when.startswith("running"):
                    await here.chat.say("first, better", message_id="m1", version=1)
                await here.quiet()
            out, said = here.outcomes(), user_texts(here.db)
            if when == "waiting":
                assert said == ["first", "second, better", "third"]
                assert (out["m2"], out["m2.1"], out["m3"]) == ("superseded", "answered", "answered")
            elif when.startswith("running"):
                assert answers(here) == ["new", "two"][: len(steps[when]) - 1]
                assert said[-1] == "second" or when == "running"
                assert (out["m1"], out["m1.1"]) == ("dropped", "answered")
            else:
                assert answers(here) == ["one"]
                assert (out["m1"], out["m1.1"]) == ("answered", "silent")
                (row,) = [row for row in here.db.inbox.list() if row.version]
                assert "already answered" in str(row.reason)

    asyncio.run(go())


def test_stop_ends_the_turn_and_drops_what_waits_and_the_next_message_runs(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("fresh")) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("second")
                await here.chat.say("/stop")
                await here.until(lambda: here.outcomes().get("in-3") == "answered")
                await here.chat.say("third")
                await here.quiet()
            assert here.outcomes() == {"in-1": "dropped", "in-2": "dropped", "in-3": "answered", "in-4": "answered"}
            assert "stopped True, dropped 1" in here.chat.chat()
            assert answers(here)[-1] == "fresh"

    asyncio.run(go())


def test_what_is_typed_after_a_passing_command_waits_for_it(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("in the new one")) as model:
            async with gateway(model) as here:
                await here.chat.say("zebra crossing")
                await hold.reached()
                await here.chat.say("/new")
                await here.chat.say("second")
                await here.quiet()
            assert "zebra" not in model.requests[1].body.decode()
            assert here.outcomes()["in-3"] == "answered"

    asyncio.run(go())


def test_a_command_that_runs_a_turn_can_be_stopped(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one"), say("never", hold=hold)) as model:
            async with gateway(model) as here:
                await here.chat.say("first")
                await here.quiet()
                await here.chat.say("/again")
                await hold.reached()
                await here.chat.say("/stop")
                await here.quiet()
            assert "done again" in here.chat.chat() and "stopped True, dropped 0" in here.chat.chat()

    asyncio.run(go())


def test_a_full_lane_refuses_with_words_and_drops_nothing_below(make_db: OpenStore, home: Path) -> None:
    gateway = starter(make_db(limits=Limits(queued_messages=3)), home)

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("ok"))) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("0")
                await hold.reached()
                states = [(await here.chat.say(str(number))).state for number in range(1, 6)]
                hold.release()
                await here.quiet()
            assert states == ["accepted"] * 3 + ["refused"] * 2
            assert user_texts(here.db) == ["0", "1", "2", "3"]
            assert len(told(here, "full")) == 2 and "did not accept" in told(here, "full")[0]

    asyncio.run(go())


def test_messages_of_many_waiting_rows_are_read_again_from_the_table(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("ok"))) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("0")
                await hold.reached()
                for number in range(1, 12):
                    await here.chat.say(str(number))
                kept = [one.row for one in here.parts.lanes._lanes[ROUTE].waiting]
                assert sum(row is not None for row in kept) < 11
                hold.release()
                await here.quiet()
            assert user_texts(here.db) == [str(number) for number in range(12)]

    asyncio.run(go())


def test_one_lane_never_waits_for_another(gateway: Start) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("slow", hold=hold, when=saying("wait")), say("quick")) as model:
            async with gateway(model) as here:
                await here.chat.say("please wait")
                await hold.reached()
                await here.chat.say("hello", user="7")
                await here.chat.heard(1, "7")
                assert here.chat.chat("7") == ["quick"]
                hold.release()
                await here.quiet()
            assert answers(here) == ["slow"]

    asyncio.run(go())


def test_a_conversation_in_use_elsewhere_is_waited_for(gateway: Start) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("two")) as model:
            async with gateway(model) as here:
                await here.chat.say("zebra crossing")
                await here.quiet()
                (session,) = here.db.list_sessions_rich()
                theirs: Any = await Journal.open(
                    here.db, session["id"], holder="elsewhere", ttl=60, user={"role": "user", "content": "at the desk"}
                )
                await here.chat.say("second")
                await asyncio.sleep(0.3)
                assert here.outcomes()["in-2"] == "queued"
                await theirs.commit({"role": "assistant", "content": "done there"})
                await here.quiet()
            assert answers(here) == ["one", "two"]
            first, second = (request.body for request in model.requests)
            assert b"at the desk" in second and b"done there" in second
            assert second.startswith(first[: first.index(b"zebra")]), "the prefix did not break"

    asyncio.run(go())


def test_an_ending_gateway_leaves_what_waits_to_the_next(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), say("two")) as model:
            async with gateway(model, **QUEUE) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("second")
                asyncio.get_running_loop().call_later(0.2, hold.release)
            assert here.outcomes() == {"in-1": "answered", "in-2": "queued"}
            assert answers(here) == ["one"]
            async with gateway(model, **QUEUE) as there:
                await there.quiet()
            assert answers(there) == ["two"]

    asyncio.run(go())


def test_a_turn_that_does_not_end_in_time_is_taken_up_by_the_next_gateway(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("at last")) as model:
            async with gateway(model, gateway={"drain_seconds": 0.1}) as here:
                await here.chat.say("first")
                await hold.reached()
            assert here.outcomes() == {"in-1": "claimed"}
            assert [turn.state for turn in db.turns.list()] == ["running"]
            async with gateway(model) as there:
                await there.quiet()
            assert answers(there) == ["at last"]
            assert there.outcomes() == {"in-1": "answered"}
            assert user_texts(db) == ["first"], "the message is in the conversation once"

    asyncio.run(go())
