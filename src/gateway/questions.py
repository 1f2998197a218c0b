"""Questions of permission in chats: put to somebody who may decide, in their own private chat, and answered there.

`ChatApprover.ask` is called by the gate, for a question that is a row already. It owes one message to each who may
decide, under a key that names question and person, so nobody is asked twice, after a restart either. Then it waits. An
answer is a pressed button or `/approve` and `/deny`; `decide` checks who gives it with the one rule of authorisation
and writes it down, and the row is what permits. The waiting gate wakes at once; one in another process within a second.
When the question is over its message says who decided what, as far as the platform can edit.

Nobody to ask is a denial, and so is a command too long to be read in a chat; whoever asked is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from gateway import asked_places, authorisation, question_text, rewriting
from gateway.asked_places import Adapters, Asking, Place
from gateway.clarifying import Clarifier
from gateway.config import Platform
from gateway.prepared import clean_name
from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.base import ApprovalQuestion, Choice
from hermes_state.outbox import OutboxItem, Parcel

if TYPE_CHECKING:
    from gateway.board import Board
    from gateway.desk import Sender
    from gateway.lanes import Lanes
    from hermes_state.approvals import Approval

_log = logging.getLogger("hermes.gateway")
_LOOK_SECONDS = 1.0
_MARGIN = 0.25
"""Whoever gives up waiting began a moment before we did."""
_NOBODY = "Nobody who could allow it can be reached"


class ChatApprover:
    """The approver of every turn of the gateway."""

    def __init__(self, board: Board, adapters: Adapters) -> None:
        self._board, self._adapters = board, adapters
        self._answered: dict[str, asyncio.Event] = {}

    def serve(self, lanes: Lanes) -> None:
        self._lanes = lanes

    # -- asking --------------------------------------------------------------------------------------------

    async def ask(self, question: ApprovalQuestion) -> Choice:
        until = time.monotonic() + question.seconds - _MARGIN
        turn = asked_places.asking(self._lanes, self._adapters)
        if turn is None:
            _log.warning("a question of no turn was denied", extra={"action": "approval", "id": question.id})
            return "deny"
        if len(question.command) > question_text.LONGEST:
            return await self._denied(question, turn, "It is too long to be read and allowed in a chat")
        resource = authorisation.Question(question.person_id)
        places = await asked_places.places(self._board, self._adapters, turn, resource)
        if not places:
            return await self._denied(question, turn, _NOBODY)
        answered = self._answered.setdefault(question.id, asyncio.Event())
        items = [await self._lanes.say(self._parcel(question, place, turn)) for place in places]
        try:
            if not places[0].here:
                names = " and ".join(place.name for place in places)
                lapse = approval_text.wait(question.seconds)
                await self._tell(turn, f"This needs leave. I asked {names}; it lapses in {lapse}.", question)
            with turn.running.asking(here=places[0].here):
                return await self._outcome(question, turn, answered, items)
        finally:
            self._answered.pop(question.id, None)
            self._lanes.beside(self._settle(question, turn, places, items, lapsed=time.monotonic() >= until))

    def _parcel(self, question: ApprovalQuestion, place: Place, turn: Asking) -> Parcel:
        buttons = place.adapter.supports_buttons
        payload: dict[str, object] = {
            "text": question_text.approval(question, who=turn.who, buttons=buttons), "kind": "question",
        }  # fmt: skip
        if buttons:
            payload["buttons"] = question_text.approval_buttons(question)
        if place.thread_id is not None:
            payload["thread_id"] = place.thread_id
        return Parcel(
            dedup_key=f"question:{question.id}:{place.key}", platform=place.adapter.platform.value,
            account=place.adapter.account, chat_id=place.chat_id, payload=payload,
        )  # fmt: skip

    async def _outcome(
        self, question: ApprovalQuestion, turn: Asking, answered: asyncio.Event, items: list[OutboxItem]
    ) -> Choice:
        """The answer in the row. The gate gives up when the question lapses, and looks at the row itself as well."""
        db = self._board.db
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await answered.wait()
            if answered.is_set():
                row = await asyncio.to_thread(db.approvals.get, question.id)
                return _choice(row)
            if await asyncio.to_thread(self._none_arrived, items):
                return await self._denied(question, turn, _NOBODY)

    def _none_arrived(self, items: list[OutboxItem]) -> bool:
        found = [self._board.db.outbox.get(item.id) for item in items]
        return all(item is not None and item.state in ("failed", "dropped") for item in found)

    async def _denied(self, question: ApprovalQuestion, turn: Asking, why: str) -> Choice:
        approvals = self._board.db.approvals
        await asyncio.to_thread(approvals.decide, question.id, "deny", approver_id=None, reason=why)
        hint = "The owner writes to me in private once, then I can ask. " if why == _NOBODY else ""
        await self._tell(turn, f"This was not done. {why}. {hint}".rstrip(), question)
        return "deny"

    async def _tell(self, turn: Asking, text: str, question: ApprovalQuestion) -> None:
        if turn.source.platform is not Platform.API_SERVER:  # there an answer is all that is heard
            what = "denied" if text.startswith("This was not") else "asked"
            await self._lanes.tell(turn.source, text, what=what, occasion=question.id, account=turn.account)

    # -- when it is over -----------------------------------------------------------------------------------

    async def _settle(
        self,
        question: ApprovalQuestion,
        turn: Asking,
        places: list[Place],
        items: list[OutboxItem],
        *,
        lapsed: bool,
    ) -> None:
        """Say in the question's own message what became of it. One that outlives its process is left as it is."""
        outcome = await asyncio.to_thread(self._said, question, turn, lapsed)
        if not outcome:
            return
        text = question_text.settled(question, who=turn.who, outcome=outcome)
        for place, item in zip(places, items, strict=True):
            await rewriting.rewrite(self._board.db, place.adapter, item, text, end=f"→ {outcome}")

    def _said(self, question: ApprovalQuestion, turn: Asking, lapsed: bool) -> str:
        """What became of it; a question that nobody waits for any more is closed, whatever the clock says."""
        db = self._board.db
        row = db.approvals.get(question.id)
        if row is None:
            return "not wanted any more"
        if row.state == "pending" and turn.running.stopped:
            db.approvals.revoke(question.id, reason="the turn was stopped")
            return "not wanted any more: what asked for it was stopped"
        if row.state == "pending":
            closed = lapsed and db.approvals.revoke(question.id, reason="nobody answered in time")
            return "nobody answered in time: denied" if closed else ""
        person = None if row.approver_id is None else db.people.get(row.approver_id)
        by = "" if person is None else f" by {clean_name(person.display_name) or person.id}"
        return f"{approval_text.SAID[_choice(row)]}{by}"

    # -- answering -----------------------------------------------------------------------------------------

    async def decide(self, sender: Sender, question_id: str, choice: str, *, reason: str = "") -> str:
        """An answer of somebody: taken when the question is open and theirs to decide; what they are told."""
        db = self._board.db
        unknown = f"There is no open question {' '.join(question_id.split())[:40]} that you could answer."
        verdict: Choice | None = next((one for one in get_args(Choice) if one == choice), None)
        asked = await asyncio.to_thread(db.approvals.get, question_id)
        if asked is None or verdict is None:
            return unknown
        refusal = await self._refusal(sender, asked)
        if refusal:
            extra = {"action": "approval_refused", "id": asked.id, "reason": refusal}
            _log.warning("an answer to a question was refused", extra=extra)
            own = asked.requester_id == sender.person.id
            return f"You cannot allow this yourself: {refusal}." if own else unknown
        if asked.requester_id is None and verdict in ("session", "always"):
            verdict = "once"  # nobody we know has standing rules
        done = await asyncio.to_thread(
            db.approvals.decide, asked.id, verdict, approver_id=sender.person.id, reason=reason
        )
        if done is None:
            return await asyncio.to_thread(self._too_late, asked.id)
        if (waiting := self._answered.get(asked.id)) is not None:
            waiting.set()
        return f"{approval_text.SAID[verdict].capitalize()}."

    async def open_for(self, sender: Sender) -> list[Approval]:
        """Open questions that this person may decide here."""
        found = await asyncio.to_thread(self._board.db.approvals.pending)
        return [asked for asked in found if not await self._refusal(sender, asked)]

    async def _refusal(self, sender: Sender, asked: Approval) -> str:
        policy = await self._board.policy.fresh()
        question = authorisation.Question(asked.requester_id, asked.approver_id)
        answer = authorisation.decide(sender.principal, sender.place, "approve", question, policy)
        return "" if answer.allowed else answer.reason

    def _too_late(self, question_id: str) -> str:
        row = self._board.db.approvals.get(question_id)
        if row is None or row.state in ("pending", "lapsed", "revoked"):
            return "It is too late: the question is closed, which is a denial."
        return f"It was decided already: {approval_text.SAID[_choice(row)]}."


@dataclass(frozen=True, slots=True)
class Questions:
    """Whatever a turn of the gateway asks people."""

    approver: ChatApprover
    clarifier: Clarifier

    @classmethod
    def of(cls, board: Board, adapters: Adapters) -> Questions:
        return cls(ChatApprover(board, adapters), Clarifier(board, adapters))

    def serve(self, lanes: Lanes) -> None:
        """Told once, before anything runs, whose turns ask."""
        self.approver.serve(lanes)
        self.clarifier.serve(lanes)


def _choice(row: Approval | None) -> Choice:
    """The answer that a row holds; whatever is no grant is a denial."""
    return next((one for one in get_args(Choice) if row is not None and one == row.scope), "deny")
