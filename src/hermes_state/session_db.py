"""`SessionDB`: the store as the rest of the house and third-party tools see it.

Put together from one part per noun; each part stands on `Store` and knows nothing of the others. The ledger and the
work tables hang on it as attributes.
"""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_config.limits import Limits
from hermes_state import opening
from hermes_state.handoff import Handoffs
from hermes_state.lists import Lists
from hermes_state.locks import CompressionGuards
from hermes_state.messages import Messages
from hermes_state.meta import Meta
from hermes_state.routing import Routing
from hermes_state.sessions import Sessions
from hermes_state.store import Clock, Store
from hermes_state.titles import Titles
from hermes_state.usage import Usage

if TYPE_CHECKING:
    from hermes_state.ledger import Ledger


class SessionDB(Sessions, Messages, Titles, Lists, Usage, Routing, CompressionGuards, Handoffs, Meta, Store):
    """Conversations, their transcripts and everything that must not be lost, on SQLite or PostgreSQL."""

    def __init__(
        self,
        db_path: str | Path | None = None,
        read_only: bool = False,
        *,
        clock: Clock = time.time,
        synchronous: str = "FULL",
        limits: Limits | None = None,
    ) -> None:
        engine = opening.open_engine(db_path, read_only=read_only, synchronous=synchronous, limits=limits)
        super().__init__(engine, clock=clock, limits=limits)

    @classmethod
    def connect(
        cls, url: str, *, read_only: bool = False, clock: Clock = time.time, limits: Limits | None = None
    ) -> SessionDB:
        """`sqlite:///path` or `postgresql://user@host/database`."""
        return cls(url, read_only, clock=clock, limits=limits)

    @cached_property
    def ledger(self) -> Ledger:
        from hermes_state.ledger import Ledger

        return Ledger(self)

    def close(self) -> None:
        opening.close_engine(self.engine)
