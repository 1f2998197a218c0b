"""The choice between steer, queue and interrupt, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.inbound.lanes import choose

USUAL = {"mode": "interrupt", "same_person": True, "plain": True, "started": True, "waiting": 0}


@pytest.mark.parametrize(
    ("situation", "chosen"),
    [
        (USUAL, "interrupt"),
        (USUAL | {"mode": "queue"}, "queue"),
        (USUAL | {"mode": "steer"}, "steer"),
        (USUAL | {"mode": "steer", "waiting": 1}, "queue"),
        (USUAL | {"same_person": False}, "queue"),
        (USUAL | {"mode": "steer", "same_person": False}, "queue"),
        (USUAL | {"plain": False}, "queue"),
        (USUAL | {"started": False}, "queue"),
        (USUAL | {"asks": True}, "queue"),
        (USUAL | {"compresses": True}, "queue"),
        (USUAL | {"mode": "steer", "asks": True}, "steer"),
    ],
)
def test_what_becomes_of_a_message(situation: dict[str, Any], chosen: str) -> None:
    assert choose(**situation) == chosen
