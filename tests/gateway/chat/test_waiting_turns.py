"""A question that nobody answers leaves its turn waiting: through messages in between, restarts, and other chats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.platforms.base import Answer
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter, Shown
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

OWNER = "42"
COMMAND = "rm -rf old; echo gone >> log.txt"


def gateway(db: SessionDB, home: Path, model: ScriptedModel, **more: Any) -> PretendGateway:
    adapter = more.pop("adapter", None) or PretendAdapter(edits=True)
    config = {"approvals": {"timeout": 1}, "streaming": {"enabled": False}, **more}
    return PretendGateway(db, home, model, adapter=adapter, **config)


def workspace(here: PretendGateway) -> Path:
    folder = here.parts.services.home / "workspace"
    (folder / "old").mkdir(parents=True, exist_ok=True)
    return folder


async def put_down(here: PretendGateway, db: SessionDB) -> Shown:
    """Ask for something, and wait until nobody has answered: the card."""
    await here.chat.say("tidy up", OWNER)
    await here.until(db.turns.waiting)
    await here.until(lambda: any("stays open for 24h" in text for text in here.chat.chat(OWNER)))
    return next(one for one in here.chat.messages if one.buttons)


def pressed(card: Shown, choice: str) -> Answer:
    return next(one.answer for row in card.buttons for one in row if one.answer.choice == choice)


def steps(*more: Any) -> ScriptedModel:
    return ScriptedModel(say(calls=[call("terminal", {"command": COMMAND})]), *more)


def test_a_question_of_the_evening_is_answered_in_the_morning_after_two_restarts(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps(say("It is late."), say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                card = await put_down(here, db)
                assert db.leases.get(db.turns.waiting()[0].conversation_id) is None, "no lease"
                await here.chat.say("what time is it?", OWNER)
                await here.until(lambda: "It is late." in here.chat.chat(OWNER))
                told = [one for one in model.requests[1].json["messages"] if one["role"] == "tool"]
                assert "waits for permission" in told[0]["content"]
                chat = here.chat
            async with gateway(db, home, model, adapter=chat) as here:
                await here.quiet()
                assert db.turns.waiting(), "a start does not touch it"
            async with gateway(db, home, model, adapter=chat) as here:
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
                await here.until(lambda: "allowed, this once" in card.text)
                await here.quiet()
            assert not (folder / "old").exists() and (folder / "log.txt").read_text() == "gone\n"
            before, after = (model.requests[at].json["messages"] for at in (1, 2))
            assert after[: len(before)] == before, "the prefix stays"
            assert "gave permission" in after[-1]["content"]
            assert [row.state for row in db.inbox.list()] == ["answered"] * 3

    asyncio.run(go())


def test_a_no_is_told_to_the_model_and_nothing_runs(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps(say("Then not.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                card = await put_down(here, db)
                await here.chat.say(f"/deny {card.buttons[0][0].answer.id} I need it", OWNER)
                await here.until(lambda: "Then not." in here.chat.chat(OWNER))
                await here.quiet()
            assert (folder / "old").exists()
            assert "the person said no (I need it)" in model.requests[1].json["messages"][-1]["content"]

    asyncio.run(go())


def test_a_plain_word_answers_it_after_a_restart(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                workspace(here)
                await put_down(here, db)
                await here.quiet()
                chat = here.chat
            async with gateway(db, home, model, adapter=chat) as here:
                db.clock.advance(60)  # type: ignore[attr-defined]
                await here.chat.say("yes", OWNER)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))

    asyncio.run(go())


def test_a_plain_word_that_was_stored_before_a_restart_answers_it(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                workspace(here)
                await put_down(here, db)
                await here.quiet()
                chat = here.chat
            db.clock.advance(60)  # type: ignore[attr-defined]
            said = db.inbox.list()[0]
            assert said.route is not None
            db.inbox.accept(
                platform=said.platform, account=said.account, chat_id=said.chat_id, message_id="in-between",
                route=said.route, person_id=said.person_id,
                payload={**(said.payload or {}), "text": "yes", "at": db.clock()},
            )  # fmt: skip
            async with gateway(db, home, model, adapter=chat) as here:
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
            assert "gave permission" in model.requests[1].json["messages"][-1]["content"]

    asyncio.run(go())


@pytest.mark.parametrize("command", ["/stop", "/new", "/undo"])
def test_commands_close_it_and_the_card_says_why(db: SessionDB, home: Path, command: str) -> None:
    async def go() -> None:
        with steps() as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                card = await put_down(here, db)
                await here.chat.say(command, OWNER)
                await here.until(lambda: "no longer needed" in card.text)
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: any("too late" in text for text in here.chat.chat(OWNER)))
                await here.quiet()
            assert (folder / "old").exists() and not db.turns.waiting() and len(model.requests) == 1

    asyncio.run(go())


def test_nobody_answers_at_all(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps() as model:
            async with gateway(db, home, model) as here:
                workspace(here)
                card = await put_down(here, db)
                db.clock.advance(25 * 3_600)  # type: ignore[attr-defined]
                await here.parts.lanes.recover()
                await here.until(lambda: "nobody answered" in card.text)
                await here.quiet()
            (turn,) = db.turns.list()
            assert (turn.state, turn.reason) == ("cancelled", "nobody answered its question")

    asyncio.run(go())
