"""The gateway is killed again and again under load, and keeps every promise; one that breaks a promise is found out.

`make chaos` has the long form: `python -m tests.support.storm --kills 200`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.history import ANSWER, History
from tests.support.store_faults import NEEDS_MOUNT, SmallDisk, may_mount
from tests.support.stores import EngineName, TestPostgres, TestStores
from tests.support.storm import CANNOT_STORE, FAULTS, Storm, troubles

from hermes_testing.telegram.faults import OFF, Fault

CARELESS = Path(__file__).parent / "workers" / "careless_gateway.py"


def test_killed_under_load(
    engine: EngineName, stores: TestStores, tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    url = stores.postgresql() if engine == "postgresql" else None
    with Storm(chats=20, seed=seed, home=tmp_path / "gateway", database_url=url, pace=10.0) as storm:
        storm.rage(kills=6 if engine == "sqlite" else 4)
        history = storm.settle()
    record_property("kill points", f"a gateway under load on {engine}: {len(storm.lives)} kills\n{history.summary()}")
    assert history.violations() == []
    # and it was a storm: turns were cut off and taken up, tools ran, replies stand in the chats
    assert any(turn.attempt > 1 for turn in history.turns.values())
    assert history.effects
    assert any(ANSWER.search(seen.text) for chat in history.chats.values() for seen in chat)


@pytest.mark.skipif(not may_mount(), reason=NEEDS_MOUNT)
def test_without_a_store_nothing_is_lost_and_it_comes_back_by_itself(
    engine: EngineName, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """The short form; `python -m tests.support.storm --away-seconds 600` is the long one."""
    with ExitStack() as stack:
        disk = stack.enter_context(SmallDisk("512m"))
        server = TestPostgres(folder=disk.folder / "server") if engine == "postgresql" else None
        if server is not None:
            stack.callback(server.close)
        storm = stack.enter_context(
            Storm(
                chats=10, seed=seed, home=disk.folder / "home", pace=4.0, flood=OFF,
                config={"limits": {"write_wait_ms": 3_000}},
                database_url=None if server is None else server.fresh(),
            )
        )  # fmt: skip
        storm.rage(kills=1, longest=1.0)
        for name, fault in troubles(storm, disk, server):
            storm.trouble(name, fault, seconds=5.0)
        history = storm.settle()
        told = {seen.text for person in storm.people for seen in person.replies() if CANNOT_STORE in seen.text}
    lines = "\n".join(one.line() for one in storm.troubles)
    record_property("kill points", f"a gateway without a store on {engine}\n{lines}\n{history.summary()}")
    assert history.violations() == []
    assert all(one.written and one.told for one in storm.troubles), lines
    assert all(one.back < 30 for one in storm.troubles), lines
    assert not [text for text in told if '"' in text], "a person reads what is wrong, not which file of the server"


@pytest.mark.parametrize(
    ("rule", "found", "faults", "kinds"),
    [
        ("resends", "once: .* without a mark", (Fault("drop_after", method="sendMessage", chance=0.6),), ("plain",)),
        ("forgets", "stored: .* was acknowledged and is not stored", FAULTS, ("plain",)),
        ("reorders", "ordered: .* was answered out of order", (), ("tool",)),
        ("repeats", "acted: ", (), ("tool",)),
    ],
)
def test_a_broken_promise_is_seen(
    rule: str, found: str, faults: tuple[Fault, ...], kinds: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, str(CARELESS), rule]

    def seen(history: History) -> list[str]:
        return [line for line in history.violations() if re.match(found, line)]

    with Storm(
        chats=6,
        seed=2,
        faults=faults,
        modes=("queue",),
        kinds=kinds,
        command=command,
        home=tmp_path,
        pace=12.0,
        flood=OFF,
    ) as storm:
        for _ in range(8):  # as many lives as it needs to be found out
            storm.rage(kills=1, shortest=1.5, longest=2.0, ready=True)
            if seen(storm.history()):
                break
        history = storm.settle(seconds=20)
    lives = "\n".join(life.line() for life in storm.lives)
    assert seen(history), f"{lives}\n{history.summary()}\n{history.violations()}"
