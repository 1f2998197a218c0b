"""Cards: messages with buttons to the people who may decide about a held answer, or about a proposal.

Every person who may decide gets a card in their private chat, under a key that names subject and person, so nobody gets
it twice, even after a restart. The buttons are commands (`/held send 12`, `/proposals accept ID`).

Of a held answer (`AnswerCards`) the owner sees the text, and sends, changes or drops it; a reply to the card is the new
text. `decide` checks with `authorisation` that this person may; the store lets the first decision win. The card of a
decided answer is edited to say who did what, also when it was decided at a terminal.

Of a proposal (`show_proposals`) people see the change of a skill or a memory; `knowledge.proposals` checks who presses
the buttons. A change that a card cannot show whole has no button to accept it. A proposal that nobody can be shown here
waits in `/proposals`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gateway.access import authorisation
from gateway.chat import question_messages
from gateway.chat.question_messages import Adapters, Recipient
from gateway.outbound import notices
from gateway.platforms.connections import adapter_of
from gateway.turns.user_message import clean_name
from hermes_agent.commands import held_answers
from hermes_agent.knowledge import proposals
from hermes_agent.text import brief, fenced, inline_code
from hermes_config.recent import Recent
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

if TYPE_CHECKING:
    from gateway.chat.command_context import CommandSender
    from gateway.inbound.lanes import Lanes
    from gateway.services import Services
    from hermes_state import SessionDB
    from hermes_state.people.proposals import Proposal
    from hermes_state.turns.inbox import InboxRow

_log = logging.getLogger("hermes.gateway")
_SHOWN = 2_500
_KEPT = 1_000
_PAGE = 100
_ASKED = 140
_EDIT = "Reply to the card with the text that should be sent instead, or write `/held edit {number} TEXT`."


class AnswerCards:
    """Shows held answers to the people who may decide about them, and stores what they decide."""

    def __init__(self, services: Services, adapters: Adapters) -> None:
        self._services, self._adapters = services, adapters
        self._open: dict[int, list[OutboxItem]] = {}
        """The cards of each held answer."""
        self._not_edits: Recent[int, None] = Recent(_KEPT)
        """Rows that reply to something else than a card."""
        self._asking = asyncio.Lock()

    def serve(self, lanes: Lanes) -> None:
        self._lanes = lanes

    # -- cards ---------------------------------------------------------------------------------------------

    def ask_soon(self) -> None:
        self._lanes.background(self.ask())

    async def ask(self) -> None:
        """Send the cards of every held answer that has none; after a start, find those that were sent before."""
        async with self._asking:
            new: list[OutboxItem] = []
            after: int | None = 0
            while after is not None:
                page = await asyncio.to_thread(self._services.db.held_answers.list, after=after, limit=_PAGE)
                new += [item for item in page if item.id not in self._open]
                after = page[-1].id if len(page) == _PAGE else None
            if not new:
                return
            question, asked = authorisation.Question(None), dict[str, list[Recipient]]()
            for item in new:
                near, shown = item.platform, await self._shown(item)
                if near not in asked:
                    asked[near] = await question_messages.deciders(self._services, self._adapters, question, near=near)
                self._open[item.id] = [await self._lanes.say(self._card(item, shown, one)) for one in asked[near]]
            if not any(asked.values()):
                extra = {"action": "held_answer", "id": new[0].id}
                _log.warning("nobody can be told about held answers; hermes outbox list shows them", extra=extra)

    async def _shown(self, item: OutboxItem) -> str:
        return _shown(item, await asyncio.to_thread(_asked, self._services.db, item))

    def _card(self, item: OutboxItem, shown: str, one: Recipient) -> NewOutboxItem:
        choices = ("send", "drop") if item.payload.get("files") else ("send", "edit", "drop")
        buttons = [notices.button(word.title(), "command", str(item.id), f"/held {word} {item.id}") for word in choices]
        edit = f"{_EDIT.format(number=item.id)} Or: " if "edit" in choices else ""
        text = f"{shown}\n\n{edit}`/held send {item.id}`, `/held drop {item.id}`"
        return one.item(f"held:{item.id}:{one.key}", text, [buttons])

    async def refresh(self) -> None:
        """Edit the cards of answers that were decided, here or elsewhere."""
        for number in list(self._open):
            item = await asyncio.to_thread(self._services.db.outbox.get, number)
            if item is not None and item.state == "held":
                continue
            cards = self._open.pop(number, [])
            outcome = "no longer there" if item is None else held_answers.decided(item)
            for card in cards:
                adapter = adapter_of(self._adapters, card.platform)
                if adapter is not None:
                    text = f"→ {outcome}" if item is None else f"{await self._shown(item)}\n\n→ {outcome}"
                    await question_messages.rewrite(self._services.db, adapter, card, text, end=f"→ {outcome}")

    # -- decisions -----------------------------------------------------------------------------------------

    async def decide(self, sender: CommandSender, number: str, choice: str, *, text: str = "") -> str:
        """Store a person's decision about a held answer; returns the reply to them."""
        policy = await self._services.policy.fresh()
        question = authorisation.Question(None)
        may = authorisation.decide(sender.principal, sender.surface, "approve", question, policy)
        wanted = held_answers.CHOICES.get(choice)
        if not may.allowed or wanted is None or not number.isdecimal() or len(number) > 15:
            if not may.allowed:
                extra = {"action": "held_refused", "id": number[:20], "reason": may.reason}
                _log.warning("a decision about a held answer was refused", extra=extra)
            return f"There is no held answer {' '.join(number.split())[:20]} that you could decide about."
        if wanted == "edit" and not text.strip():
            return _EDIT.format(number=number)
        by = clean_name(sender.person.display_name) or str(sender.person.id)
        done = await asyncio.to_thread(
            self._services.db.held_answers.decide, int(number), wanted, by=by, text=text.strip()
        )
        if done.outcome in ("sent", "edited"):
            item = await asyncio.to_thread(self._services.db.outbox.get, int(number))
            if item is not None:
                self._lanes.hand_over(item)
        self._lanes.background(self.refresh())
        return held_answers.said(done, int(number))

    def expects(self, row: InboxRow) -> bool:
        """Whether a message may be the new text of an answer: it replies to something in a chat with open cards."""
        payload = row.payload or {}
        replied = (payload.get("reply_to") or {}).get("id")
        if not self._open or not replied or row.id in self._not_edits or payload.get("attachments"):
            return False
        return any(_chat(card) == _chat(row) for cards in self._open.values() for card in cards)

    async def edited(self, row: InboxRow) -> int | None:
        """The answer whose card a message replies to; None: the message is for the model."""
        if self.expects(row):
            replied = str((row.payload or {})["reply_to"]["id"])
            for number, cards in self._open.items():
                for card in cards:
                    sent = await asyncio.to_thread(self._services.db.outbox.get, card.id)
                    if sent is not None and _chat(sent) == _chat(row) and replied in sent.platform_ids:
                        return number
            self._not_edits[row.id] = None
        return None


def _asked(db: SessionDB, item: OutboxItem) -> tuple[str, str]:
    """The name of the person whom an answer is for, and the beginning of what they wrote; empty if not known."""
    row = next(iter(db.inbox.of_turn(item.turn_id)), None) if item.turn_id is not None else None
    if row is None or row.person_id is None:
        return "", ""
    payload, person = row.payload or {}, db.people.get(row.person_id)
    text = "" if payload.get("own") else brief(str(payload.get("text") or ""), _ASKED)
    return clean_name(person.display_name) if person is not None else "", text


def _shown(item: OutboxItem, asked: tuple[str, str]) -> str:
    text = str(item.payload.get("text") or "")
    files = ", ".join(str(one.get("name") or "a file") for one in item.payload.get("files") or ())
    cut = f"\n… {len(text) - _SHOWN:,} characters more: hermes outbox show {item.id}" if len(text) > _SHOWN else ""
    body = fenced((text or f"file: {files}")[:_SHOWN] + cut)
    (name, question), where = asked, f"{item.platform}:{item.chat_id}"
    wrote = f", who wrote: {inline_code(question)}" if question else ""
    return f"**Answer {item.id} is held** for {f'{name} ({where})' if name else where}{wrote}\n\n{body}"


def _chat(where: OutboxItem | InboxRow) -> tuple[str, str, str]:
    return where.platform, where.account, where.chat_id


# -- proposals ---------------------------------------------------------------------------------------------------


async def show_proposals(services: Services, adapters: Adapters, lanes: Lanes) -> None:
    """Send the cards of new proposals."""
    db = services.db
    for proposal in await asyncio.to_thread(db.proposals.unshown):
        choices = ("accept", "refuse") if proposals.fits_card(proposal) else ("refuse",)
        command = "/proposals {} " + proposal.id
        buttons = [notices.button(word.title(), "command", proposal.id, command.format(word)) for word in choices]
        other = f"Other words: `/proposals edit {proposal.id} TEXT`. Later: `/proposals`."
        text = f"{proposals.card(proposal)}\n\n{other}"
        for one in await _deciders(services, adapters, proposal):
            await lanes.say(one.item(f"proposal:{proposal.id}:{one.key}"[:500], text, [buttons]))
        await asyncio.to_thread(db.proposals.mark_shown, proposal.id)


async def _deciders(services: Services, adapters: Adapters, proposal: Proposal) -> list[Recipient]:
    """Who may decide: about a skill the owners, about a memory its person."""
    if proposal.kind == "skill":
        return await question_messages.deciders(services, adapters, authorisation.Question(None))
    address = await asyncio.to_thread(services.db.jobs.private_chat, proposal.person_id)
    adapter = None if address is None else adapter_of(adapters, address.platform)
    if address is None or adapter is None:
        return []
    return [Recipient(key=str(proposal.person_id), name="", adapter=adapter, chat_id=address.chat_id)]
