"""The cache of agents between turns: one agent for each conversation.

An agent only keeps a conversation's messages in memory, so it can be dropped between any two turns. It is reused while
its signature (model, key, tools, person) and the store's message count are as after its last turn. A count of another
segment is not compared. After a write by another process the next turn gets a new agent, which reads the conversation
from the store; the prompt's prefix is stored, so it stays the same.

`limits.cached_agents` and `limits.cached_agent_bytes` bound the cache, least recently used first; an agent in a turn is
never dropped, so the cache may exceed its limits while many turns run. No text is lost: an agent stores it first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hermes_agent import AIAgent
from hermes_agent.models import providers
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey
from hermes_state.storage.writer import look

if TYPE_CHECKING:
    from gateway.services import Services
    from hermes_agent.approvals.types import Approver
    from hermes_agent.tools.base import Ask
    from hermes_config.config import Config


class _Pending:
    def __repr__(self) -> str:
        return "<a turn is being prepared>"


PENDING: Final = _Pending()
"""The value in `running` for a turn that has no agent yet."""

CHAT_INSTRUCTIONS = "# Instructions for this chat"
"""The heading of a chat's own instructions in the system text."""

Entry = tuple[Any, ...]
"""(agent, signature, message count, session id); entries that the seeds put in may lack the last one or two."""
Cache = MutableMapping[str, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What an agent is made for. A group's agent has no person: each tool call checks what its author may do."""

    platform: str
    person_id: PersonId | None
    role: str | None = None
    """The person's role at this turn; None: the role in the store, or guest without a person."""
    private: bool = True
    """Nobody else reads the chat, so the agent may use the person's memory."""
    toolsets: tuple[str, ...] | None = None
    model: str | None = None
    provider: str | None = None
    without: tuple[str, ...] = ()
    """Tools that it never has: a job makes no further jobs."""
    budget_usd: float | None = None
    """A spending limit of this conversation alone: a job's, a child's."""
    extra_text: str | None = None
    """The chat's addition to the system text; None: it stays as it is."""


def signature(config: Config, wanted: AgentSpec) -> str:
    """A hash that is equal for agents that can replace each other, and holds no secret."""
    endpoint = providers.primary(config, model=wanted.model, provider=wanted.provider)
    facts = [
        endpoint.model, hashlib.sha256(repr((endpoint.api_key, endpoint.more_keys)).encode()).hexdigest(),
        endpoint.base_url, endpoint.provider,
        endpoint.wire, repr(endpoint.options), sorted(wanted.toolsets or ()), wanted.toolsets is None,
        wanted.platform, wanted.private, config.agent_settings(), wanted.person_id, wanted.role,
        wanted.budget_usd, wanted.without, wanted.extra_text or "",
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def reusable(entry: Entry, *, signature: str, session_id: str, count: int | None) -> bool:
    """Whether a cached agent may run the next turn of this session, which has `count` messages now."""
    if entry[0] is PENDING or entry[1] != signature:
        return False
    known = entry[2] if len(entry) > 2 else None
    whose = entry[3] if len(entry) > 3 else None
    if whose is not None and whose != session_id:
        return True  # a count of another segment
    return known is None or count is None or known == count


def rebaseline(cache: Cache, key: str, session_id: str, count: int) -> None:
    """After our own turn, set the known message count. The caller holds the lock."""
    entry = cache.get(key)
    if entry is None or len(entry) < 3 or entry[0] is PENDING:
        return
    if len(entry) > 3 and entry[3] is not None and entry[3] != session_id:
        return
    cache[key] = (*entry[:2], count, *entry[3:])


class Agents:
    """The cached agents, and those that are in a turn."""

    def __init__(
        self,
        services: Services,
        *,
        approver: Approver | None = None,
        ask: Ask | None = None,
        make: Callable[..., AIAgent] = AIAgent,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services, self._approver, self._ask = services, approver, ask
        self._make, self._clock = make, clock
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.lock = threading.Lock()
        self.running: dict[SessionKey, Any] = {}
        """By route: the agent of the running turn, or `PENDING`."""
        self._bases: dict[str, tuple[Config, AgentSpec]] = {}
        self._bytes: dict[str, int] = {}
        self._used: dict[str, float] = {}

    async def get(
        self, conversation_id: ConversationId, session_id: SessionId, wanted: AgentSpec, *, count: int | None
    ) -> AIAgent:
        """The conversation's agent for its next turn. Raises `ConfigError` when no model is configured."""
        config = self._services.latest()
        with self.lock:
            entry, known = self.entries.get(conversation_id), self._bases.get(conversation_id)
            if wanted.extra_text is None and known is not None and known[1].extra_text is not None:
                wanted = replace(wanted, extra_text=known[1].extra_text)
            basis = (config, wanted)
            if entry is not None:
                same = known is not None and known[0] is config and known[1] == wanted
                sign = entry[1] if same else signature(config, wanted)
                if reusable(entry, signature=sign, session_id=session_id, count=count):
                    self.entries.move_to_end(conversation_id)
                    self._bases[conversation_id] = basis
                    kept: AIAgent = entry[0]
                    return kept
        agent = await asyncio.to_thread(self._made, config, session_id, wanted)
        if known is not None and known[1].role != wanted.role:
            agent.announce("the person's role changed")
        told = wanted.extra_text
        if told is not None and not await look(self._services.db, self._is_told, conversation_id, told):
            agent.announce("the chat's instructions changed")
        self.evict(conversation_id)
        with self.lock:
            self.entries[conversation_id] = (agent, signature(config, wanted), count, session_id)
            self._bases[conversation_id] = basis
            self._used[conversation_id] = self._clock()
        self._bound()
        return agent

    def _is_told(self, conversation_id: ConversationId, extra_text: str) -> bool:
        """Whether the stored system text has these instructions and no others, or is not stored yet."""
        prefix = self._services.db.prefixes.current(conversation_id)
        if prefix is None:
            return True
        if not extra_text:
            return CHAT_INSTRUCTIONS.encode() not in prefix.bytes
        return json.dumps(extra_text.strip(), ensure_ascii=False)[1:-1].encode("utf-8", "replace") in prefix.bytes

    def _made(self, config: Config, session_id: SessionId, wanted: AgentSpec) -> AIAgent:
        return self._make(
            wanted.model, wanted.provider, session_db=self._services.db, session_id=session_id, config=config,
            platform=wanted.platform, person_id=wanted.person_id, role=wanted.role, approver=self._approver,
            ask=self._ask, budget_usd=wanted.budget_usd, enabled_toolsets=wanted.toolsets,
            disabled_toolsets=wanted.without,
            skip_memory=not wanted.private, workdir=None,
            skip_context_files=True, ephemeral_system_prompt=wanted.extra_text, origin={"source": wanted.platform},
        )  # fmt: skip

    def rotated(self, conversation_id: ConversationId, session_id: SessionId) -> None:
        """Follow the conversation into another segment, whose message count comes next."""
        with self.lock:
            entry = self.entries.get(conversation_id)
            if entry is not None and len(entry) > 3 and entry[3] != session_id:
                self.entries[conversation_id] = (*entry[:2], None, session_id)

    @property
    def nbytes(self) -> int:
        """The memory that the agents held after their last turns."""
        with self.lock:
            return sum(self._bytes.values())

    def message_count(self, conversation_id: str, session_id: SessionId) -> int | None:
        """How many messages of this segment the conversation's agent knows; None without an agent or a count."""
        with self.lock:
            entry = self.entries.get(conversation_id)
        agent: AIAgent | None = None if entry is None or entry[0] is PENDING else entry[0]
        return None if agent is None else agent.message_count(session_id)

    def used(self, conversation_id: ConversationId) -> None:
        """After a turn, record the agent's size and restart its idle time."""
        with self.lock:
            entry = self.entries.get(conversation_id)
            if entry is None:
                return
            self._bytes[conversation_id] = entry[0].nbytes
            self._used[conversation_id] = self._clock()
        self._bound()

    def evict(self, conversation_id: str) -> bool:
        """Drop an agent and free its memory; an agent in a turn finishes the turn first."""
        with self.lock:
            entry = self._forget(conversation_id)
        if entry is None:
            return False
        if entry[0] is not PENDING and not self._is_running(entry[0]):
            entry[0].close()
        return True

    def sweep_idle(self, *, seconds: float) -> int:
        """Drop agents that were idle for so many seconds; returns how many."""
        oldest = self._clock() - seconds
        with self.lock:
            idle = [key for key, used in self._used.items() if used < oldest]
        return sum(self.evict(key) for key in idle if not self._in_turn(key))

    def clear(self) -> None:
        for key in list(self.entries):
            self.evict(key)

    def _bound(self) -> None:
        limits = self._services.db.limits
        over = len(self.entries) - limits.cached_agents
        surplus = sum(self._bytes.values()) - limits.cached_agent_bytes
        if over <= 0 and surplus <= 0:
            return
        busy = {id(agent) for agent in self.running.values()}
        for key, entry in list(self.entries.items()):
            if over <= 0 and surplus <= 0:
                return
            if id(entry[0]) in busy:
                continue
            surplus -= self._bytes.get(key, 0)
            over -= 1
            self.evict(key)

    def _in_turn(self, key: str) -> bool:
        entry = self.entries.get(key)
        return entry is not None and self._is_running(entry[0])

    def _is_running(self, agent: object) -> bool:
        return any(agent is other for other in self.running.values())

    def _forget(self, key: str) -> Entry | None:
        self._bases.pop(key, None)
        self._bytes.pop(key, None)
        self._used.pop(key, None)
        return self.entries.pop(key, None)
