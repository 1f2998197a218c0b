"""Approval questions in chats: the gateway asks a person who may decide, in that person's private chat.

The approval gate calls `ChatApprover.ask` for a question that is stored already. `ask` sends a message to each person
who may decide, under a key that names question and person, so nobody is asked twice, even after a restart. Then it
waits. A person answers with a button, `/approve`, `/deny`, or a plain yes or no; `decide` checks with `authorisation`
that this person may decide and stores the answer, and the stored grant is what permits the call. A gate that waits in
this process wakes at once, one in another process within a second. When the question is closed, its message is edited
to say who decided what, if the platform can edit.

A plain word or a bare `/approve` means the question whose card it replies to; or else the only open question of that
chat and thread, if its card was delivered at least three seconds before the word was written and no question of the
chat has expired since. Otherwise nobody can know which question the person had read, and nothing is decided. The
question of a suspended turn stays open for a day: after any other message in its chat, such a word is for the model.

If nobody can be asked, or the command is too long to be read in a chat, the answer is no, and the chat is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from gateway.access import authorisation
from gateway.chat import question_messages
from gateway.chat.cards import AnswerCards
from gateway.chat.clarify import Clarifier
from gateway.chat.question_messages import Adapters, AskingTurn, Recipient
from gateway.config import Platform
from gateway.outbound import notices
from gateway.platforms.connections import adapter_of
from gateway.retry import set_within
from gateway.turns.user_message import clean_name
from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.text import answer_in_words
from hermes_agent.approvals.types import ApprovalQuestion, Choice, question_of
from hermes_agent.text import counted
from hermes_config.recent import Recent
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

if TYPE_CHECKING:
    from gateway.chat.command_context import CommandSender
    from gateway.inbound.lanes import Lanes
    from gateway.services import Services
    from hermes_state.turns.approvals import Approval
    from hermes_state.turns.inbox import InboxRow

_log = logging.getLogger("hermes.gateway")
_LOOK_SECONDS = 1.0
_MARGIN = 0.25
"""The gate started its clock a moment before this module did."""
_NOBODY = "Nobody who may allow this can be reached"
_READING_SECONDS = 3.0
"""Nobody reads and answers a question faster; a quicker word was meant for something else."""
_KEPT = 1_000
Chat = tuple[str, str, str]
"""Platform, account, chat."""


@dataclass(slots=True)
class _Card:
    """The messages that show an open question in chats. The last message of a long question holds the buttons."""

    question: ApprovalQuestion
    recipients: list[Recipient]
    items: list[list[OutboxItem]] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    waits: bool = False
    """Its turn is suspended and waits for the answer."""

    def is_near(self, row: InboxRow) -> bool:
        """Whether it stands where that message was written."""
        return any(_is_near(recipient, row) for recipient in self.recipients)

    def items_near(self, row: InboxRow) -> list[OutboxItem]:
        found = zip(self.recipients, self.items, strict=False)
        return [item for recipient, items in found if _is_near(recipient, row) for item in items]


@dataclass(frozen=True, slots=True)
class Meant:
    """The question that a person means without naming it, or why that is not known."""

    question_id: str = ""
    why_not: str = ""


class ChatApprover:
    """The approver for every turn of the gateway."""

    def __init__(self, services: Services, adapters: Adapters) -> None:
        self._services, self._adapters = services, adapters
        self._cards: dict[str, _Card] = {}
        self._expired: Recent[Chat, float] = Recent(_KEPT)
        """When a question last expired in a chat."""
        self._closed: Recent[str, str] = Recent(_KEPT)
        """What the cards of waiting turns' questions say since they were closed."""
        self._not_answers: Recent[int, None] = Recent(_KEPT)
        """Rows that look like an answer and are none."""

    def serve(self, lanes: Lanes) -> None:
        self._lanes = lanes

    # -- asking --------------------------------------------------------------------------------------------

    async def ask(self, question: ApprovalQuestion) -> Choice:
        until = time.monotonic() + question.seconds - _MARGIN
        turn = question_messages.asking(self._lanes, self._adapters)
        if turn is None:
            turn = await asyncio.to_thread(question_messages.asking_child, self._services.db, question)
        if turn is None:
            _log.warning("denied a question that belongs to no turn", extra={"action": "approval", "id": question.id})
            return "deny"
        if question_messages.is_too_long(question):
            return await self._denied(question, turn, "The command is too long to be read and allowed in a chat")
        resource = authorisation.Question(question.person_id)
        recipients = await question_messages.recipients(self._services, self._adapters, turn, resource)
        if not recipients:
            return await self._denied(question, turn, _NOBODY)
        card = self._cards.setdefault(question.id, _Card(question, recipients))
        after = await asyncio.to_thread(self._services.db.inbox.last_id)
        try:
            for recipient in recipients:
                items = self._new_items(question, recipient, turn, after=after)
                card.items.append([await self._lanes.say(new_item) for new_item in items])
            if recipients[0].here:
                await self._take_answers(card, turn)
            else:
                names = " and ".join(recipient.name for recipient in recipients)
                lapse = approval_text.wait(question.seconds)
                await self._tell(
                    turn, f"This needs permission. I asked {names}; the question expires in {lapse}.", question
                )
            with turn.running.asking(here=recipients[0].here):
                return await self._outcome(card, turn)
        finally:
            lapsed = time.monotonic() >= until and not card.answered.is_set()
            if lapsed:
                self._note_expired(recipients)
            card.waits = True  # unless the question is closed, which its row says
            self._lanes.background(self._settle(card, turn, lapsed=lapsed))

    async def _take_answers(self, card: _Card, turn: AskingTurn) -> None:
        """Use a message that came after the card, while the turn was suspended, as the answer."""
        asked = max(question_messages.asked_after(item) for items in card.items for item in items)
        meanwhile = await self._lanes.withdraw(turn.running.route, lambda row: row.id > asked and self.expects(row))
        if meanwhile is not None:
            self._lanes.put(meanwhile)

    def _note_expired(self, recipients: list[Recipient]) -> None:
        for recipient in recipients:
            self._expired[_chat_of(recipient)] = self._services.db.clock()

    def _new_items(
        self, question: ApprovalQuestion, recipient: Recipient, turn: AskingTurn, *, after: int
    ) -> list[NewOutboxItem]:
        """The outbox items of a question: one, or for a long question two, of which the second repeats its start."""
        buttons, key = recipient.adapter.supports_buttons, f"question:{question.id}:{recipient.key}"
        whole = question_messages.approval(question, who=turn.who, buttons=buttons)
        rows = question_messages.approval_buttons(question)
        if len(recipient.adapter.pieces(whole)) == 1:
            return [recipient.item(key, whole, rows, after=after)]
        shown, again = question_messages.approval_parts(question, who=turn.who, buttons=buttons)
        return [recipient.item(f"{key}:shown", shown, (), after=after), recipient.item(key, again, rows, after=after)]

    async def _outcome(self, card: _Card, turn: AskingTurn) -> Choice:
        """Wait for the answer in the row. The gate stops waiting when the question expires, and reads the row too."""
        db, question = self._services.db, card.question
        while True:
            if await set_within(card.answered, _LOOK_SECONDS):
                row = await asyncio.to_thread(db.approvals.get, question.id)
                return _choice(row)
            if await asyncio.to_thread(self._none_arrived, card):
                return await self._denied(question, turn, _NOBODY)

    def _none_arrived(self, card: _Card) -> bool:
        """Whether every recipient lacks a part of the question: nobody is asked about what they cannot read."""
        return all(any(self._is_lost(item) for item in items) for items in card.items)

    def _is_lost(self, item: OutboxItem) -> bool:
        found = self._services.db.outbox.get(item.id)
        return found is not None and found.state in ("failed", "dropped")

    async def _denied(self, question: ApprovalQuestion, turn: AskingTurn, why: str) -> Choice:
        approvals = self._services.db.approvals
        await asyncio.to_thread(approvals.decide, question.id, "deny", approver_id=None, reason=why)
        hint = "When the owner has written to me in private once, I can ask them. " if why == _NOBODY else ""
        await self._tell(turn, f"This was not done. {why}. {hint}".rstrip(), question)
        return "deny"

    async def _tell(self, turn: AskingTurn, text: str, question: ApprovalQuestion) -> None:
        if turn.source.platform is not Platform.API_SERVER:  # an API client gets the answer and no notices
            what = "denied" if text.startswith("This was not") else "asked"
            await self._lanes.tell(turn.source, text, what=what, occasion=question.id, account=turn.account)

    # -- closing -------------------------------------------------------------------------------------------

    async def _settle(self, card: _Card, turn: AskingTurn, *, lapsed: bool) -> None:
        """Edit the question's messages to show its outcome. A question that is still open stays as it is."""
        question = card.question
        outcome = await asyncio.to_thread(self._close, question, turn, lapsed)
        if not outcome:
            return
        self._cards.pop(question.id, None)
        for recipient, items in zip(card.recipients, card.items, strict=False):
            text = question_messages.settled(question, who=turn.who, outcome=outcome, brief=len(items) > 1)
            await question_messages.rewrite(self._services.db, recipient.adapter, items[-1], text, end=f"→ {outcome}")

    def _close(self, question: ApprovalQuestion, turn: AskingTurn, lapsed: bool) -> str:
        """Close a question whose turn was stopped or whose time is up; its outcome in words, empty if still open."""
        db = self._services.db
        row = db.approvals.get(question.id)
        if row is None:
            return "no longer needed"
        if row.state == "pending" and turn.running.stopped:
            db.approvals.revoke(question.id, reason="the turn was stopped")
            return "no longer needed: the task was stopped"
        if row.state == "pending":
            closed = lapsed and db.approvals.revoke(question.id, reason="nobody answered in time")
            return "nobody answered in time: denied" if closed else ""
        return self._decided(row)

    def _decided(self, row: Approval) -> str:
        db = self._services.db
        if row.state == "revoked":
            return f"no longer needed: {row.reason}" if row.reason else "no longer needed"
        person = None if row.approver_id is None else db.people.get(row.approver_id)
        by = "" if person is None else f" by {clean_name(person.display_name) or person.id}"
        bound = f", {row.reason}" if row.reason and row.scope is not None else ""
        return f"{approval_text.SAID[_choice(row)]}{bound}{by}"

    def closed(self, question_id: str, outcome: str = "") -> None:
        """Show in the messages of a waiting turn's question that it is closed. `outcome`: if its row does not say."""
        self._cards.pop(question_id, None)
        if self._closed.get(question_id) != outcome:
            self._closed[question_id] = outcome
            self._lanes.background(self._rewrite(question_id, outcome))

    async def _rewrite(self, question_id: str, outcome: str) -> None:
        """As `_settle`, but from the store alone: another process may have sent the card."""
        db = self._services.db
        row = await asyncio.to_thread(db.approvals.get, question_id)
        items = await asyncio.to_thread(db.outbox.beginning_with, f"question:{question_id}:")
        asker = None if row is None or row.requester_id is None else await asyncio.to_thread(
            db.people.get, row.requester_id
        )  # fmt: skip
        who = "" if asker is None else clean_name(asker.display_name)
        for item in items:
            adapter = adapter_of(self._adapters, item.platform)
            if row is None or adapter is None or item.dedup_key.endswith(":shown"):
                continue
            said = outcome or await asyncio.to_thread(self._decided, row)
            brief = any(one.dedup_key == f"{item.dedup_key}:shown" for one in items)
            text = question_messages.settled(question_of(row, now=db.clock()), who=who, outcome=said, brief=brief)
            await question_messages.rewrite(db, adapter, item, text, end=f"→ {said}")

    async def _wake(self) -> None:
        await self._lanes.recover()

    async def restore(self) -> None:
        """After a start, read the cards of waiting turns, so that a plain yes or no answers them as before."""
        db = self._services.db
        for turn in await asyncio.to_thread(db.turns.waiting):
            row = await asyncio.to_thread(db.approvals.get, turn.reason or "")
            if row is None or row.state != "pending":
                continue
            card = _Card(question_of(row, now=db.clock()), [], waits=True)
            for item in await asyncio.to_thread(db.outbox.beginning_with, f"question:{row.id}:"):
                adapter = adapter_of(self._adapters, item.platform)
                if adapter is not None:
                    thread = item.payload.get("thread_id")
                    card.recipients.append(
                        Recipient(key=item.dedup_key, name="", adapter=adapter, chat_id=item.chat_id, thread_id=thread)
                    )
                    card.items.append([item])
            self._cards.setdefault(row.id, card)

    # -- answering -----------------------------------------------------------------------------------------

    async def decide(
        self,
        sender: CommandSender,
        question_id: str,
        choice: str,
        *,
        reason: str = "",
        uses: int | None = None,
        until: float | None = None,
    ) -> str:
        """Store a person's answer if the question is open and this person may decide; returns the reply to them.

        `uses` and `until` limit a yes, and `reason` says so in words; the `reason` of a no is shown to the model.
        """
        db = self._services.db
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
        turn = await asyncio.to_thread(db.turns.get, asked.turn_id)
        if turn is not None and turn.state == "waiting":
            await self._lanes.may_continue(turn)  # closes the question if the turn never can
        done = await asyncio.to_thread(
            db.approvals.decide, asked.id, verdict, approver_id=sender.person.id, reason=reason, uses=uses, until=until
        )
        if done is None:
            return await asyncio.to_thread(self._too_late, asked.id)
        card = self._cards.get(asked.id)
        if card is not None and not card.waits:
            card.answered.set()
        elif (turn := await asyncio.to_thread(db.turns.get, asked.turn_id)) is not None and turn.state == "waiting":
            self.closed(asked.id)
            self._lanes.background(self._wake())
        bound = reason if uses is not None or until is not None else ""
        return approval_text.confirmed(_choice(done), str(asked.call.get("text") or ""), bound=bound)

    # -- which question is meant -----------------------------------------------------------------------------

    def expects(self, row: InboxRow) -> bool:
        """Whether a message may answer a question: it is a plain yes or no, and its chat has an open question."""
        payload = row.payload or {}
        if row.id in self._not_answers or payload.get("attachments") or payload.get("album") or row.version:
            return False
        if answer_in_words(str(payload.get("text") or "")) is None:
            return False
        return any(card.is_near(row) for card in self._cards.values())

    async def is_answer(self, row: InboxRow) -> bool:
        """Whether a plain yes or no is for a question; a reply to some other message is for the model."""
        meant = await self._meant(row)
        if self.expects(row) and (meant.question_id or meant.why_not):
            return True
        self._not_answers[row.id] = None
        return False

    async def plain(self, sender: CommandSender, row: InboxRow) -> str:
        """Handle a plain yes (once) or no; returns the reply to its author."""
        meant = await self._meant(row)
        choice = answer_in_words(str((row.payload or {}).get("text") or ""))
        if not meant.question_id or choice is None:
            return f"Nothing was decided: {meant.why_not or 'the question is closed'}."
        return await self.decide(sender, meant.question_id, choice)

    async def meant_by(self, sender: CommandSender, row: InboxRow) -> Meant:
        """The question that a bare `/approve` means."""
        meant = await self._meant(row)
        if meant.question_id or meant.why_not:
            return meant
        if (row.payload or {}).get("reply_to"):
            return Meant(why_not="the message you replied to is not an open question")
        waiting = await self.open_for(sender)
        return Meant(why_not=_name_one(waiting) if waiting else "nothing waits for your permission")

    async def _meant(self, row: InboxRow) -> Meant:
        """The question that a message means, by the rule above; empty when it means no open question of this chat."""
        chat = _chat_of(row)
        cards = [card for card in self._cards.values() if card.is_near(row)]
        reply = (row.payload or {}).get("reply_to") or {}
        if reply.get("id"):  # a person can be faster than the platform's answer to our request
            for item in [item for card in cards for item in card.items_near(row)]:
                await question_messages.sent(self._services.db, item)
        found = await asyncio.to_thread(self._delivered, cards, row)
        if reply.get("id"):
            return next((Meant(card.question.id) for card, ids, _ in found if str(reply["id"]) in ids), Meant())
        if not await asyncio.to_thread(self._is_awaited, cards, row):
            return Meant()
        if len(cards) > 1:
            return Meant(why_not=_name_one([card.question for card in cards]))
        (_, _, delivered) = found[0]
        if delivered is None or _written(row) - delivered < _READING_SECONDS:
            return Meant(why_not="the question has only just appeared. Press a button, reply to it, or say it again")
        if self._expired.get(chat, delivered) > delivered:
            return Meant(why_not="another question has expired meanwhile. Press a button, or reply to the one you mean")
        return Meant(cards[0].question.id)

    def _is_awaited(self, cards: list[_Card], row: InboxRow) -> bool:
        """Whether a bare word may answer one of these: not if all their turns are suspended and the chat went on."""
        return any(not card.waits or not self._said_since(card, row) for card in cards)

    def _said_since(self, card: _Card, row: InboxRow) -> bool:
        items, but = card.items_near(row), notices.key("waiting", card.question.id)
        if not items:
            return True
        after = question_messages.asked_after(items[-1])
        return self._services.db.outbox.said_since(items[-1], after=after, row_id=row.id, but=but)

    def _delivered(self, cards: list[_Card], row: InboxRow) -> list[tuple[_Card, set[str], float | None]]:
        """The messages of each card where a message was written, and when the last of them was delivered."""
        result: list[tuple[_Card, set[str], float | None]] = []
        for card in cards:
            items = [self._services.db.outbox.get(item.id) for item in card.items_near(row)]
            sent = [item for item in items if item is not None and item.state == "sent"]
            times = [item.ended_at for item in sent if item.ended_at is not None]
            whole = bool(items) and len(times) == len(items)
            result.append((card, {one for item in sent for one in item.platform_ids}, max(times) if whole else None))
        return result

    async def open_for(self, sender: CommandSender) -> list[Approval]:
        """Open questions that this person may decide here."""
        found = await asyncio.to_thread(self._services.db.approvals.pending)
        return [asked for asked in found if not await self._refusal(sender, asked)]

    async def _refusal(self, sender: CommandSender, asked: Approval) -> str:
        policy = await self._services.policy.fresh()
        question = authorisation.Question(asked.requester_id, asked.approver_id)
        answer = authorisation.decide(sender.principal, sender.surface, "approve", question, policy)
        return "" if answer.allowed else answer.reason

    def _too_late(self, question_id: str) -> str:
        row = self._services.db.approvals.get(question_id)
        if row is None or row.state in ("pending", "lapsed", "revoked"):
            return "It is too late: the question is closed, and counts as denied."
        return f"It was already decided: {approval_text.SAID[_choice(row)]}."


@dataclass(frozen=True, slots=True)
class Questions:
    """What people are asked in chats: permissions, the model's own questions, and whether an answer is sent."""

    approver: ChatApprover
    clarifier: Clarifier
    cards: AnswerCards

    def expect(self, row: InboxRow) -> bool:
        """Whether a message may answer a question, and so must not wait behind the turn that asks it."""
        return self.clarifier.expects(row) or self.approver.expects(row) or self.cards.expects(row)

    def serve(self, lanes: Lanes) -> None:
        """Set the lanes whose turns ask; called once, before anything runs."""
        self.approver.serve(lanes)
        self.clarifier.serve(lanes)
        self.cards.serve(lanes)


def _choice(row: Approval | None) -> Choice:
    """The answer in a row; without a grant it is a denial."""
    return next((one for one in get_args(Choice) if row is not None and one == row.scope), "deny")


def _chat_of(where: Recipient | InboxRow) -> Chat:
    if isinstance(where, Recipient):
        return where.adapter.platform.value, where.adapter.account, where.chat_id
    return where.platform, where.account, where.chat_id


def _is_near(recipient: Recipient, row: InboxRow) -> bool:
    """Whether a message was written where a question stands: in its chat, and there in its thread or as a reply."""
    if _chat_of(recipient) != _chat_of(row):
        return False
    payload = row.payload or {}
    is_reply = bool((payload.get("reply_to") or {}).get("id"))
    return is_reply or recipient.thread_id == (payload.get("source") or {}).get("thread_id")


def _written(row: InboxRow) -> float:
    """The latest time at which a message can have been written: platforms give whole seconds."""
    return min(row.received_at, float((row.payload or {}).get("at", row.received_at)) + 1.0)


def _name_one(waiting: Sequence[Approval | ApprovalQuestion]) -> str:
    lines = [f"{one.id}  {approval_text.beginning(_command(one), 80)}" for one in waiting]
    return "\n".join([f"{counted(len(waiting), 'question')} open. Reply to the one you mean, or give its id:", *lines])


def _command(asked: Approval | ApprovalQuestion) -> str:
    return asked.command if isinstance(asked, ApprovalQuestion) else str(asked.call.get("text") or "")
