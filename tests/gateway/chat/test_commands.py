"""Commands in chats: each of them through a whole gateway, taken once, never sent to the model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.gateways import PretendGateway

from gateway.access import authorisation
from gateway.chat.commands import NOT_WAITING
from hermes_agent.commands import registry
from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, in_system, say

pytestmark = pytest.mark.slow

ROUTE = SessionKey("agent:main:telegram:dm:42")
OWNER, MEMBER = "42", "8"


def gateway(db: SessionDB, home: Path, model: ScriptedModel | None = None, **config: Any) -> PretendGateway:
    return PretendGateway(db, home, model, **{"streaming": {"enabled": False}, **config})


async def told(here: PretendGateway, text: str, user: str = OWNER, **more: Any) -> str:
    """Type a command and read its answer."""
    receipt = await here.chat.say(text, user, **more)
    key = f"command:{receipt.inbox_id}"
    item = await here.until(lambda: next((one for one in here.db.outbox.list(limit=50) if one.dedup_key == key), None))
    return str(item.payload["text"])


async def talked(here: PretendGateway, *texts: str, user: str = OWNER) -> None:
    """Say something and see it answered, one after the other."""
    for text in texts:
        await here.chat.say(text, user)
        await here.quiet()


def transcript(db: SessionDB, here: PretendGateway, route: str = ROUTE) -> list[tuple[str, str]]:
    session = here.parts.services.store.peek_session_id(route)
    assert session is not None
    return [(one["role"], str(one["content"])) for one in db.get_messages(session)]


def test_chats_have_every_command() -> None:
    wanted = {
        "new", "stop", "retry", "undo", "redo", "title", "sessions", "resume", "branch", "compress", "status", "usage",
        "model", "approve", "deny", "queue", "steer", "memory", "skills", "whoami", "timezone", "catchup", "help",
        "start", "commands", *NOT_WAITING,
    }  # fmt: skip
    assert wanted <= registry.table("gateway").keys()
    assert registry.find("gateway", "reset") is registry.table("gateway")["new"]
    assert "approve" not in registry.table("cli")


def test_the_line_chat_keeps_its_own_new_and_status() -> None:
    assert registry.table("cli")["new"] is not registry.table("gateway")["new"]
    assert registry.table("cli")["status"] is not registry.table("gateway")["status"]


@pytest.mark.parametrize("text", ["/nonsense", "/NEWW", "/ünknown", "/a" * 2_000, "/😀 x", "/__class__", "/../x?"])
def test_unknown_commands_are_answered_and_never_reach_the_model(db: SessionDB, home: Path, text: str) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with gateway(db, home, model) as here:
                if "/" in text[1:]:  # a path, not a command: that is for the model, and there is none here
                    assert registry.parse(text) is None
                    return
                assert "There is no command" in await told(here, text)
            assert not model.requests

    asyncio.run(go())


def test_retry_asks_the_same_once_more_and_says_the_command_to_nobody(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("One."), say("Two.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "what is zebra?", "/retry")
                assert here.chat.chat() == ["One.", "Two."]
                said = transcript(db, here)
            assert [one for one in said if one[0] == "user"] == [("user", "what is zebra?")]
            assert ("assistant", "Two.") in said and ("assistant", "One.") not in said
            body = model.requests[1].body.decode()
            assert body.count("what is zebra?") == 1 and "/retry" not in body and "One." not in body

    asyncio.run(go())


def test_undo_takes_back_as_many_as_there_are_and_redo_brings_them_back(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("A."), say("B."), say("C."), say("D.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "zebra", "giraffe", "okapi")
                assert "Took back 2 turns" in await told(here, "/undo 2")
                assert [text for role, text in transcript(db, here) if role == "user"] == ["zebra"]
                assert "Brought back 2 turns" in await told(here, "/redo")
                assert "Took back 3 turns" in await told(here, "/undo 99")
                assert "How many" in await told(here, "/undo -1")
                await talked(here, "fourth")
            body = model.requests[3].body.decode()
            assert "fourth" in body and "zebra" not in body and "/undo" not in body

    asyncio.run(go())


def test_new_ends_what_runs_and_what_waits_and_the_old_conversation_can_be_resumed(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Kept."), say("never", hold=hold), say("Fresh."), say("Back.")) as model:
            async with gateway(db, home, model, display={"busy_input_mode": "queue"}) as here:
                await talked(here, "remember the zebra")
                await told(here, "/title Zebras")
                await here.chat.say("a long one")
                await hold.reached()
                await here.chat.say("and another")
                said = await told(here, "/new Something else")
                assert "New session: Something else." in said and "1 waiting message will not be answered" in said
                await here.quiet()
                await talked(here, "hello")
                assert "zebra" not in model.requests[2].body.decode()
                assert "Resumed: Zebras" in await told(here, "/resume zebras")
                await talked(here, "what was it?")
            assert "remember the zebra" in model.requests[3].body.decode()
            assert {"dropped", "answered"} == set(here.outcomes().values())

    asyncio.run(go())


def test_branch_goes_on_in_a_copy(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("A."), say("B."), say("C.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "first")
                await told(here, "/title Trip")
                before = here.parts.services.store.peek_session_id(ROUTE)
                assert "copy" in await told(here, "/branch")
                await talked(here, "only in the copy")
                assert "Resumed: Trip" in await told(here, f"/resume {before}")
                await talked(here, "third")
            assert "only in the copy" not in model.requests[2].body.decode()
            assert "first" in model.requests[1].body.decode()

    asyncio.run(go())


@pytest.mark.parametrize("leaving", ["/branch", "/resume Elsewhere", "/new"])
def test_leave_for_a_conversation_does_not_outlive_leaving_it(db: SessionDB, home: Path, leaving: str) -> None:
    async def go() -> None:
        wipe = call("terminal", {"command": "rm -rf old"})
        script = [say("Hi."), say("Hi."), say(calls=[wipe]), say("Done."), say(calls=[wipe]), say("Done again.")]
        with ScriptedModel(*script) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "other")
                await told(here, "/title Elsewhere")
                await told(here, "/new")
                await talked(here, "hello")
                await here.chat.say("tidy up")
                shown = await here.until(lambda: next((one for one in here.chat.messages if one.buttons), None))
                button = next(one for row in shown.buttons for one in row if one.answer.choice == "session")
                await here.chat.press(button)
                await here.quiet()
                here_id = here.parts.services.store.peek_session_id(ROUTE)
                await told(here, leaving)
                assert not db.approvals.grants()
                await told(here, f"/resume {here_id}")
                await here.chat.say("tidy up again")
                await here.until(lambda: len([one for one in here.chat.messages if one.buttons]) == 2)
                await here.chat.say("/deny")
                await here.quiet()

    asyncio.run(go())


def test_what_is_said_while_a_summary_is_made_does_not_interrupt_the_turn(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        summary = say("## Goal\nAnimals.", when=in_system("summar"), hold=hold)
        tight = {"auto_title": False, "compression": {"threshold": 0.5, "protect_last_n": 2}}
        with ScriptedModel(summary, always(say("word " * 700)), context_length=12_000) as model:
            model.allow_rejections = True
            async with gateway(db, home, model, **tight) as here:
                reached = asyncio.create_task(hold.reached(60))
                while not hold.is_reached:
                    await here.chat.say("say more " + "please " * 200)
                    await asyncio.wait({reached, asyncio.create_task(here.quiet())}, return_when="FIRST_COMPLETED")
                await here.chat.say("and now?")
                hold.release()
                await here.quiet()
                assert set(here.outcomes().values()) == {"answered"}, "none was dropped"
                assert transcript(db, here)[-2] == ("user", "and now?")

    asyncio.run(go())


def test_resume_of_a_compressed_conversation_goes_to_its_newest_part(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with gateway(db, home) as here:
            await talked(here, *(f"message {number} " + "word " * 300 for number in range(8)))
            await told(here, "/title Long")
            first = here.parts.services.store.peek_session_id(ROUTE)
            assert first is not None
            assert "Compressed" in await told(here, "/compress numbers")
            tip = here.parts.services.store.peek_session_id(ROUTE)
            assert tip == db.get_compression_tip(first) and tip != first
            await told(here, "/new")
            assert "Resumed: Long" in await told(here, f"/resume {first}")
            assert here.parts.services.store.peek_session_id(ROUTE) == tip
            await talked(here, "and on")
            assert here.parts.services.store.peek_session_id(ROUTE) == tip
            assert "with 2 messages said since" in await told(here, "/uncompress")
            await talked(here, "further")
            assert here.parts.services.store.peek_session_id(ROUTE) == first
            assert len(db.get_messages(first)) == 20, "all of it, and what was said since"
            assert await told(here, "/uncompress") == "This conversation is not compressed."

    asyncio.run(go())


def test_status_says_what_runs_and_what_waits(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("slow", hold=hold), say("next")) as model:
            async with gateway(db, home, model, display={"busy_input_mode": "queue"}) as here:
                await here.chat.say("begin")
                await hold.reached()
                await here.chat.say("later")
                said = await told(here, "/status")
                assert "running for" in said and "1 message" in said and "scripted-1" in said
                hold.release()
                await here.quiet()
                said = await told(here, "/status")
                assert "none running" in said and "tokens" in said and "cost" in said

    asyncio.run(go())


def test_queue_waits_and_steer_joins(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        script = [say("hm", calls=[call("todo", {"todos": []})], hold=hold), say("steered"), say("queued")]
        with ScriptedModel(*script) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("begin")
                await hold.reached()
                assert "Your message is next." in await told(here, "/queue after that")
                assert "I will use this in the current task" in await told(here, "/steer in blue")
                hold.release()
                await here.quiet()
                assert here.chat.chat()[-2:] == ["steered", "queued"]
                assert set(here.outcomes().values()) == {"answered"}
            assert "in blue" in model.requests[1].body.decode()
            assert "after that" not in model.requests[1].body.decode()
            last = model.requests[2].body.decode()
            assert "after that" in last and "/queue" not in last and "/steer" not in last

    asyncio.run(go())


def test_steer_with_nothing_running_is_a_message(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("Blue it is.")) as model:
            async with gateway(db, home, model) as here:
                assert "I answer this as a new message" in await told(here, "/steer in blue")
                await here.quiet()
                assert "Blue it is." in here.chat.chat()

    asyncio.run(go())


def test_stop_ends_the_turn_and_what_waited(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("fresh")) as model:
            async with gateway(db, home, model, display={"busy_input_mode": "queue"}) as here:
                await here.chat.say("first")
                await hold.reached()
                await here.chat.say("second")
                await told(here, "/queue third")
                said = await told(here, "/stop")
                assert "Stopped" in said and "2 waiting messages will not be answered." in said
                await talked(here, "fourth")
                assert here.chat.chat()[-1] == "fresh"
                assert "Nothing is running" in await told(here, "/stop")

    asyncio.run(go())


def test_in_a_shared_room_nobody_ends_what_another_asked_for(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("Yours.")) as model:
            async with gateway(db, home, model, group_sessions_per_user=False) as here:
                await here.chat.say("a long one", "7", group=True)
                await hold.reached()
                await here.chat.say("and mine", MEMBER, group=True)
                for text in ("/stop", "/new"):
                    assert "Somebody else" in await told(here, text, MEMBER, group=True)
                assert "Stopped" in await told(here, "/stop", OWNER, group=True)
                await here.until(lambda: "Yours." in here.chat.chat("-100"))
                await here.quiet()

    asyncio.run(go())


@pytest.mark.parametrize("text", [
    "/undo", "/redo", "/retry", "/branch", "/compress", "/uncompress", "/title Ours", "/model demo",
    "/agents stop all",
])  # fmt: skip
def test_in_a_shared_room_what_changes_it_for_all_is_for_those_who_run_it(db: SessionDB, home: Path, text: str) -> None:
    async def go() -> None:
        with ScriptedModel(say("Noted.")) as model:
            async with gateway(db, home, model, group_sessions_per_user=False) as here:
                await here.chat.say("we meet at nine", OWNER, group=True)
                await here.quiet()
                (route,) = here.parts.services.store._entries
                before = transcript(db, here, route)
                assert "for everybody here" in await told(here, text, MEMBER, group=True)
                assert transcript(db, here, route) == before and len(model.requests) == 1
                assert "for everybody here" not in await told(here, "/title", MEMBER, group=True), "looking is free"

    asyncio.run(go())


def test_in_a_room_where_everybody_has_their_own_conversation_it_is_theirs_to_change(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("Noted.")) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("we meet at nine", MEMBER, group=True)
                await here.quiet()
                assert "Took back 1 turn" in await told(here, "/undo", MEMBER, group=True)

    asyncio.run(go())


def test_the_one_function_decides_about_every_command(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = authorisation.decide

    def strict(principal: Any, surface: Any, action: Any, resource: Any, policy: Any) -> authorisation.Decision:
        answer = decide(principal, surface, action, resource, policy)
        return answer._replace(allowed=False, reason="not today") if action == "command" else answer

    async def go() -> None:
        with ScriptedModel(say("Noted.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "hello")
                monkeypatch.setattr(authorisation, "decide", strict)
                assert await told(here, "/undo") == "/undo: not today."
                assert len(transcript(db, here)) == 2

    asyncio.run(go())


@pytest.mark.parametrize("user", [OWNER, MEMBER])
def test_no_chat_is_told_where_the_home_is(db: SessionDB, home: Path, user: str) -> None:
    async def go() -> None:
        async with gateway(db, home) as here:
            said = await told(here, "/skills", user)
            assert "no skills" in said and str(home) not in said

    asyncio.run(go())


def test_a_redelivered_command_runs_once(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("A."), say("B.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "first", "second")
                await told(here, "/undo", message_id="m-1")
                again = await here.chat.say("/undo", message_id="m-1")
                assert again.state == "duplicate"
                await here.quiet()
                assert [text for role, text in transcript(db, here) if role == "user"] == ["first"]

    asyncio.run(go())


def test_a_command_that_was_cut_off_is_reported_and_not_run_again(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("A."), say("B.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "first", "second")
                adapter = here.chat
            row = db.inbox.accept(
                platform="telegram", chat_id=OWNER, message_id="m-1", route=ROUTE,
                payload={"text": "/undo", "type": "command", "source": adapter.source().to_dict(), "at": db.clock()},
            ).row  # fmt: skip
            assert db.engine.write(lambda conn: db.inbox.take_command_in(conn, row.id))  # … and the process is lost
            async with gateway(db, home, model, adapter=adapter) as here:
                await here.quiet()
                assert any("/undo was running" in text for text in here.chat.chat())
                assert [text for role, text in transcript(db, here) if role == "user"] == ["first", "second"]
                assert here.outcomes()["m-1"] == "error"

    asyncio.run(go())


@pytest.mark.parametrize("text", ["/sessions", "/resume 1", "/memory", "/whoami", "/timezone", "/approve x", "/deny"])
def test_what_is_private_is_refused_in_rooms_with_words(db: SessionDB, home: Path, text: str) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with gateway(db, home, model) as here:
                assert "in private only" in await told(here, text, group=True)

    asyncio.run(go())


def test_roles_decide_and_the_role_of_this_moment_counts(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with gateway(db, home, model, platforms={"telegram": {"allow_all_users": True}}) as here:
                assert "not for guests" in await told(here, "/model other", "99")
                assert "/model" not in await told(here, "/help", "99")
                assert "/model" in await told(here, "/help", MEMBER)

    asyncio.run(go())


def test_whoami_and_timezone(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with gateway(db, home) as here:
            said = await told(here, "/whoami", MEMBER)
            assert "telegram 8" in said and "member" in said and "person_" in said
            assert "not set" in await told(here, "/timezone", MEMBER)
            assert "Asia/Tokyo" in await told(here, "/timezone tokyo", MEMBER)
            assert "Asia/Tokyo" in await told(here, "/timezone", MEMBER)
            assert "Europe/Lisbon" in await told(here, "/timezone Europe/Lisbonn", MEMBER)
            assert "no zone" in await told(here, "/timezone ../../etc/passwd", MEMBER)
            person = db.people.find(platform="telegram", native_id=MEMBER)
            assert person is not None and person.zone == "Asia/Tokyo"

    asyncio.run(go())


def test_another_model_holds_over_a_restart_and_ends_with_new(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        adapter = PretendAdapter()
        with ScriptedModel(always(say("A.")), allow_rejections=True) as model:
            async with gateway(db, home, model, adapter=adapter) as here:
                assert "other-1" in await told(here, "/model other-1")
            async with gateway(db, home, model, adapter=adapter) as here:
                await talked(here, "hello")
                assert "other-1" in await told(here, "/model")
                old = here.parts.services.store.peek_session_id(ROUTE)
                await told(here, "/new")
                await talked(here, "hello")
                assert "Resumed" in await told(here, f"/resume {old}")
                await talked(here, "hello again")
            assert [request.json["model"] for request in model.requests] == ["other-1", "scripted-1", "other-1"]

    asyncio.run(go())


def test_a_resumed_conversation_brings_its_model_along(db: SessionDB, home: Path) -> None:
    """Also one whose model was chosen at a terminal, and one that has the configured model."""

    async def go() -> None:
        with ScriptedModel(always(say("A.")), allow_rejections=True) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "hello")
                await told(here, "/title Here")
                desk = db.ledger.open(source="cli", owner=db.inbox.list(limit=1)[0].person_id).session_id
                db.append_message(desk, "user", "at the desk")
                db.set_session_title(desk, "Desk")
                db.choose_model(desk, "other-1", "custom")
                assert "Resumed: Desk" in await told(here, "/resume Desk")
                await talked(here, "and now?")
                assert "Resumed: Here" in await told(here, "/resume Here")
                await talked(here, "and here?")
            assert [request.json["model"] for request in model.requests] == ["scripted-1", "other-1", "scripted-1"]

    asyncio.run(go())


def test_nobody_learns_of_the_titles_of_others(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("A."), say("B.")) as model:
            async with gateway(db, home, model) as here:
                await talked(here, "mine")
                await told(here, "/title Secret plan")
                session = here.parts.services.store.peek_session_id(ROUTE)
                await talked(here, "theirs", user=MEMBER)
                said = await told(here, "/title Secret plan", MEMBER)
                assert said == "Title: Secret plan" and str(session) not in said

    asyncio.run(go())


HOOK = """
def handle(event, context):
    name = context["command"]
    if name == "title":
        return {"decision": "deny", "message": "No titles here."}
    if name == "usage":
        return {"decision": "handled", "message": "Ask the accountant."}
    if name == "whoami":
        return {"decision": "rewrite", "command_name": "timezone", "raw_args": "Asia/Tokyo"}
"""


def test_hooks_deny_handle_and_rewrite(db: SessionDB, home: Path) -> None:
    folder = home / "hooks" / "rules"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: rules\nevents: ['command:*']\n", encoding="utf-8")
    (folder / "handler.py").write_text(HOOK, encoding="utf-8")

    async def go() -> None:
        async with gateway(db, home, hooks={"enabled": ["rules"]}) as here:
            assert await told(here, "/title x") == "No titles here."
            assert await told(here, "/usage") == "Ask the accountant."
            assert "Asia/Tokyo" in await told(here, "/whoami")
            assert "none running" in await told(here, "/status")

    asyncio.run(go())


PLUGIN = """
def register(ctx):
    ctx.register_command("shout", lambda args: args.upper(), description="loudly", args_hint="TEXT")
    ctx.register_command("broken", lambda args: 1 / 0, description="breaks")
"""


def test_commands_of_plugins(db: SessionDB, home: Path) -> None:
    with plugin_home(home) as plugins:
        plugins.add("loud", PLUGIN)
        plugins.load("loud")

        async def go() -> None:
            async with gateway(db, home, plugins={"enabled": ["loud"]}) as here:
                assert await told(here, "/shout hello") == "HELLO"
                assert "loud" in await told(here, "/broken")
                assert "/shout" in await told(here, "/help")
                assert await told(here, "/shout hello", MEMBER) == "/shout is not for members."
                assert "/shout" not in await told(here, "/help", MEMBER)

        asyncio.run(go())


def test_catchup_answers_what_was_too_old(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("Late, but here.")) as model:
            async with gateway(db, home, model) as here:
                await here.chat.say("from yesterday", at=db.clock() - 86_400)
                await here.until(lambda: any("/catchup" in text for text in here.chat.chat()))
                assert not model.requests
                assert "not answered, 24h old: “from yesterday”" in await told(here, "/catchup list")
                assert not model.requests
                assert "I am now working on:" in await told(here, "/catchup")
                await here.quiet()
                assert here.chat.chat()[-1] == "Late, but here."
                assert "nothing to catch up" in await told(here, "/catchup")

    asyncio.run(go())


def test_members_choose_among_the_models_of_their_list(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not any model of any provider that there is a key for."""
    monkeypatch.setenv("GEMINI_API_KEY", "key-0123456789")

    async def go() -> None:
        adapter = PretendAdapter()
        with ScriptedModel() as model:
            async with gateway(db, home, model, adapter=adapter) as here:
                for wanted in ("gemini/gemini-2.5-pro", "openrouter/auto", "other-1", "custom/other-1", "demo"):
                    said = await told(here, f"/model {wanted}", MEMBER)
                    assert said == f"members cannot choose the model {wanted} here. Choose one of: scripted-1."
                assert "From now on here: scripted-1" in await told(here, "/model scripted-1", MEMBER)
                assert "From now on here: gemini-2.5-pro" in await told(here, "/model gemini/gemini-2.5-pro")
            choice = {"member": ["gemini/gemini-flash", "nosuchprovider/x"], "admin": []}
            chosen = {
                "gateway": {"model_choice": choice},
                "fallback_providers": [{"provider": "demo", "model": "demo"}],
            }
            async with gateway(db, home, model, adapter=adapter, **chosen) as here:
                said = await told(here, "/model other-1", MEMBER)
                assert said.endswith("Choose one of: scripted-1, gemini-flash, nosuchprovider/x, demo.")
                for wanted in ("gemini/gemini-flash", "gemini-flash", "demo"):
                    name = wanted.rpartition("/")[2]
                    assert f"From now on here: {name} " in await told(here, f"/model {wanted}", MEMBER)
                db.people.set_role(db.people.known_as(platform="telegram", native_id=MEMBER)[0].id, "admin")
                assert "admins cannot choose the model" in await told(here, "/model gemini-flash", MEMBER)
            async with gateway(db, home, model, adapter=adapter, gateway={"model_choice": {"member": ["*"]}}) as here:
                assert "From now on here: gemini-flash" in await told(here, "/model gemini/gemini-flash", "7")

    asyncio.run(go())


def test_an_error_in_a_chat_does_not_show_where_the_home_is(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of `/model openrouter/…`, a member hears no path of config.yaml or .env."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)

    async def go() -> None:
        with ScriptedModel() as model:
            async with gateway(db, home, model) as here:
                said = [await told(here, "/model openrouter/auto", user) for user in (OWNER, MEMBER)]
                assert said[0].endswith("the provider openrouter needs a key, and OPENROUTER_API_KEY is not set")
                settings = home / "config.yaml"
                changed = {**yaml.safe_load(settings.read_text(encoding="utf-8")), "model": "openrouter/auto"}
                settings.write_text(yaml.safe_dump(changed), encoding="utf-8")
                await talked(here, "hello", user=MEMBER)
                said += [await told(here, text, MEMBER) for text in ("/model", "/status", "/new")]
                said += [str(item.payload["text"]) for item in here.db.outbox.list(limit=50)]
            assert sum("needs a key" in text for text in said) >= 4, said
            for text in said:
                assert str(home) not in text and "config.yaml" not in text and ".env" not in text, text

    asyncio.run(go())
    assert str(home / "config.yaml") in caplog.text, "those at the machine find it in the log"


def test_a_model_that_demo_does_not_have_is_refused_and_nothing_changes(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with gateway(db, home, None) as here:
            await talked(here, "hello")
            assert await told(here, "/model gpt-5") == "demo has no model gpt-5. Write openai/gpt-5."
            assert "Model: demo." in await told(here, "/model")

    asyncio.run(go())
