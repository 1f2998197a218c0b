"""A plain yes or no, and a bare /approve: they answer the question that was read, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway
from tests.support.sample_store import grants_of

from hermes_state import SessionDB
from hermes_state.turns.approvals import Approval
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter, Shown
from hermes_testing.scripted.model import ScriptedModel, always, call, say

pytestmark = pytest.mark.slow

OWNER, ADMIN = "42", "7"
COMMAND, OTHER = "rm -rf old", "rm -rf important"
Case = Callable[[PretendGateway, Shown], Awaitable[None]]


def gateway(db: SessionDB, home: Path, model: ScriptedModel, **more: Any) -> PretendGateway:
    config = {"gateway": {"admins": [f"telegram:{ADMIN}"]}, "streaming": {"enabled": False}, **more}
    return PretendGateway(db, home, model, adapter=PretendAdapter(edits=True), **config)


def wants(*commands: str) -> list[Any]:
    return [say(calls=[call("terminal", {"command": command})]) for command in commands]


async def cards(here: PretendGateway, count: int = 1) -> list[Shown]:
    """So many questions as they stand in chats, all of them counted as delivered."""

    def delivered() -> list[Shown]:
        items = [item for item in here.db.outbox.list() if item.payload.get("kind") == "question"]
        found = [one for one in here.chat.messages if one.buttons]
        return found if len(found) == count and all(item.state == "sent" for item in items) else []

    return await here.until(delivered)


def number(shown: Shown) -> str:
    return shown.buttons[0][0].answer.id


def row(db: SessionDB, shown: Shown) -> Approval:
    found = db.approvals.get(number(shown))
    assert found is not None
    return found


def asked_once(db: SessionDB, home: Path, case: Case) -> None:
    """One question of the owner's own turn; then `case`."""

    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", OWNER)
                (shown,) = await cards(here)
                await case(here, shown)
                await here.chat.say(f"/deny {number(shown)}", OWNER)
                await here.quiet()

    asyncio.run(go())


async def decided(here: PretendGateway, shown: Shown) -> Approval:
    await here.until(lambda: row(here.db, shown).state != "pending")
    return row(here.db, shown)


async def not_decided(here: PretendGateway, shown: Shown, said: str) -> None:
    await here.until(lambda: any(said in text for text in here.chat.chat(OWNER)))
    assert row(here.db, shown).state == "pending"


@pytest.mark.parametrize("word", ["yes", "OK", "Ja.", "好的"])
def test_a_plain_yes_to_the_only_question_is_once_and_repeats_the_command(
    db: SessionDB, home: Path, clock: Clock, word: str
) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(3)
        receipt = await here.chat.say(word, OWNER)
        assert (await decided(here, shown)).scope == "once"
        await here.until(lambda: f"Allowed, this once: {COMMAND}" in here.chat.chat(OWNER))
        await here.until(lambda: "Done." in here.chat.chat(OWNER))
        assert receipt.inbox_id is not None
        kept = db.inbox.get(receipt.inbox_id)
        assert kept is not None and kept.state == "answered", "a message has one outcome"

    asked_once(db, home, case)


def test_a_plain_no_denies(db: SessionDB, home: Path, clock: Clock) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(3)
        await here.chat.say("nein", OWNER)
        assert (await decided(here, shown)).state == "denied"
        await here.until(lambda: f"Denied: {COMMAND}" in here.chat.chat(OWNER))

    asked_once(db, home, case)


@pytest.mark.parametrize("word", ["yes", "/approve"])
def test_in_the_first_three_seconds_nobody_has_read_it(db: SessionDB, home: Path, clock: Clock, word: str) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(2.5)
        await here.chat.say(word, OWNER)
        await not_decided(here, shown, "only just appeared")
        clock.advance(1)
        await here.chat.say(word, OWNER)
        assert (await decided(here, shown)).scope == "once"

    asked_once(db, home, case)


def test_what_was_written_before_the_card_came_does_not_answer_it(db: SessionDB, home: Path, clock: Clock) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        written = clock() - 2
        clock.advance(20)
        await here.chat.say("ok", OWNER, at=written)
        await not_decided(here, shown, "only just appeared")

    asked_once(db, home, case)


@pytest.mark.parametrize("word", ["yes", "/approve task"])
def test_a_reply_to_the_card_counts_at_once(db: SessionDB, home: Path, word: str) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        await here.chat.say(word, OWNER, reply_to_message_id=shown.id)
        assert (await decided(here, shown)).scope == ("once" if word == "yes" else "task")

    asked_once(db, home, case)


def test_a_reply_to_something_else_is_for_the_model(db: SessionDB, home: Path, clock: Clock) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(5)
        receipt = await here.chat.say("yes", OWNER, reply_to_message_id="999", reply_to_text="Shall we?")
        await here.chat.say("/approve", OWNER, reply_to_message_id="999")
        await not_decided(here, shown, "not an open question")
        assert receipt.inbox_id is not None
        kept = db.inbox.get(receipt.inbox_id)
        assert kept is not None and kept.state == "queued", "it waits behind the turn that asks"

    asked_once(db, home, case)


@pytest.mark.parametrize("words", ["yes please", "ok, and then?", "always", "no idea what that is"])
def test_anything_longer_is_for_the_model_and_leaves_the_question_open(
    db: SessionDB, home: Path, clock: Clock, words: str
) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", OWNER)
                (shown,) = await cards(here)
                clock.advance(5)
                await here.chat.say(words, OWNER)
                await asyncio.sleep(0.3)
                assert row(db, shown).state == "pending", "not even interrupted"
                await here.chat.press(shown.buttons[1][0], OWNER)
                await here.until(lambda: here.chat.chat(OWNER).count("Done.") == 2)
                await here.quiet()
                assert model.requests[-1].json["messages"][-1]["content"].endswith(words)

    asyncio.run(go())


def test_always_needs_the_button_or_the_id(db: SessionDB, home: Path, clock: Clock) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(5)
        await here.chat.say("/approve always", OWNER)
        await not_decided(here, shown, "To allow this always, name the question: /approve ID always")
        await here.chat.say(f"/approve {number(shown)} always", OWNER)
        assert (await decided(here, shown)).scope == "always"

    asked_once(db, home, case)


@pytest.mark.parametrize("word", ["yes", "/approve"])
def test_of_two_open_questions_neither_is_meant(db: SessionDB, home: Path, clock: Clock, word: str) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND, OTHER), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                await cards(here)
                await here.chat.say("tidy up", OWNER)
                first, second = await cards(here, 2)
                clock.advance(5)
                await here.chat.say(word, OWNER)
                await not_decided(here, first, "2 questions open")
                assert row(db, second).state == "pending"
                await here.chat.say("yes", OWNER, reply_to_message_id=second.id)
                assert (await decided(here, second)).scope == "once" and row(db, first).state == "pending"
                await here.chat.say(f"/deny {number(first)}", OWNER)
                await here.quiet()

    asyncio.run(go())


def test_a_word_for_a_question_that_expired_does_not_answer_the_next(db: SessionDB, home: Path, clock: Clock) -> None:
    """Somebody reads the first card; it expires, and the second stands there when their word arrives."""

    async def go() -> None:
        with ScriptedModel(*wants(COMMAND, OTHER), always(say("Done."))) as model:
            async with gateway(db, home, model, approvals={"timeout": 1.5, "open_hours": 0}) as here:
                await here.chat.say("tidy up", OWNER)
                (first,) = await cards(here)
                second = (await here.until(lambda: [one for one in here.chat.messages if OTHER in one.text]))[0]
                await here.chat.say("/approve", OWNER)
                await here.chat.say("yes", OWNER)
                await here.until(lambda: sum("only just appeared" in one for one in here.chat.chat(OWNER)) == 2)
                assert {row(db, one).scope for one in (first, second)} == {None}
                await here.quiet()

    asyncio.run(go())


def test_when_another_question_expired_meanwhile_nobody_knows_which_was_read(
    db: SessionDB, home: Path, clock: Clock
) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND, OTHER), always(say("Done."))) as model:
            async with gateway(db, home, model, approvals={"timeout": 3, "open_hours": 0}) as here:
                await here.chat.say("tidy up", ADMIN)
                (first,) = await cards(here)
                await asyncio.sleep(1.2)
                await here.chat.say("tidy up", OWNER)
                (_, second) = await cards(here, 2)
                clock.advance(5)
                await here.until(lambda: "nobody answered in time" in here.chat.messages[0].text)
                await here.chat.say("yes", OWNER)
                await not_decided(here, second, "another question has expired meanwhile")
                await here.chat.say(f"/deny {number(second)}", OWNER)
                await here.quiet()
                assert row(db, first).scope is None

    asyncio.run(go())


def test_after_the_question_a_yes_is_for_the_model(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", OWNER)
                (shown,) = await cards(here)
                clock.advance(5)
                await here.chat.say("no", OWNER)
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                await here.quiet()
                await here.chat.say("yes", OWNER)
                await here.until(lambda: here.chat.chat(OWNER).count("Done.") == 2)
                await here.quiet()
                assert row(db, shown).state == "denied"

    asyncio.run(go())


@pytest.mark.parametrize("who", [ADMIN, "8"])
def test_a_plain_yes_of_somebody_else_answers_nothing(db: SessionDB, home: Path, clock: Clock, who: str) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                (shown,) = await cards(here)
                clock.advance(5)
                await here.chat.say("yes", who, reply_to_message_id=shown.id)
                await asyncio.sleep(0.3)
                assert row(db, shown).state == "pending"
                await here.chat.say("no", OWNER)
                assert (await decided(here, shown)).state == "denied"
                await here.quiet()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("words", "uses", "ends"),
    [("3 times", 3, False), ("1 time", 1, False), ("until 23:59", None, True), ("conversation", None, False)],
)
def test_a_yes_may_have_an_end(
    db: SessionDB, home: Path, clock: Clock, words: str, uses: int | None, ends: bool
) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        await here.chat.say(f"/approve {number(shown)} {words}", OWNER)
        assert (await decided(here, shown)).scope == "session"
        (grant,) = grants_of(db, number(shown))
        assert grant.span == "conversation" and (grant.expires_at is not None) == ends
        assert grant.expires_at is None or clock() < grant.expires_at <= clock() + 86_400
        await here.until(lambda: grants_of(db, number(shown))[0].uses_left == (uses - 1 if uses else None))
        said = (await here.until(lambda: [one for one in here.chat.chat(OWNER) if one.startswith("Allowed")]))[0]
        assert COMMAND in said and (words == "conversation" or words in said)

    asked_once(db, home, case)


def test_a_yes_that_came_while_the_gateway_was_away_counts(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            adapter = PretendAdapter(edits=True)
            first = PretendGateway(db, home, model, adapter=adapter, streaming={"enabled": False})
            await first.start()
            first.runner._restart_drain_timeout = 0.05
            await adapter.say("tidy up", OWNER)
            (shown,) = await cards(first)
            await first.runner.stop()
            clock.advance(5)
            async with PretendGateway(db, home, model, adapter=adapter, streaming={"enabled": False}) as here:
                await adapter.say("yes", OWNER)
                assert (await decided(here, shown)).scope == "once"
                await here.until(lambda: "Done." in adapter.chat(OWNER))
                await here.quiet()
            assert len(model.requests) == 2, "it was an answer, and no message for the model"

    asyncio.run(go())


def test_a_yes_from_before_the_question_is_for_the_model(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(*wants("sleep 1", COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model, display={"busy_input_mode": "queue"}) as here:
                await here.chat.say("tidy up", OWNER)
                await here.until(lambda: len(model.requests) >= 1)
                clock.advance(1)
                await here.chat.say("yes", OWNER)
                (shown,) = await cards(here)
                clock.advance(5)
                await asyncio.sleep(0.3)
                assert row(db, shown).state == "pending"
                await here.chat.say("no", OWNER)
                assert (await decided(here, shown)).state == "denied"
                await here.until(lambda: here.chat.chat(OWNER).count("Done.") == 2)
                await here.quiet()
                assert model.requests[-1].json["messages"][-1]["content"].endswith("yes")

    asyncio.run(go())


def test_words_that_mean_nothing_decide_nothing(db: SessionDB, home: Path, clock: Clock) -> None:
    async def case(here: PretendGateway, shown: Shown) -> None:
        clock.advance(5)
        for words in ("for ever", "0 times", "until 25:00", "ask_1 ask_2", "5000 times"):
            await here.chat.say(f"/approve {words}", OWNER)
        await here.until(lambda: len([one for one in here.chat.chat(OWNER) if "/approve [ID]" in one]) >= 4)
        assert row(here.db, shown).state == "pending"

    asked_once(db, home, case)


def test_a_word_in_another_thread_is_not_for_the_question(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(*wants(COMMAND), always(say("Done."))) as model:
            async with gateway(db, home, model) as here:
                threads = [here.chat.source(OWNER, thread_id=thread) for thread in ("1", "2")]
                await here.chat.say("tidy up", OWNER, source=threads[0])
                (shown,) = await cards(here)
                clock.advance(5)
                await here.chat.say("yes", OWNER, source=threads[1])
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                assert row(db, shown).state == "pending", "it was for the model, in the thread in which it was said"
                await here.chat.say("yes", OWNER, source=threads[0])
                assert (await decided(here, shown)).scope == "once"
                await here.quiet()

    asyncio.run(go())
