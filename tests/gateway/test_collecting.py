"""Cyclic garbage of a gateway goes when the process has a quiet moment, and not while it has its hands full."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from gateway import collecting


class Knot:
    """Something that only a full collection can free once it is old."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _rules_of_this_process() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def old_knot() -> weakref.ref[Knot]:
    knot = Knot()
    for _ in range(12):  # it grows old, and a full collection falls due
        gc.collect(1)
    return weakref.ref(knot)


def test_garbage_goes_in_a_quiet_moment_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_LOOK_SECONDS", 0.05)

    async def scenario() -> None:
        turns = 0
        watching = asyncio.create_task(collecting.watch(lambda: turns))
        await asyncio.sleep(0)
        gc.collect()
        kept, made = old_knot(), []
        for _ in range(20):  # a crowd arrives: what is made stays, so the young are looked at again and again
            made.append([[] for _ in range(6_000)])
            await asyncio.sleep(0.01)
        turns = 1_000  # all of them wait for their models: nothing is made, and all that is theirs lives
        await asyncio.sleep(0.2)
        assert kept() is not None
        turns = 0
        await _gone(kept, lambda: None)
        watching.cancel()

    asyncio.run(scenario())


def test_it_does_not_wait_for_a_quiet_moment_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(collecting, "_MOST", 15)

    async def scenario() -> None:
        turns = 1_000
        watching = asyncio.create_task(collecting.watch(lambda: turns))
        await asyncio.sleep(0)
        gc.collect()
        made: list[object] = []
        await _gone(old_knot(), lambda: made.append([[] for _ in range(6_000)]))
        watching.cancel()

    asyncio.run(scenario())


async def _gone(kept: weakref.ref[Knot], meanwhile: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while kept() is not None:
            meanwhile()
            await asyncio.sleep(0.002)
