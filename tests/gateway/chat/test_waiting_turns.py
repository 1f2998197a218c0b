"""A question that nobody answers leaves its turn waiting: through messages in between, restarts, and other chats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.platforms.base import Answer
from hermes_cli.main import main
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter, Shown
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say

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


async def put_down(here: PretendGateway, db: SessionDB, **more: Any) -> Shown:
    """Ask for something, and wait until nobody has answered: the card."""
    await here.chat.say("tidy up", OWNER, **more)
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


@pytest.mark.parametrize("thread", [None, "1"])
def test_a_plain_word_answers_it_after_a_restart(db: SessionDB, home: Path, thread: str | None) -> None:
    async def go() -> None:
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder, where = workspace(here), here.chat.source(OWNER, thread_id=thread)
                card = await put_down(here, db, source=where)
                await here.quiet()
                chat = here.chat
            async with gateway(db, home, model, adapter=chat) as here:
                db.clock.advance(60)  # type: ignore[attr-defined]
                await here.chat.say("yes", OWNER, source=where)
                await here.until(lambda: "allowed, this once" in card.text)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
                assert not (folder / "old").exists(), "it was an answer, and no message for the model"

    asyncio.run(go())


def test_the_message_that_asked_is_not_said_since_when_the_clocks_differ(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        clock: Any = db.clock
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                clock.advance(40)
                await here.chat.say("tidy up", OWNER)
                clock.advance(-40)  # the card gets an earlier time than the message that led to it
                await here.until(db.turns.waiting)
                await here.quiet()
                clock.advance(60)
                await here.chat.say("yes", OWNER)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
                assert not (folder / "old").exists(), "it was an answer, and no message for the model"

    asyncio.run(go())


def test_a_word_that_came_too_early_can_be_said_again(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        clock: Any = db.clock
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                await put_down(here, db)
                await here.quiet()
                await here.chat.say("yes", OWNER, at=clock() - 60)
                await here.until(lambda: any("say it again" in text for text in here.chat.chat(OWNER)))
                await here.quiet()
                clock.advance(60)
                await here.chat.say("yes", OWNER)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
                assert not (folder / "old").exists(), "it was an answer, and no message for the model"

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


def test_it_continues_as_soon_as_the_turn_that_runs_has_ended(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with steps(say("Once ", "upon a time.", hold=hold), say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                card = await put_down(here, db)
                await here.chat.say("tell me a story", OWNER)
                await hold.reached()
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: "allowed, this once" in card.text)
                assert (folder / "old").exists()
                hold.release()
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER), seconds=5)
                await here.quiet()
            assert (folder / "log.txt").read_text() == "gone\n"

    asyncio.run(go())


@pytest.mark.parametrize("command", ["/stop", "/new", "hermes turns cancel"])
def test_what_was_allowed_from_now_on_stays_allowed_when_its_turn_is_closed(
    db: SessionDB, home: Path, address: str | Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_DATABASE_URL", address if isinstance(address, str) else f"sqlite:///{address}")

    async def go() -> None:
        hold = Hold()
        with steps(say("Once ", "upon a time.", hold=hold)) as model:
            async with gateway(db, home, model) as here:
                workspace(here)
                card = await put_down(here, db)
                await here.chat.say("tell me a story", OWNER)
                await hold.reached()
                await here.chat.answer(pressed(card, "always"), OWNER)
                await here.until(lambda: any(text.startswith("Allowed from now on") for text in here.chat.chat(OWNER)))
                if command.startswith("/"):
                    await here.chat.say(command, OWNER)
                    await here.until(lambda: "no longer needed" in card.text)
                else:
                    (turn,) = db.turns.waiting()
                    assert await asyncio.to_thread(main, ["turns", "cancel", turn.id]) == 0
                hold.release()
                await here.quiet()
            assert not db.turns.waiting() and [grant.span for grant in db.approvals.grants()] == ["always"]

    asyncio.run(go())


def test_a_reset_closes_it_and_the_card_says_why(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps(say("Hello.")) as model:
            async with gateway(db, home, model, session_reset={"mode": "idle", "idle_minutes": 60}) as here:
                folder = workspace(here)
                card = await put_down(here, db)
                db.clock.advance(2 * 3_600)  # type: ignore[attr-defined]
                await here.chat.say("hello", OWNER)
                await here.until(lambda: "Hello." in here.chat.chat(OWNER))
                await here.until(lambda: "this chat is now in another conversation" in card.text)
                await here.quiet()
            assert (folder / "old").exists() and not db.turns.waiting() and not db.approvals.pending()

    asyncio.run(go())


def test_compressing_its_step_closes_it_and_the_card_says_why(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        stories = [say(f"Story {number}. {'word ' * 1_500}") for number in range(6)]
        asks = say(calls=[call("terminal", {"command": COMMAND})])
        with ScriptedModel(*stories[:3], asks, *stories[3:], say("A summary.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                for number in range(6):
                    if number == 3:
                        card = await put_down(here, db)
                    await here.chat.say(f"story {number}", OWNER)
                    await here.until(lambda n=number: any(f"Story {n}." in one for one in here.chat.chat(OWNER)))
                await here.chat.say("/compress", OWNER)
                await here.until(lambda: "no longer part of this conversation" in card.text)
                await here.quiet()
            assert (folder / "old").exists() and not db.turns.waiting() and not db.approvals.pending()

    asyncio.run(go())


def test_after_a_compression_that_keeps_its_step_the_answer_of_another_process_is_seen_at_once(
    db: SessionDB, home: Path
) -> None:
    async def go() -> None:
        stories = [say(f"Story {number}. {'word ' * 1_500}") for number in range(6)]
        asks = say(calls=[call("terminal", {"command": COMMAND})])
        with ScriptedModel(*stories, asks, say("A summary."), say("Tidied up.")) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                for number in range(6):
                    await here.chat.say(f"story {number}", OWNER)
                    await here.until(lambda n=number: any(f"Story {n}." in one for one in here.chat.chat(OWNER)))
                await put_down(here, db)
                await here.chat.say("/compress", OWNER)
                await here.until(lambda: any(text.startswith("Compressed") for text in here.chat.chat(OWNER)))
                await asyncio.sleep(1.5)  # it is looked at once a second
                (turn,) = db.turns.waiting()
                assert db.approvals.decide(turn.reason or "", "once", approver_id=None) is not None
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER), seconds=6)
                await here.quiet()
            assert not (folder / "old").exists()

    asyncio.run(go())


def test_an_answer_after_the_chat_went_elsewhere_comes_too_late_and_the_card_says_why(
    db: SessionDB, home: Path
) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hello."), say(calls=[call("terminal", {"command": COMMAND})])) as model:
            async with gateway(db, home, model) as here:
                folder = workspace(here)
                await here.chat.say("hello", OWNER)
                await here.until(lambda: "Hello." in here.chat.chat(OWNER))
                card = await put_down(here, db)
                await here.chat.say("/branch", OWNER)
                await here.until(lambda: any("This is a copy now" in text for text in here.chat.chat(OWNER)))
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: any("too late" in text for text in here.chat.chat(OWNER)))
                await here.until(lambda: "this chat is now in another conversation" in card.text)
                await here.quiet()
            assert (folder / "old").exists() and not db.turns.waiting()

    asyncio.run(go())


def test_a_file_that_has_changed_since_is_not_written_and_the_card_says_why(db: SessionDB, home: Path) -> None:
    target = home.parent / "notes.txt"

    async def go() -> None:
        writes = call("write_file", {"path": str(target), "content": "new"})
        with ScriptedModel(say(calls=[writes]), say("Not written.")) as model:
            async with gateway(db, home, model) as here:
                card = await put_down(here, db)
                target.write_text("somebody else's", encoding="utf-8")
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: any(text.startswith("Not written.") for text in here.chat.chat(OWNER)))
                await here.until(lambda: "what was approved has changed since" in card.text)
                assert any("not run, although you had approved it" in text for text in here.chat.chat(OWNER))
                await here.quiet()
            assert "gave permission, but it was not run" in model.requests[1].json["messages"][-1]["content"]
            assert target.read_text(encoding="utf-8") == "somebody else's"

    asyncio.run(go())


def test_a_call_that_needs_two_answers_asks_for_the_second_one_when_it_has_the_first(db: SessionDB, home: Path) -> None:
    one, two = home.parent / "one.txt", home.parent / "two.txt"
    adds = "".join(f"*** Add File: {file}\n+{file.stem}\n" for file in (one, two))

    async def go() -> None:
        writes = call("patch", {"mode": "patch", "patch": f"*** Begin Patch\n{adds}*** End Patch\n"})
        with ScriptedModel(say(calls=[writes]), say("Written.")) as model:
            async with gateway(db, home, model, approvals={"timeout": 4}) as here:
                first = await put_down(here, db)
                await here.chat.answer(pressed(first, "once"), OWNER)
                cards = await here.until(
                    lambda: [one for one in here.chat.messages if one.buttons and one is not first]
                )
                assert not one.exists()
                await here.chat.answer(pressed(cards[0], "once"), OWNER)
                await here.until(lambda: "Written." in here.chat.chat(OWNER))
                await here.quiet()
            assert "gave permission, and it ran" in model.requests[1].json["messages"][-1]["content"]
        assert (one.read_text("utf-8"), two.read_text("utf-8")) == ("one\n", "two\n")

    asyncio.run(go())


def test_a_call_is_not_asked_about_again_for_what_was_answered_before_it_waited(db: SessionDB, home: Path) -> None:
    body = """
        def register(ctx):
            ctx.register_hook("pre_tool_call", lambda **_: {"action": "approve", "message": "I want it"})
    """

    async def go() -> None:
        with steps(say("Tidied up.")) as model:
            async with gateway(db, home, model, plugins={"enabled": ["asks"]}, approvals={"timeout": 2}) as here:
                folder = workspace(here)
                await here.chat.say("tidy up", OWNER)
                wanted = await here.until(lambda: [one for one in here.chat.messages if one.buttons])
                await here.chat.answer(pressed(wanted[0], "once"), OWNER)
                await here.until(db.turns.waiting)
                await here.quiet()
                card = next(one for one in here.chat.messages if one.buttons and one is not wanted[0])
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: "Tidied up." in here.chat.chat(OWNER))
                await here.quiet()
            assert not (folder / "old").exists() and (folder / "log.txt").read_text() == "gone\n"
            assert len(db.approvals.of_turn(db.turns.list()[0].id)) == 2

    with plugin_home(home) as plugged:
        plugged.add("asks", body)
        plugged.load("asks")
        asyncio.run(go())


def test_a_yes_that_a_plugin_wanted_is_used_by_the_call_that_waited(db: SessionDB, home: Path) -> None:
    """The plug-in also sees the call's result; the same call, made again, is another question."""
    body = """
        def register(ctx):
            ctx.register_hook("pre_tool_call", lambda **_: {"action": "approve", "message": "lists are dear"})
            ctx.register_hook("transform_tool_result", lambda result, **_: result.replace("stones", "roses"))
    """
    plan = call("todo", {"todos": [{"id": "1", "content": "stones", "status": "pending"}]})

    async def go() -> None:
        with ScriptedModel(say(calls=[plan]), say(calls=[plan]), say("Planned.")) as model:
            async with gateway(db, home, model, plugins={"enabled": ["dear"]}) as here:
                card = await put_down(here, db)
                await here.chat.answer(pressed(card, "once"), OWNER)
                again = await here.until(lambda: [one for one in here.chat.messages if one.buttons and one is not card])
                await here.chat.answer(pressed(again[0], "deny"), OWNER)
                await here.until(lambda: "Planned." in here.chat.chat(OWNER))
                await here.quiet()
            told = [one["content"] for one in model.requests[2].json["messages"]]
            assert "roses" in told[-3] and "was not run" in told[-1]

    with plugin_home(home) as plugged:
        plugged.add("dear", body)
        plugged.load("dear")
        asyncio.run(go())


def test_a_turn_of_somebody_who_lost_access_does_not_continue(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        admin = {"gateway": {"owners": [f"telegram:{OWNER}"], "admins": ["telegram:7"]}}
        with ScriptedModel(say("Hello."), say(calls=[call("terminal", {"command": COMMAND})])) as model:
            async with gateway(db, home, model, **admin) as here:
                folder = workspace(here)
                await here.chat.say("hello", OWNER)
                await here.until(lambda: "Hello." in here.chat.chat(OWNER))
                await here.chat.say("tidy up", "7")
                await here.until(db.turns.waiting)
                await here.quiet()
                card, chat = next(one for one in here.chat.messages if one.buttons), here.chat
            platforms = {"telegram": {"enabled": True, "token": "1:pretend", "allowed_users": ["8"]}}
            async with gateway(db, home, model, adapter=chat, platforms=platforms) as here:
                await here.chat.answer(pressed(card, "once"), OWNER)
                await here.until(lambda: "its author lost access" in card.text)
                await here.quiet()
            assert (folder / "old").exists() and len(model.requests) == 2

    asyncio.run(go())


def test_nobody_answers_at_all(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with steps() as model:
            async with gateway(db, home, model) as here:
                workspace(here)
                card = await put_down(here, db)
                db.clock.advance(25 * 3_600)  # type: ignore[attr-defined]
                await here.parts.lanes.recover()
                await here.until(lambda: "no longer needed: nobody answered in time" in card.text)
                await here.quiet()
            (turn,) = db.turns.list()
            assert (turn.state, turn.reason) == ("cancelled", "nobody answered in time")

    asyncio.run(go())
