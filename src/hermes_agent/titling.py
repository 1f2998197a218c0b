"""Automatic titles. (Bodies follow.)"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_state.ids import ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_agent.setup import Setup


def after_turn(setup: Setup, conversation_id: ConversationId, session_id: SessionId) -> asyncio.Task[None] | None:
    """Give the conversation a title beside the chat, when it has none; None when there is nothing to do."""
    raise NotImplementedError
