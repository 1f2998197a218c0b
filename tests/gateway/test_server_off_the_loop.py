"""A database server is never asked from the event loop: a round trip over a network has no bound."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import Start, starter
from tests.support.gateways import PretendGateway

from gateway.config import Platform
from gateway.inbound import terminal_messages
from gateway.routes.source import SessionSource
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, say

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)

CHAT = SessionSource(Platform.TELEGRAM, "42", chat_type="dm", user_id="42", user_name="Ada")
COMMANDS = (
    "/status", "/sessions", "/usage", "/whoami", "/retry", "/title Bread", "/undo", "/redo", "/memory", "/model",
    "/help", "/branch", "/timezone Europe/Berlin", "/compress", "/stop", "/new", "/resume Bread", "/nonsense",
)  # fmt: skip


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


@pytest.fixture
def asked(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who of the product asked the server from a loop; the way there, the last call first."""
    found: list[str] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **more: Any) -> Any:
            if asyncio._get_running_loop() is not None:
                stack = traceback.extract_stack()
                if not any("/tests/support/gateways.py" in one.filename for one in stack):
                    way = [f"{one.filename}:{one.lineno}" for one in stack if "/src/" in one.filename]
                    found.append(" < ".join(reversed(way)))
            return real(*args, **more)

        return ask

    monkeypatch.setattr(db.engine, "read", watched(db.engine.read))
    monkeypatch.setattr(db.engine, "write", watched(db.engine.write))
    return found


async def said(here: PretendGateway, text: str) -> None:
    heard = len(here.chat.chat())
    await here.chat.say(text)
    await here.chat.heard(heard + 1)
    await here.quiet()


def test_by_messages_tools_commands_and_what_is_typed_beside(
    gateway: Start, db: SessionDB, asked: list[str], home: Path
) -> None:
    async def go() -> None:
        steps = [say("One."), say(calls=[call("terminal", {"command": "true"})]), say("Two."), say("Three.")]
        with ScriptedModel(*steps, always(say("Again."))) as model:
            async with gateway(model, commands=None) as here:
                await said(here, "one")
                await said(here, "two")
                await asyncio.to_thread(
                    terminal_messages.hand_in, db, CHAT, "typed at the desk", home=home, person_id=LOCAL_OWNER
                )
                await here.chat.heard(4)
                await here.quiet()
                for command in COMMANDS:
                    await said(here, command)

    asyncio.run(go())
    assert asked == []


def test_by_a_turn_that_is_taken_up(gateway: Start, db: SessionDB, asked: list[str]) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("never", hold=hold), say("Taken up.")) as model:
            async with gateway(model, gateway={"drain_seconds": 0.1}) as here:
                await here.chat.say("one")
                await hold.reached()
            async with gateway(model) as there:
                await there.chat.heard(1)
                await there.quiet()
                assert there.chat.chat() == ["Taken up."]

    asyncio.run(go())
    assert asked == []
