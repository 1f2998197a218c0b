"""Two people and a room: nothing of one is found by the other, through any command, tool or route."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from hermes_agent.knowledge.memory import MemoryStore
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, always, call, say

pytestmark = pytest.mark.slow

ADA, BOB, ROOM = "7", "8", "-100"
SECRET, TITLE, REMEMBERED = "xylophone4711", "Quagga plans", "allergic to kumquats"


class House:
    """A gateway in which Ada has said something in private, given it a title, and is remembered by something."""

    def __init__(self, db: SessionDB, home: Path, *steps: Any, **config: Any) -> None:
        self.model = ScriptedModel(say("Noted, Ada."), *steps, always(say("Fine.")))
        self.here = PretendGateway(db, home, self.model, streaming={"enabled": False}, **config)
        self.db, self.home = db, home

    async def __aenter__(self) -> House:
        self.model.__enter__()
        await self.here.start()
        await self.say(f"my code is {SECRET}", ADA)
        await self.say(f"/title {TITLE}", ADA)
        ada = self.db.people.find(platform="telegram", native_id=ADA)
        assert ada is not None
        self.ada = ada
        MemoryStore(self.home, ada.id).apply("user", [{"action": "add", "content": REMEMBERED}])
        session = self.here.parts.services.store.peek_session_id("agent:main:telegram:dm:7")
        assert session is not None
        self.session = session
        self.before = len(self.model.requests)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.here.runner.stop()
        self.model.__exit__(None, None, None)

    async def say(self, text: str, user: str, **more: Any) -> None:
        await self.here.chat.say(text, user, **more)
        await self.here.quiet()

    @property
    def traces(self) -> tuple[str, ...]:
        return SECRET, TITLE, REMEMBERED, self.session, self.ada.id, "Noted, Ada."

    def seen_in(self, chat: str) -> list[str]:
        text = "\n".join(self.here.chat.chat(chat))
        return [trace for trace in self.traces if trace in text]

    def told_to_the_model(self, *, but: tuple[str, ...] = ()) -> list[str]:
        """Of Ada's, in what was asked of the model since; what somebody typed themselves does not count."""
        text = "\n".join(request.body.decode() for request in self.model.requests[self.before :])
        return [trace for trace in self.traces if trace not in but and trace in text]


# Bob may give a conversation of his the same title as one of Ada's; he takes it back, so that it is hers alone again.
COMMANDS = [
    "/sessions", f"/sessions {SECRET[:5]}", "/sessions quagga", "/resume", "/resume 1", "/resume {session}",
    "/resume {title}", "/resume Quagga", "/resume 2026", "/resume %", "/title", "/status", "/usage", "/memory",
    "/skills", "/tools", "/whoami", "/undo", "/redo", "/retry", "/branch", "/branch {title}", "/title My own",
    "/compress", "/model", "/uncompress", "/stop", "/catchup", "/approve", "/deny", "/approve ask_000000000000",
    "/queue", "/steer", "/commands", "/help {session}", "/start", "/timezone", "/new {title}", "/title My own too",
    "/{session}", "/sessions _", "/resume \u202e1",
]  # fmt: skip


@pytest.mark.parametrize("alone", [True, False], ids=["in private", "in a room with Ada"])
def test_no_command_shows_anything_of_somebody_else(db: SessionDB, home: Path, alone: bool) -> None:
    async def go() -> None:
        async with House(db, home) as house:
            await house.say("hello", BOB, group=not alone)
            for text in COMMANDS:
                typed = text.format(session=house.session, title=TITLE)
                said = len(house.here.chat.messages)
                await house.say(typed, BOB, group=not alone)
                new = "\n".join(one.text for one in house.here.chat.messages[said:])
                leaked = [trace for trace in house.traces if trace in new and trace not in typed]
                assert not leaked, f"{typed} told {leaked}: {new}"
                assert "Resumed" not in new, typed
            assert house.told_to_the_model() == []
            owner = db.ledger.owner(db.get_conversation_root(house.session))
            assert owner == house.ada.id
            assert house.here.parts.services.store.peek_session_id("agent:main:telegram:dm:7") == house.session

    asyncio.run(go())


def searches(session: str) -> list[dict[str, Any]]:
    return [
        {"query": SECRET}, {"query": "quagga OR code"}, {}, {"session_id": session}, {"query": "*"},
        {"session_id": session, "around_message_id": 1, "window": 50}, {"query": "", "limit": 100},
    ]  # fmt: skip


@pytest.mark.parametrize("alone", [True, False], ids=["in private", "in a room with Ada"])
def test_no_tool_finds_anything_of_somebody_else(db: SessionDB, home: Path, alone: bool) -> None:
    async def go() -> None:
        async with House(db, home) as house:
            house.model._steps.pop()
            for args in searches(house.session):
                house.model.add(say(calls=[call("session_search", args)]), say("Nothing."))
            house.model.add(say(calls=[call("memory", {"action": "read", "target": "user"})]), say("Nothing."))
            for _ in range(len(searches("")) + 1):
                await house.say("look it up", BOB, group=not alone)
            results = [
                one["content"]
                for request in house.model.requests[house.before :]
                for one in request.json["messages"]
                if one["role"] == "tool"
            ]
            assert results
            for result in results:
                leaked = [trace for trace in house.traces if trace in result]
                # The words of one's own query come back, and so does the id one asked for.
                assert not set(leaked) - {SECRET, house.session}, result
                assert f"my code is {SECRET}" not in result, result
            assert "Noted, Ada." not in house.told_to_the_model()

    asyncio.run(go())


def test_what_a_person_wrote_in_private_does_not_reach_the_room_they_are_in(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with House(db, home) as house:
            house.model._steps.pop()
            house.model.add(
                say(calls=[call("session_search", {"query": "code"})]), say("Nothing."),
                say(calls=[call("session_search", {"session_id": house.session})]), say("Nothing."), say("Hello room."),
            )  # fmt: skip
            for text in ("what is my code?", "read it", "who am I?"):
                await house.say(text, ADA, group=True)
            assert house.told_to_the_model(but=(house.session,)) == []
            assert house.seen_in(ROOM) == []

    asyncio.run(go())


def test_a_shared_room_belongs_to_nobody_alone(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        async with House(db, home, group_sessions_per_user=False) as house:
            await house.say("Ada here", ADA, group=True)
            await house.say("Bob here", BOB, group=True)
            keys = [key for key in house.here.parts.services.store._entries if "group" in key]
            assert len(keys) == 1
            session = house.here.parts.services.store.peek_session_id(keys[0])
            assert session is not None and db.ledger.owner(db.get_conversation_root(session)) is None
            for who in (ADA, BOB):
                await house.say(f"/resume {session}", who)
                assert not any("Resumed" in text for text in house.here.chat.chat(who))
            bodies = [json.loads(one.body) for one in house.model.requests[house.before :]]
            assert REMEMBERED not in json.dumps(bodies) and SECRET not in json.dumps(bodies)
            assert f"({'telegram:' + BOB})" in json.dumps(bodies[-1]) and "(telegram:7)" in json.dumps(bodies[-1])

    asyncio.run(go())


def test_one_may_not_answer_the_questions_of_the_other(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        wipe = call("terminal", {"command": f"rm -rf {SECRET}"})
        async with House(db, home, gateway={"admins": [f"telegram:{ADA}"]}) as house:
            house.model._steps.pop()
            house.model.add(say(calls=[wipe]), say("Done."))
            await house.here.chat.say("tidy up", ADA)
            await house.here.until(lambda: any(one.buttons for one in house.here.chat.messages))
            number = db.approvals.pending()[0].id
            for text in ("/approve", f"/approve {number}", "/deny", f"/deny {number}"):
                await house.here.chat.say(text, BOB)
            await house.here.until(lambda: len(house.here.chat.chat(BOB)) == 4)
            assert house.seen_in(BOB) == [] and db.approvals.pending()[0].id == number
            await house.here.chat.say("/deny", "42")
            await house.here.quiet()

    asyncio.run(go())
