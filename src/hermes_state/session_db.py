"""`SessionDB`: the store as other packages and third-party tools see it.

It is composed of one class per subject; each needs only `Store` and none of the others. The ledger and the work tables
are attributes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_config.limits import Limits
from hermes_state.compat.messages import Messages
from hermes_state.compat.routing import RoutingIndex
from hermes_state.compat.sessions import SessionRows
from hermes_state.people.usage import UsageCounts
from hermes_state.storage import schema
from hermes_state.storage.base import Clock, Store
from hermes_state.storage.writer import InThreads
from hermes_state.transfer.session_json import SessionJson

if TYPE_CHECKING:
    from hermes_state.conversations.ledger import Ledger
    from hermes_state.conversations.origins import Origins
    from hermes_state.conversations.undo import Undo
    from hermes_state.people.budgets import Budgets
    from hermes_state.people.pairings import Pairings
    from hermes_state.people.people import People
    from hermes_state.people.proposals import Proposals
    from hermes_state.turns.approvals import Approvals
    from hermes_state.turns.children import Children
    from hermes_state.turns.cursors import Cursors
    from hermes_state.turns.effects import Effects
    from hermes_state.turns.events import Events, Traces
    from hermes_state.turns.held_answers import HeldAnswers
    from hermes_state.turns.inbox import Inbox
    from hermes_state.turns.jobs import Jobs
    from hermes_state.turns.leases import Leases
    from hermes_state.turns.live_views import LiveViews
    from hermes_state.turns.model_calls import ModelCalls
    from hermes_state.turns.outbox import Outbox
    from hermes_state.turns.prefixes import Prefixes
    from hermes_state.turns.processes import Processes
    from hermes_state.turns.turns import Turns


class _LazyPart:
    """Imports and creates a part of the store on first use; from then on it is a plain attribute."""

    def __init__(self, module: str, kind: str) -> None:
        self._module, self._kind = module, kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, store: Store | None, owner: type) -> Any:
        if store is None:
            return self
        import importlib

        part = getattr(importlib.import_module(f"hermes_state.{self._module}"), self._kind)(store)
        store.__dict__[self._name] = part
        return part


def lazy_part(module: str, kind: str) -> Any:
    return _LazyPart(module, kind)


class SessionDB(SessionRows, Messages, RoutingIndex, UsageCounts, SessionJson, Store):
    """The store, on SQLite or PostgreSQL: conversations, transcripts, turns and everything else that must survive."""

    def __init__(
        self,
        db_path: str | Path | None = None,
        read_only: bool = False,
        *,
        clock: Clock = time.time,
        synchronous: str = "FULL",
        limits: Limits | None = None,
    ) -> None:
        engine = schema.open_engine(db_path, read_only=read_only, synchronous=synchronous, limits=limits)
        super().__init__(engine, clock=clock, limits=limits)

    @classmethod
    def connect(
        cls, url: str, *, read_only: bool = False, clock: Clock = time.time, limits: Limits | None = None
    ) -> SessionDB:
        """Open `sqlite:///path` or `postgresql://user@host/database`."""
        return cls(url, read_only, clock=clock, limits=limits)

    ledger: Ledger = lazy_part("conversations.ledger", "Ledger")
    origins: Origins = lazy_part("conversations.origins", "Origins")
    people: People = lazy_part("people.people", "People")
    pairings: Pairings = lazy_part("people.pairings", "Pairings")
    inbox: Inbox = lazy_part("turns.inbox", "Inbox")
    cursors: Cursors = lazy_part("turns.cursors", "Cursors")
    leases: Leases = lazy_part("turns.leases", "Leases")
    turns: Turns = lazy_part("turns.turns", "Turns")
    effects: Effects = lazy_part("turns.effects", "Effects")
    children: Children = lazy_part("turns.children", "Children")
    approvals: Approvals = lazy_part("turns.approvals", "Approvals")
    budgets: Budgets = lazy_part("people.budgets", "Budgets")
    prefixes: Prefixes = lazy_part("turns.prefixes", "Prefixes")
    jobs: Jobs = lazy_part("turns.jobs", "Jobs")
    held_answers: HeldAnswers = lazy_part("turns.held_answers", "HeldAnswers")
    model_calls: ModelCalls = lazy_part("turns.model_calls", "ModelCalls")
    processes: Processes = lazy_part("turns.processes", "Processes")
    proposals: Proposals = lazy_part("people.proposals", "Proposals")
    outbox: Outbox = lazy_part("turns.outbox", "Outbox")
    events: Events = lazy_part("turns.events", "Events")
    live_views: LiveViews = lazy_part("turns.live_views", "LiveViews")
    traces: Traces = lazy_part("turns.events", "Traces")
    undo: Undo = lazy_part("conversations.undo", "Undo")

    def close(self) -> None:
        self.close_index()
        schema.close_engine(self.engine)


class AsyncSessionDB(InThreads):
    """`SessionDB` for event loops: every method can be awaited and runs in a worker thread."""

    def __init__(self, db: SessionDB) -> None:
        super().__init__(db)
        self._db = db
