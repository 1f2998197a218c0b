"""What the ledger's verbs give and take: handles, what a route led to, the rules of a reset; its statements, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.statements import Queries

Q = Queries("ledger")


class Sender(NamedTuple):
    """Who writes to a route, as far as the rule needs it: nobody's route leads to another person's conversation."""

    chat_type: str
    platform: str
    native_id: str


@dataclass(frozen=True, slots=True)
class Handle:
    """A segment and the conversation it is part of."""

    conversation_id: ConversationId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a route led to, and what had to be done for it."""

    handle: Handle
    created: bool = False
    reset_reason: str | None = None
    previous: SessionId | None = None
    over: bool = False
    """The conversation before this one had been ended already, by whoever closed it."""
    entry: Mapping[str, Any] | None = None
    """What is remembered of the route, where it was read on the way."""
    message_count: int | None = None
    """Of the segment, where it was read on the way."""


@dataclass(frozen=True, slots=True)
class RouteState:
    """What a reset rule may look at. Times are epoch seconds."""

    session_key: SessionKey
    entry: Mapping[str, Any]
    updated_at: float
    session: Mapping[str, Any]


ResetRule = Callable[[RouteState], str | None]
Fresh = Callable[[str | None, RouteState | None], Mapping[str, Any]]
"""The entry of a new conversation, from why it begins (None: it is the first) and what the route was before."""
