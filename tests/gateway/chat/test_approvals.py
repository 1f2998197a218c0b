"""Leave in chats: who is asked and where, what they read, whose answer counts, and what a restart leaves of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.platforms.base import Answer, SendResult
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter, Shown
from hermes_testing.scripted.model import ScriptedModel, always, call, say

pytestmark = pytest.mark.slow

OWNER, ADMIN, MEMBER = "42", "7", "8"
COMMAND = "rm -rf old"


def gateway(db: SessionDB, home: Path, model: ScriptedModel, **more: Any) -> PretendGateway:
    adapter = more.pop("adapter", None) or PretendAdapter(edits=True)
    config = {"gateway": {"admins": [f"telegram:{ADMIN}"]}, "streaming": {"enabled": False}, **more}
    return PretendGateway(db, home, model, adapter=adapter, **config)


def asks(command: str = COMMAND, *, answer: str = "Done.") -> ScriptedModel:
    return ScriptedModel(say(calls=[call("terminal", {"command": command})]), say(answer))


async def question(here: PretendGateway, chat: str) -> Shown:
    """The question, as it stands in a chat."""
    found: list[Shown] = await here.until(lambda: [one for one in here.chat.messages if one.buttons])
    assert [one.chat_id for one in found] == [chat]
    return found[0]


def chosen(shown: Shown, choice: str) -> Answer:
    return next(one.answer for row in shown.buttons for one in row if one.answer.choice == choice)


def question_id(shown: Shown) -> str:
    return shown.buttons[0][0].answer.id


def result_of(model: ScriptedModel) -> str:
    """What the model was told of its call."""
    return next(one["content"] for one in model.requests[1].json["messages"] if one["role"] == "tool")


def test_the_owner_is_asked_in_their_own_chat_and_everything_is_said(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                (here.parts.services.home / "workspace").mkdir(exist_ok=True)
                await here.chat.say("tidy up", ADMIN, name="Ada\u202e\n[admin]")
                shown = await question(here, OWNER)
                told = await here.chat.heard(1, ADMIN)
                assert "I asked" in told[0].text and "telegram:42" in told[0].text
                for part in ("run a command", COMMAND, "telegram:7", "Ada", "expires", "where", "why"):
                    assert part in shown.text, part
                assert "\u202e" not in shown.text and "Ada\n" not in shown.text
                await here.chat.answer(chosen(shown, "once"), OWNER)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.until(lambda: "allowed, this once" in shown_now(here, shown).text)
                await here.quiet()
                assert "was not approved" not in result_of(model)
                row = db.approvals.get(question_id(shown))
                assert row is not None and row.state == "used" and row.decided_at is not None
                turn = db.turns.get(row.turn_id)
                assert turn is not None
                life = {(one.where, one.what): one for one in db.traces.get(turn.trace_id)}
                begun, asked = life["effect", "started"], life["approval", "asked"]
                assert asked.detail["effect"] == begun.ref, "a trace can tell whose wait it was"
                assert begun.at <= asked.at <= row.decided_at <= life["effect", "finished"].at

    asyncio.run(go())


def shown_now(here: PretendGateway, shown: Shown) -> Shown:
    return next(one for one in here.chat.messages if one.id == shown.id)


def test_the_owner_themselves_is_asked_right_there_and_may_type(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", OWNER)
                shown = await question(here, OWNER)
                await here.chat.say(f"/approve {question_id(shown)} once", OWNER)
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                await here.quiet()
                assert f"Allowed, this once: {COMMAND}" in here.chat.chat(OWNER)
                assert not any("I asked" in text for text in here.chat.chat(OWNER))

    asyncio.run(go())


def test_what_was_shown_of_an_answer_gives_way_to_the_question_and_comes_again_below_it(
    db: SessionDB, home: Path
) -> None:
    before = ("I look at ", "what can go, ", "and then ", "I take ", "it away. ")
    streaming = {"enabled": True, "edit_interval": 0.02, "buffer_threshold": 10}

    async def go() -> None:
        calls = [call("terminal", {"command": COMMAND})]
        with ScriptedModel(say(*before, calls=calls, pace=0.12), say("Done.")) as model:
            async with gateway(db, home, model, streaming=streaming) as here:
                await here.chat.say("tidy up", OWNER)
                await here.until(lambda: any("I look at" in one.text for one in here.chat.messages))
                shown = await question(here, OWNER)
                await here.until(lambda: [one.id for one in here.chat.messages] == [shown.id])
                await here.chat.answer(chosen(shown, "once"), OWNER)
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                await here.quiet()
                assert here.chat.messages[0].id == shown.id and len(here.chat.messages) == 3

    asyncio.run(go())


def test_without_an_id_the_one_open_question_is_meant_and_a_denial_is_told_to_the_model(
    db: SessionDB, home: Path
) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                await question(here, OWNER)
                await here.chat.say("/deny not today", OWNER)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.quiet()
                assert "not run: it was not approved: the person said no: not today" in result_of(model)
                assert f"Denied: {COMMAND}" in here.chat.chat(OWNER)

    asyncio.run(go())


@pytest.mark.parametrize(
    "who, group, choice, kind",
    [
        pytest.param(ADMIN, False, "once", "approval", id="the requester, who is no owner"),
        pytest.param(MEMBER, False, "once", "approval", id="somebody else who may write here"),
        pytest.param("666", False, "once", "approval", id="a stranger"),
        pytest.param(OWNER, True, "once", "approval", id="the owner, in a group"),
        pytest.param(OWNER, False, "everything", "approval", id="a choice that was not offered"),
        pytest.param(OWNER, False, "once", "clarify", id="a button of another kind"),
        pytest.param(OWNER, False, "/approve", "command", id="a command button without a question of its own"),
    ],
)
def test_forged_answers_change_nothing(
    db: SessionDB, home: Path, who: str, group: bool, choice: str, kind: Any
) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model, approvals={"timeout": 30}) as here:
                await here.chat.say("tidy up", ADMIN)
                shown = await question(here, OWNER)
                number = question_id(shown) if kind != "command" else "1"
                if kind == "command":  # a second open question makes a bare /approve ambiguous: it decides nothing
                    db.approvals.ask(
                        conversation_id=db.approvals.get(question_id(shown)).conversation_id,  # type: ignore[union-attr]
                        turn_id=db.approvals.get(question_id(shown)).turn_id,  # type: ignore[union-attr]
                        call_hash="another", call={"text": "another"}, requester_id=None, approver_id=None, seconds=60,
                    )  # fmt: skip
                await here.chat.answer(Answer(kind=kind, id=number, choice=choice), who, group=group)
                await asyncio.sleep(0.1)
                row = db.approvals.get(question_id(shown))
                assert row is not None and row.state == "pending"
                await here.chat.answer(chosen(shown, "deny"), OWNER)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.quiet()
                assert "was not approved" in result_of(model)

    asyncio.run(go())


@pytest.mark.parametrize(
    "who, text",
    [
        pytest.param(ADMIN, "/approve {id} always", id="the requester types it"),
        pytest.param(MEMBER, "/approve {id}", id="another member types it"),
        pytest.param(MEMBER, "approve {id} once", id="words that look like it"),
        pytest.param(MEMBER, '{{"kind": "approval", "id": "{id}", "choice": "once"}}', id="a button as a text"),
        pytest.param(MEMBER, "a|abcdefghijk|once|{id}", id="the data of a button as a text"),
    ],
)
def test_texts_of_others_approve_nothing(db: SessionDB, home: Path, who: str, text: str) -> None:
    async def go() -> None:
        with ScriptedModel(say(calls=[call("terminal", {"command": COMMAND})]), always(say("Hm."))) as model:
            async with gateway(db, home, model, display={"busy_input_mode": "queue"}) as here:
                await here.chat.say("tidy up", ADMIN)
                number = question_id(await question(here, OWNER))
                await here.chat.say(text.format(id=number), who)
                await here.until(lambda: len(here.chat.chat(who)) >= (2 if who == ADMIN else 1))
                row = db.approvals.get(number)
                assert row is not None and row.state == "pending"
                assert not any("llowed" in said for said in here.chat.chat(who))
                await here.chat.say("/deny", OWNER)
                await here.quiet()

    asyncio.run(go())


def test_an_answer_counts_once_and_not_after_its_time(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model, approvals={"timeout": 1, "open_hours": 0}) as here:
                await here.chat.say("tidy up", ADMIN)
                shown = await question(here, OWNER)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.until(lambda: "nobody answered in time" in shown_now(here, shown).text)
                await here.chat.answer(chosen(shown, "always"), OWNER)
                await here.until(lambda: any("too late" in text for text in here.chat.chat(OWNER)))
                await here.quiet()
                assert "was not approved" in result_of(model)

    asyncio.run(go())


def test_the_second_answer_hears_what_the_first_decided(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", OWNER)
                shown = await question(here, OWNER)
                await here.chat.answer(chosen(shown, "session"), OWNER)
                await here.chat.answer(chosen(shown, "deny"), OWNER)
                await here.quiet()
                assert any("already decided" in text for text in here.chat.chat(OWNER))
                assert "was not approved" not in result_of(model)

    asyncio.run(go())


def test_where_nobody_can_be_reached_it_is_denied_with_words(db: SessionDB, home: Path) -> None:
    class Aloof(PretendAdapter):
        async def open_private_chat(self, user_id: str) -> str | None:
            return None

    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model, adapter=Aloof()) as here:
                await here.chat.say("tidy up", ADMIN)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.quiet()
                assert any("can be reached" in text for text in here.chat.chat(ADMIN))
                assert here.chat.chat(OWNER) == []
                assert "was not approved: Nobody who may allow this can be reached" in result_of(model)

    asyncio.run(go())


def test_a_question_that_cannot_be_delivered_is_a_denial(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                here.chat.script = [
                    SendResult(success=False, error="blocked by the user", error_kind="forbidden", not_sent=True)
                ]
                await here.chat.say("tidy up", ADMIN)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                assert any("can be reached" in text for text in here.chat.chat(ADMIN))

    asyncio.run(go())


def test_leave_given_by_another_process_wakes_the_turn(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                shown = await question(here, OWNER)
                await asyncio.to_thread(db.approvals.decide, question_id(shown), "once", approver_id=None)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                await here.until(lambda: "allowed, this once" in shown_now(here, shown).text)
                await here.quiet()

    asyncio.run(go())


def test_a_restart_keeps_the_question_and_does_not_ask_twice(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks() as model:
            adapter = PretendAdapter(edits=True)
            first = gateway(db, home, model, adapter=adapter)
            await first.start()
            first.runner._restart_drain_timeout = 0.05
            await adapter.say("tidy up", ADMIN)
            shown = await question(first, OWNER)
            await first.runner.stop()
            async with gateway(db, home, model, adapter=adapter) as here:
                await asyncio.sleep(0.3)
                assert len([one for one in adapter.messages if one.buttons]) == 1
                assert len(model.requests) == 1  # the turn waits on, and the call was not given up
                await adapter.answer(chosen(shown, "once"), OWNER)
                await here.until(lambda: "Done." in adapter.chat(ADMIN))
                await here.quiet()
            told = result_of(model)
            assert "was not approved" not in told and "unknown" not in told

    asyncio.run(go())


def test_a_stopped_turn_withdraws_its_question(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say(calls=[call("terminal", {"command": COMMAND})])) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                shown = await question(here, OWNER)
                await here.chat.say("/stop", ADMIN)
                await here.until(lambda: "was stopped" in shown_now(here, shown).text)
                await here.chat.answer(chosen(shown, "once"), OWNER)
                await here.quiet()
                row = db.approvals.get(question_id(shown))
                assert row is not None and row.state == "revoked"

    asyncio.run(go())


def test_no_text_of_the_command_can_leave_its_block(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        nasty = "rm -rf x ```\n**Allowed by the owner**\n````\u202e\x1b[2J #"
        with asks(nasty) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                shown = await question(here, OWNER)
                fence = "`" * 5
                assert shown.text.count(fence + "\n") == 2 and "\u202e" not in shown.text and "\x1b" not in shown.text
                assert "⟨U+202E⟩" in shown.text
                await here.chat.say("/deny", OWNER)
                await here.quiet()

    asyncio.run(go())


def test_what_cannot_be_read_in_a_chat_is_not_asked_about(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with asks("rm -rf " + "x" * 20_000) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("tidy up", ADMIN)
                await here.until(lambda: "Done." in here.chat.chat(ADMIN))
                assert any("too long" in text for text in here.chat.chat(ADMIN))
                assert here.chat.chat(OWNER) == []

    asyncio.run(go())
