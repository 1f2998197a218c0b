"""What became of a request, from the rows of its message: for whoever comes back, and for answers nobody brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.api.shapes import ApiError

if TYPE_CHECKING:
    from gateway.api.exchange import Exchange
    from hermes_state import SessionDB
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.outbox import OutboxItem


def settle(db: SessionDB, exchange: Exchange, row: InboxRow | None) -> None:
    """Complete an exchange whose message has ended."""
    item = None if row is None else _owed(db, row)
    if item is not None:
        exchange.result = item.payload.get("result") or {}
    if row is not None and row.state == "error":
        exchange.result = {**exchange.result, "failed": True, "completed": False, "error": row.reason}
    if item is not None:
        exchange.complete(str(item.payload.get("text") or ""))
    elif row is not None and row.state == "silent":
        exchange.complete("")
    else:
        exchange.refuse(unanswered(row))


def _owed(db: SessionDB, row: InboxRow) -> OutboxItem | None:
    """What was owed for a message; None when nothing was. One or two reads of a row by its key."""
    keys = [f"command:{row.id}", f"answer:inbox:{row.id}"]
    if row.turn_id is not None:
        keys.insert(0, f"answer:{row.turn_id}")
    for key in keys:
        item = db.outbox.find(key)
        if item is not None:
            return item
    return None


def ending(*, keeps: bool = False) -> ApiError:
    """`keeps`: the request was taken with an Idempotency-Key, and goes on after the start."""
    again = "it goes on at the next start: ask again with the same Idempotency-Key" if keeps else "ask again"
    return ApiError(503, f"the gateway is ending, so there is no answer now; {again} in a moment", code="ending")


def unanswered(row: InboxRow | None) -> ApiError:
    """For a message whose outcome is no answer."""
    why = (row.reason if row is not None else None) or "nothing came of it"
    return ApiError(502, f"there is no answer: {why}", code="agent_incomplete")
