"""The gateway is killed again and again under load, and keeps every promise; one that breaks a promise is found out.

`make chaos` has the long form: `python -m tests.support.storm --kills 200`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.history import ANSWER
from tests.support.stores import EngineName, TestStores
from tests.support.storm import FAULTS, Storm

from hermes_testing.telegram.faults import Fault

CARELESS = Path(__file__).parent / "workers" / "careless_gateway.py"


def test_killed_under_load(
    engine: EngineName, stores: TestStores, tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    url = stores.postgresql() if engine == "postgresql" else None
    with Storm(chats=50 if engine == "sqlite" else 20, seed=seed, home=tmp_path / "gateway", database_url=url) as storm:
        storm.rage(kills=8 if engine == "sqlite" else 4)
        history = storm.settle()
    record_property("kill points", f"a gateway under load on {engine}: {len(storm.lives)} kills\n{history.summary()}")
    assert history.violations() == []
    # and it was a storm: turns were cut off and taken up, tools ran, replies stand in the chats
    assert any(turn.attempt > 1 for turn in history.turns.values())
    assert history.effects
    assert any(ANSWER.search(seen.text) for chat in history.chats.values() for seen in chat)


@pytest.mark.parametrize(
    ("rule", "found", "faults", "kinds"),
    [
        ("resends", "once", (Fault("drop_after", method="sendMessage", chance=0.6),), ("plain",)),
        ("forgets", "stored", FAULTS, ("plain",)),
        ("reorders", "ordered", (), ("tool",)),
        ("repeats", "acted", (), ("tool",)),
    ],
)
def test_a_broken_promise_is_seen(
    rule: str, found: str, faults: tuple[Fault, ...], kinds: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, str(CARELESS), rule]
    with Storm(chats=4, seed=2, faults=faults, modes=("queue",), kinds=kinds, command=command, home=tmp_path) as storm:
        storm.rage(kills=3 if rule == "repeats" else 1, shortest=5.0, longest=6.0, ready=True)
        history = storm.settle(seconds=20)
    lives = "\n".join(life.line() for life in storm.lives)
    broken = history.violations()
    assert [line for line in broken if line.startswith(f"{found}: ")], f"{lives}\n{history.summary()}\n{broken}"
