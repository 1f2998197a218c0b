"""A turn on behalf of a chat: which inbox rows it answers, and the reply that is stored with its end.

The turn claims the rows in the transaction that opens it. `make_reply` makes the reply from the turn's end, and the
transaction that ends the turn stores the reply, so a crash can neither lose nor repeat an answer. `make_reply` is pure
and quick: it runs before the commit and must not touch the store. It gets the turn's own `Work`, because an agent may
first have to finish another turn, which a lost process left open: of the same route, of a terminal, or, for a request
without a route, of any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.context import TurnIdentity
from hermes_state.ids import PersonId, SessionKey
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import EndState, Turn, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ends. `facts` are the keys of the result that `arun_conversation` returns, without its history."""

    state: EndState
    text: str | None
    facts: Mapping[str, Any]


MakeReply = Callable[[Work, TurnEnd], NewOutboxItem | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    route: SessionKey | None
    claim: tuple[int, ...]
    """The ids of inbox rows; the turn is opened only if all of them are still queued."""
    lane: SessionKey | None = None
    """The route of those rows, for a terminal's turn, which has no route itself."""
    trace_id: str = ""
    """The trace of the command that asked for this turn, which has no rows."""
    make_reply: MakeReply
    began: Callable[[Work], None] = lambda work: None
    """Called when this turn, or one that was left open, has its row."""
    recovered: Callable[[dict[str, Any] | None], None] = lambda result: None
    """Called with the result of a turn that was left open, before this one begins; None: nothing to answer."""
    person_id: PersonId | None = None
    """The sender of this turn's message: in a group, people share one agent, each with their own permissions."""
    role: str = ""
    """The sender's role, if it is not the agent's: in a group, people share one agent."""
    approver_id: PersonId | None = None
    """The person who may answer its permission questions; None: anybody the approver accepts."""
    questions_stay_open: bool = False
    """Whether an unanswered permission question leaves the turn waiting (`approvals.open_hours`) or counts as no."""
    unsent: bool = False
    """Whether the answer stays in its conversation: it counts as one although `make_reply` makes no reply."""
    identity: Callable[[Work], TurnIdentity] | None = None
    """Makes the turn's origin, as tools and their child processes see it."""

    def covers(self, left: Turn) -> bool:
        """Whether this request may finish a turn that was left open.

        A turn of another route is refused: its output would appear in the wrong chat.
        """
        return self.route is None or left.route is None or left.route == self.route
