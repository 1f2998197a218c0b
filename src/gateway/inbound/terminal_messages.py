"""Messages that no platform sends: typed in a terminal of this machine for a conversation of the gateway, or stored by
Hermes itself (`is_own`).

Their process stores them in the inbox (`hand_in`), because only one process runs a conversation; the gateway
looks for them a few times a second with one small read. Then they are messages like any other. The chat is shown the
typed text, so that nobody there sees an answer without its question. Whoever can write to the store is its owner, so
the row names the person without a further check.

The terminal reads the outcome from the store, and follows the answer through `live_view`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.inbound.stored_message import is_own, payload, source_of
from gateway.periodic_tasks import every
from gateway.platforms.base import Attachment, MessageEvent, MessageType
from gateway.routes import keys
from gateway.routes.source import SessionSource
from hermes_agent import mentions
from hermes_agent.media import pictures
from hermes_agent.messages import is_image, text_of
from hermes_state.people import media_files
from hermes_state.turns.inbox import BESIDE, InboxRow

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.inbound.lanes import Lanes, Tell
    from hermes_agent.prompt.transcript import Content
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId, SessionKey

_SECONDS = 0.2
_SHOWN = 1_000
_BROUGHT = ":text"


def route_of(source: SessionSource) -> SessionKey:
    """The route of a private chat, whose key depends on no setting."""
    return keys.build_session_key(source)


def hand_in(
    db: SessionDB,
    source: SessionSource,
    content: Content,
    *,
    home: Path,
    person_id: PersonId,
    instead_of: Sequence[int] = (),
    key: str | None = None,
) -> InboxRow:
    """Store a message for the gateway of this store, which may start later. Its pictures are stored first.

    `instead_of`: prompts that waited for this process and that the message replaces. `key`: the client's own; a second
    message with it is not stored.
    """
    shown = [] if isinstance(content, str) else [one for one in content if is_image(one)]
    event = MessageEvent(
        text=text_of(content), source=source, message_id=f"{BESIDE}{key or secrets.token_hex(8)}",
        attachments=tuple(_kept(home, *pictures.data_of(one)) for one in shown),
        message_type=MessageType.PHOTO if shown else MessageType.TEXT,
    )  # fmt: skip
    assert event.message_id is not None
    accepted = db.inbox.hand_over(
        instead_of, reason="handed to the gateway", platform=source.platform.value, chat_id=source.chat_id,
        message_id=event.message_id, route=route_of(source), payload=payload(event, now=db.clock()),
        person_id=person_id,
    )  # fmt: skip
    return accepted.row


def _kept(home: Path, data: bytes, mime: str) -> Attachment:
    """Store a picture by its hash, so that it survives a restart."""
    kept = media_files.keep_bytes(home, data, ending=pictures.ENDINGS.get(mime, ".bin"))
    return Attachment(ref=kept.path.name, kind=MessageType.PHOTO, name=kept.path.name, mime=mime, size=kept.size)


def is_from_terminal(row: InboxRow) -> bool:
    return row.message_id.startswith(BESIDE)


def brought(command: InboxRow) -> str:
    """The message id of the text in a command such as `/queue TEXT`, wherever it was typed."""
    return f"{command.message_id}{_BROUGHT}"


def brought_by(db: SessionDB, row: InboxRow) -> int | None:
    """The row id of the command that brought this text; None for an ordinary message."""
    if not row.message_id.endswith(_BROUGHT):
        return None
    message_id = row.message_id.removesuffix(_BROUGHT)
    found = db.inbox.versions(platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=message_id)
    return found[0].id if found else None


async def begin(db: SessionDB, tell: Tell) -> None:
    """At a start, before anything runs, show chats the messages that were typed for them meanwhile."""
    for row in await asyncio.to_thread(db.inbox.without_platform):
        await _show(row, tell)


async def watch(db: SessionDB, lanes: Lanes, *, seconds: float = _SECONDS) -> None:
    """Put such messages into their lanes, as long as the gateway runs."""
    taken: set[int] = set()

    async def take() -> None:
        found = await asyncio.to_thread(db.inbox.without_platform)
        taken.intersection_update(row.id for row in found)
        for row in found:
            if row.id not in taken:
                await _show(row, lanes.tell)  # before the lane gets the row, so that the answer comes after it
                lanes.take(row)
                taken.add(row.id)

    await every(seconds, take, "beside")


async def _show(row: InboxRow, tell: Tell) -> None:
    """Show the typed text in its chat, without the content of mentioned files, which only the model gets."""
    if is_own(row):
        return
    typed = mentions.words(str((row.payload or {}).get("text") or ""))
    shown = typed if len(typed) <= _SHOWN else f"{typed[:_SHOWN]}…"
    await tell(source_of(row), f"(from the terminal) {shown}", what="beside", occasion=row.id, account=row.account)
