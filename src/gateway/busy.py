"""What happens to a message that comes while a turn of its lane runs: steer, queue or interrupt. Pure.

The message is a row already, so none of the three can lose it: steering adds its words to the running turn, queueing
lets it wait, interrupting ends the running turn and lets it be next. The person is told which, now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import BusyMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the choice depends on."""

    mode: BusyMode
    same_person: bool
    """The message is from whoever the running turn answers."""
    plain: bool
    """Words alone: no file, not part of an album. A file never interrupts: it often comes with words."""
    started: bool
    """The agent is at work. Before that there is nothing to steer, and nothing was done that could be stopped."""
    waiting: int
    """Messages that wait already."""
    asks: bool = False
    """The turn waits for a person's answer, which an interruption would make a denial."""


def choose(situation: Situation) -> BusyMode:
    """In a room nobody stops what another asked for, and no word overtakes one that waits."""
    if not (situation.same_person and situation.plain and situation.started):
        return "queue"
    if situation.mode == "steer" and situation.waiting:
        return "queue"
    if situation.mode == "interrupt" and situation.asks:
        return "queue"
    return situation.mode


def elsewhere() -> str:
    return "This conversation is in use in another place, such as a terminal. Your message waits until it is free."
