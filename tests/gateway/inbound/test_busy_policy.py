"""The choice between steer, queue and interrupt, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.inbound.lanes import Situation, choose

USUAL = Situation(mode="interrupt", same_person=True, plain=True, started=True, waiting=0)


@pytest.mark.parametrize(
    ("situation", "chosen"),
    [
        (USUAL, "interrupt"),
        (replace(USUAL, mode="queue"), "queue"),
        (replace(USUAL, mode="steer"), "steer"),
        (replace(USUAL, mode="steer", waiting=1), "queue"),
        (replace(USUAL, same_person=False), "queue"),
        (replace(USUAL, mode="steer", same_person=False), "queue"),
        (replace(USUAL, plain=False), "queue"),
        (replace(USUAL, started=False), "queue"),
        (replace(USUAL, asks=True), "queue"),
        (replace(USUAL, mode="steer", asks=True), "steer"),
    ],
)
def test_what_becomes_of_a_message(situation: Situation, chosen: str) -> None:
    assert choose(situation) == chosen
