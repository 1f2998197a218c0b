"""The model asks a person in the middle of a turn: buttons, own words, a number, nobody else, and a restart."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway.chat.approvals import Questions
from gateway.platforms.base import Answer
from hermes_state import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter, Shown
from hermes_testing.scripted.model import ScriptedModel, call, say

OWNER, MEMBER = "42", "8"
QUESTION = "Which city?"
CHOICES = ["Lisbon", "Porto"]


def asks(choices: list[str] | None = None) -> ScriptedModel:
    args = {"question": QUESTION, "choices": CHOICES if choices is None else choices}
    return ScriptedModel(say(calls=[call("clarify", args)]), say("Booked."))


def gateway(db: SessionDB, home: Path, model: ScriptedModel, adapter: PretendAdapter | None = None) -> PretendGateway:
    made = adapter or PretendAdapter(edits=True)
    return PretendGateway(db, home, model, adapter=made, streaming={"enabled": False})


async def question(here: PretendGateway) -> Shown:
    found: list[Shown] = await here.until(lambda: [one for one in here.chat.messages if QUESTION in one.text])
    return found[0]


def answer_of(model: ScriptedModel) -> str:
    return str(next(one["content"] for one in model.requests[1].json["messages"] if one["role"] == "tool"))


def test_a_button_answers_and_the_question_shows_it(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("book a trip", MEMBER)
                shown = await question(here)
                assert [row[0].label for row in shown.buttons] == CHOICES
                await here.chat.press(shown.buttons[1][0], MEMBER)
                await here.until(lambda: "Booked." in here.chat.chat(MEMBER))
                await here.until(lambda: any("→ Porto" in text for text in here.chat.chat(MEMBER)))
                await here.quiet()
            assert answer_of(model) == "The person answers: Porto"

    asyncio.run(go())


def test_nobody_is_asked_in_a_chat_whose_answers_are_held(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                db.held_answers.hold_chat("telegram", MEMBER, True, by=None)
                await here.chat.say("book a trip", MEMBER)
                await here.until(lambda: len(db.held_answers.list()) == 1)
                await here.quiet()
                assert here.chat.chat(MEMBER) == []
            assert answer_of(model).startswith("Nobody can be asked here.")

    asyncio.run(go())


@pytest.mark.parametrize("typed, heard", [("Faro, please", "Faro, please"), ("1", "Lisbon"), ("9", "9")])
def test_the_next_words_answer_where_there_are_no_buttons(db: SessionDB, home: Path, typed: str, heard: str) -> None:
    async def go() -> None:
        adapter = PretendAdapter()
        adapter.supports_buttons = False
        with asks() as model:
            async with gateway(db, home, model, adapter) as here:
                await adapter.say("book a trip", MEMBER)
                shown = await question(here)
                assert "1. Lisbon" in shown.text and not shown.buttons
                await adapter.say(typed, MEMBER)
                await here.until(lambda: "Booked." in adapter.chat(MEMBER))
                await here.quiet()
                assert set(here.outcomes().values()) == {"answered"}
            assert answer_of(model) == f"The person answers: {heard}"
            assert len(model.requests) == 2

    asyncio.run(go())


def test_nobody_else_answers_and_commands_stay_commands(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            model.add(say("Hello you."))
            async with gateway(db, home, model) as here:
                await here.chat.say("book a trip", MEMBER)
                shown = await question(here)
                press = shown.buttons[0][0].answer
                await here.chat.answer(press, OWNER)
                await here.chat.answer(Answer(kind="clarify", id=press.id, choice="7"), MEMBER)
                await here.chat.answer(Answer(kind="clarify", id="clr_0000", choice="0"), MEMBER)
                await here.chat.say("/status", MEMBER)
                await here.until(lambda: any("running" in text for text in here.chat.chat(MEMBER)))
                assert any("This question is closed." in text for text in here.chat.chat(OWNER))
                await here.chat.press(shown.buttons[0][0], MEMBER)
                await here.until(lambda: "Booked." in here.chat.chat(MEMBER))
                await here.chat.say("hi", MEMBER)
                await here.until(lambda: "Hello you." in here.chat.chat(MEMBER))
                await here.quiet()
            assert answer_of(model) == "The person answers: Lisbon"

    asyncio.run(go())


def test_in_a_room_the_words_of_others_are_not_the_answer(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            model.add(say("And you?"))
            here = PretendGateway(
                db, home, model, adapter=PretendAdapter(), group_sessions_per_user=False,
                platforms={"telegram": {"extra": {"group_sessions_per_user": False}}}, streaming={"enabled": False},
            )  # fmt: skip
            async with here:
                await here.chat.say("book a trip", MEMBER, group=True)
                await question(here)
                await here.chat.say("Faro!", "7", group=True)
                await asyncio.sleep(0.1)
                assert len(model.requests) == 1
                await here.chat.say("Porto", MEMBER, group=True)
                await here.until(lambda: "And you?" in here.chat.chat("-100"))
                await here.quiet()
            assert answer_of(model) == "The person answers: Porto"

    asyncio.run(go())


def test_it_lapses_and_words_that_come_too_late_are_a_message(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            model.add(say("A new turn."))
            here = gateway(db, home, model)
            async with here:
                questions = here.runner._questions
                assert isinstance(questions, Questions)
                questions.clarifier._seconds = 0.3
                await here.chat.say("book a trip", MEMBER)
                await here.until(lambda: "Booked." in here.chat.chat(MEMBER))
                await here.until(lambda: any("→ nobody answered" in text for text in here.chat.chat(MEMBER)))
                await here.chat.say("Porto", MEMBER)
                await here.until(lambda: "A new turn." in here.chat.chat(MEMBER))
                await here.quiet()
            assert "gave no answer" in answer_of(model)

    asyncio.run(go())


def test_a_platform_that_does_not_answer_for_the_closed_question_holds_up_nothing(
    db: SessionDB, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        with caplog.at_level(logging.INFO), asks() as model:
            async with gateway(db, home, model) as here:
                db.limits = db.limits.changed(send_seconds=1)
                await here.chat.say("book a trip", MEMBER)
                shown = await question(here)
                here.chat.delay = 60
                await here.chat.press(shown.buttons[1][0], MEMBER)
                await here.until(lambda: "a closed question still shows its buttons" in caplog.text)
                here.chat.delay = 0

    asyncio.run(go())


def test_a_restart_asks_once_and_what_was_written_meanwhile_is_the_answer(
    db: SessionDB, home: Path, clock: Clock
) -> None:
    async def go() -> None:
        with asks() as model:
            adapter = PretendAdapter(edits=True)
            first = gateway(db, home, model, adapter)
            await first.start()
            first.runner._restart_drain_timeout = 0.05
            await adapter.say("book a trip", MEMBER)
            await question(first)
            await first.runner.stop()
            clock.advance(1)
            await adapter.say("Porto", MEMBER)  # stored, and nobody there to read it
            async with gateway(db, home, model, adapter) as here:
                await here.until(lambda: "Booked." in adapter.chat(MEMBER))
                await here.quiet()
                assert len([text for text in adapter.chat(MEMBER) if QUESTION in text]) == 1
            assert answer_of(model) == "The person answers: Porto"

    asyncio.run(go())
