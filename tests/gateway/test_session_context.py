"""A turn's identity under the seeds' names."""

from __future__ import annotations

import asyncio
import contextvars
import os

import pytest

from gateway import session_context as ctx
from hermes_agent.context import CurrentSession, TurnIdentity, bind, child_environment
from hermes_state.ids import SessionId


def bound(session_id: str = "", **facts: str):
    return bind(TurnIdentity(**facts), CurrentSession(SessionId(session_id)))


def test_what_is_bound_wins_over_the_environment_also_when_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 67."""
    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "from outside")
    assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "from outside"
    with bound(platform="telegram", chat_id="42", session_key="k"):
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "42"
        assert ctx.get_session_env("HERMES_SESSION_USER_NAME", "none") == ""
        with bound():
            assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == ""
    assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "from outside"


def test_nothing_writes_the_environment_of_the_process() -> None:
    before = dict(os.environ)
    with bound("s1", platform="telegram", session_key="k"):
        ctx.set_current_session_id("s2")
        assert ctx.get_session_env("HERMES_SESSION_ID") == "s2"
        assert dict(os.environ) == before
        assert child_environment()["HERMES_SESSION_ID"] == "s2"


def test_chats_at_once_see_only_themselves_in_threads_too() -> None:
    async def chat(number: int) -> None:
        with bound(f"s-{number}", platform="telegram", session_key=f"key-{number}"):
            for _ in range(3):
                await asyncio.sleep(0)
                assert await asyncio.to_thread(ctx.get_session_env, "HERMES_SESSION_KEY") == f"key-{number}"
                assert ctx.get_session_env("HERMES_SESSION_ID") == f"s-{number}"

    async def run() -> None:
        await asyncio.gather(*(asyncio.create_task(chat(n)) for n in range(20)))

    asyncio.run(run())


def test_compression_in_a_worker_thread_is_seen_by_the_whole_turn() -> None:
    async def run() -> None:
        with bound("before", session_key="k"):
            await asyncio.to_thread(ctx.set_current_session_id, "after")
            assert ctx.get_session_env("HERMES_SESSION_ID") == "after"

    asyncio.run(run())


def test_variables_can_be_set_cleared_and_given_back_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "from outside")

    def run() -> None:
        tokens = ctx.set_session_vars(platform="telegram", chat_id="42", session_id="s", user_name=None, cwd="/work")
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "42"
        assert ctx.get_session_env("HERMES_SESSION_USER_NAME", "none") == ""
        assert child_environment()["HERMES_SESSION_ID"] == "s"
        ctx.clear_session_vars(tokens)
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID", "none") == "" and child_environment() == {}
        ctx.reset_session_vars()
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "from outside"

    contextvars.copy_context().run(run)
