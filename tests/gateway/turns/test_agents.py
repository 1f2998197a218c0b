"""The agent cache: what makes an agent another one, the guard, and its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.gateways import PretendGateway

from gateway.services import Services
from gateway.turns.agents import PENDING, Agents, AgentSpec, rebaseline, reusable, signature
from hermes_config import config as configuration
from hermes_config.limits import Limits
from hermes_state import SessionDB
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey
from hermes_testing.scripted.model import ScriptedModel, call, say

WANTED = AgentSpec(platform="telegram", person_id=PersonId("p1"))
BASE: dict[str, Any] = {
    "model": {"provider": "custom", "default": "m-1", "base_url": "http://127.0.0.1:9/v1", "api_key": "k" * 40}
}


@pytest.fixture
def sign(home: Path) -> Callable[..., str]:
    def made(wanted: AgentSpec = WANTED, **changes: Any) -> str:
        home.mkdir(exist_ok=True)
        tree = {**BASE, **changes}
        (home / "config.yaml").write_text(yaml.safe_dump(tree))
        return signature(configuration.load(home), wanted)

    return made


@pytest.mark.parametrize(
    "change",
    [
        {"model": {**BASE["model"], "default": "m-2"}},
        {"model": {**BASE["model"], "base_url": "http://127.0.0.1:10/v1"}},
        {"model": {**BASE["model"], "api_key": "k" * 39 + "x"}},
        {"model": {**BASE["model"], "context_length": 64_000}},
        {"toolsets": ["todo"]},
        {"compression": {"threshold": 0.3}},
        {"agent": {"api_max_retries": 0}},
        {"terminal": {"timeout": 5}},
        {"approvals": {"deny": ["git push*"]}},
        {"command_allowlist": ["git push"]},
        {"budget": {"day": {"usd": 0}}},
        {"fallback_providers": [{"provider": "demo", "model": "demo"}]},
        {"sandbox": {"read": ["/srv"]}},
        {"skills": {"disabled": ["deploy"]}},
        {"model": {**BASE["model"], "headers": {"x-team": "b"}}},
    ],
)
def test_what_changes_an_agent_changes_its_signature(sign: Callable[..., str], change: dict[str, Any]) -> None:
    assert sign() != sign(**change)
    assert sign() == sign()


def test_a_chat_that_goes_on_keeps_to_a_rule_that_was_set_meanwhile(db: SessionDB, home: Path) -> None:
    def results(model: ScriptedModel) -> str:
        return str([one["content"] for one in model.requests[-1].json["messages"] if one["role"] == "tool"][-1])

    async def go() -> None:
        makes = say(calls=[call("terminal", {"command": "touch made"})])
        with ScriptedModel(makes, say("One."), makes, say("Two.")) as model:
            async with PretendGateway(db, home, model) as here:
                (home / "workspace").mkdir(exist_ok=True)
                await here.chat.say("make it")
                await here.until(lambda: "One." in here.chat.chat())
                assert "exit code 0" in results(model)
                configuration.set_value("approvals.deny", ["touch *"], home)
                await here.chat.say("make it again")
                await here.until(lambda: "Two." in here.chat.chat())
                assert "approvals.deny forbids this" in results(model)
                configuration.set_value("budget.day.tokens", 1, home)
                await here.chat.say("and again")
                await here.until(lambda: any("budget.day.tokens" in text for text in here.chat.chat()))
                await here.quiet()
                assert len(model.requests) == 4

    asyncio.run(go())


def test_the_person_and_the_room_count_and_what_an_agent_does_not_take_in_does_not(sign: Callable[..., str]) -> None:
    assert sign() != sign(replace(WANTED, person_id=PersonId("p2")))
    assert sign() != sign(replace(WANTED, private=False))
    assert sign() == sign(agent={"gateway_timeout": 7}, display={"busy_input_mode": "queue"})
    assert "k" * 10 not in sign()


def test_the_guard() -> None:
    entry = ("agent", "sig", 4, "s1")
    assert reusable(entry, signature="sig", session_id="s1", count=4)
    assert not reusable(entry, signature="sig", session_id="s1", count=5), "somebody else wrote"
    assert reusable(entry, signature="sig", session_id="s2", count=9), "another segment's count says nothing"
    assert not reusable(entry, signature="other", session_id="s1", count=4)
    assert reusable(("agent", "sig"), signature="sig", session_id="s1", count=4)
    assert not reusable((PENDING, "sig", 4, "s1"), signature="sig", session_id="s1", count=4)
    cache: dict[str, Any] = {"c": entry}
    rebaseline(cache, "c", "s1", 6)
    assert cache["c"] == ("agent", "sig", 6, "s1")
    rebaseline(cache, "c", "s2", 9)
    assert cache["c"] == ("agent", "sig", 6, "s1")


class _Agent:
    """Enough of one to be kept and dropped."""

    def __init__(self, *_: Any, **facts: Any) -> None:
        self.nbytes, self.closed, self.session_id = 1_000_000, 0, facts["session_id"]

    def close(self) -> None:
        self.closed += 1


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _agents(services: Services, home: Path, **limits: int) -> tuple[Agents, _Clock]:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(yaml.safe_dump(BASE))
    clock = _Clock()
    services.db.limits = Limits(**limits)
    return Agents(services, make=_Agent, clock=clock), clock  # type: ignore[arg-type]


async def _get(agents: Agents, name: str) -> Any:
    return await agents.get(ConversationId(name), SessionId(name), WANTED, count=0)


def test_the_one_used_longest_ago_goes_first_and_one_in_a_turn_never(services: Services, home: Path) -> None:
    async def go() -> None:
        agents, _ = _agents(services, home, cached_agents=3)
        made = {name: await _get(agents, name) for name in "abc"}
        agents.running[SessionKey("route-a")] = made["a"]
        await _get(agents, "b")
        made["d"] = await _get(agents, "d")
        assert list(agents.entries) == ["a", "b", "d"], "c was used longest ago"
        assert made["c"].closed == 1 and made["a"].closed == 0
        agents.running.update({SessionKey(f"route-{name}"): made[name] for name in "bd"})
        await _get(agents, "e")
        assert len(agents.entries) == 4 or "e" not in agents.entries, "over its bound while that many turns run"

    asyncio.run(go())


def test_bytes_are_bounded_too(services: Services, home: Path) -> None:
    async def go() -> None:
        agents, _ = _agents(services, home, cached_agent_bytes=2_500_000)
        for name in "abc":
            await _get(agents, name)
            agents.used(ConversationId(name))
        assert list(agents.entries) == ["b", "c"]

    asyncio.run(go())


def test_idle_ones_are_swept_and_those_in_a_turn_are_not(services: Services, home: Path) -> None:
    async def go() -> None:
        agents, clock = _agents(services, home)
        idle, busy = await _get(agents, "idle"), await _get(agents, "busy")
        agents.running[SessionKey("route")] = busy
        clock.now = 4_000
        await _get(agents, "new")
        assert agents.sweep_idle(seconds=3_600) == 1
        assert list(agents.entries) == ["busy", "new"] and idle.closed == 1

    asyncio.run(go())
