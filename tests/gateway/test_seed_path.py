"""Every function that other programs know by name is on the way of a running gateway: a real /new, expiry, compression
and shutdown go through it. A function that only those programs called would prove nothing about us."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import ROUTE
from tests.support.gateways import PretendGateway

from gateway import periodic_tasks, run
from gateway.session import SessionStore
from hermes_cli import plugins
from hermes_state import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import Hold, ScriptedModel, always, in_system, say

_METHODS = (
    "_handle_reset_command", "_session_expiry_watcher", "stop", "_refresh_agent_cache_message_count",
    "_evict_cached_agent", "_cleanup_agent_resources", "_sweep_idle_cached_agents", "_format_session_info",
    "_publish_rotation", "_update_runtime_status",
)  # fmt: skip
_STORE = ("reset_session", "_save", "_is_session_expired", "prune_old_entries", "_generate_session_key")


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """What was entered, and with what."""
    seen: dict[str, list[tuple[Any, ...]]] = {}
    for owner, names in ((run.GatewayRunner, _METHODS), (SessionStore, _STORE)):
        for name in names:
            monkeypatch.setattr(owner, name, _noted(getattr(owner, name), seen.setdefault(name, [])))
    return seen


def _noted(method: Any, seen: list[tuple[Any, ...]]) -> Any:
    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return method(self, *args, **kwargs)

    return called


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    fired: list[tuple[str, dict[str, Any]]] = []

    def note(name: str, /, **facts: Any) -> list[Any]:
        fired.append((name, facts))
        return []

    monkeypatch.setattr(plugins, "invoke_hook", note)
    yield fired


async def _told(here: PretendGateway, text: str) -> None:
    await here.until(lambda: any(text in said for said in here.chat.chat()))


def test_a_real_new(
    db: SessionDB, home: Path, entered: dict[str, list[Any]], hooks: list[tuple[str, dict[str, Any]]]
) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("ok"))) as model:
            async with PretendGateway(db, home, model) as here:
                await here.chat.say("hello")
                await here.quiet()
                old = here.parts.services.store.peek_session_id(ROUTE)
                await here.chat.say("/new")
                await _told(here, "Session reset")
                await here.quiet()
                new = here.parts.services.store.peek_session_id(ROUTE)
        assert old != new
        about = [(name, facts) for name, facts in hooks if name in ("on_session_finalize", "on_session_reset")]
        assert about == [
            ("on_session_finalize", {"session_id": old, "platform": "telegram"}),
            ("on_session_reset", {"session_id": new, "platform": "telegram"}),
        ]
        for name in ("_handle_reset_command", "reset_session", "_evict_cached_agent", "_format_session_info"):
            assert entered[name], name
        assert entered["_refresh_agent_cache_message_count"], "after the turn"

    asyncio.run(go())


def test_a_real_expiry(
    db: SessionDB,
    home: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    entered: dict[str, list[Any]],
    hooks: list[tuple[str, dict[str, Any]]],
) -> None:
    monkeypatch.setattr(periodic_tasks, "FIRST_EXPIRY_SECONDS", 0.2)
    # Its passes come quickly, so that one of them is after the clock has moved, however slow the machine is.
    monkeypatch.setattr(run.GatewayRunner, "_rest", lambda self, seconds: asyncio.sleep(0.1))

    async def go() -> None:
        with ScriptedModel(always(say("ok"))) as model:
            idle = {"session_reset": {"mode": "idle", "idle_minutes": 10}}
            async with PretendGateway(db, home, model, **idle) as here:
                await here.chat.say("hello")
                await here.quiet()
                old = here.parts.services.store.peek_session_id(ROUTE)
                clock.advance(3_600)
                closed = ("on_session_finalize", {"session_id": old, "platform": "telegram"})
                await here.until(lambda: closed in hooks)
                entry = here.parts.services.store._entries[ROUTE]
                assert entry.expiry_finalized
                await here.chat.say("back again", at=clock())
                await here.quiet()
                assert here.parts.services.store.peek_session_id(ROUTE) != old
                assert hooks.count(closed) == 1, "closed once, by the watcher"
                await _told(here, "automatically reset")
        for name in (
            "_session_expiry_watcher",
            "_is_session_expired",
            "_sweep_idle_cached_agents",
            "prune_old_entries",
        ):
            assert entered[name], name

    asyncio.run(go())


def test_a_real_compression(db: SessionDB, home: Path, entered: dict[str, list[Any]]) -> None:
    async def go() -> None:
        summary = say("## Summary\nThey talked about animals.", when=in_system("summar"))
        with ScriptedModel(summary, always(say("word " * 700)), context_length=12_000) as model:
            model.allow_rejections = True
            tight = {"compression": {"threshold": 0.5, "protect_last_n": 2}}
            async with PretendGateway(db, home, model, **tight) as here:
                first = None
                for number in range(14):
                    await here.chat.say(f"say more about animal {number} " + "please " * 200)
                    await here.quiet()
                    first = first or here.parts.services.store.peek_session_id(ROUTE)
                    if here.parts.services.store.peek_session_id(ROUTE) != first:
                        break
                now = here.parts.services.store.peek_session_id(ROUTE)
                await here.chat.say("and after it?")
                await here.quiet()
                cached = next(iter(here.parts.agents.entries.values()))
            assert now != first, "it was compressed"
            assert (ROUTE, first, now) in entered["_publish_rotation"]
            assert entered["_save"]
            assert cached[3] == now, "the cache follows the conversation"
            assert len(db.list_sessions_rich()) == 1, "one conversation"

    asyncio.run(go())


def test_a_real_shutdown(
    db: SessionDB, home: Path, entered: dict[str, list[Any]], hooks: list[tuple[str, dict[str, Any]]]
) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("ok", hold=hold)) as model:
            here = PretendGateway(db, home, model)
            await here.start()
            await here.chat.say("hello")
            await hold.reached()
            running = here.parts.services.store.peek_session_id(ROUTE)
            asyncio.get_running_loop().call_later(0.1, hold.release)
            await here.runner.stop()
            assert here.chat.chat() == ["ok"], "what runs is finished first"
            assert ("on_session_finalize", {"session_id": running, "platform": "gateway"}) in hooks
            session = db.get_session(str(running))
            assert session is not None and session["ended_at"] is None, "told, not ended"
        for name in ("stop", "_cleanup_agent_resources", "_update_runtime_status"):
            assert entered[name], name

    asyncio.run(go())
