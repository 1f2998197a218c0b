"""A turn on behalf of a chat: which inbox rows it answers, and the reply that is stored with its end.

The turn claims the rows in the transaction that opens it, and stores what `owe` makes of its end in the transaction
that ends it, so between a message and its answer there is nothing that a crash could lose or double. `owe` is pure and
quick: it runs before the commit and must not touch the store. It is given the turn's own `Work`, because an agent may
first have to end another turn, which a lost process left open: of the same route, of a terminal, or, for a request
without a route, of any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.context import TurnIdentity
from hermes_state.ids import PersonId, SessionKey
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import EndState, Turn, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ends. `facts` are the keys of the result that `arun_conversation` returns, without its history."""

    state: EndState
    text: str | None
    facts: Mapping[str, Any]


Owe = Callable[[Work, TurnEnd], Parcel | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    route: SessionKey | None
    claim: tuple[int, ...]
    """Rows of the inbox, by their numbers; the turn is not opened unless all of them are still queued."""
    lane: SessionKey | None = None
    """The route of those rows, for a turn that has none itself: a terminal's."""
    owe: Owe
    began: Callable[[Work], None] = lambda work: None
    """Told when a turn, this one or one that was left open, has its row."""
    taken_up: Callable[[dict[str, Any] | None], None] = lambda result: None
    """Told how a turn that was left open has ended, before this one begins; None: there was nothing to answer."""
    person_id: PersonId | None = None
    """Who speaks in this turn: in a room they take turns at one agent. What they may do is theirs alone."""
    approver_id: PersonId | None = None
    """Who may answer its questions of permission; None: anybody the approver accepts."""
    questions_stay_open: bool = False
    """A question that nobody answers in time leaves the turn waiting (`approvals.open_hours`); else it is a denial."""
    identity: Callable[[Work], TurnIdentity] | None = None
    """What tools and their children are told of where a turn comes from."""

    def covers(self, left: Turn) -> bool:
        """Whether a turn that was left open may be brought to its end for this request.

        Not that of another route: what is shown and said of it would appear where it was not asked.
        """
        return self.route is None or left.route is None or left.route == self.route
