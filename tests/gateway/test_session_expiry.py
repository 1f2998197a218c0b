"""The gateway's round over its routes, with a real store behind it: what is due is closed, what is old is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from gateway.config import GatewayConfig, Platform, SessionResetPolicy
from gateway.run import GatewayRunner
from gateway.session import SessionEntry, SessionSource, SessionStore
from hermes_state import SessionDB
from hermes_testing.clock import Clock

DAY = 86_400


@pytest.fixture
def rounds(db: SessionDB, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`rounds(store, n)` lets the watcher of a runner on `store` go round n times, without its pauses."""
    monkeypatch.setattr("gateway.run.time.time", clock)
    real_sleep = asyncio.sleep

    def make(config: GatewayConfig) -> tuple[GatewayRunner, SessionStore, Callable[[int], None]]:
        store = SessionStore(tmp_path / "sessions", config, db=db)
        runner = object.__new__(GatewayRunner)
        runner.config, runner.session_store = config, store

        def go(count: int = 1) -> None:
            left = [count]

            def swept() -> int:
                left[0] -= 1
                runner._running = left[0] > 0
                return 0

            async def no_pause(_: float) -> None:
                await real_sleep(0)

            runner._running = True
            runner._sweep_idle_cached_agents = swept
            with monkeypatch.context() as patched:
                patched.setattr("gateway.run.asyncio.sleep", no_pause)
                asyncio.run(runner._session_expiry_watcher(interval=0))

        return runner, store, go

    return make


def old_route(store: SessionStore, clock: Clock, key: str) -> None:
    moment = datetime.fromtimestamp(clock() - 100 * DAY)
    store._entries[key] = SessionEntry(key, f"s-{key}", moment, moment, platform=Platform.TELEGRAM)
    store._save()


def test_the_first_round_forgets_and_then_once_an_hour(rounds, clock: Clock) -> None:
    _, store, go = rounds(GatewayConfig())
    old_route(store, clock, "first")
    go()
    assert "first" not in store._entries
    old_route(store, clock, "second")
    clock.advance(3_500)
    go(3)
    assert "second" in store._entries, "it is not an hour since the last time"
    clock.advance(200)
    go()
    assert "second" not in store._entries
    store.close()


def test_zero_days_forget_nothing(rounds, clock: Clock) -> None:
    _, store, go = rounds(GatewayConfig(session_store_max_age_days=0))
    old_route(store, clock, "kept")
    go(2)
    assert "kept" in store._entries
    store.close()


def test_what_is_due_is_closed_once_and_told_once(
    rounds, db: SessionDB, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(
        "hermes_cli.plugins.invoke_hook", lambda name, **facts: told.append((name, facts["session_id"]))
    )
    rule = SessionResetPolicy(mode="idle", idle_minutes=30)
    _, store, go = rounds(GatewayConfig(default_reset_policy=rule))
    session = store.resolve(SessionSource(Platform.TELEGRAM, "42", user_id="42")).handle.session_id
    go()
    assert told == []
    clock.advance(3_600)
    go(2)
    assert told == [("on_session_finalize", session)]
    row = db.get_session(session)
    assert row is not None and row["end_reason"] == "session_reset"
    store.close()
