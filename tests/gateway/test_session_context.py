"""A turn's identity under the seeds' names."""

from __future__ import annotations

import asyncio
import contextvars
import os

import pytest

from gateway import session_context as ctx
from hermes_agent.context import child_environment


def inside(fn) -> None:
    """Each test in a context of its own, so that nothing it binds is left behind."""
    contextvars.copy_context().run(fn)


def test_what_is_bound_wins_over_the_environment_also_when_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 67."""
    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "from outside")

    def run() -> None:
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "from outside"
        tokens = ctx.set_session_vars(platform="telegram", chat_id="42", session_key="k")
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "42"
        assert ctx.get_session_env("HERMES_SESSION_USER_NAME", "none") == ""
        ctx.clear_session_vars(tokens)
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == ""
        ctx.reset_session_vars()
        assert ctx.get_session_env("HERMES_SESSION_CHAT_ID") == "from outside"

    inside(run)


def test_nothing_writes_the_environment_of_the_process() -> None:
    def run() -> None:
        before = dict(os.environ)
        ctx.set_session_vars(platform="telegram", session_key="k", session_id="s1")
        ctx.set_current_session_id("s2")
        assert ctx.get_session_env("HERMES_SESSION_ID") == "s2"
        assert dict(os.environ) == before
        assert child_environment()["HERMES_SESSION_ID"] == "s2"

    inside(run)


def test_chats_at_once_see_only_themselves_in_threads_too() -> None:
    async def chat(number: int) -> None:
        ctx.set_session_vars(platform="telegram", session_key=f"key-{number}", session_id=f"s-{number}")
        for _ in range(3):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(ctx.get_session_env, "HERMES_SESSION_KEY") == f"key-{number}"
            assert ctx.get_session_env("HERMES_SESSION_ID") == f"s-{number}"

    async def run() -> None:
        await asyncio.gather(*(asyncio.create_task(chat(n)) for n in range(20)))

    asyncio.run(run())


def test_compression_in_a_worker_thread_is_seen_by_the_whole_turn() -> None:
    async def run() -> None:
        ctx.set_session_vars(session_key="k", session_id="before")
        await asyncio.to_thread(ctx.set_current_session_id, "after")
        assert ctx.get_session_env("HERMES_SESSION_ID") == "after"

    asyncio.run(run())


def test_whether_something_can_be_sent_later() -> None:
    def run() -> None:
        assert ctx.async_delivery_supported()
        assert not ctx.session_context_engaged()
        ctx.set_session_vars(platform="api_server", async_delivery=False)
        assert not ctx.async_delivery_supported()
        assert ctx.session_context_engaged()
        ctx.reset_session_vars()
        assert ctx.async_delivery_supported()
        ctx.declare_stateless_channel()
        assert not ctx.async_delivery_supported()

    inside(run)
