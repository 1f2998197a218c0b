"""A question of another agent, from its inbox row to its outcome.

The task of a question is its inbox row: its id names the row, and every answer about it is read from the store. So a
task outlives the caller, the connection and the process, and whoever works on the turn needs to know nothing of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from gateway.api.exchange import reply_item
from hermes_agent.approvals.types import question_of
from hermes_agent.messages import text_of
from hermes_config import redaction
from hermes_config.errors import HermesError
from hermes_state.turns.inbox import LOCAL, OUTCOMES, InboxRow

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy, Principal, Surface
    from hermes_agent.approvals.types import ApprovalQuestion, Choice
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId
    from hermes_state.turns.turns import Turn

_TASK = re.compile(r"(\d{1,18})-([0-9a-f]{16,32})")
Status = Literal["working", "input_required", "completed", "cancelled"]
CANCELLED = "the caller cancelled it"


class AskRefused(HermesError):
    """A call of another agent that cannot be answered; the caller reads the text."""


class Caller(Protocol):
    """Whoever calls a tool: an API key, or the owner at this machine. Methods raise `HermesError` or `ApiError`."""

    db: SessionDB
    who: tuple[Principal, Surface]

    async def policy(self) -> Policy: ...

    async def submit(self, message: str, conversation: str | None, key: str | None) -> InboxRow:
        """Store a message; it is durable when this returns. The same `key` again returns the row of the first one."""

    def is_own(self, row: InboxRow) -> bool:
        """Whether this caller may see the task of that row."""

    async def follow(self, row: InboxRow) -> None:
        """See to it that an unfinished message is worked on, also after its process died."""

    async def cancel(self, row: InboxRow) -> None: ...

    async def answer(self, question: ApprovalQuestion, choice: Choice, person: PersonId | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AskState:
    """What became of a question."""

    row: InboxRow
    status: Status
    text: str = ""
    """The answer, or why there is none; while it works, a line about it."""
    failed: bool = False
    conversation: str | None = None
    questions: tuple[ApprovalQuestion, ...] = ()
    """Open approval questions of its turn, and of the turns it delegated to."""
    updated_at: float = 0.0
    kept_days: int
    """How long the row stays after its end."""


def task_id(row: InboxRow) -> str:
    return f"{row.id}-{row.trace_id}"


def find(db: SessionDB, wanted: str) -> InboxRow | None:
    """The row of a task; None when there is none. The trace id in it cannot be guessed."""
    found = _TASK.fullmatch(wanted)
    row = None if found is None else db.inbox.get(int(found[1]))
    return row if row is not None and found is not None and row.trace_id == found[2] else None


def state_of(db: SessionDB, row: InboxRow) -> AskState:
    """The present state of a question. Blocks."""
    row = db.inbox.get(row.id) or row
    turn = None if row.turn_id is None else db.turns.get(row.turn_id)
    conversation = str(turn.conversation_id) if turn is not None else row.chat_id if row.platform == LOCAL else None
    updated = row.ended_at or (row.received_at if turn is None else turn.updated_at)
    if row.state not in OUTCOMES:
        questions = () if turn is None else _open_questions(db, turn)
        waits = "it waits behind earlier messages" if row.state == "queued" else "Hermes works on it"
        return AskState(
            row=row, status="input_required" if questions else "working", conversation=conversation,
            questions=questions, updated_at=updated, kept_days=db.limits.inbox_done_days,
            text=f"it waits for permission: {_line(questions[0])}" if questions else waits,
        )  # fmt: skip
    item = reply_item(db, row)
    text = str(item.payload.get("text") or "") if item is not None else "" if turn is None else _answer(db, turn)
    stopped = row.state == "dropped" or (turn is not None and turn.state == "cancelled")
    failed = row.state not in ("answered", "silent")
    if failed and (row.state != "error" or not text):
        text = f"there is no answer: {row.reason or 'nothing came of it'}"
    return AskState(
        row=row, status="cancelled" if stopped else "completed", text=redaction.current()(text), failed=failed,
        conversation=conversation, updated_at=updated, kept_days=db.limits.inbox_done_days,
    )  # fmt: skip


def _open_questions(db: SessionDB, turn: Turn) -> tuple[ApprovalQuestion, ...]:
    now, children = db.clock(), {child.id for child in db.children.of_turn(turn.id) if child.is_open}
    found = [one for one in db.approvals.of_turn(turn.id) if one.state == "pending" and one.expires_at > now]
    if children:
        found += [one for one in db.approvals.pending() if one.conversation_id in children]
    return tuple(question_of(one, now=now) for one in found)


def _line(question: ApprovalQuestion) -> str:
    shown = " ".join(redaction.current()(question.command).split())
    return f"{question.id}: {shown[:200]}{'…' if len(shown) > 200 else ''}"


def _answer(db: SessionDB, turn: Turn) -> str:
    """The last words of a turn that has no outbox item, such as a terminal's."""
    for segment in reversed(db.get_compression_lineage(db.get_compression_tip(turn.session_id))):
        said = [row for row in db.turn_rows(segment, turn.id) if row["role"] == "assistant"]
        if said:
            return text_of(said[-1].get("content"))
    return ""
