"""What a lane is: the rows of one route that wait, and the turn that runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from gateway.agents import Agents
    from gateway.entries import SessionSource
    from gateway.lanes import Lanes
    from gateway.running import Running
    from gateway.watching import Watcher
    from hermes_state.ids import SessionKey
    from hermes_state.turns.inbox import Arriving, InboxRow
    from hermes_state.turns.turns import Turn

Kind = Literal["turn", "command", "now"]
_ROWS_KEPT = 4


class Commands(Protocol):
    """Who answers what is not for the model (`gateway.commands`): slash commands and pressed buttons."""

    def serve(self, lanes: Lanes, agents: Agents) -> None:
        """Told once, before anything runs, whose turns it is to stop and which agents to drop."""

    def kind(self, row: InboxRow) -> Kind:
        """`turn`: it is for the model. `now`: it does not wait behind a running turn."""

    async def run(self, row: InboxRow, watcher: Watcher | None) -> None:
        """Take the row, do what it says, end it with its reply."""


class Tell(Protocol):
    """Something the gateway itself says in a chat, once for each (what, occasion)."""

    async def __call__(
        self, source: SessionSource, text: str, *, what: str, occasion: object, account: str = ""
    ) -> None: ...


class Waiting(NamedTuple):
    """A row that waits. Its content is read again when its turn comes, unless it is one of the next few."""

    id: int
    row: InboxRow | None
    watcher: Watcher | None = None
    at_once: bool = False
    """It came to an idle lane, and its turn begins right behind the decision that let it in."""


@dataclass(slots=True)
class Lane:
    route: SessionKey
    waiting: deque[Waiting] = field(default_factory=deque)
    left: deque[Turn] = field(default_factory=deque)
    """Turns that a lost process left behind."""
    passing: set[asyncio.Task[None]] = field(default_factory=set)
    """Commands that did not wait."""
    steered: list[Waiting] = field(default_factory=list)
    """Words given to the running turn; those it did not take in wait again when it has ended."""
    arriving: tuple[Arriving, Watcher | None] | None = None
    """What is about to be stored, in a lane that has time for it: next, before all that comes behind it."""
    turn: Running | None = None
    task: asyncio.Task[None] | None = None

    def add(self, row: InboxRow, watcher: Watcher | None = None) -> None:
        kept = row if len(self.waiting) < _ROWS_KEPT else None
        self.waiting.append(Waiting(row.id, kept, watcher, at_once=self.idle))

    def begins_with(self, head: Waiting) -> bool:
        return bool(self.waiting) and self.waiting[0] is head

    def abandon(self) -> None:
        """The process ends: what is being done is left as it is, for the next one."""
        turn = self.turn
        if turn is not None and turn.task is not None:
            if turn.agent is not None:
                turn.agent.abandon()
            turn.task.cancel()
        elif self.task is not None:
            self.task.cancel()
        for task in self.passing:
            task.cancel()

    @property
    def ids(self) -> set[int]:
        """Of every row it has."""
        reading = () if self.turn is None else self.turn.rows
        return {one.id for one in (*self.waiting, *self.steered)} | {row.id for row in reading}

    @property
    def at_work(self) -> Running | None:
        """The turn that runs, while something can still be done to it."""
        return None if self.turn is None or self.turn.over else self.turn

    @property
    def free(self) -> bool:
        """Whether a turn would begin at once, or as soon as the one before it has put its things away."""
        resting = self.task is None if self.turn is None else self.turn.over
        return resting and not (self.waiting or self.left or self.passing or self.steered or self.arriving)

    @property
    def idle(self) -> bool:
        return self.task is None and not (self.waiting or self.left or self.passing or self.arriving or self.turn)

    @contextlib.contextmanager
    def occupied(self, running: Running) -> Iterator[None]:
        """While this is the lane's turn, messages meet it and /stop ends it."""
        self.turn = running
        try:
            yield
        finally:
            self.turn = None
            running.ended.set()
