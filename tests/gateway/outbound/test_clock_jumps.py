"""A wall clock beside one that nobody can set."""

from __future__ import annotations

import pytest

from gateway.outbound.deliverer import ClockJumps
from hermes_testing.clock import Clock


@pytest.mark.parametrize(
    "passed, moved, seen",
    [(1, 1, 0), (1, 0.9, 0), (60, 60, 0), (1, -3_599, 3_600), (1, 3_600, 0), (600, 0, 600)],
    ids=["in step", "trimmed", "a long pause", "set back", "set forward", "a suspended wall clock"],
)
def test_only_a_clock_that_was_set_back_is_told(passed: float, moved: float, seen: float) -> None:
    wall, steady = Clock(), Clock(100.0)
    jumps = ClockJumps(wall, steady=steady)
    steady.advance(passed)
    wall.advance(moved)
    assert jumps.set_back() == pytest.approx(seen)
    steady.advance(1)
    wall.advance(1)
    assert jumps.set_back() == 0.0, "once"
