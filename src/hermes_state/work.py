"""What concerns all work tables at once: erasing a conversation's rows, and retention.

Erasing takes everything that names the conversation: what came in and was answered in it, turns, effect marks, replies,
questions, permissions given in it, what left the wall in it, events, its spending tally, prefix epochs and the bytes
only they used. What stays is the highest fence it had, as a number without a name, the total of prefix breaks, and what
it cost as part of its days.
"""

from __future__ import annotations

from collections.abc import Iterable

from hermes_state import leases, prefixes, rows
from hermes_state.approvals import Approvals
from hermes_state.budgets import Budgets
from hermes_state.effects import Effects
from hermes_state.engine.base import Connection
from hermes_state.events import Events
from hermes_state.ids import ConversationId
from hermes_state.inbox import Inbox
from hermes_state.outbox import Outbox
from hermes_state.prefixes import Prefixes
from hermes_state.statements import Queries
from hermes_state.store import Store
from hermes_state.turns import Turns

Q = Queries("work")


def erase(conn: Connection, conversation_ids: Iterable[ConversationId]) -> None:
    """Remove every work row of these conversations, in the transaction that removes the conversations."""
    ids = (rows.texts(conversation_ids),)
    if ids == ("[]",):
        return
    conn.run(leases.Q.raise_floor, ids)
    for statement in (
        Q.erase_inbox,
        Q.erase_prompts,
        Q.erase_effects,
        Q.erase_turn_parcels,
        Q.erase_outbox,
        Q.erase_turns,
        Q.erase_approvals,
        Q.erase_grants,
        Q.erase_exits,
        Q.erase_events,
        Q.erase_epochs,
        Q.erase_breaks,
        Q.erase_break_counts,
        Q.erase_tallies,
        Q.unname_reservations,
        Q.erase_leases,
    ):
        conn.run(statement, ids)
    prefixes.forget_unused(conn, limit=rows.NO_LIMIT)


def prune(store: Store) -> dict[str, int]:
    """Apply the retention of every work table; how many rows each lost. The order matters: turns go last."""
    return {
        "events": Events(store).prune(),
        "inbox": Inbox(store).prune(),
        "outbox": Outbox(store).prune(),
        "approvals": Approvals(store).prune(),
        "effects": Effects(store).prune(),
        "prefixes": Prefixes(store).prune(),
        "budgets": Budgets(store).prune(),
        "turns": Turns(store).prune(),
    }
