"""When a conversation is compressed: the numbers an existing home relies on, and what holds an attempt back."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.compression import policy
from hermes_agent.compression.policy import ContextWindow, Pace
from hermes_agent.models.base import Endpoint
from hermes_config.config import of as config_of
from hermes_config.sections import CompressionSection

SMALL = ContextWindow(context_length=128_000)


@pytest.mark.parametrize(
    ("length", "trigger"),
    [(64_000, 54_400), (128_000, 96_000), (200_000, 150_000), (400_000, 300_000), (512_000, 256_000),
     (1_000_000, 500_000)],
)  # fmt: skip
def test_the_triggers_an_existing_home_knows(length: int, trigger: int) -> None:
    window = ContextWindow(context_length=length)
    assert window.trigger == trigger
    assert window.tail_budget == trigger // 5
    assert window.target < trigger


@pytest.mark.parametrize(
    ("window", "trigger"),
    [
        (ContextWindow(context_length=200_000, max_tokens=8_000), 144_000),
        (ContextWindow(context_length=80_000), 64_000),  # the floor is above three quarters and below the window
        (ContextWindow(context_length=8_000), 6_800),
        (ContextWindow(context_length=128_000, max_tokens=128_000), 27_200),  # a setting that leaves nothing
        (ContextWindow(context_length=1_000_000, settings=CompressionSection(threshold=0.8)), 800_000),
        (ContextWindow(context_length=200_000, settings=CompressionSection(threshold=0.8)), 160_000),
    ],
)
def test_room_for_the_answer_and_the_floor_move_the_trigger(window: ContextWindow, trigger: int) -> None:
    assert window.trigger == trigger


def due(window: ContextWindow, *, estimated: int, compactions: int = 0, pace: Pace | None = None) -> bool:
    return policy.due(window, estimated=estimated, compactions=compactions, pace=pace or Pace())


def test_settings_come_from_the_home_and_nonsense_is_the_default() -> None:
    endpoint = Endpoint("custom", "chat", "http://127.0.0.1:1", "m", context_length=200_000, max_tokens=4_000)
    given = {"compression": {"threshold": 0.9, "target_ratio": 0.1, "protect_last_n": 6, "enabled": False}}
    window = policy.window_for(endpoint, config_of(Path(), given).compression)
    used = window.settings
    assert (used.threshold, used.target_ratio, used.protect_last_n, used.enabled) == (0.9, 0.1, 6, False)
    assert (window.context_length, window.max_tokens, window.model) == (200_000, 4_000, "m")
    odd = {"compression": {"threshold": "half", "target_ratio": 70, "protect_last_n": True, "in_place": True}}
    for nonsense in (odd, {"compression": "yes"}):
        found = config_of(Path(), nonsense).compression
        assert policy.window_for(endpoint, found) == policy.window_for(endpoint, CompressionSection())


def test_a_call_that_comes_too_near_to_the_window_is_due() -> None:
    assert not due(SMALL, estimated=95_999)
    assert due(SMALL, estimated=96_000)
    assert not due(SMALL, estimated=200_000, compactions=policy.PASSES)
    assert not due(ContextWindow(context_length=128_000, settings=CompressionSection(enabled=False)), estimated=200_000)


def test_the_turn_after_a_compression_does_not_compress_again() -> None:
    pace = Pace()
    pace.compacted()
    assert not due(SMALL, estimated=120_000, pace=pace)  # nothing was counted yet
    pace.counted(SMALL, estimated=120_000, reported=40_000)
    pace.turn_began()
    assert not due(SMALL, estimated=200_000, pace=pace)
    pace.turn_began()
    assert due(SMALL, estimated=200_000, pace=pace)


def test_an_estimate_that_a_provider_has_disproved_waits_for_real_growth() -> None:
    pace = Pace()
    pace.counted(SMALL, estimated=100_000, reported=70_000)
    assert not due(SMALL, estimated=104_999, pace=pace)
    assert due(SMALL, estimated=105_000, pace=pace)


def test_two_compressions_that_did_not_help_stop_the_automatic_ones() -> None:
    pace = Pace()
    for _ in range(2):
        pace.compacted()
        pace.counted(SMALL, estimated=1, reported=120_000)
        pace.turn_began()
        pace.turn_began()
    assert not due(SMALL, estimated=10**6, pace=pace)
    pace.compacted()  # by hand, and this time it did
    pace.counted(SMALL, estimated=1, reported=20_000)
    pace.turn_began()
    pace.turn_began()
    assert due(SMALL, estimated=10**6, pace=pace)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"cooling": False, "streak": 0, "calls_left": 2}, "summarise"),
        ({"cooling": True, "streak": 0, "calls_left": 2}, "wait"),
        ({"cooling": False, "streak": 2, "calls_left": 2}, "wait"),
        ({"cooling": True, "streak": 0, "calls_left": 2, "tokens": 128_000}, "fallback"),
        ({"cooling": True, "streak": 0, "calls_left": 2, "must": True}, "fallback"),
        ({"cooling": False, "streak": 0, "calls_left": 2, "must": True}, "summarise"),
        ({"cooling": True, "streak": 9, "calls_left": 2, "force": True}, "summarise"),
        ({"cooling": False, "streak": 0, "calls_left": 0}, "fallback"),
    ],
)
def test_a_summariser_that_failed_is_left_alone_for_a_while(facts: dict[str, object], expected: str) -> None:
    assert policy.mode(SMALL, **{"tokens": 100_000, **facts}) == expected  # type: ignore[arg-type]


def test_how_long_it_is_left_alone() -> None:
    assert [policy.cooldown("timeout", n) for n in range(4)] == [60, 300, 900, 900]
    assert (policy.cooldown("protocol", 0), policy.cooldown("server", 3)) == (30, 60)
