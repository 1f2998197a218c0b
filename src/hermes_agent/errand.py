"""A turn on somebody's behalf: which stored messages it answers, and what is owed for its end.

The switchboard gives an agent an `Errand`. The turn then claims those inbox rows in the transaction that opens it, and
owes what `owe` makes of its end in the transaction that ends it, so between a message and its answer there is nothing
that a crash could lose or double. `owe` is pure and quick: it runs before the commit and must not touch the store. It
is asked with the turn's own `Work`, because an agent that is given one turn may first have to end another, which a lost
process left behind: of the same place, of a terminal, or, for an errand of no place, of any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.context import Identity
from hermes_state.ids import PersonId, SessionKey
from hermes_state.inbox import Arriving
from hermes_state.outbox import Parcel
from hermes_state.turns import EndState, Turn, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a turn ends. `facts` are the keys of the result that `arun_conversation` returns, without its history."""

    state: EndState
    text: str | None
    facts: Mapping[str, Any]


Owe = Callable[[Work, Ending], Parcel | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    route: SessionKey | None
    claim: tuple[int, ...] | Arriving
    """Rows of the inbox, by their numbers, or the message that is about to be one; the turn is not opened unless all of
    them are still queued."""
    lane: SessionKey | None = None
    """The route of those rows, for a turn that has none itself: a terminal's."""
    owe: Owe
    began: Callable[[Work], None] = lambda work: None
    """Told when a turn, this one or one that was left behind, has its row."""
    taken_up: Callable[[dict[str, Any] | None], None] = lambda result: None
    """Told how a turn that was left behind has ended, before this one begins; None: there was nothing to answer."""
    person_id: PersonId | None = None
    """Who speaks in this turn: in a room they take turns at one agent. What they may do is theirs alone."""
    approver_id: PersonId | None = None
    """Who may answer its questions of permission; None: whoever the approver accepts."""
    identity: Callable[[Work], Identity] | None = None
    """What tools and their children are told of where a turn comes from."""

    def covers(self, left: Turn) -> bool:
        """Whether a turn that was left behind may be brought to its end on this errand.

        Not that of another place: what is shown and said of it would stand where it was not asked.
        """
        return self.route is None or left.route is None or left.route == self.route
