"""Who looks on while a turn runs: the stream into a chat, an HTTP response, a terminal.

A watcher is told on the gateway's loop, never awaited by the turn, and nothing it does can change or stop the turn.
What it shows is a projection; what counts is what `commit_turn` stored.
"""

from __future__ import annotations

from typing import Any, Protocol

from hermes_state.turns.turns import Work


class Watcher(Protocol):
    def began(self, work: Work) -> None:
        """The turn has its row; also called when a turn of a lost process is taken up."""

    def delta(self, text: str) -> None:
        """A piece of the answer."""

    def step(self) -> None:
        """What was streamed so far was said before tool calls; the answer proper may begin anew."""

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        """`tool.started`, `tool.completed`, `tool.output`."""

    def status(self, kind: str, text: str) -> None:
        """A line for the person: compressing, trying again, falling back."""

    def ended(self, result: dict[str, Any]) -> None:
        """The turn is over and committed; `result` is the agent's, with `outbox_item` when one is owed."""
