"""Platforms that are down, slow or broken cost the others nothing and come back by themselves."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms import connections
from gateway.platforms.base import BasePlatformAdapter, Health, Outgoing, SendResult
from gateway.platforms.connections import Connections
from hermes_config.errors import HermesError


class Flaky(BasePlatformAdapter):
    """Connects after so many failures; each is what `failing` raises, or a plain no."""

    def __init__(self, platform: Platform, *, failures: int, failing: BaseException | None = None) -> None:
        super().__init__(PlatformConfig(enabled=True), platform)
        self.left, self.failing, self.calls, self.gone = failures, failing, [], False  # type: ignore[var-annotated]

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self.calls.append(is_reconnect)
        if self.left == 0:
            return True
        self.left -= 1
        if self.failing is not None:
            raise self.failing
        return False

    async def disconnect(self) -> None:
        self.gone = True
        if self.failing is not None:
            raise self.failing

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        return SendResult(success=True)

    def health(self) -> Health:
        return Health(last_contact=7.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_PAUSE", 0.01)


def test_each_comes_when_it_can_and_none_waits_for_another() -> None:
    async def go() -> None:
        good = Flaky(Platform.TELEGRAM, failures=0)
        broken = Flaky(Platform.DISCORD, failures=3, failing=RuntimeError("bug"))
        never = Flaky(Platform.SLACK, failures=10_000)
        told: list[Platform] = []
        adapters = {one.platform: one for one in (never, broken, good)}
        keeper = Connections(adapters, told.append)
        keeper.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == [Platform.TELEGRAM]
        for _ in range(200):
            await asyncio.sleep(0.01)
            if len(told) == 2:
                break
        assert told == [Platform.TELEGRAM, Platform.DISCORD]
        assert broken.calls == [False, True, True, True]
        health = keeper.health()
        assert (health["telegram"].problem, health["discord"].problem) == ("", "")
        assert health["slack"].problem == "it did not connect" and health["slack"].retry_at is not None
        assert health["slack"].last_contact == 7.0
        await keeper.stop()
        assert good.gone and broken.gone and never.gone

    asyncio.run(go())


def test_what_is_wrong_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> str:
        keeper = Connections({Platform.TELEGRAM: Flaky(Platform.TELEGRAM, failures=99, failing=RuntimeError("x"))})
        keeper.start()
        await asyncio.sleep(0.05)
        problem = keeper.health()["telegram"].problem
        await keeper.stop()
        return problem

    assert asyncio.run(go()) == "the adapter failed (RuntimeError)"
    assert "telegram" in caplog.text


def test_a_problem_is_logged_when_it_changes_and_not_at_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        adapter = Flaky(Platform.TELEGRAM, failures=99, failing=HermesError("the token is refused"))
        adapter.connect_pause = 0.01
        keeper = Connections({Platform.TELEGRAM: adapter})
        keeper.start()
        for failing in (HermesError("no such host"), None):
            await asyncio.sleep(0.1)
            assert len(adapter.calls) > 2
            adapter.calls.clear()
            adapter.failing = failing
        await asyncio.sleep(0.1)
        await keeper.stop()

    asyncio.run(go())
    said = [record.getMessage() for record in caplog.records]
    assert said == ["telegram: the token is refused", "telegram: no such host", "telegram: it did not connect"]


@pytest.mark.parametrize("bad", [RuntimeError("bug"), None])
def test_an_adapter_that_cannot_say_its_health_has_a_problem_and_the_others_are_heard(
    caplog: pytest.LogCaptureFixture, bad: RuntimeError | None
) -> None:
    class Silent(Flaky):
        def health(self) -> Health:
            if bad is not None:
                raise bad
            return bad  # type: ignore[return-value]

    silent, good = Silent(Platform.DISCORD, failures=0), Flaky(Platform.TELEGRAM, failures=0)
    keeper = Connections({one.platform: one for one in (silent, good)})
    for _ in range(3):
        health = keeper.health()
        assert "cannot say its health" in health["discord"].problem
        assert health["telegram"] == Health(last_contact=7.0)
    assert caplog.text.count("discord cannot say its health") == 1, "it is asked every few seconds, and logged once"
