"""What becomes of a verdict on a delivery: the words for the outbox, and when it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.sending import Verdict
from hermes_state.engine.base import Connection
from hermes_state.outbox import OutboxItem

if TYPE_CHECKING:
    from hermes_state import SessionDB

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


def record(db: SessionDB, item: OutboxItem, verdict: Verdict) -> Callable[[Connection], OutboxItem | bool | None]:
    """The write that stores it, for the writer's queue. It gives the item when that was put off or closed."""
    outbox = db.outbox
    match verdict.state:
        case "sent":
            return lambda conn: outbox.sent_in(conn, item, platform_ids=verdict.ids)
        case "later":
            seconds = pause(item, verdict.seconds, most=db.limits.retry_seconds)
            return lambda conn: outbox.put_off_in(conn, item, seconds=seconds, error=verdict.error)
        case "waits":
            # It is the platform that is left alone, not this chat. After a day it is tried only as often as others.
            free = db.clock() - item.created_at <= db.limits.retry_seconds
            return lambda conn: outbox.put_off_in(conn, item, seconds=0, error=verdict.error, free=free)
        case "failed" | "unknown" as state:
            return lambda conn: outbox.close_in(conn, item, state, error=verdict.error)
        case "lost":
            return lambda conn: None


def pause(item: OutboxItem, asked: float | None, *, most: float) -> float:
    """What the platform asked for, else longer after each attempt, and never quite the same for two chats."""
    if asked is not None:
        return min(most, max(0.0, asked))
    seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(item.attempts - 1, 16))
    return min(most, seconds * random.uniform(0.8, 1.2))
