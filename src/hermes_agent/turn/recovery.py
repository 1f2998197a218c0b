"""Recovery of a turn whose process was lost: where it continues, and which results its unfinished calls get.

Only the turn's own rows show how far it came. A call without a result is either run now (the turn continues) or gets a
result that says what is known of it (the turn ends), so the model never has to guess whether something happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent import messages
from hermes_agent.models.base import ToolCall
from hermes_agent.turn import tool_calls
from hermes_config.errors import HermesError
from hermes_state.errors import StaleFence, TurnOver

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.ids import SessionId, TurnId
    from hermes_state.people.usage import Used
    from hermes_state.turns.approvals import Approval
    from hermes_state.turns.journal import Journal
    from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
    from hermes_state.turns.turns import EndState


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Calls of the newest step that have no result yet."""

    mark: str = ""
    """The first part of the calls' mark names."""
    calls: tuple[ToolCall, ...] = ()
    first: int = 0
    """The index of the first call without a result."""
    begun: frozenset[int] = frozenset()
    """The indexes of calls that had begun to act."""


async def pending(db: SessionDB, journal: Journal) -> PendingCalls | None:
    """The calls with which the turn continues; None if the transcript holds no row of the turn any more."""
    return await asyncio.to_thread(_pending, db, journal)


def _pending(db: SessionDB, journal: Journal) -> PendingCalls | None:
    own = [row for row in db.get_messages(journal.session_id) if row.get("turn_id") == journal.turn_id]
    if not own:
        return None
    effects = db.effects.open_effects(journal.turn_id)
    answered = 0
    for message in reversed(own):
        if message["role"] == "tool":
            answered += 1
        elif message["role"] == "assistant" and message.get("tool_calls"):
            made = tuple(messages.calls_of(message))
            # A compression in between gives the step a new row, but the mark keeps the old row's id.
            mark = effects[-1].call_id.partition(":")[0] if effects else str(message["id"])
            marks = {effect.call_id for effect in effects}
            begun = frozenset(place for place in range(len(made)) if f"{mark}:{place}" in marks)
            return PendingCalls(mark, made, answered, begun) if answered < len(made) else PendingCalls()
        else:
            break
    return PendingCalls()


@dataclass(frozen=True, slots=True)
class WaitedCall:
    """The call for whose permission the turn waited, now that there is an answer."""

    question: Approval
    call: ToolCall | None
    """None if its step is no longer part of the conversation."""
    begun: bool
    """Whether the call was started before its process was lost."""


async def waited(db: SessionDB, journal: Journal) -> WaitedCall | None:
    """The call that a turn woken by an answer runs first; None for other turns."""
    return await asyncio.to_thread(_waited, db, journal)


def _waited(db: SessionDB, journal: Journal) -> WaitedCall | None:
    marks = {effect.call_id for effect in db.effects.open_effects(journal.turn_id)}
    question_id = next((mark.removeprefix("ask:") for mark in marks if mark.startswith("ask:")), None)
    question = None if question_id is None else db.approvals.get(question_id)
    if question is None:
        return None
    call = waiting_call(db, journal.session_id, journal.turn_id, question)
    spent = question.state == "used" and question.scope == "once"  # the process was lost just before the mark
    return WaitedCall(question, call, spent or f"run:{question_id}" in marks)


def waiting_call(db: SessionDB, session_id: SessionId, turn_id: TurnId, question: Approval) -> ToolCall | None:
    """The call that a question is about; None if its step is no longer part of the conversation. Blocks."""
    made = [
        call
        for message in db.turn_rows(session_id, turn_id)
        if message["active"] and message.get("tool_calls")
        for call in messages.calls_of(message)
        if call.id == question.call.get("call_id")
    ]
    return made[-1] if made else None


async def close(
    db: SessionDB,
    journal: Journal,
    state: EndState,
    *last: Mapping[str, Any],
    reason: str,
    used: Sequence[Used] = (),
    reply: NewOutboxItem | None = None,
) -> OutboxItem | None:
    """End a turn that does not continue. Does nothing if it has ended or another process has it."""
    try:
        rows = [*await _results(db, journal), *last]
        return (await journal.give_up(state, *rows, reason=reason, used=used, reply=reply)).reply
    except (StaleFence, TurnOver):
        return None


async def leave(journal: Journal) -> None:
    """Leave a turn open for the next process. Does nothing if it has ended or another process has it."""
    with contextlib.suppress(StaleFence, TurnOver):
        await journal.leave()


async def _results(db: SessionDB, journal: Journal) -> list[dict[str, Any]]:
    """A result row for each call that will not run any more."""
    try:
        left = await pending(db, journal)
    except HermesError:
        return []  # the rows cannot be read; the turn is closed nevertheless
    if left is None:
        return []
    return [
        tool_calls.result_row(
            left.calls[place], tool_calls.LOST if place in left.begun else tool_calls.NOT_RUN, db.clock()
        )
        for place in range(left.first, len(left.calls))
    ]
