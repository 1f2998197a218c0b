"""What becomes of a verdict on a delivery: the words for the outbox, when it is tried again, what the chat is told.

A dead letter and the notice about it are stored together: nobody is left without a word by a crash in between.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway import notices
from gateway.sending import Verdict
from hermes_state.storage.base import Connection
from hermes_state.turns.outbox import OutboxItem, Parcel

if TYPE_CHECKING:
    from hermes_state import SessionDB

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


def record(db: SessionDB, item: OutboxItem, verdict: Verdict) -> Callable[[Connection], OutboxItem | bool | None]:
    """The write that stores it, for the writer's queue. It gives the item when that was put off or closed."""
    outbox = db.outbox

    def closed(conn: Connection, found: OutboxItem | None) -> OutboxItem | None:
        if found is not None and (parcel := notice(found, gone=verdict.gone)) is not None:
            outbox.enqueue_in(conn, parcel)
        return found

    match verdict.state:
        case "sent":
            return lambda conn: outbox.sent_in(conn, item, platform_ids=verdict.ids)
        case "later":
            seconds = pause(item, verdict.seconds, most=db.limits.retry_seconds)
            return lambda conn: closed(conn, outbox.put_off_in(conn, item, seconds=seconds, error=verdict.error))
        case "waits":
            # It is the platform that is left alone, not this chat. After a day it is tried only as often as others.
            free = db.clock() - item.created_at <= db.limits.retry_seconds
            return lambda conn: closed(conn, outbox.put_off_in(conn, item, seconds=0, error=verdict.error, free=free))
        case "failed" | "unknown" as state:
            return lambda conn: closed(conn, outbox.close_in(conn, item, state, error=verdict.error))
        case "lost":
            return lambda conn: None


def notice(item: OutboxItem, *, gone: bool = False) -> Parcel | None:
    """What its chat is told about an item that did not, or may not, have arrived. Not about what was itself a notice,
    and not where nothing arrives (`gone`)."""
    if item.payload.get("kind") == "notice":
        return None
    if item.state == "unknown":
        return notices.beside(item, "delivery", notices.delivery_unknown())
    if item.state == "failed" and not gone:
        return notices.beside(item, "delivery", notices.delivery_failed(item.error or "no reason is known"))
    return None


def pause(item: OutboxItem, asked: float | None, *, most: float) -> float:
    """What the platform asked for, else longer after each attempt, and never quite the same for two chats."""
    if asked is not None:
        return min(most, max(0.0, asked))
    seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(item.attempts - 1, 16))
    return min(most, seconds * random.uniform(0.8, 1.2))
