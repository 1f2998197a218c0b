"""The words approvals are spoken in: how bad a call is, what a person is asked, what they can answer.

Nothing here imports a parser or a store, so every surface that shows a question can import it at no cost.
"""

from __future__ import annotations

from typing import Literal, Protocol

from hermes_config.records import record
from hermes_state.ids import ConversationId, PersonId, TurnId

Level = Literal["harmless", "ask", "never"]
Choice = Literal["once", "session", "always", "deny"]


@record
class Judgement:
    """What the judge found in one command line."""

    level: Level
    why: str = ""
    """For a person, in one line; empty for what is harmless."""
    calls: tuple[str, ...] = ()
    """Every simple command in it as it would run: quotes, assignments and wrappers resolved where they can be."""
    unfamiliar: bool = False
    """It asks for no worse reason than that a command is not on our list; such a call a person's glob may allow."""


@record(kw_only=True)
class ApprovalQuestion:
    """Everything a person needs to decide, and nothing they would have to look up."""

    id: str
    """Of the row; another surface answers it with `db.approvals.decide`."""
    kind: str
    command: str
    """The exact command or path: what the answer is bound to."""
    workdir: str
    detail: str
    why: str
    conversation_id: ConversationId
    turn_id: TurnId
    call_id: str
    person_id: PersonId | None
    """For whom it runs."""
    platform: str
    expires_at: float
    """By the store's clock; then it is a denial."""
    seconds: float
    """From now until then."""
    choices: tuple[Choice, ...] = ("once", "session", "always", "deny")


class Approver(Protocol):
    """A surface that can put a question to a person. It may be cancelled at any moment; then nobody answered."""

    async def ask(self, question: ApprovalQuestion) -> Choice: ...


class Yolo:
    """An explicit wish not to be asked, one object a session. It passes neither the floor nor a deny rule."""

    def __init__(self, on: bool = False) -> None:
        self.on = on
