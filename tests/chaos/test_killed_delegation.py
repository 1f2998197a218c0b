"""A parent with five children, its process killed wherever it touches the store or the model, and recovered.

The model is a real server in this process, which remembers who asked for what; the parent runs in a process of its own
(a terminal's, or a gateway's) that is gone at its n-th point (SIGKILL). Then another process recovers the conversation:
each result has reached the parent once, no step whose answer was stored is asked of the model again, the budget holds,
and nothing is left open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.support.gateways import PretendGateway, settings
from tests.support.kill_points import Points, in_child
from tests.support.stores import EngineName, TestStores

from hermes_agent import AIAgent, delegation
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_state.turns.children import Child
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, call, say
from hermes_testing.scripted.server import ScriptedServer

pytestmark = pytest.mark.slow

NAMES = ("one", "two", "three", "four", "five")
LIMIT, CHILD_LIMIT = 60.0, 9.0
MONEY: dict[str, Any] = {
    "budget": {"conversation": {"usd": LIMIT}}, "delegation": {"budget_usd": CHILD_LIMIT},
    "models": {"scripted-1": {"price": {"input": 100, "output": 100}}},
}  # fmt: skip
KILLS = {"sqlite": 10, "postgresql": 5}


def who(request: ScriptedRequest) -> str:
    """Which step of whom a request asks for."""
    first = str(request.messages[1]["content"])
    return f"{first.splitlines()[0]} {len(request.messages)}"


def improvise(request: ScriptedRequest) -> Step:
    first, last = str(request.messages[1]["content"]), request.messages[-1]
    if first.startswith("task "):
        return say(f"report {first.split()[1]}")
    if last["role"] == "tool":
        return say("All five are back.")
    return say(calls=[call("delegate_task", {"tasks": [{"goal": f"task {name}"} for name in NAMES]})])


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedModel(improvise=improvise).served() as served:
        yield served


async def at_a_terminal(db: SessionDB, home: Path, points: Points) -> None:
    config, chat = configuration.load(home), ConversationId("chat")
    agent = AIAgent(session_db=db, session_id=chat, config=config, workdir=home)
    if await agent.resume_unfinished() is None and db.message_count(chat) == 0:
        await agent.arun_conversation("ask five")
    await delegation.recover(db, config, approver=None, parent=chat)
    await asyncio.gather(*delegation._calls.values())
    points.reached("end")


async def in_a_gateway(db: SessionDB, home: Path, points: Points) -> None:
    # The model's settings stand in the config that the test wrote.
    written = yaml.safe_load((home / "config.yaml").read_text())
    async with PretendGateway(db, home, written["model"], **MONEY) as gateway:
        if not db.inbox.versions(platform="telegram", account=gateway.chat.account, chat_id="42", message_id="m-1"):
            await gateway.chat.say("ask five", message_id="m-1")
        await gateway.until(lambda: db.inbox.counts() == {"answered": 1 + len(NAMES)}, seconds=30)
        await gateway.quiet()
    points.reached("end")


class Left(NamedTuple):
    """What a killed process left: the steps whose answers are stored."""

    ended: frozenset[str]
    delegated: bool


Work = Callable[[SessionDB, Path, Points], Any]


class Sweep:
    def __init__(self, engine: EngineName, stores: TestStores, server: ScriptedServer, home: Path, work: Work) -> None:
        self._engine, self._stores, self._server, self._work = engine, stores, server, work
        self._home = home
        self.asked_again = 0
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(yaml.safe_dump(settings(server.model.settings(server.origin), **MONEY)))

    def _process(self, address: str | Path, fatal: int = 0) -> tuple[int, list[str]]:
        def work() -> list[str]:
            points = Points(fatal)
            points.watch()
            db = SessionDB(address)
            asyncio.run(self._work(db, self._home, points))
            db.close()
            return points.met

        status, met = in_child(work)
        return status, met or []

    def _arrived(self) -> int:
        """How many requests there were, once those of the killed process have been read from its sockets."""
        count = -1
        while count != len(self._server.model.requests):
            count = len(self._server.model.requests)
            time.sleep(0.05)
        return count

    def _fresh(self) -> str | Path:
        address = self._stores.fresh(self._engine)
        SessionDB(address).close()
        return address

    def points(self) -> list[str]:
        status, points = self._process(self._fresh())
        assert status == 0
        return points

    def kill(self, place: int) -> bool:
        address, begun = self._fresh(), len(self._server.model.requests)
        status, _ = self._process(address, place)
        before = self._arrived()
        left = _left(address)
        again, _ = self._process(address)
        assert again == 0, f"point {place}: it could not be recovered"
        first, second = self._server.model.requests[begun:before], self._server.model.requests[before:]
        self._judge(address, place, left, Counter(map(who, first)), Counter(map(who, second)))
        self._stores.discard(address)
        assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGKILL
        return os.WIFSIGNALED(status)

    def _judge(self, address: Any, place: int, left: Left, first: Counter[str], second: Counter[str]) -> None:
        assert set((first + second).values()) <= {1, 2} and set(first.values()) | set(second.values()) <= {1}, (
            f"point {place}: {first} {second}"
        )
        for name in left.ended:
            assert f"task {name} 2" not in second, f"point {place}: {name} had ended and was asked again"
        if left.delegated:
            assert not any(step.startswith("ask five") and step.endswith(" 2") for step in second), f"point {place}"
        self.asked_again += len(first.keys() & second.keys())
        db = SessionDB(address)
        children = _children(db)
        assert len(children) == len(NAMES), f"point {place}"
        assert {(child.state, child.returned) for child in children} == {("done", "call")}, f"point {place}: {children}"
        chat = children[0].parent_id
        told = "".join(str(message["content"]) for message in db.get_messages(db.get_compression_tip(chat)))
        told += "".join(
            str(row.payload) for row in db.inbox.list(limit=100) if row.message_id.startswith("hermes:children")
        )
        assert [told.count(f"report {name}") for name in NAMES] == [1] * len(NAMES), f"point {place}: {told}"
        assert told.count("All five are back.") == 1, f"point {place}: {told}"
        assert not db.inbox.counts().keys() & {"queued", "claimed"}, f"point {place}"
        assert not db.turns.list(state="running"), f"point {place}"
        assert len(db.outbox.list()) == (self._work is in_a_gateway), f"point {place}: children write to nobody"
        spent = [db.budgets.used("conversation", one)[1].nano_usd / 1e9 for one in (chat, *(c.id for c in children))]
        assert spent[0] <= LIMIT and max(spent[1:]) <= CHILD_LIMIT and spent[0] >= sum(spent[1:]), f"point {place}"
        for child, counted in zip(children, spent[1:], strict=True):
            price = _price(db, child)
            served = (first + second)[f"{child.goal} 2"]
            assert 0 < served * price <= counted + 1e-6, f"point {place}: a request that the model got is not counted"
        db.close()


def _children(db: SessionDB) -> list[Child]:
    return [child for turn in db.turns.list(limit=50) for child in db.children.of_turn(turn.id)]


def _price(db: SessionDB, child: Child) -> float:
    """The price of a child's one request."""
    turns = (turn for turn in db.turns.list(limit=50) if turn.conversation_id == child.id)
    (made,) = (call for turn in turns for call in db.model_calls.of_turn(turn.id))
    return made.cost_usd or 0.0


def _left(address: Any) -> Left:
    db = SessionDB(address)
    children = _children(db)
    ended = frozenset(child.goal.split()[1] for child in children if not child.is_open)
    db.close()
    return Left(ended, bool(children))


@pytest.mark.parametrize("work", [at_a_terminal, in_a_gateway])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_each_result_arrives_once_wherever_the_parent_is_killed(
    engine: EngineName,
    work: Work,
    stores: TestStores,
    server: ScriptedServer,
    home: Path,
    seed: int,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    sweep = Sweep(engine, stores, server, home, work)
    points = sweep.points()
    stride = 1 if pytestconfig.getoption("--long") else max(1, len(points) // KILLS[engine])
    places = range(1 + seed % stride, len(points), stride)
    killed = [place for place in places if sweep.kill(place)]
    assert len(killed) >= len(places) * 3 // 4, "most points are met each time"
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(points).items()))
    record_property(
        "kill points",
        f"five children {work.__name__} on {engine}: killed at {len(killed)} of {len(points)} points ({kinds}); "
        f"{sweep.asked_again} requests without a stored answer were asked again",
    )
