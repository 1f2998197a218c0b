"""A turn's identity reaches all that it starts, nobody else, and never the process's environment."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from hermes_agent import context
from hermes_agent.context import CurrentSession, TurnIdentity, child_environment, get_session_env
from hermes_state.ids import SessionId

pytestmark = pytest.mark.slow


def session(name: str) -> CurrentSession:
    return CurrentSession(SessionId(name))


def test_a_turn_knows_who_it_is_for() -> None:
    with context.bind(TurnIdentity(platform="telegram", chat_id="42", user_name="Ana"), session("s1")):
        assert get_session_env("HERMES_SESSION_PLATFORM") == "telegram"
        assert get_session_env("HERMES_SESSION_CHAT_ID") == "42"
        assert get_session_env("HERMES_SESSION_USER_NAME") == "Ana"
        assert get_session_env("HERMES_SESSION_ID") == "s1"
    assert get_session_env("HERMES_SESSION_PLATFORM", "nobody") == "nobody"


def test_outside_of_a_turn_the_environment_answers_and_inside_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_ID", "of the parent")
    monkeypatch.setenv("HERMES_SESSION_THREAD_ID", "7")
    monkeypatch.setenv("HERMES_SOMETHING", "else")
    assert get_session_env("HERMES_SESSION_ID") == "of the parent"
    with context.bind(TurnIdentity(), session("s1")):
        assert get_session_env("HERMES_SESSION_ID") == "s1"
        assert get_session_env("HERMES_SESSION_THREAD_ID", "default") == "", "empty is an answer"
        assert get_session_env("HERMES_SOMETHING") == "else"
        assert "HERMES_SESSION_THREAD_ID" not in child_environment()


def test_nothing_writes_the_environment() -> None:
    before = dict(os.environ)
    with context.bind(TurnIdentity(platform="cli"), session("s1")):
        context.set_current_session_id("s2")
        child_environment()
    contextvars.copy_context().run(context.set_current_session_id, "s3")
    assert dict(os.environ) == before


def test_a_rotation_is_seen_by_tools_that_are_running() -> None:
    """One move, and every task, thread and copied context of the turn reads the new id; other turns do not."""

    async def tool(go_on: asyncio.Event) -> list[str]:
        seen = [get_session_env("HERMES_SESSION_ID")]
        await go_on.wait()
        from_thread = await asyncio.to_thread(get_session_env, "HERMES_SESSION_ID")
        return [*seen, get_session_env("HERMES_SESSION_ID"), from_thread, child_environment()["HERMES_SESSION_ID"]]

    async def turn(name: str, rotates: bool) -> list[str]:
        with context.bind(TurnIdentity(platform="cli"), session(name)):
            go_on = asyncio.Event()
            running = asyncio.create_task(tool(go_on))
            await asyncio.sleep(0)
            if rotates:
                context.set_current_session_id(f"{name}-child")
            go_on.set()
            return await running

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(turn("a", True), turn("b", False)))

    moved, still = asyncio.run(both())
    assert moved == ["a", "a-child", "a-child", "a-child"]
    assert still == ["b"] * 4


def test_without_a_turn_an_id_stays_in_its_own_context() -> None:
    """Two tasks that were copied from one context do not move each other."""

    async def task(name: str) -> str:
        context.set_current_session_id(name)
        await asyncio.sleep(0)
        return get_session_env("HERMES_SESSION_ID", "")

    async def both() -> list[str]:
        context.set_current_session_id("outer")
        found = await asyncio.gather(task("one"), task("two"))
        return [*found, get_session_env("HERMES_SESSION_ID")]

    assert asyncio.run(both()) == ["one", "two", "outer"]


def test_a_plain_thread_knows_nothing_unless_it_is_given_the_context() -> None:
    seen: list[str] = []
    with context.bind(TurnIdentity(), session("s1")):
        look = threading.Thread(target=lambda: seen.append(get_session_env("HERMES_SESSION_ID", "none")))
        look.start()
        look.join()
    assert seen == ["none"]


def test_a_child_process_gets_the_turns_identity_whatever_strangers_call_themselves() -> None:
    name = "Ada\0" + "é" * 5_000 + "\udc80"
    with context.bind(TurnIdentity(platform="telegram", user_name=name, chat_name="a\nb"), session("s9")):
        environment = child_environment()
    code = "import os; print(os.environ['HERMES_SESSION_ID'], len(os.environ['HERMES_SESSION_USER_NAME']) > 500)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["s9", "True"]
    assert environment["HERMES_SESSION_CHAT_NAME"] == "a\nb"
    assert child_environment() == {}
