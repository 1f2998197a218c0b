"""Messages that were typed beside a chat: at a terminal of this machine, for a conversation that the gateway drives.

Another process puts them into the inbox (`hand_in`), because one conversation has one driver; the gateway looks for
them a few times a second with one small read. From there on they are messages like any other. Their chat is shown
what was typed, so that whoever reads there sees no answer without its question. Whoever can write to the store is its
owner: the row carries the person, as a row from a platform does after the decision to let it in.

Whoever typed reads what becomes of it from the store, and sees the answer while it is made through `live_view`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.housekeeping import every
from gateway.inbound.stored_message import payload, source_of
from gateway.platforms.base import MessageEvent
from gateway.routes import keys
from gateway.routes.source import SessionSource
from hermes_agent import mentions
from hermes_state.turns.inbox import BESIDE, InboxRow

if TYPE_CHECKING:
    from gateway.inbound.lanes import Lanes, Tell
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId, SessionKey

_SECONDS = 0.2
_SHOWN = 1_000
_BROUGHT = ":text"


def route_of(source: SessionSource) -> SessionKey:
    """Of a private chat, whose key depends on nothing that is configured."""
    return keys.build_session_key(source)


def hand_in(
    db: SessionDB, source: SessionSource, text: str, *, person_id: PersonId, instead_of: Sequence[int] = ()
) -> InboxRow:
    """A message for the gateway of this store, stored when this returns; the gateway may come later.

    `instead_of`: prompts that waited for this process, and are the gateway's from now on.
    """
    event = MessageEvent(text=text, source=source, message_id=f"{BESIDE}{secrets.token_hex(8)}")
    assert event.message_id is not None
    accepted = db.inbox.hand_over(
        instead_of, reason="handed to the gateway", platform=source.platform.value, chat_id=source.chat_id,
        message_id=event.message_id, route=route_of(source), payload=payload(event, now=db.clock()),
        person_id=person_id,
    )  # fmt: skip
    return accepted.row


def is_from_terminal(row: InboxRow) -> bool:
    return row.message_id.startswith(BESIDE)


def brought(command: InboxRow) -> str:
    """The message id of the words that a command (`/queue WORDS`) brings, wherever it was typed."""
    return f"{command.message_id}{_BROUGHT}"


def brought_by(db: SessionDB, row: InboxRow) -> int | None:
    """The command's row; None for words that came by themselves."""
    if not row.message_id.endswith(_BROUGHT):
        return None
    message_id = row.message_id.removesuffix(_BROUGHT)
    found = db.inbox.versions(platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=message_id)
    return found[0].id if found else None


async def begin(db: SessionDB, tell: Tell) -> None:
    """At a start, before anything is taken up: chats see what was typed for them meanwhile."""
    for row in await asyncio.to_thread(db.inbox.typed_beside):
        await _show(row, tell)


async def watch(db: SessionDB, lanes: Lanes, *, seconds: float = _SECONDS) -> None:
    """Find them and put them into their lanes, for as long as the gateway runs."""
    taken: set[int] = set()

    async def take() -> None:
        found = await asyncio.to_thread(db.inbox.typed_beside)
        taken.intersection_update(row.id for row in found)
        for row in found:
            if row.id not in taken:
                await _show(row, lanes.tell)  # first, and once for each row: the answer comes after it
                lanes.take(row)
                taken.add(row.id)

    await every(seconds, take, "beside")


async def _show(row: InboxRow, tell: Tell) -> None:
    """The words alone: files that were named go to the model, and no further."""
    typed = mentions.words(str((row.payload or {}).get("text") or ""))
    shown = typed if len(typed) <= _SHOWN else f"{typed[:_SHOWN]}…"
    await tell(source_of(row), f"(from the terminal) {shown}", what="beside", occasion=row.id, account=row.account)
