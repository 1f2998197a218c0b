"""`TurnRunner`: runs one turn of a lane.

    resolve the route → agent from the cache → the rows as one user message → the agent, with a request → deliver

The agent's own commits store everything that must not be lost: the first claims the rows, the last stores their answer.
The steps after the commit (delivery, hooks, the cache's count) can be repeated or missed. Errors that the person should
see are part of the answer; all others are raised to the lane.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.access import authorisation
from gateway.config import Platform
from gateway.inbound.stored_message import reply_to
from gateway.inbound.terminal_messages import is_from_terminal
from gateway.outbound import notices
from gateway.outbound.streaming import ChatStream
from gateway.routes.resolver import BY_ITSELF
from gateway.turns import attachments, job_turn, user_message
from gateway.turns.agents import CHAT_INSTRUCTIONS, PENDING, Agents, AgentSpec
from gateway.turns.live_view import LiveView, Watched
from gateway.turns.running_turn import RunningTurn, ShutOut, Stopped, Watcher, turn_request, watched
from hermes_agent import AIAgent, hooks
from hermes_agent.agent import ConversationBusy
from hermes_agent.media.transcription import VoiceListener
from hermes_agent.messages import text_of
from hermes_agent.turn.request import TurnRequest
from hermes_state.ids import LOCAL_OWNER, ConversationId, SessionId
from hermes_state.people import media_files
from hermes_state.storage.writer import look
from hermes_state.turns.inbox import LOCAL

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy
    from gateway.outbound.deliverer import Deliverer
    from gateway.platforms.base import BasePlatformAdapter
    from gateway.run import GatewayRunner
    from gateway.services import Services
    from hermes_config.sections import ChannelOverride
    from hermes_state.conversations.ledger import Handle, Resolved
    from hermes_state.turns.outbox import OutboxItem
    from hermes_state.turns.turns import Turn

_log = logging.getLogger("hermes.gateway")
Result = dict[str, Any]
Entry = Mapping[str, Any] | None
_T = TypeVar("_T")
_HOOK_CHARS = 500
"""The beginning of a message and of an answer that event hooks get."""


class TurnRunner:
    """Runs the turns of every lane."""

    def __init__(
        self,
        services: Services,
        agents: Agents,
        deliverer: Deliverer,
        *,
        adapters: Mapping[Platform, BasePlatformAdapter],
        after: GatewayRunner,
    ) -> None:
        """`after`: called when a conversation was compressed, no longer fits the model, or has new messages."""
        self._services, self._agents, self._deliverer = services, agents, deliverer
        self._adapters, self._after = adapters, after
        self._watched = Watched(services.db)

    async def run(self, running: RunningTurn, watcher: Watcher | None = None) -> Result:
        """Run a turn with the lane's rows. Raises `Stopped`, `NotQueued`, `ConversationBusy` and the store's errors."""
        self._services.refresh()
        self._agents.running[running.route] = PENDING
        try:
            preparing = job_turn.prepare(self._services, running) if job_turn.is_job(running) else None
            note = "" if preparing is None else await self._without_turn(preparing)
            resolved = await self._resolved(running)
            handle = resolved.handle
            agent = await self._agent(
                running, handle.conversation_id, handle.session_id, resolved.entry, resolved.message_count
            )
            if self._services.has_jobs and not note and not job_turn.is_of_job(running):
                note = await job_turn.wrote_here(self._services.db, running.route, handle.conversation_id)
            notes = "\n\n".join(filter(None, (_note(resolved), note)))
            message = await self._message(running, agent, handle, note=notes)
            if running.stopped:
                raise Stopped
            _only_one(agent)
            shown = await self._shown(running)
            watchers = self._watchers(handle.conversation_id, shown, watcher)
            await self._tell_hooks("agent:start", running, handle.session_id)
            with watched(agent, watchers):
                result = await agent.arun_conversation(
                    message.content, persist_user_message=message.persist, persist_user_timestamp=_said_at(running),
                    platform_message_id=running.rows[-1].message_id if running.rows else None,
                    request=self._turn_request(running, shown, watchers),
                )  # fmt: skip
        finally:
            self._agents.running.pop(running.route, None)
        running.done()
        self._ended(result, watchers)
        if running.held:
            self._after.answers_held()
        await asyncio.sleep(0)  # callers that wait for the answer run first
        await self._settle(running, handle.conversation_id, handle.session_id, result)
        await self._tell_hooks("agent:end", running, result["session_id"], result)
        return result

    async def resume(self, running: RunningTurn, turn: Turn) -> Result | None:
        """Continue a turn of a dead process, or one that waited, to its end; None when another process did."""
        self._services.refresh()
        self._agents.running[running.route] = PENDING
        try:
            agent = await self._agent(running, turn.conversation_id, turn.session_id)
            if running.stopped:
                raise Stopped
            _only_one(agent)
            shown = await self._shown(running)
            watchers = self._watchers(turn.conversation_id, shown)
            with watched(agent, watchers):
                result = await agent.resume_unfinished(
                    request=self._turn_request(running, shown, watchers),
                    waiting=turn.id if turn.state == "waiting" else None,
                )
        finally:
            self._agents.running.pop(running.route, None)
        running.done()
        if running.held:
            self._after.answers_held()
        if result is not None:
            self._ended(result, watchers)
            await self._settle(running, turn.conversation_id, turn.session_id, result)
            await self._tell_hooks("agent:end", running, result["session_id"], result)
        else:
            self._deliverer.wake()
        return result

    async def _without_turn(self, work: Awaitable[_T]) -> _T:
        """Wait for work that may end the row without a turn, with a message of its own."""
        try:
            return await work
        except job_turn.JobEnded:
            self._deliverer.wake()
            raise

    def _watchers(self, conversation_id: ConversationId, *others: Watcher | None) -> list[Watcher]:
        return [*(one for one in others if one is not None), LiveView(self._watched, conversation_id)]

    async def compress(self, running: RunningTurn, focus: str | None) -> str | None:
        """Compress the conversation of a route; returns a summary of it, or None. Raises `ConversationBusy`."""
        resolved = await self._resolved(running)
        conversation, started = resolved.handle.conversation_id, resolved.handle.session_id
        agent = await self._agent(running, conversation, started)
        try:
            done = await agent.compress(focus, request=self._turn_request(running, None, []))
        finally:
            self._agents.running.pop(running.route, None)
        if agent.session_id is not None:
            await self._moved(running, conversation, started, agent.session_id)
        await self._after._refresh_agent_cache_message_count(conversation, agent.session_id or started)
        return agent.compressed_words() if done else None

    async def _tell_hooks(
        self, event: str, running: RunningTurn, session_id: SessionId, result: Mapping[str, Any] | None = None
    ) -> None:
        """Call the home's event hooks about a turn, with the beginning of what was said."""
        if not self._services.hooks.listens(event):
            return
        source, said = running.source, "\n".join(str((row.payload or {}).get("text") or "") for row in running.rows)
        facts = {
            "platform": source.platform.value, "user_id": source.user_id, "chat_id": source.chat_id,
            "thread_id": source.thread_id, "chat_type": source.chat_type, "session_id": session_id,
            "message": (said or text_of(running.content or ""))[:_HOOK_CHARS],
        }  # fmt: skip
        if result is not None:
            facts["response"] = str(result.get("final_response") or "")[:_HOOK_CHARS]
        await self._services.hooks.emit(event, facts)

    # -- before ------------------------------------------------------------------------------------------

    async def _resolved(self, running: RunningTurn) -> Resolved:
        """The conversation of the route; for a new one, call the hooks, also those for the end of the previous one."""
        if job_turn.is_job(running):
            resolved = await job_turn.conversation(self._services, running)
        elif running.own.get("conversation_id"):
            resolved = await self._without_turn(job_turn.asked_in(self._services, running))
        else:
            resolved = await self._services.store.aresolve(running.source, running.route)
        if resolved.created:
            platform, source = running.source.platform.value, running.source
            if resolved.previous is not None:
                await self._reset(running, resolved, resolved.previous)
            await self._services.hooks.emit(
                "session:start",
                {
                    "platform": platform, "user_id": source.user_id, "session_id": resolved.handle.session_id,
                    "session_key": running.route,
                },
            )  # fmt: skip
        return resolved

    async def _reset(self, running: RunningTurn, resolved: Resolved, previous: SessionId) -> None:
        """Close the previous conversation after a reset, or after its end elsewhere, and tell the chat."""
        services, source, reason = self._services, running.source, resolved.reset_reason or ""
        self._agents.evict(await asyncio.to_thread(services.db.get_conversation_root, previous))
        if not resolved.over:  # otherwise the process that ended it has called the hooks
            await hooks.conversation_left(session_id=previous, platform=source.platform.value)
        policy = services.settings.get_reset_policy(source.platform, source.chat_type)
        entry = await asyncio.to_thread(services.store._entries.get, running.route)
        active = entry is not None and entry.reset_had_activity
        if reason in BY_ITSELF and notices.reset_is_told(
            reason, policy, platform=source.platform.value, had_activity=active
        ):
            await self._tell(running, "reset", resolved.handle.session_id, notices.reset(reason, policy))

    async def _agent(
        self,
        running: RunningTurn,
        conversation_id: ConversationId,
        session_id: SessionId,
        entry: Entry = None,
        count: int | None = None,
    ) -> AIAgent:
        """The agent for the turn. `entry` and `count`: the route's entry and message count, if just read."""
        if count is None:
            db = self._services.db
            state = await look(db, db.live_state, session_id)
            count = None if state is None else state.message_count
        # The policy is read for each turn, so a role that was taken away ends with the next one.
        policy = await self._services.policy.fresh()
        row = next(reversed(running.rows or running.left_rows), None)
        if (
            row is not None
            and not is_from_terminal(row)
            and not job_turn.is_of_job(running)  # its access was checked already
            and authorisation.is_shut_out(running.source, policy, account=row.account)
        ):
            raise ShutOut
        wanted = self._wanted(running, policy, await self._override(running, entry))
        agent = await self._agents.get(conversation_id, session_id, wanted, count=count)
        running.agent = self._agents.running[running.route] = agent
        return agent

    async def _override(self, running: RunningTurn, entry: Entry) -> Mapping[str, Any]:
        """The model that was chosen for this route, if one was."""
        if entry is None:
            return await look(self._services.db, self._services.store.get_model_override, running.route) or {}
        return entry.get("model_override") or {}

    def _wanted(self, running: RunningTurn, policy: Policy, override: Mapping[str, Any]) -> AgentSpec:
        """What the agent is made for. A group has one agent for all its people: its tools do not depend on them."""
        source, store = running.source, self._services.store
        private, shared = source.chat_type == "dm", store.is_shared(source)
        adapter = self._adapters.get(source.platform)
        role: str | None = authorisation.role_of(source, policy, account="" if adapter is None else adapter.account)
        running.role = role or ""
        if job_turn.is_of_job(running) and (running.person_id == LOCAL_OWNER or source.platform.value == LOCAL):
            role = None  # that of the job's person, whoever else reads the chat
        toolsets, own = None if private else self._services.settings.group_toolsets, running.own.get("agent") or {}
        if (fewer := own.get("toolsets")) is not None:
            toolsets = tuple(one for one in fewer if toolsets is None or one in toolsets)
        chat = self._services.settings.chat_override(source.platform, source.chat_id, source.thread_id)
        chosen = own if own.get("model") else override or {"model": chat.model, "provider": chat.provider}
        return AgentSpec(
            platform=source.platform.value, person_id=None if shared else running.person_id,
            role=None if shared else role, private=private, toolsets=toolsets, budget_usd=own.get("budget_usd"),
            without=tuple(own.get("without") or ()),
            model=chosen.get("model"), provider=chosen.get("provider"), extra_text=_instructions(running, chat),
        )  # fmt: skip

    async def _message(
        self, running: RunningTurn, agent: AIAgent, handle: Handle, *, note: str
    ) -> user_message.Prepared:
        services = self._services
        setting = user_message.MessageSetting(
            shared=services.store.is_shared(running.source),
            listener=VoiceListener(
                db=services.db, config=services.config, conversation_id=handle.conversation_id,
                session_id=handle.session_id, person_id=running.person_id,
            ),
            has_files="read_file" in agent.valid_tool_names, home=services.home,
            media=attachments.MediaLimits(
                file_bytes=services.settings.media_bytes, folder_bytes=services.db.limits.media_folder_bytes,
                needed=partial(media_files.needed, services.db),
            ),
        )  # fmt: skip
        if not running.rows:
            return user_message.again(running.content, setting, source=running.source)
        adapter = self._adapters.get(running.source.platform)
        message = await user_message.prepare(running.rows, setting, adapter=adapter, note=note)
        if services.settings.stt_echo_transcripts:
            for at, (row, text) in enumerate(message.heard):
                await self._tell(running, "heard", f"{row.id}:{at}", text)
        return message

    async def _tell(self, running: RunningTurn, what: str, occasion: str, text: str) -> None:
        """Send a notice to the turn's chat, once."""
        await self._deliverer.say(notices.to_chat(what, occasion, text, running.source, account=running.account))

    async def _shown(self, running: RunningTurn) -> ChatStream | None:
        """The watcher that streams the answer into its chat; None where it is held or the platform cannot show it."""
        source = running.source
        if source.platform is not Platform.API_SERVER:  # an HTTP client waits for its answer
            is_held, listed = self._services.db.held_answers.is_held, self._services.settings.delivery.hold
            running.held = await look(self._services.db, is_held, listed, source.platform.value, str(source.chat_id))
        if running.held:
            return None
        source, row = running.source, running.rows[-1] if running.rows else None
        adapter = self._adapters.get(source.platform)
        if adapter is None or not (adapter.supports_edit or adapter.supports_typing) or job_turn.is_of_job(running):
            return None  # a job's answer comes whole: nobody waits for it
        shown = ChatStream(
            self._services, adapter, self._deliverer, chat_id=str(source.chat_id), account=adapter.account,
            thread_id=source.thread_id, reply_to=reply_to(row, source),
        )  # fmt: skip
        running.on_asking = shown.asking
        return shown

    def _turn_request(self, running: RunningTurn, shown: ChatStream | None, watchers: list[Watcher]) -> TurnRequest:
        def recovered(result: Result | None) -> None:
            if result is None:
                self._deliverer.wake()
            else:
                self._ended(result, [] if shown is None else [shown])

        return turn_request(running, shown, watchers, holder=self._services.holder, recovered=recovered)

    # -- after -------------------------------------------------------------------------------------------

    def _ended(self, result: Result, watchers: list[Watcher]) -> None:
        """Tell the watchers and start the delivery, before anything else."""
        item: OutboxItem | None = result.get("outbox_item")
        for one in watchers:
            one.ended(result)
        if item is not None:
            self._deliverer.deliver(item)

    async def _settle(
        self, running: RunningTurn, conversation_id: ConversationId, started: SessionId, result: Result
    ) -> None:
        now = SessionId(result["session_id"])
        if waits_for := result.get("waits_for"):
            hours = self._services.config.approvals.open_hours
            await self._tell(running, "waiting", waits_for, notices.waiting(waits_for, hours=hours))
        await self._moved(running, conversation_id, started, now)
        if result.get("compression_exhausted") and not job_turn.is_of_job(running):
            await self._after.exhausted(running.route, running.source)
        self._agents.used(conversation_id)
        await self._after._refresh_agent_cache_message_count(conversation_id, now)
        self._count(running, result)

    async def _moved(
        self, running: RunningTurn, conversation_id: ConversationId, started: SessionId, now: SessionId
    ) -> None:
        """After compression, follow the conversation into its new segment."""
        if now != started:
            self._services.metrics.compressions.inc()
            self._agents.rotated(conversation_id, now)
            await self._after.rotated(running.route, started=started, now=now)

    def _count(self, running: RunningTurn, result: Result) -> None:
        outcome = "failed" if result["failed"] else "stopped" if result["interrupted"] else "done"
        if result.get("waits_for"):
            outcome = "waiting"
        self._services.metrics.turns(running.source.platform.value, outcome).inc()
        if running.rows:
            seconds = max(0.0, self._services.db.clock() - running.rows[0].received_at)
            self._services.metrics.turn_seconds(running.source.platform.value).observe(seconds)


def _only_one(agent: AIAgent) -> None:
    if agent.in_turn:  # another route of this conversation uses the same agent
        raise ConversationBusy(where=str(agent.session_id))


def _instructions(running: RunningTurn, chat: ChannelOverride) -> str | None:
    """Instructions for the system text: those that came with the message, else the chat's of config.yaml.

    None: an API client gave none this time, and those it gave before stay.
    """
    said = (running.rows[-1].payload or {}).get("prompt") if running.rows else None
    if said is not None or running.source.platform is Platform.API_SERVER:
        return said
    return f"{CHAT_INSTRUCTIONS}\n\n{text}" if (text := (chat.instructions or "").strip()) else ""


def _said_at(running: RunningTurn) -> float | None:
    kept = running.rows[-1].payload if running.rows else None
    return None if kept is None else float(kept["at"])


def _note(resolved: Resolved) -> str:
    """The note to the model in a conversation that replaces one that was reset."""
    if resolved.reset_reason is None or resolved.previous is None:
        return ""
    return f"[The conversation before this one was reset ({resolved.reset_reason}); this one begins without it.]"
