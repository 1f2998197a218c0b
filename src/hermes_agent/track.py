"""What an agent keeps of its conversation between turns: the prefix, the encoded bytes, the watch over both.

All of it can be dropped at any moment and made again from the store, byte for byte. A foreign write is noticed at the
beginning of the next turn and read in; a compression starts the bytes anew and keeps the prefix unless it is told
otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent import gathering, prefix, tokens
from hermes_agent.compression import when
from hermes_agent.conversation import Conversation
from hermes_agent.models import wires
from hermes_agent.models.base import Endpoint
from hermes_agent.setup import Setup
from hermes_agent.tools import registry
from hermes_state.ids import ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_state.turns.journal import Begun

_RIGHTS = "rights were taken away"


class Track:
    """One conversation as this process knows it."""

    def __init__(self, setup: Setup, conversation_id: ConversationId) -> None:
        self._setup = setup
        self.conversation_id = conversation_id
        self._prefix: prefix.Prefix | None = None
        self._watch: prefix.Watch | None = None
        self._bytes: dict[str, Conversation] = {}
        self._session_id: SessionId | None = None
        self._announced: str | None = None
        self.pace = when.Pace()

    @property
    def watch(self) -> prefix.Watch:
        assert self._watch is not None, "ready() comes first"
        return self._watch

    async def ready(self, session_id: SessionId, *, fence: int, begun: Begun | None = None) -> None:
        """Bring everything up to the store; called at the beginning of a turn (`begun`) and after a rotation."""
        if self._session_id != session_id:
            self._bytes.clear()
            self._session_id = session_id
        if begun is None or not self._goes_on(begun):
            await asyncio.to_thread(self._ready, fence)

    def _goes_on(self, begun: Begun) -> bool:
        """The rule between two turns: nothing was added but the turn's own row. Nothing is read."""
        known = self._prefix
        if known is None or self._watch is None or self._announced is not None or not self._bytes:
            return False
        if begun.prefix != (known.epoch, known.hash) or begun.row.get("timestamp") is None:
            return False
        return all(conversation.take_in(begun) for conversation in self._bytes.values())

    def _ready(self, fence: int) -> None:
        setup, reason, known = self._setup, self._announced, self._prefix
        if self._watch is None:
            self._watch = prefix.Watch.load(setup.db, self.conversation_id)
        # Asked every time: another process may have begun a new epoch.
        self._prefix = self._ensured(reason, fence)
        if reason is None and self._offers_too_much(self._prefix):
            self._watch.announce(_RIGHTS)
            self._prefix = self._ensured(_RIGHTS, fence)
        self._announced = None
        if known is None or known.hash != self._prefix.hash:
            if not self._prefix.told:
                setup.db.update_system_prompt(str(self._session_id), self._prefix.system, fence=fence)
            self._bytes.clear()
        self.of(setup.endpoint)  # the turn's first request: what has to be read for it is read here, beside the loop
        for conversation in self._bytes.values():
            conversation.refresh()

    def _ensured(self, reason: str | None, fence: int) -> prefix.Prefix:
        setup = self._setup
        return prefix.ensure(
            setup.db, self.conversation_id, lambda: gathering.gather(setup), reason=reason, fence=fence,
            session_id=self._session_id,
        )  # fmt: skip

    def _offers_too_much(self, stored: prefix.Prefix) -> bool:
        """Whether it names a tool that the person's role no longer has. What is merely switched off stays named."""
        known, role = registry.shared(), self._setup.role
        tools = (known.get(str(tool["name"])) for tool in stored.tools)
        return any(tool is not None and role not in tool.roles for tool in tools)

    def announce(self, reason: str) -> None:
        """An event that may change the prefix: the next request begins a new epoch."""
        self._announced = reason
        if self._watch is not None:
            self._watch.announce(reason)

    def of(self, endpoint: Endpoint) -> Conversation:
        """The conversation's bytes in the format of this endpoint."""
        assert self._prefix is not None and self._session_id is not None, "ready() comes first"
        wire = wires.wire_for(endpoint)
        found = self._bytes.get(wire.name)
        if found is None:
            found = self._bytes[wire.name] = Conversation(self._setup.db, self._session_id, wire, self._prefix)
        return found

    def prefix_tokens(self, endpoint: Endpoint) -> int:
        """What every request carries besides the conversation."""
        assert self._prefix is not None, "ready() comes first"
        return tokens.estimate(self._prefix.content.weight, endpoint.model)

    def append(self, messages: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> None:
        """After our own writes."""
        for conversation in self._bytes.values():
            conversation.append(messages, ids)

    def message_count(self, session_id: SessionId) -> int | None:
        """How many messages the segment has, without asking the store; None when it is not the one that is warm."""
        if session_id != self._session_id:
            return None
        return next((conversation.message_count for conversation in self._bytes.values()), None)

    def release(self) -> None:
        """Give the memory back; nothing is lost."""
        self._bytes.clear()

    @property
    def nbytes(self) -> int:
        return sum(conversation.nbytes for conversation in self._bytes.values())
