"""A prompt that finds a turn of somebody else's in its conversation, and has to come behind it.

Either another place has it running: another window, an API client. Then ours waits, and whoever sent it may take it
back until it begins. Or the process that ran it is lost: then it is taken up here first, and whoever looked on sees it
go on where it stood.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tui_gateway.following import Follower
    from tui_gateway.host import Session
    from tui_gateway.place import LiveSession

Still = Callable[[str, "Session"], AbstractContextManager["Follower | None"]]
"""`Looker.still`."""
Build = Callable[[str, "Session"], None]
"""Starts the making of a session's agent, where it has none."""


def other(session: Session) -> Literal["", "elsewhere", "lost"]:
    """Whether a turn is open in the conversation of a session that runs none, and whether somebody works on it."""
    place: LiveSession | None = session.get("place")
    if place is None or not place.has_open_turn():
        return ""
    return "lost" if place.has_lost_turn() else "elsewhere"


class RepeatedStep:
    """The words of a step that was cut off and is said anew: what was seen of it is not told again."""

    def __init__(self, seen: str = "") -> None:
        self._seen, self._said = seen, ""

    def unseen(self, piece: str) -> str:
        """What of it is to be told. Nothing when it is said in other words: the whole answer takes their place."""
        before, self._said = len(self._said), self._said + piece
        return self._said[max(before, len(self._seen)) :] if self._said.startswith(self._seen) else ""

    def step_ended(self) -> None:
        self._seen = self._said = ""
