"""`GatewayRunner`: puts the gateway's parts together, starts and stops them, and closes conversations.

The parts do the work (`docs/contributors/gateway.md`); this module holds /new, the expiry of conversations, the end of
the process, and the steps after a turn. The seeds (tests of the specification) fix its names: they build a runner
without `__init__` and call its methods, so every attribute has a default on the class, and hooks, sleep and status are
looked up on their modules at each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from gateway import periodic_tasks, scheduler, status
from gateway.background import BackgroundTasks
from gateway.chat.approvals import ChatApprover, Questions
from gateway.chat.cards import AnswerCards, show_proposals
from gateway.chat.clarify import Clarifier
from gateway.chat.commands import ChatCommands
from gateway.config import GatewayConfig, Platform
from gateway.inbound import terminal_messages
from gateway.platforms.connections import CONNECT_SECONDS
from gateway.services import Parts, Services, assemble
from gateway.turns import agents as agents_module
from gateway.turns.reply import normalize_empty_agent_response
from hermes_agent import hooks as plugin_hooks
from hermes_config.errors import HermesError
from hermes_state import AsyncSessionDB
from hermes_state.errors import InvalidValue, StateError
from hermes_state.ids import SessionId, SessionKey
from hermes_state.storage.writer import look

if TYPE_CHECKING:
    from gateway.platforms.base import BasePlatformAdapter, MessageEvent
    from gateway.routes.source import SessionEntry, SessionSource


_log = logging.getLogger("hermes.gateway")

_AGENT_PENDING_SENTINEL = agents_module.PENDING
_normalize_empty_agent_response = normalize_empty_agent_response
_LAST_SECONDS = 3.0
"""What turns leave of `gateway.drain_seconds`: two thirds for deliveries, a third for hooks."""
_RESET = "Session reset: this is a new conversation. /resume brings others back."


_CARD_SECONDS = 3.0
"""How often the open cards of held answers are compared with the store; without one, nothing is read."""


def _commands(services: Services, runner: GatewayRunner) -> ChatCommands:
    assert runner._questions is not None, "set before commands are made"
    return ChatCommands(services, reset=runner._handle_reset_command, questions=runner._questions)


def _platform_of(key: str) -> str:
    return key.split(":")[2] if key.count(":") > 1 else ""


def lazy(make: Callable[[], Any]) -> Any:
    """A class attribute such as `seen: set[str] = lazy(set)`: each instance makes its own at first use.

    So an object that was built without `__init__`, as in the seeds, has the attribute too.
    """
    return cached_property(lambda _: make())


class GatewayRunner:
    """Starts, runs and stops one gateway."""

    config: GatewayConfig = lazy(GatewayConfig)
    adapters: Mapping[Platform, BasePlatformAdapter] = lazy(dict)
    session_store: Any = None
    hooks: Any = None
    _parts: Parts | None = None
    _questions: Questions | None = None
    _session_db: AsyncSessionDB | None = None
    _agent_cache: MutableMapping[str, agents_module.Entry] = lazy(dict)
    _agent_cache_lock: Any = None
    _running_agents: MutableMapping[Any, Any] = lazy(dict)
    _background_tasks: BackgroundTasks = lazy(BackgroundTasks)
    _expiry_failures: Counter[str] = lazy(Counter)
    _due_entries: Callable[[], Iterable[SessionEntry]] | None = None
    _running = False
    _draining = False
    _shutdown_event: Any = lazy(asyncio.Event)
    _stop_task: asyncio.Task[None] | None = None
    _restart_drain_timeout = 0.0
    _exit_reason: str | None = None
    _last_session_store_prune_ts = 0.0

    def __init__(
        self,
        services: Services,
        adapters: Mapping[Platform, BasePlatformAdapter],
        *,
        commands: Callable[[Services, GatewayRunner], ChatCommands] = _commands,
    ) -> None:
        """`commands` makes the object that answers commands; it gets this runner for /new (`_handle_reset_command`)."""
        questions = self._questions = Questions(
            ChatApprover(services, adapters), Clarifier(services, adapters), AnswerCards(services, adapters)
        )
        self.config, self.adapters, self.hooks = services.settings, adapters, services.hooks
        self.session_store = services.store
        parts = self._parts = assemble(
            services, adapters, after=self, commands=commands(services, self),
            approver=questions.approver, ask=questions.clarifier.ask,
        )  # fmt: skip
        questions.serve(parts.lanes)
        self._session_db = AsyncSessionDB(services.db)
        self._agent_cache, self._agent_cache_lock = parts.agents.entries, parts.agents.lock
        self._running_agents = parts.agents.running
        self._due_entries = services.store.due_entries
        self._restart_drain_timeout = services.settings.drain_seconds

    @property
    def parts(self) -> Parts:
        assert self._parts is not None, "`__init__` sets the parts"
        return self._parts

    # -- start and end -----------------------------------------------------------------------------------

    async def start(self, *, away: float = 0.0) -> None:
        """Recover unfinished work, then accept messages. The caller holds the home's lock.

        `away`: as in `Lanes.start`.
        """
        parts, questions = self.parts, self._questions
        services, lanes, db = parts.services, parts.lanes, parts.services.db
        assert questions is not None, "`__init__` sets the questions"
        self._running = True
        await parts.deliverer.start(connecting=CONNECT_SECONDS)
        await terminal_messages.begin(db, lanes.tell)
        await questions.approver.restore()  # before the lanes: a word that is stored already may be an answer
        await lanes.start(away=away)
        parts.connections.start()
        self.answers_held()
        for work in (
            self._session_expiry_watcher(),
            periodic_tasks.recover_lost_turns(lanes),
            periodic_tasks.tidy_up(services),
            periodic_tasks.feed_search_index(db),
            periodic_tasks.watch_answers(db, lanes),
            periodic_tasks.watch_stop_requests(db, lanes),
            periodic_tasks.watch_silent_turns(lanes, seconds=services.settings.turn_seconds),
            periodic_tasks.every(_CARD_SECONDS, questions.cards.refresh, "held_answers"),
            periodic_tasks.every(_CARD_SECONDS, partial(show_proposals, services, self.adapters, lanes), "proposals"),
            periodic_tasks.watch_processes(db, services.home),
            periodic_tasks.recover_children(services, questions.approver),
            terminal_messages.watch(db, lanes),
            scheduler.watch(services, parts.deliverer.wake),
        ):
            self._background_tasks.start(work)
        await services.hooks.emit("gateway:startup", {"platforms": [one.value for one in self.adapters]})

    async def stop(self) -> None:
        """Finish running turns within `gateway.drain_seconds` and leave the rest to the next process."""
        if self._stop_task is None:
            self._stop_task = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._stop_task)

    async def _stop(self) -> None:
        self._running, self._draining = False, True
        try:
            await self._wind_down()
        finally:  # even after an error the process ends, and its status says so
            self._update_runtime_status("stopped", self._exit_reason)
            status.remove_pid_file()
            self._shutdown_event.set()

    async def _wind_down(self) -> None:
        active = [agent for agent in self._running_agents.values() if agent is not _AGENT_PENDING_SENTINEL]
        parts, for_hooks = self._parts, None
        if parts is not None:
            bound = self._restart_drain_timeout
            last = min(_LAST_SECONDS, bound / 4)
            until = time.monotonic() + bound
            await parts.lanes.drain(bound - last)
            await periodic_tasks.leave_children()
            await parts.deliverer.drain(max(last * 2 / 3, until - time.monotonic() - last / 3))
            for_hooks = max(last / 3, until - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(for_hooks):
                for agent in active:
                    await plugin_hooks.conversation_left(session_id=agent.session_id, platform="gateway")
        for agent in active:
            self._cleanup_agent_resources(agent)
        if parts is not None:
            await parts.connections.stop()
        await BackgroundTasks(self._background_tasks).finish(0.0, cancel=True)  # a seed sets a plain set
        if parts is not None:
            await parts.close()

    def _update_runtime_status(self, state: str, reason: str | None = None) -> None:
        try:
            status.write_runtime_status(gateway_state=state, exit_reason=reason)
        except OSError as error:  # such as a full disk, which must not prevent the end
            _log.warning("cannot write the state %s (%s)", state, error.strerror, extra={"action": "status"})

    # -- /new --------------------------------------------------------------------------------------------

    async def _handle_reset_command(self, event: MessageEvent) -> str:
        """Give the route a new conversation and keep the old one; returns the reply to the person."""
        key = self.session_store._generate_session_key(event.source)
        if self._parts is not None:
            await self._parts.lanes.stop(key)
        old, new = await self._begin_anew(key, event.source)
        await self._tell_hooks(("session:end", "session:reset"), event.source, key)
        wanted = event.get_command_args().strip()
        title, problem = await asyncio.to_thread(self._titled, new, wanted)
        said = f"New session: {title}." if title else "New session."
        if old is not None:
            said = f"{said} /resume brings others back." if wanted else _RESET
        return "\n".join(line for line in (said, problem, self._format_session_info()) if line)

    async def _begin_anew(self, key: str, source: SessionSource) -> tuple[SessionEntry | None, SessionId]:
        """Give the route a new conversation; returns the route's old entry and the new session."""
        store = self.session_store

        def begin(old: SessionEntry | None) -> SessionEntry:
            new: SessionEntry | None = None if old is None else store.reset_session(key)
            return new or store.get_or_create_session(source, force_new=True)

        old: SessionEntry | None = await asyncio.to_thread(store._entries.get, key)
        old_id = None if old is None else SessionId(old.session_id)
        new_id = SessionId((await asyncio.to_thread(begin, old)).session_id)
        await self._left(old_id)
        await plugin_hooks.conversation_switched(old=old_id, new=new_id, platform=source.platform.value)
        return old, new_id

    def _titled(self, session_id: SessionId, wanted: str) -> tuple[str, str]:
        """Set the title; returns (the title, why the wanted title was refused)."""
        if not wanted or self._session_db is None:
            return "", ""
        db = self._session_db._db
        try:
            clean = db.sanitize_title(wanted)
        except InvalidValue as error:
            return "", f"It has no title: {error.what}."
        try:
            db.set_session_title(session_id, clean)
        except InvalidValue:  # the store's error names a conversation that may belong to somebody else
            return "", "It has no title: another conversation has that title already."
        return clean or "", ""

    def _format_session_info(self) -> str:
        """The line about the model of a new conversation."""
        return "" if self._parts is None else self._parts.model_line()

    async def _tell_hooks(self, events: Iterable[str], source: SessionSource, key: str) -> None:
        facts = {"platform": source.platform.value, "user_id": source.user_id, "session_key": key}
        if self.hooks is not None:
            for event in events:
                await self.hooks.emit(event, facts)

    async def _left(self, session_id: SessionId | None) -> None:
        """Drop the agent of a conversation that its route has left."""
        if session_id is not None:
            db = self._session_db
            self._evict_cached_agent(session_id if db is None else await db.get_conversation_root(session_id))

    # -- the agent cache ---------------------------------------------------------------------------------

    async def _refresh_agent_cache_message_count(self, session_key: str, session_id: str | None) -> None:
        """After our own turn, count its messages as known, so that the next turn uses the same agent."""
        db, lock = self._session_db, self._agent_cache_lock
        if db is None or lock is None or not session_id:
            return
        agents = None if self._parts is None else self._parts.agents
        count = None if agents is None else agents.message_count(session_key, SessionId(session_id))
        try:
            if count is None:  # the agent of the turn does not know
                state = await look(db._db, db._db.live_state, SessionId(session_id))
                count = None if state is None else int(state.message_count)
        except HermesError as error:
            _log.warning(
                "cannot count the messages of a cached agent: %s", error.one_line(), extra={"action": "agent_cache"}
            )
            return
        if count is not None:
            with lock:
                agents_module.rebaseline(self._agent_cache, session_key, session_id, count)

    def _evict_cached_agent(self, key: str) -> None:
        """Drop the agent of a conversation; an agent in a turn finishes the turn."""
        if self._parts is not None:
            self._parts.agents.evict(key)
        else:
            self._agent_cache.pop(key, None)

    def _cleanup_agent_resources(self, agent: Any) -> None:
        """Release an agent's resources without waiting."""
        agent.close()

    def _sweep_idle_cached_agents(self) -> int:
        if self._parts is None:
            return 0
        return self._parts.agents.sweep_idle(seconds=self._parts.services.db.limits.agent_idle_seconds)

    # -- expiry ------------------------------------------------------------------------------------------

    async def _session_expiry_watcher(self, interval: int = 300) -> None:
        """Close expired conversations, sweep the agent cache and delete old routes every `interval` seconds."""
        await asyncio.sleep(periodic_tasks.FIRST_EXPIRY_SECONDS)
        while self._running:
            try:
                for entry in await asyncio.to_thread(periodic_tasks.expired, self.session_store, self._due_entries):
                    await self._expire(entry)
                await self._forget_old_routes()
            except StateError as error:  # the store is busy or full; the next round tries again
                _log.warning("cannot close expired conversations: %s", error.one_line(), extra={"action": "expiry"})
            self._sweep_idle_cached_agents()
            await self._rest(interval)

    async def _rest(self, seconds: int) -> None:
        """Sleep in steps of a second, so that `stop` does not wait for the rest of the pause."""
        for _ in range(seconds):
            if self._running:
                await asyncio.sleep(1)

    async def _expire(self, entry: SessionEntry) -> None:
        """Close an expired conversation, then call hooks: a crash in between may lose a hook but never repeats one."""
        if entry.session_key in self._running_agents:
            return  # a turn is running; the next round checks again
        session_id = SessionId(entry.session_id)
        try:
            if await asyncio.to_thread(self.session_store.set_expiry_finalized, entry) is False:
                return  # the conversation got a message meanwhile
        except StateError as error:
            self._expiry_failures[session_id] += 1
            _log.warning("a conversation was not closed: %s", error.one_line(), extra={"action": "expiry"})
            if self._expiry_failures[session_id] < periodic_tasks.EXPIRY_TRIES:
                return
            del self._expiry_failures[session_id]
        platform = _platform_of(entry.session_key)
        await plugin_hooks.conversation_left(session_id=session_id, platform=platform)
        await self._left(session_id)

    async def _forget_old_routes(self) -> None:
        days = self.config.session_store_max_age_days
        if days > 0 and time.time() - self._last_session_store_prune_ts > periodic_tasks.PRUNE_SECONDS:
            self._last_session_store_prune_ts = time.time()
            await asyncio.to_thread(self.session_store.prune_old_entries, days)

    # -- after a turn ------------------------------------------------------------------------------------

    def answers_held(self) -> None:
        """Tell the owner about answers that wait to be sent."""
        if self._questions is not None:
            self._questions.cards.ask_soon()

    async def rotated(self, route: SessionKey, *, started: SessionId, now: SessionId) -> None:
        """Publish that a turn compressed the conversation; the ledger has moved its routes already."""
        await asyncio.to_thread(self._publish_rotation, route, started, now)
        facts = {
            "platform": _platform_of(route), "session_id": now, "old_session_id": started, "session_key": route,
            "in_place": False,
        }  # fmt: skip
        await self.hooks.emit("session:compress", facts)

    def _publish_rotation(self, route: SessionKey, started: SessionId, now: SessionId) -> None:
        """Update the entry that others may hold, unless its route now leads to another conversation."""
        with self.session_store._lock:
            session_entry = self.session_store._entries.get(route)
            if session_entry is not None and session_entry.session_id in (started, now):
                session_entry.session_id = now
                self.session_store._save()

    async def exhausted(self, route: SessionKey, source: SessionSource) -> None:
        """Start a new conversation, because the old one no longer fits the model even when compressed.

        The turn's reply tells the person (`replies.EXHAUSTED`).
        """
        await self._begin_anew(route, source)
