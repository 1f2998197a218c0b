"""The prefix. (Signatures; the bodies follow.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from hermes_agent.models.base import Endpoint, ToolSpec
from hermes_state.ids import ConversationId, TurnId

if TYPE_CHECKING:
    from hermes_agent.conversation import Body
    from hermes_state import SessionDB

Build = Callable[[], tuple[str, Sequence[ToolSpec]]]
"""Gathers and renders: (system text, tools). Called only when a new epoch begins."""


class Prefix:
    """System text and tools of an epoch; equal content is shared between conversations."""

    system: str
    tools: tuple[ToolSpec, ...]
    hash: str
    epoch: int


def ensure(
    db: SessionDB, conversation_id: ConversationId, build: Build, *, reason: str | None = None, fence: int | None = None
) -> Prefix:
    """The stored prefix, whatever changed meanwhile; with a `reason` (compression, model, tools, personality) a new one."""
    raise NotImplementedError


class Checked(NamedTuple):
    kind: Literal["first", "extends", "announced", "broke"]
    reason: str = ""


class Watch:
    """Checks that each request begins with the one before. One per conversation; loaded from the newest turn's note."""

    @classmethod
    def load(cls, db: SessionDB, conversation_id: ConversationId) -> Watch:
        raise NotImplementedError

    def announce(self, reason: str) -> None:
        """The next request may begin differently, on purpose."""
        raise NotImplementedError

    def check(self, body: Body, endpoint: Endpoint) -> Checked:
        """Before sending. A break is counted in the store (call from a thread, or see `broken`)."""
        raise NotImplementedError

    def save(self, turn_id: TurnId, *, fence: int) -> asyncio.Future[None]:
        """Queue the digest to the writer: call it right before queueing the step's rows and they share a commit."""
        raise NotImplementedError
