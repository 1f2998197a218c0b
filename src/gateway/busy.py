"""What happens to a message that comes while a turn of its lane runs: steer, queue or interrupt. Pure.

The message is a row already, so none of the three can lose it: steering adds its words to the running turn, queueing
lets it wait, interrupting ends the running turn and lets it be next. The person is told which, now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["interrupt", "queue", "steer"]
MODES: tuple[Mode, ...] = ("interrupt", "queue", "steer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the choice depends on."""

    mode: Mode
    same_person: bool
    """The message is from whoever the running turn answers."""
    plain: bool
    """Words alone: no file, not part of an album. A file never interrupts: it often comes with words."""
    started: bool
    """The agent is at work. Before that there is nothing to steer, and nothing was done that could be stopped."""
    waiting: int
    """Messages that wait already: whoever is behind them waits too."""


def choose(situation: Situation) -> Mode:
    """In a room nobody stops what another asked for."""
    if not (situation.same_person and situation.plain and situation.started):
        return "queue"
    if situation.mode == "steer":
        return "queue" if situation.waiting else "steer"
    return situation.mode


def said(choice: Mode, *, waiting: int) -> str:
    """What the person is told."""
    if choice == "steer":
        return "Passed on to the running turn. /stop ends it."
    if choice == "interrupt":
        return "Stopping what I was doing to read this. (display.busy_input_mode: queue would let it finish first.)"
    place = "next" if waiting <= 1 else f"number {waiting} in the queue"
    return f"I am still at work; your message is {place}. /stop ends the running turn."


def full(waiting: int) -> str:
    return (
        f"{waiting} messages of this chat are waiting already, so this one was not taken. "
        "Send it again later, or /stop what is running."
    )


def elsewhere() -> str:
    return (
        "This conversation is in use in another place, such as a terminal. Your message waits until it is free."
    )
