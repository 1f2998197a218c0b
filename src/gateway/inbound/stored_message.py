"""Converts a message into the payload of its inbox row (`payload`) and back (`event_of`, `source_of`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gateway.platforms.base import Answer, Attachment, MessageEvent, MessageType
from gateway.routes.source import SessionSource
from hermes_state.turns.inbox import OWN

if TYPE_CHECKING:
    from hermes_state.turns.inbox import InboxRow


def payload(event: MessageEvent, *, now: float) -> dict[str, Any]:
    """The payload of a message's inbox row. Nothing in it gives rights."""
    kept: dict[str, Any] = {
        "text": event.text,
        "type": event.message_type.value,
        "source": event.source.to_dict(),
        "at": now if event.timestamp is None else event.timestamp.timestamp(),
    }
    if event.reply_to_text or event.reply_to_message_id:
        kept["reply_to"] = {
            "id": event.reply_to_message_id, "text": event.reply_to_text, "author_id": event.reply_to_author_id,
            "author_name": event.reply_to_author_name, "own": event.reply_to_is_own_message,
        }  # fmt: skip
    if event.attachments:
        kept["attachments"] = [{**asdict(one), "kind": one.kind.value} for one in event.attachments]
    if event.channel_prompt is not None:
        kept["prompt"] = event.channel_prompt
    if event.digest is not None:
        kept["digest"] = event.digest
    if event.album:
        kept["album"] = event.album
    if event.answer is not None:
        kept["answer"] = asdict(event.answer)
    if event.source.is_bot:
        kept["bot"] = True
    return kept


def event_of(row: InboxRow) -> MessageEvent:
    """The event of a stored message, without facts that only the platform knew."""
    kept = row.payload or {}
    reply, answer = kept.get("reply_to") or {}, kept.get("answer")
    return MessageEvent(
        text=kept["text"],
        source=source_of(row),
        message_type=MessageType(kept["type"]),
        message_id=row.message_id,
        reply_to_message_id=reply.get("id"),
        reply_to_text=reply.get("text"),
        reply_to_author_id=reply.get("author_id"),
        reply_to_author_name=reply.get("author_name"),
        reply_to_is_own_message=bool(reply.get("own")),
        attachments=tuple(map(attachment_of, kept.get("attachments", ()))),
        version=row.version,
        album=kept.get("album"),
        answer=None if answer is None else Answer(**answer),
    )


def attachment_of(kept: Mapping[str, Any]) -> Attachment:
    return Attachment(**{**kept, "kind": MessageType(kept["kind"])})


def source_of(row: InboxRow) -> SessionSource:
    assert row.payload is not None, "only a refused row has no payload, and nobody processes one"
    return SessionSource.from_dict(row.payload["source"])


def is_own(row: InboxRow) -> bool:
    """Whether Hermes stored the row for itself: an occurrence of a job, a child's result, a finished process."""
    return row.message_id.startswith(OWN)


def own_of(row: InboxRow) -> Mapping[str, Any]:
    """What an own row is; empty for a message."""
    return (row.payload or {}).get("own") or {} if is_own(row) else {}


def reply_to(row: InboxRow | None, source: SessionSource) -> str | None:
    """The message that an answer replies to: in a group, that of the person; None for no reply."""
    return None if row is None or is_own(row) or source.chat_type == "dm" else row.message_id


def age(row: InboxRow, *, now: float) -> float:
    """Seconds since its author sent the message, which may be long before the platform could hand it over."""
    return now - float((row.payload or {}).get("at", row.received_at))


def is_stale(row: InboxRow, *, now: float, most: float) -> bool:
    """Whether the message is so old that an answer now could surprise its author. Own rows decide that themselves."""
    return not is_own(row) and age(row, now=now) > most
