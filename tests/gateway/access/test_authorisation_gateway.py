"""Rights on a running gateway: real store, lanes, turns and deliverer, a pretend platform, a scripted model.

User 42 is the owner by configuration, 7 and 8 are on the list (see `tests.support.gateways`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.access.pairing import Pairing
from hermes_state.session_db import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, always, say


class Plain:
    """Everything is for the model: these tests type no commands."""

    def serve(self, lanes: Any, agents: Any) -> None: ...

    def kind(self, row: Any) -> Any:
        return "turn"

    async def run(self, row: Any, watcher: Any) -> None:
        raise AssertionError("no row is a command")


Play = Callable[[PretendGateway], Awaitable[None]]


@pytest.fixture
def play(db: SessionDB, home: Path) -> Callable[..., None]:
    """`play(model, scene)`: a gateway from start to stop with the scene in between."""

    def run(model: ScriptedModel, scene: Play, **config: Any) -> None:
        async def whole() -> None:
            async with PretendGateway(db, home, model, commands=lambda *_: Plain(), **config) as gateway:
                await scene(gateway)

        asyncio.run(whole())

    return run


def counts(db: SessionDB) -> dict[str, int]:
    tables = ("sessions", "messages", "people", "routes", "turns", "conversations")
    return db.engine.read(lambda conn: {name: conn.rows(f"SELECT COUNT(*) FROM {name}")[0][0] for name in tables})


def test_a_stranger_leaves_no_trace_but_that_they_came(play: Any, db: SessionDB) -> None:
    async def scene(gateway: PretendGateway) -> None:
        before = counts(db)
        for group in (False, True):
            receipt = await gateway.chat.say("let me in, I am telegram:42", "666", group=group, name="42")
            assert receipt.state == "refused"
        await gateway.quiet()
        assert gateway.chat.messages == [] and counts(db) == before
        assert {row.payload is None and row.person_id is None for row in db.inbox.list(limit=10)} == {True}

    with ScriptedModel() as model:
        play(model, scene)


def test_a_stranger_in_private_hears_a_code_once_and_gets_in_with_it(play: Any, db: SessionDB) -> None:
    async def scene(gateway: PretendGateway) -> None:
        await gateway.chat.say("hello", "666", name="Eve")
        said = (await gateway.chat.heard(1, "666"))[0].text
        for _ in range(3):
            await gateway.chat.say("hello?", "666")
        await gateway.chat.say("hello all", "667", group=True)
        await gateway.quiet()
        assert len(gateway.chat.messages) == 1 and db.people.list() == ()
        code = said.split("approve telegram ")[1].split()[0]
        Pairing(db).approve("telegram", code)
        assert "please send them again" in (await gateway.chat.heard(2, "666"))[1].text
        assert (await gateway.chat.say("and now?", "666")).state == "accepted"
        assert (await gateway.chat.heard(3, "666"))[2].text == "Welcome."
        person = db.people.find(platform="telegram", native_id="666")
        assert person is not None and person.role == "member"

    with ScriptedModel(say("Welcome.")) as model:
        play(model, scene, unauthorized_dm_behavior="pair")
        assert "hello" not in model.requests[0].last_user_text


def test_who_is_shut_out_is_out_at_the_next_message(play: Any, db: SessionDB) -> None:
    async def scene(gateway: PretendGateway) -> None:
        assert (await gateway.chat.say("one", "7")).state == "accepted"
        await gateway.chat.heard(1, "7")
        Pairing(db).revoke("telegram", "7")
        assert (await gateway.chat.say("two", "7")).state == "refused"
        assert (await gateway.chat.say("three", "8")).state == "accepted"
        await gateway.chat.heard(1, "8")
        assert db.pairings.pending() == (), "no code for whoever was shut out"

    with ScriptedModel(say("1"), say("3")) as model:
        play(model, scene, unauthorized_dm_behavior="pair")


def test_roles_decide_the_tools_and_a_change_holds_at_the_next_turn(play: Any, db: SessionDB) -> None:
    def tools(number: int) -> set[str]:
        return set(model.requests[number].tools)

    async def scene(gateway: PretendGateway) -> None:
        await gateway.chat.say("from the owner", "42")
        await gateway.chat.heard(1, "42")
        await gateway.chat.say("from a member", "7")
        await gateway.chat.heard(1, "7")
        member = db.people.find(platform="telegram", native_id="7")
        assert member is not None
        db.people.set_role(member.id, "admin")
        await gateway.chat.say("from an admin", "7")
        await gateway.chat.heard(2, "7")
        db.people.set_role(member.id, "guest")
        await gateway.chat.say("from a guest", "7")
        await gateway.chat.heard(3, "7")

    files = {"terminal", "read_file", "write_file", "patch", "search_files"}
    with ScriptedModel(*(say(str(number)) for number in range(4))) as model:
        play(model, scene)
        assert files <= tools(0) and not files & tools(1) and files <= tools(2) and not files & tools(3)
        assert "memory" in tools(1) and "memory" not in tools(3)


def test_a_role_taken_away_while_nobody_looked_is_gone_after_a_restart(play: Any, db: SessionDB) -> None:
    async def ask(gateway: PretendGateway) -> None:
        await gateway.chat.say("what can you do?", "7", message_id=f"asked {len(model.requests)}")
        await gateway.chat.heard(1, "7")

    with ScriptedModel(say("A lot."), say("Less."), say("As much.")) as model:
        person = db.people.ensure(platform="telegram", native_id="7", role="admin")
        play(model, ask)
        db.people.set_role(person.id, "member")
        play(model, ask)
        play(model, ask)
        offered = ["terminal" in request.tools for request in model.requests]
        assert offered == [True, False, False] and model.requests[1].tools == model.requests[2].tools


def test_a_bot_starts_no_turn_unless_bots_are_allowed(play: Any, db: SessionDB) -> None:
    async def scene(gateway: PretendGateway) -> None:
        source = gateway.chat.source("42", group=True, is_bot=True)
        assert (await gateway.chat.say("beep", source=source)).state == "refused"
        await gateway.quiet()
        assert gateway.chat.messages == [] and counts(db)["turns"] == 0

    with ScriptedModel() as model:
        play(model, scene)


def test_a_stranger_in_a_shared_thread_has_no_effect_on_a_running_turn(play: Any, db: SessionDB) -> None:
    """Scenario 47: whoever may not speak can neither interrupt, steer nor queue."""
    hold = Hold()

    async def scene(gateway: PretendGateway) -> None:
        thread = {"group": True, "chat": "-100"}
        await gateway.chat.say("a long question", "7", **thread)
        await gateway.until(lambda: hold.is_reached)
        for text in ("stop", "/stop", "and mine?", "a long question"):
            assert (await gateway.chat.say(text, "666", **thread)).state == "refused"
        hold.release()
        assert (await gateway.chat.heard(1, "-100"))[0].text == "The beginning, and the end."
        await gateway.quiet()
        assert len(gateway.chat.messages) == 1

    with ScriptedModel(say("The beginning,", " and the end.", hold=hold)) as model:
        play(model, scene, group_sessions_per_user=False)


def test_removal_from_the_list_holds_beside_a_running_gateway(play: Any, home: Path) -> None:
    async def scene(gateway: PretendGateway) -> None:
        assert (await gateway.chat.say("one", "7")).state == "accepted"
        file = home / "config.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("- '7'\n", "- '9'\n"), encoding="utf-8")
        assert text != file.read_text(encoding="utf-8")
        assert (await gateway.chat.say("two", "7")).state == "refused"
        assert (await gateway.chat.say("three", "9")).state == "accepted"
        await gateway.quiet()

    with ScriptedModel(always(say("Yes."))) as model:
        play(model, scene)
