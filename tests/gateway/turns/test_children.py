"""Delegated work in a chat: later results, questions, /agents, and children whose gateway has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.gateways import PretendGateway

from hermes_state import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, call, say


def goals(*names: str) -> list[Any]:
    return [call("delegate_task", {"tasks": [{"goal": f"task {name}"} for name in names]})]


def text(request: ScriptedRequest) -> str:
    return str(request.messages[1]["content"])


def of(name: str) -> Any:
    return lambda request: text(request).startswith(f"task {name}") and request.messages[-1]["role"] == "user"


def after_tool(name: str) -> Any:
    return lambda request: text(request).startswith(f"task {name}") and request.messages[-1]["role"] == "tool"


def parent(words: str = "", role: str = "user") -> Any:
    return lambda request: (
        not text(request).startswith("task ")
        and request.messages[-1]["role"] == role
        and words in str(request.messages[-1]["content"])
    )


def test_later_results_come_as_one_turn_and_a_late_child_asks_in_the_chat(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        asks = [call("terminal", {"command": "curl https://example.org"})]
        slow = Hold()
        with ScriptedModel(
            say(calls=goals("a", "b"), when=parent("compare")),
            say("report a", when=of("a")), say("", calls=asks, when=of("b"), hold=slow),
            say("At work.", when=parent(role="tool")), say("report b", when=after_tool("b")),
            say("Both are here.", when=parent("delegated has ended")),
        ) as model:  # fmt: skip
            async with PretendGateway(db, home, model, delegation={"wait_seconds": 0.2}) as gateway:
                await gateway.chat.say("compare")
                await gateway.until(lambda: "At work." in str(gateway.chat.chat()))
                await gateway.quiet()
                await gateway.chat.say("/agents")
                await gateway.until(lambda: "task b (running" in str(gateway.chat.chat()))
                slow.release()
                await gateway.until(lambda: "for the delegated task “task b”" in str(gateway.chat.chat()))
                question = db.approvals.pending()[0]
                await gateway.chat.say(f"/deny {question.id}")
                await gateway.until(lambda: "Both are here." in str(gateway.chat.chat()))
                await gateway.quiet()
                told = str(gateway.chat.chat())
                assert told.count("Both are here.") == 1 and "report" not in told, "a child writes to nobody"
        rows = [row for row in db.inbox.list(limit=50) if row.message_id.startswith("hermes:children:")]
        assert [row.state for row in rows] == ["answered"]
        assert "report a" in str(rows[0].payload) and "report b" in str(rows[0].payload)

    asyncio.run(go())


def test_one_child_is_stopped_alone_and_the_stop_of_the_chat_stops_the_rest(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(
            say(calls=goals("a", "b", "c"), when=parent("go")),
            say("never", when=of("a"), delay=60), say("never", when=of("b"), delay=60),
        ) as model:  # fmt: skip
            limits = {"max_concurrent_children": 2}
            async with PretendGateway(db, home, model, delegation=limits) as gateway:
                await gateway.chat.say("go")
                await gateway.until(lambda: len(model.requests) == 3)
                await gateway.chat.say("/agents stop 3")
                await gateway.until(lambda: "Stopping 1 task." in str(gateway.chat.chat()))
                await gateway.chat.say("/agents stop 9")
                await gateway.until(lambda: "Which one? /agents stop 1 … 3" in str(gateway.chat.chat()))
                await gateway.chat.say("/stop")
                await gateway.until(lambda: "Stopped." in str(gateway.chat.chat()))
                await gateway.quiet()
        turn = next(one for one in db.turns.list(limit=50) if one.route is not None)
        assert [child.state for child in db.children.of_turn(turn.id)] == ["cancelled"] * 3
        assert not db.turns.list(state="running") and not db.inbox.counts().keys() & {"queued", "claimed"}

    asyncio.run(go())


def test_late_children_of_a_gateway_that_ended_are_continued_by_the_next(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        slow = Hold()
        with ScriptedModel(
            say(calls=goals("a"), when=parent("go")), say("At work.", when=parent(role="tool")),
            say("lost", when=of("a"), hold=slow), say("report a", when=of("a")),
            say("Here it is.", when=parent("report a")),
        ) as model:  # fmt: skip
            settings = {"delegation": {"wait_seconds": 0.1}}
            async with PretendGateway(db, home, model, **settings) as gateway:
                await gateway.chat.say("go")
                await gateway.until(lambda: "At work." in str(gateway.chat.chat()) and len(model.requests) == 3)
                await gateway.quiet()
            (child,) = db.children.open()
            assert child.state == "running" and child.returned == "later"
            slow.release()
            async with PretendGateway(db, home, model, **settings) as gateway:
                await gateway.until(lambda: "Here it is." in str(gateway.chat.chat()))
                await asyncio.sleep(0)
        assert db.children.open() == ()

    asyncio.run(go())
