"""The cards of proposals: who may decide about a change of a skill or a memory sees the difference, with buttons.

A card is sent once, under a key that names proposal and person; the buttons are commands (`/proposals accept ID`), so
`knowledge.proposals` checks who presses them. A change that a card cannot show whole has no button to accept it. A
proposal that nobody can be shown here waits in `/proposals`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.access import authorisation
from gateway.chat import question_messages
from gateway.config import Platform
from gateway.outbound import notices
from hermes_agent.knowledge import proposals
from hermes_state.turns.outbox import NewOutboxItem

if TYPE_CHECKING:
    from gateway.chat.question_messages import Adapters
    from gateway.inbound.lanes import Lanes
    from gateway.services import Services
    from hermes_state.people.proposals import Proposal

_BUTTONS = (("Accept", "accept"), ("Refuse", "refuse"))


async def show_new(services: Services, adapters: Adapters, lanes: Lanes) -> None:
    """Send the cards of new proposals."""
    db = services.db
    for proposal in await asyncio.to_thread(db.proposals.unshown):
        for recipient, item in await _cards(services, adapters, proposal):
            await lanes.say(_item(proposal, recipient, item))
        await asyncio.to_thread(db.proposals.mark_shown, proposal.id)


async def _cards(services: Services, adapters: Adapters, proposal: Proposal) -> list[tuple[str, NewOutboxItem]]:
    """(key of the person, an empty item for their private chat) for everybody who may decide."""
    if proposal.kind == "skill":
        people = await question_messages.deciders(services, adapters, authorisation.Question(None))
        return [
            (one.key, _empty(one.adapter.platform.value, one.adapter.account, one.chat_id)) for one in people
        ]  # fmt: skip
    address = await asyncio.to_thread(services.db.jobs.private_chat, proposal.person_id)
    if address is None or (platform := Platform.find(address.platform)) is None or platform not in adapters:
        return []
    return [(str(proposal.person_id), _empty(address.platform, address.account, address.chat_id))]


def _empty(platform: str, account: str, chat_id: str) -> NewOutboxItem:
    return NewOutboxItem(dedup_key="", platform=platform, account=account, chat_id=chat_id, payload={})


def _item(proposal: Proposal, key: str, to: NewOutboxItem) -> NewOutboxItem:
    buttons = [
        {
            "label": label,
            "answer": {"kind": "command", "id": proposal.id, "choice": f"/proposals {choice} {proposal.id}"},
        }
        for label, choice in _BUTTONS
        if choice != "accept" or proposals.fits_card(proposal)
    ]
    other = f"Other words: `/proposals edit {proposal.id} TEXT`. Later: `/proposals`."
    text = f"{proposals.card(proposal, question_messages.block)}\n\n{other}"
    return NewOutboxItem(
        dedup_key=f"proposal:{proposal.id}:{key}"[:500], platform=to.platform, account=to.account, chat_id=to.chat_id,
        payload=notices.payload(text, "question", buttons=[buttons]),
    )  # fmt: skip
