"""Messages typed at a terminal, for a chat that a gateway serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import ROUTE, Start, starter

from gateway.config import Platform
from gateway.inbound import terminal_messages
from gateway.routes.source import SessionSource
from hermes_agent import mentions
from hermes_agent.tools.base import FileContext
from hermes_config.config import of as config_of
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, ConversationId
from hermes_state.turns.inbox import BESIDE, InboxRow
from hermes_testing.scripted.model import Hold, ScriptedModel, say

pytestmark = pytest.mark.slow

CHAT = SessionSource(Platform.TELEGRAM, "42", chat_type="dm", user_id="42", user_name="Ada")


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


def hand_in(db: SessionDB, text: Any) -> InboxRow:
    return terminal_messages.hand_in(db, CHAT, text, home=Path(), person_id=LOCAL_OWNER)


def test_it_is_answered_in_its_chat_below_what_was_typed_and_in_one_conversation(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        with ScriptedModel(say("From the phone."), say("From the desk.")) as model:
            async with gateway(model) as here:
                await here.chat.say("one")
                await here.chat.heard(1)
                row = await asyncio.to_thread(hand_in, db, "two")
                await here.chat.heard(3)
                await here.quiet()
                assert here.chat.chat() == ["From the phone.", "(from the terminal) two", "From the desk."]
                ended = db.inbox.get(row.id)
                assert ended is not None and (ended.state, ended.route) == ("answered", ROUTE)
            assert "From the phone." in model.requests[1].body.decode()
            assert [turn.route for turn in db.turns.list()] == [ROUTE, ROUTE]
            assert len({turn.conversation_id for turn in db.turns.list()}) == 1

    asyncio.run(go())


def test_a_row_of_hermes_itself_waits_for_the_running_turn_and_shows_nothing(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("First.", hold=hold), say("The process ended.")) as model:
            async with gateway(model, display={"busy_input_mode": "interrupt"}) as here:
                await here.chat.say("one")
                await hold.reached()
                address = await asyncio.to_thread(db.inbox.address, db.turns.list()[0].id)
                assert address is not None
                facts = {"message_id": "hermes:process:p1", "text": "it ended", "about": {}}
                await asyncio.to_thread(db.engine.write, lambda conn: db.inbox.accept_own_in(conn, address, **facts))
                await asyncio.sleep(1)
                hold.release()
                await here.chat.heard(2)
                await here.quiet()
                assert here.chat.chat() == ["First.", "The process ended."]
                assert here.outcomes()["hermes:process:p1"] == "answered"

    asyncio.run(go())


def test_what_was_typed_before_the_gateway_came_is_answered_once_and_shown_once(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        with ScriptedModel(say("Here I am.")) as model:
            hand_in(db, "is anybody there?")
            async with gateway(model) as here:
                await here.chat.heard(2)
                await asyncio.sleep(0.5)
                await here.quiet()
            assert sorted(here.chat.chat()) == ["(from the terminal) is anybody there?", "Here I am."]
            assert model.calls == 1

    asyncio.run(go())


def test_a_file_that_was_named_goes_to_the_model_and_not_into_the_chat(
    gateway: Start, db: SessionDB, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("the door opens with 4711\n")
    desk = FileContext(
        db=db,
        home=home,
        workdir=tmp_path,
        conversation_id=ConversationId("any"),
        environ={"HOME": str(tmp_path)},
        config=config_of(home, {}),
    )

    async def go() -> None:
        with ScriptedModel(say("It does.")) as model:
            async with gateway(model) as here:
                await asyncio.to_thread(hand_in, db, mentions.whole("is @notes.md right?", desk))
                await here.chat.heard(2)
                await here.quiet()
                assert here.chat.chat() == ["(from the terminal) is @notes.md right?", "It does."]
            assert "4711" in model.requests[0].body.decode()

    asyncio.run(go())


def test_a_command_is_a_command(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        async with gateway(ScriptedModel()) as here:
            row = await asyncio.to_thread(hand_in, db, "/stop")
            await here.until(lambda: (found := db.inbox.get(row.id)) is not None and found.state == "answered")
            await here.chat.heard(2)
            assert here.chat.chat()[-1].startswith("stopped")

    asyncio.run(go())


def test_a_platform_cannot_call_its_messages_like_those_of_this_machine(gateway: Start, db: SessionDB) -> None:
    async def go() -> None:
        with ScriptedModel(say("One.", delay=0.6)) as model:
            async with gateway(model) as here:
                await here.chat.say("hello", message_id=f"{BESIDE}0011223344556677")
                await here.chat.say("hello", message_id=f"{BESIDE}0011223344556677")
                await here.chat.heard(1)
                await here.quiet()
                assert here.chat.chat() == ["One."], "nothing was typed at the desk"
            assert not any(terminal_messages.is_from_terminal(row) for row in db.inbox.list())

    asyncio.run(go())
