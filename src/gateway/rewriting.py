"""A message of ours that asked for something, rewritten in its place when it is over; its buttons go with it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gateway import sending

if TYPE_CHECKING:
    from gateway.platforms.base import BasePlatformAdapter
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

_log = logging.getLogger("hermes.gateway")
_LOOKS, _PAUSE = 100, 0.1


async def rewrite(db: SessionDB, adapter: BasePlatformAdapter, item: OutboxItem, text: str, *, end: str) -> None:
    """As well as the platform can. `end` alone stands in the last part of a message that took several."""
    sent = await _sent(db, item) if adapter.supports_edit else None
    if sent is None:
        return
    piece = sending.pieces(adapter, text if len(sent.platform_ids) == 1 else end)[0]
    result = await adapter.edit_message(sent.chat_id, sent.platform_ids[-1], piece, finalize=True)
    if not result.success:
        extra = {"action": "question_not_rewritten", "trace_id": sent.trace_id, "error": result.error}
        _log.info("a question that is over still shows its buttons", extra=extra)


async def _sent(db: SessionDB, item: OutboxItem) -> OutboxItem | None:
    """The message as it stands in the chat, as soon as it does; None when it does not."""
    for _ in range(_LOOKS):
        found = await asyncio.to_thread(db.outbox.get, item.id)
        if found is None or found.state not in ("pending", "sending"):
            return found if found is not None and found.state == "sent" and found.platform_ids else None
        await asyncio.sleep(_PAUSE)
    return None
