"""The agents that are kept between turns: one a conversation, never shared by two.

An agent keeps a conversation's bytes warm and nothing that matters; it can be dropped between any two turns. It is used
again while its signature (what it was made for: model, key, tools, person) and the store's message count agree with
what they were after its last turn. A count of another segment says nothing and is not compared. Somebody else's write
makes the next turn begin with a new agent, which reads the conversation from the store; the prompt's prefix is stored
bytes, so it stays the same.

Bounded by `limits.cached_agents` and `limits.cached_agent_bytes`, least recently used first; one that is in a turn is
never dropped, so the cache may be over its bound for as long as that many turns run. Nothing is dropped unsaved:
whatever an agent has said is in the store before it is said.
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
from hermes_agent.tools import registry
from hermes_config import config as configuration
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey

if TYPE_CHECKING:
    from gateway.services import Services
    from hermes_agent.approvals.types import Approver
    from hermes_agent.tools.base import Ask
    from hermes_config.config import Config


class _Pending:
    def __repr__(self) -> str:
        return "<a turn is being prepared>"


PENDING: Final = _Pending()
"""Stands in `running` for a turn whose agent is not there yet."""

Entry = tuple[Any, ...]
"""(agent, signature, message count, session id); entries that the seeds put in may lack the last one or two."""
Cache = MutableMapping[str, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What an agent is made for. A room's agent is nobody's: what a speaker may do is checked call by call."""

    platform: str
    person_id: PersonId | None
    role: str | None = None
    """In force for the person at this turn; None: what the store says, and for nobody in particular a guest's."""
    private: bool = True
    """Nobody else reads along: the person's memory may enter."""
    toolsets: tuple[str, ...] | None = None
    model: str | None = None
    provider: str | None = None
    extra_text: str | None = None
    """What whoever runs the chat adds to the system text; None: it stays as it is."""


def signature(config: Config, wanted: AgentSpec) -> str:
    """Equal for agents that may stand in for each other; a hash, so no secret is kept in it."""
    endpoint = providers.primary(config, model=wanted.model, provider=wanted.provider)
    facts = [
        endpoint.model, hashlib.sha256(endpoint.api_key.encode()).hexdigest(), endpoint.base_url, endpoint.provider,
        endpoint.wire, repr(endpoint.options), sorted(wanted.toolsets or ()), wanted.toolsets is None,
        wanted.platform, wanted.private, config.agent_settings(), registry.shared().generation,
        wanted.person_id, wanted.role,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def reusable(entry: Entry, *, signature: str, session_id: str, count: int | None) -> bool:
    """The guard: whether a cached agent may take the next turn of this session, which has `count` messages now."""
    if entry[0] is PENDING or entry[1] != signature:
        return False
    known = entry[2] if len(entry) > 2 else None
    whose = entry[3] if len(entry) > 3 else None
    if whose is not None and whose != session_id:
        return True  # a count of another segment
    return known is None or count is None or known == count


def rebaseline(cache: Cache, key: str, session_id: str, count: int) -> None:
    """After our own turn: what it wrote is not a foreign write. The caller holds the lock."""
    entry = cache.get(key)
    if entry is None or len(entry) < 3 or entry[0] is PENDING:
        return
    if len(entry) > 3 and entry[3] is not None and entry[3] != session_id:
        return
    cache[key] = (*entry[:2], count, *entry[3:])


class Agents:
    """The cache, and who is in a turn."""

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
        """By route: the agent of the turn that runs, or `PENDING`."""
        self._bases: dict[str, tuple[Config, int, AgentSpec]] = {}
        self._bytes: dict[str, int] = {}
        self._used: dict[str, float] = {}

    async def get(
        self, conversation_id: ConversationId, session_id: SessionId, wanted: AgentSpec, *, count: int | None
    ) -> AIAgent:
        """The conversation's agent for its next turn. Raises `ConfigError` when no model can be had."""
        config, _ = configuration.load_or_last_good(self._services.home)
        with self.lock:
            entry, known = self.entries.get(conversation_id), self._bases.get(conversation_id)
            if wanted.extra_text is None and known is not None and known[2].extra_text is not None:
                wanted = replace(wanted, extra_text=known[2].extra_text)
            basis = (config, registry.shared().generation, wanted)
            if entry is not None:
                same = known is not None and known[0] is config and known[1:] == basis[1:]
                sign = entry[1] if same else signature(config, wanted)
                if reusable(entry, signature=sign, session_id=session_id, count=count):
                    self.entries.move_to_end(conversation_id)
                    self._bases[conversation_id] = basis
                    kept: AIAgent = entry[0]
                    return kept
        agent = await asyncio.to_thread(self._made, config, session_id, wanted)
        if known is not None and known[2].role != wanted.role:
            agent.announce("the person's role changed")
        if wanted.extra_text and not await asyncio.to_thread(self._is_told, conversation_id, wanted.extra_text):
            agent.announce("the chat's instructions changed")
        self.evict(conversation_id)
        with self.lock:
            self.entries[conversation_id] = (agent, signature(config, wanted), count, session_id)
            self._bases[conversation_id] = basis
            self._used[conversation_id] = self._clock()
        self._bound()
        return agent

    def _is_told(self, conversation_id: ConversationId, extra_text: str) -> bool:
        """Whether the stored system text has these instructions, or there is none yet and they will be in it."""
        prefix = self._services.db.prefixes.current(conversation_id)
        written = json.dumps(extra_text.strip(), ensure_ascii=False)[1:-1].encode("utf-8", "replace")
        return prefix is None or written in prefix.bytes

    def _made(self, config: Config, session_id: SessionId, wanted: AgentSpec) -> AIAgent:
        return self._make(
            wanted.model, wanted.provider, session_db=self._services.db, session_id=session_id, config=config,
            platform=wanted.platform, person_id=wanted.person_id, role=wanted.role, approver=self._approver,
            ask=self._ask, enabled_toolsets=wanted.toolsets, skip_memory=not wanted.private, workdir=None,
            skip_context_files=True, ephemeral_system_prompt=wanted.extra_text, origin={"source": wanted.platform},
        )  # fmt: skip

    def rotated(self, conversation_id: ConversationId, session_id: SessionId) -> None:
        """The conversation goes on in another segment; the next count is that one's."""
        with self.lock:
            entry = self.entries.get(conversation_id)
            if entry is not None and len(entry) > 3 and entry[3] != session_id:
                self.entries[conversation_id] = (*entry[:2], None, session_id)

    @property
    def nbytes(self) -> int:
        """What the agents held after their last turns."""
        with self.lock:
            return sum(self._bytes.values())

    def message_count(self, conversation_id: str, session_id: SessionId) -> int | None:
        """How many messages the conversation's agent knows of in this segment; None when it does not, or is none."""
        with self.lock:
            entry = self.entries.get(conversation_id)
        agent: AIAgent | None = None if entry is None or entry[0] is PENDING else entry[0]
        return None if agent is None else agent.message_count(session_id)

    def used(self, conversation_id: ConversationId) -> None:
        """A turn is over: the agent's size and idle time count from now."""
        with self.lock:
            entry = self.entries.get(conversation_id)
            if entry is None:
                return
            self._bytes[conversation_id] = entry[0].nbytes
            self._used[conversation_id] = self._clock()
        self._bound()

    def evict(self, conversation_id: str) -> bool:
        """Drop an agent and give its memory back; one in a turn is only forgotten, its turn goes on."""
        with self.lock:
            entry = self._forget(conversation_id)
        if entry is None:
            return False
        if entry[0] is not PENDING and not self._is_running(entry[0]):
            entry[0].close()
        return True

    def sweep_idle(self, *, seconds: float) -> int:
        """Drop agents that nobody has used for so long."""
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
