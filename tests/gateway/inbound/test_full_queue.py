"""A chat whose queue is full: what waits for nothing still gets in, so that the queue can be looked at and ended."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import OpenStore
from tests.support.gateways import PretendGateway

from gateway.inbound.lanes import EXTRA_COMMANDS
from hermes_config.limits import Limits
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, say

MOST = 2


@pytest.fixture
def narrow(make_db: OpenStore) -> SessionDB:
    return make_db(limits=Limits(queued_messages=MOST))


def gateway(db: SessionDB, home: Path, model: ScriptedModel, adapter: PretendAdapter | None = None) -> PretendGateway:
    config = {"streaming": {"enabled": False}, "display": {"busy_input_mode": "queue"}, "hooks": {"enabled": ["slow"]}}
    return PretendGateway(db, home, model, adapter=adapter, **config)


async def filled(here: PretendGateway, hold: Hold) -> None:
    await here.chat.say("something long")
    await hold.reached()
    states = [(await here.chat.say(f"and this {number}")).state for number in range(MOST + 1)]
    assert states == ["accepted"] * MOST + ["refused"]


def test_stop_ends_what_a_full_queue_waits_for(narrow: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Never said.", hold=hold), always(say("Here."))) as model:
            async with gateway(narrow, home, model) as here:
                await filled(here, hold)
                assert (await here.chat.say("/status")).state == "accepted"
                assert (await here.chat.say("/stop")).state == "accepted"
                await here.quiet()
                await here.chat.say("are you there?")
                await here.until(lambda: "Here." in here.chat.chat())
                await here.quiet()
            heard = "\n".join(here.chat.chat())
            assert "2 waiting messages will not be answered" in heard and "Never said." not in heard

    asyncio.run(go())


def test_a_message_brought_by_a_command_finds_no_room_either(narrow: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("ok"))) as model:
            async with gateway(narrow, home, model) as here:
                await filled(here, hold)
                for typed in ("/queue one more", "/steer one more"):
                    key = f"command:{(await here.chat.say(typed)).inbox_id}"
                    reply = await here.until(partial(narrow.outbox.find, key))
                    assert reply.payload["text"].startswith("2 messages of this chat are waiting")
                hold.release()
                await here.quiet()
            assert not any(b"one more" in request.body for request in model.requests)

    asyncio.run(go())


def test_words_that_answer_the_models_question_get_in(narrow: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        asks = say(calls=[call("clarify", {"question": "Which city?", "choices": []})], hold=hold)
        with ScriptedModel(asks, say("Booked."), always(say("ok"))) as model:
            async with gateway(narrow, home, model) as here:
                await filled(here, hold)
                hold.release()
                await here.until(lambda: any("Which city?" in text for text in here.chat.chat()))
                await here.chat.say("Porto")
                await here.until(lambda: "Booked." in here.chat.chat())
                await here.quiet()

    asyncio.run(go())


SLOW = """
import asyncio
from functools import partial
from pathlib import Path

async def handle(event, context):
    while not Path(__file__).with_name("go-on").exists():
        await asyncio.sleep(0.01)
"""


def test_commands_have_a_bound_of_their_own(narrow: SessionDB, home: Path) -> None:
    folder = home / "hooks" / "slow"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: slow\nevents: ['command:status']\n", encoding="utf-8")
    (folder / "handler.py").write_text(SLOW, encoding="utf-8")

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("one", hold=hold), always(say("ok"))) as model:
            async with gateway(narrow, home, model) as here:
                await filled(here, hold)
                states = [(await here.chat.say("/status")).state for _ in range(EXTRA_COMMANDS + 1)]
                (folder / "go-on").touch()
                hold.release()
                await here.quiet()
            assert states == ["accepted"] * EXTRA_COMMANDS + ["refused"]

    asyncio.run(go())
