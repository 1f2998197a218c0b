"""`AIAgent`: the class that other packages call to run turns.

An agent belongs to one conversation. The store holds the truth and the agent only caches it: opening a turn looks up
the newest segment again, and the prompt's bytes can be dropped at any moment and rebuilt from the store. Two agents of
one conversation, in one process or in two, exclude each other by the lease and see each other's messages. The core is
`arun_conversation`; `run_conversation` does the same for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import home_inventory, hooks, process_identity, sync_loop, titles
from hermes_agent.approvals.types import Approver, Yolo
from hermes_agent.budget import Budget
from hermes_agent.knowledge import review
from hermes_agent.media import pictures
from hermes_agent.messages import text_of
from hermes_agent.models import providers
from hermes_agent.models.base import Endpoint, ToolSpec
from hermes_agent.prompt import transcript
from hermes_agent.prompt.transcript import Content, TranscriptCache
from hermes_agent.tools import environment, registry
from hermes_agent.tools.base import Ask, Tool
from hermes_agent.turn import control, run
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Interrupted, Signals, Stop
from hermes_agent.turn.request import TurnRequest
from hermes_agent.turn.result import Spent
from hermes_agent.turn.state import Setup, TurnRun
from hermes_cli import plugins
from hermes_config import config as configuration
from hermes_config import logs
from hermes_config.errors import HermesError
from hermes_state.conversations import origins
from hermes_state.errors import SessionNotFound
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, SessionId, TurnId
from hermes_state.turns.journal import Journal

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns.children import Child

_log = logging.getLogger("hermes.agent")


class ConversationBusy(HermesError):
    """Another turn is running in this conversation."""

    default_hint = "Wait until that turn ends, or stop it there."


class LeftElsewhere(ConversationBusy):
    """An unanswered message of another route comes first in this conversation."""

    default_hint = "That message is answered first, in the chat it came from."

    def __init__(self, turn_id: TurnId, *, where: str) -> None:
        super().__init__(where=where)
        self.turn_id = turn_id


class AIAgent(Callbacks):
    """The agent of one conversation. Its callbacks are attributes; the surface that shows the turn sets them."""

    def __init__(
        self,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        endpoint: Endpoint | None = None,
        fallbacks: Sequence[Endpoint] | None = None,
        session_db: SessionDB | None = None,
        session_id: str | None = None,
        config: Config | None = None,
        platform: str = "cli",
        person_id: PersonId | None = LOCAL_OWNER,
        role: str | None = None,
        workdir: Path | None = None,
        approver: Approver | None = None,
        approver_id: PersonId | None = None,
        ask: Ask | None = None,
        yolo: bool = False,
        max_iterations: int | None = None,
        max_tokens: int | None = None,
        budget_usd: float | None = None,
        enabled_toolsets: Sequence[str] | None = None,
        disabled_toolsets: Sequence[str] = (),
        ephemeral_system_prompt: str | None = None,
        skip_memory: bool = False,
        skip_context_files: bool = False,
        origin: Mapping[str, Any] | None = None,
        child: Child | None = None,
    ) -> None:
        """`endpoint` overrides the configured model. `origin`: columns of a new session (user_id …).

        `role` overrides the person's role in the store; the role decides which tools the person may use. `budget_usd`:
        a spending limit of this conversation alone, beside the configured ones. `child`: the delegated work it does.
        """
        super().__init__()
        logs.redact_records()
        config = config or configuration.load()
        home_inventory.require_acknowledged(config)
        endpoint = endpoint or _endpoint(config, model, provider, base_url, api_key, max_tokens)
        db = session_db if session_db is not None else _default_store(config)
        role = role or _role(db, person_id)
        self._offered_tools = functools.partial(
            registry.Registry.offered, config=config, role=role, platform=platform, enabled=enabled_toolsets,
            disabled=disabled_toolsets,
        )  # fmt: skip
        registry.use_mcp_servers(config)
        self._tools: dict[str, Tool] = {}
        self._tools_generation = -1
        self._setup = Setup(
            db=db, config=config, workdir=environment.working_directory(config.home, started_in=workdir),
            endpoint=endpoint, fallbacks=providers.fallbacks(config) if fallbacks is None else tuple(fallbacks),
            specs=self._listed_specs(),
            budget=Budget(db, config, conversation_usd=budget_usd, child=child), platform=platform,
            person_id=person_id, role=role, approver=approver,
            approver_id=approver_id, ask=ask, yolo=Yolo(on=yolo), holder=process_identity.new_holder(),
            max_steps=max_iterations or config.agent.max_turns, max_retries=config.agent.api_max_retries,
            extra_text=ephemeral_system_prompt or "",
            with_memory=not skip_memory, with_context_files=not skip_context_files, child=child,
        )  # fmt: skip
        self.session_id = None if session_id is None else SessionId(session_id)
        """The conversation's current segment; None before the first turn of a new conversation."""
        self.origin = dict(origin or {})
        """Columns of a session that this agent creates."""
        self.notes: dict[str, Any] = {}
        """Small state of tools (the to-do list), lost with the agent."""
        self.spent = Spent()
        """Tokens and cost of the last turn."""
        self.signals = Signals()
        self._transcript: TranscriptCache | None = None
        self._announced = ""
        self.makes_titles = True
        """False where a person waits for the process to end: a title takes a second model call."""
        self._beside: set[asyncio.Task[Any]] = set()
        """Titles and reviews that are being made."""

    # -- properties that surfaces read --------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """The name under which this agent holds leases."""
        return self._setup.holder

    @property
    def model(self) -> str:
        return self._setup.endpoint.model

    @property
    def provider(self) -> str:
        return self._setup.endpoint.provider

    @property
    def base_url(self) -> str:
        return self._setup.endpoint.base_url

    @property
    def platform(self) -> str:
        return self._setup.platform

    @property
    def context_length(self) -> int:
        return self._setup.endpoint.context_length

    @property
    def valid_tool_names(self) -> frozenset[str]:
        return frozenset(self.current_tools())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that `release` would free."""
        return 0 if self._transcript is None else self._transcript.nbytes

    def message_count(self, session_id: SessionId) -> int | None:
        """How many messages of the segment this agent has read and written; None if it has not read the segment."""
        return None if self._transcript is None else self._transcript.message_count(session_id)

    # -- control of a running turn -------------------------------------------------------------------------

    def interrupt(self, message: str | None = None, *, reason: str | None = None) -> None:
        """Stop the running turn. `message`: the person's newer message; `reason` is stored in the turn's row."""
        self.signals.stop(message, reason)

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running; an agent runs one at a time."""
        return self.signals.running

    def clear_interrupt(self) -> None:
        self.signals.clear()

    @property
    def is_interrupted(self) -> bool:
        return self.signals.stopped

    def steer(self, text: str, inbox_id: int | None = None) -> bool:
        """Add text to the running turn; True if the turn accepts it. The turn then also claims the row `inbox_id`."""
        return self.signals.steer(text, inbox_id)

    def abandon(self) -> None:
        """Keep the turn open when it is cancelled: another process will recover it."""
        self.signals.abandoned = True

    def leave_open(self) -> None:
        """Cancel the turn and leave it open, from any thread: this process ends, and another one recovers the turn."""
        self.signals.leave_open()

    # -- turns -------------------------------------------------------------------------------------------

    def run_conversation(self, user_message: Content, *args: Any, **options: Any) -> dict[str, Any]:
        """`arun_conversation` for callers without an event loop. Ctrl-C stops the turn and keeps its finished steps."""
        return sync_loop.run(self.arun_conversation(user_message, *args, **options), interrupt=self.interrupt)

    def chat(self, text: str) -> str:
        result = self.run_conversation(text)
        return str(result.get("final_response") or result.get("error") or "")

    async def arun_conversation(
        self,
        user_message: Content,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
        stream_callback: Callable[[str], Any] | None = None,
        persist_user_message: Content | None = None,
        persist_user_timestamp: float | None = None,
        platform_message_id: str | None = None,
        request: TurnRequest | None = None,
    ) -> dict[str, Any]:
        """Run one turn. The store is the history; `conversation_history` only fills a session without rows.

        `system_message` is added to the system text from now on and replaces the text added before. A changed text
        starts a new prompt prefix, as an announced event.
        """
        streamed = self.stream_delta_callback
        if stream_callback is not None:
            self.stream_delta_callback = stream_callback
        stop = self.signals.bind()
        try:
            if system_message is not None and system_message != self._setup.extra_text:
                self._setup, self._transcript = replace(self._setup, extra_text=system_message), None
                self.announce("the caller's system text")
            await self._fire_session_start(new=await self._ensure_ready(conversation_history or ()))
            if not isinstance(user_message, str):
                user_message, persist_user_message = await self._in_words(user_message, persist_user_message)
            person = self._setup.person_id if request is None else request.person_id
            answers = await self._fire_pre_llm_call(user_message, person, task_id)
            # The timestamp is the arrival time, even if an unfinished turn must end first. Context that plug-ins add
            # for the model is stored with the message, exactly as sent.
            came = self._setup.db.clock() if persist_user_timestamp is None else persist_user_timestamp
            role = self._setup.role if request is None else request.role or self._setup.role
            words = text_of(user_message if persist_user_message is None else persist_user_message)
            user = transcript.user_message(
                user_message, persist=persist_user_message, added=hooks.added_context(answers), person_id=person,
                platform_message_id=platform_message_id, timestamp=came, origin=origins.of_words(words, role),
            )  # fmt: skip
            journal = await self._open_turn(user, stop, request)
            result = await run.run(self._turn(journal, stop, request, task_id), said=user_message)
            if late := self.signals.end():
                result["pending_steer"] = control.text_of(late)
            return result
        finally:
            self.signals.clear(stop)
            self.stream_delta_callback = streamed

    async def resume_unfinished(
        self, *, request: TurnRequest | None = None, waiting: TurnId | None = None
    ) -> dict[str, Any] | None:
        """Recover a turn of this conversation whose process was lost; return its result, or None without such a turn.

        `waiting`: a turn that waited for a person's answer and can continue now.
        """
        stop = self.signals.bind()
        try:
            await self._ensure_ready()
            await asyncio.to_thread(self._release_lost_lease)
            setup, known = self._setup, self._known_session
            ours: dict[str, Any] = {
                "holder": setup.holder, "ttl": setup.lease_seconds, "left_open": self._is_abandoned,
            }  # fmt: skip
            if waiting is None:
                journal = await Journal.resume(setup.db, known, **ours)
            else:
                journal = await Journal.wake(setup.db, known, waiting, **ours)
            return None if journal is None else await self._recover(journal, stop, request)
        finally:
            self.signals.clear(stop)

    async def compress(self, focus: str | None = None, *, request: TurnRequest | None = None) -> bool:
        """Compress now (`/compress`), whatever the thresholds say. True if the conversation got smaller."""
        stop = self.signals.bind()
        try:
            await self._ensure_ready()
            journal = await self._open_turn(None, stop, request)
            return await run.compress(self._turn(journal, stop, None), focus)
        except Interrupted:
            return False
        finally:
            self.signals.clear(stop)

    def compressed_words(self) -> str:
        """The result of the last `compress`, as a text for the person."""
        return " ".join(self.spent.notices) or "Compressed: the older part is a summary now. /uncompress takes it back."

    async def aclose(self) -> None:
        """Wait up to five seconds for a title or a review that is being made, then free the memory."""
        if self._beside:
            await asyncio.wait(set(self._beside), timeout=5)
        self.release()

    def close(self) -> None:
        self.release()

    def release(self) -> None:
        if self._transcript is not None:
            self._transcript.release()

    def announce(self, reason: str) -> None:
        """Make the next turn render the prompt prefix anew, because something in it may have changed (a role …)."""
        self._announced = reason

    # -- called by the agent's turns ---------------------------------------------------------------------

    def transcript_of(self, journal: Journal) -> TranscriptCache:
        """The cached transcript of the turn's conversation."""
        if self._transcript is None or self._transcript.conversation_id != journal.conversation_id:
            self._transcript = TranscriptCache(self._setup, journal.conversation_id)
        if self._announced:
            self._transcript.announce(self._announced)
            self._announced = ""
        return self._transcript

    def current_tools(self) -> Mapping[str, Tool]:
        """The conversation's tools by name, listed or not; what plug-ins and servers added and removed counts."""
        known = registry.shared()
        if known.generation != self._tools_generation:
            self._tools = {tool.name: tool for tool in self._offered_tools(known)}
            self._tools_generation = known.generation
        return self._tools

    def _listed_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.current_tools().values() if tool.listed)

    def _refresh_tools(self) -> None:
        """Begin a new prompt if a plug-in has replaced a listed tool since the last turn."""
        specs = self._listed_specs()
        if specs != self._setup.specs:
            self._setup = replace(self._setup, specs=specs)
            self._transcript = None  # rebuilding the transcript also renders the new list of tools

    def start_beside(self, journal: Journal) -> None:
        """Make a title and a review in the background; only `aclose` waits for them."""
        if not self.makes_titles:
            return
        for start in (titles.after_turn, review.after_turn):
            task: asyncio.Task[Any] | None = start(self._setup, journal.conversation_id, journal.session_id)
            if task is not None:
                self._beside.add(task)
                task.add_done_callback(self._beside_ended)

    def _beside_ended(self, task: asyncio.Task[Any]) -> None:
        self._beside.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            facts = {"action": "beside_failed", "reason": type(error).__name__}
            _log.error("a title or a review ended with an error", exc_info=error, extra=facts)
        elif task.result():
            self.tell_status("lifecycle", "a review proposed something to keep: /proposals shows it")

    # -- inside ------------------------------------------------------------------------------------------

    @property
    def _known_session(self) -> SessionId:
        assert self.session_id is not None, "call `_ensure_ready` first"
        return self.session_id

    async def _ensure_ready(self, history: Sequence[Mapping[str, Any]] = ()) -> bool:
        """Make sure that the conversation exists and `session_id` names one of its segments; True if this created it.

        A turn opens on the newest segment, whichever is named.
        """
        setup = self._setup
        if self._transcript is not None and not history:
            return False  # this agent ran a turn there; if the session was deleted since, opening a turn reports it
        if not history and setup.db.engine.dialect == "sqlite" and self._find_session():
            return False  # reading two rows of a local file by key is cheaper than starting a thread
        return await asyncio.to_thread(self._ensure_session, history)

    async def _in_words(self, message: Content, persist: Content | None) -> tuple[Content, Content | None]:
        """The message, with its pictures in words if the model does not see."""
        setup, session_id = self._setup, self._known_session
        root = await asyncio.to_thread(setup.db.get_conversation_root, session_id)
        return await pictures.for_model(setup, message, persist, ConversationId(root), session_id)

    async def _fire_session_start(self, *, new: bool) -> None:
        """Fire `on_session_start` at the first turn of a session, whoever created the session."""
        if not plugins.has_hook("on_session_start"):
            return
        state = await asyncio.to_thread(self._setup.db.live_state, self._known_session)
        if new or (state is not None and state.message_count == 0):
            await hooks.fire("on_session_start", session_id=self.session_id, model=self.model, platform=self.platform)

    async def _fire_pre_llm_call(self, message: Content, person: PersonId | None, task_id: str | None) -> list[Any]:
        """Fire `pre_llm_call` before the turn opens, because what the hooks answer is stored with its message.

        While another turn runs here this message is refused, and no plug-in hears of it.
        """
        if not plugins.has_hook("pre_llm_call"):
            return []
        if await asyncio.to_thread(self._is_held):
            raise ConversationBusy(where=str(self.session_id))
        history = await asyncio.to_thread(self._setup.db.get_messages_as_conversation, self._known_session)
        return await hooks.fire(
            "pre_llm_call", session_id=self.session_id, task_id=task_id or "", user_message=copy.deepcopy(message),
            conversation_history=history, is_first_turn=not history, model=self.model, platform=self.platform,
            sender_id=person,
        )  # fmt: skip

    def _ensure_session(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Create a missing session and fill an empty one. True if the session is new."""
        setup, db = self._setup, self._setup.db
        new = not self._find_session()
        if new:
            handle = db.ledger.open(
                source=str(self.origin.get("source") or setup.platform), owner=setup.person_id,
                session_id=self.session_id,
                fields={"model": setup.endpoint.model, "cwd": str(setup.workdir), **self.origin},
            )  # fmt: skip
            self.session_id = handle.session_id
        if history and db.message_count(self._known_session) == 0:
            db.append_messages(self._known_session, history)
        return new

    def _find_session(self) -> bool:
        """Whether the session exists; if so, set `session_id` to the newest segment of its conversation."""
        db, known = self._setup.db, self.session_id
        if known is None or db.get_session(known) is None:
            return False
        self.session_id = SessionId(db.get_compression_tip(known))
        return True

    def _is_held(self) -> bool:
        """Whether a living process runs a turn of the conversation."""
        db = self._setup.db
        lease = db.leases.get(ConversationId(db.get_conversation_root(self._known_session)))
        return lease is not None and not process_identity.is_gone(lease.holder)

    def _release_lost_lease(self) -> bool:
        """Release the lease of a process that certainly no longer runs."""
        db = self._setup.db
        return process_identity.release_gone(db, ConversationId(db.get_conversation_root(self._known_session)))

    async def _open_turn(self, user: Mapping[str, Any] | None, stop: Stop, request: TurnRequest | None) -> Journal:
        """Open a new turn. A turn that a lost process left open in this conversation is finished first."""
        setup = self._setup
        route, lane, claim = (None, None, ()) if request is None else (request.route, request.lane, request.claim)
        freed = False
        while True:
            try:
                journal = await Journal.open(
                    setup.db, self._known_session, holder=setup.holder, ttl=setup.lease_seconds, user=user,
                    route=route, lane=lane, claim=claim, trace_id="" if request is None else request.trace_id,
                    left_open=self._is_abandoned,
                )  # fmt: skip
            except SessionNotFound:
                if self._transcript is None or route is not None:
                    raise  # the route decides which conversation gets the message
                self.tell_status("warn", "this conversation was deleted elsewhere; your message starts a new one")
                self._transcript = None
                await self._ensure_ready()
                continue
            if journal is None:
                if freed or not await asyncio.to_thread(self._release_lost_lease):
                    raise ConversationBusy(where=str(self.session_id))
                freed = True
            elif journal.resumed:
                result = await self._recover(journal, stop, request)
                if request is not None:
                    request.recovered(result)
            else:
                return journal

    async def _recover(self, journal: Journal, stop: Stop, request: TurnRequest | None) -> dict[str, Any] | None:
        """Finish a turn that a lost process left open. A chat's turn is left to the gateway, which can deliver its
        answer, and a turn of another route to that route."""
        if request is None and journal.work.inbox:
            await journal.leave()
            raise ConversationBusy("a chat message is still unanswered here", hint="hermes gateway run answers it.")
        if request is not None and not request.covers(journal.work.turn):
            await journal.leave()
            raise LeftElsewhere(journal.turn_id, where=str(journal.session_id))
        return await run.recover(self._turn(journal, stop, request))

    def _turn(self, journal: Journal, stop: Stop, request: TurnRequest | None, task_id: str | None = None) -> TurnRun:
        journal.lane = None if request is None else request.lane
        self._refresh_tools()
        return TurnRun(self, self._setup, journal, stop=stop, request=request, task_id=task_id)

    def _is_abandoned(self) -> bool:
        return self.signals.abandoned


def _role(db: SessionDB, person_id: PersonId | None) -> str:
    """The person's role; an unknown person is a guest."""
    if person_id is None:
        return "guest"
    known = db.people.get(person_id)
    if known is not None:
        return known.role
    return db.people.owner().role if person_id == LOCAL_OWNER else "guest"


def _endpoint(
    config: Config, model: str | None, provider: str | None, base_url: str | None, api_key: str | None, most: int | None
) -> Endpoint:
    """The configured model with what the caller changes of it. Configured keys are not sent to another host."""
    found = providers.primary(config, model=model, provider=provider)
    changes: dict[str, Any] = {"base_url": base_url, "api_key": api_key, "max_tokens": most}
    if api_key is not None:
        changes["more_keys"] = ()
    elif base_url is not None and not providers.same_host(base_url, found.base_url):
        changes |= {"api_key": "", "more_keys": ()}
    return replace(found, **{name: value for name, value in changes.items() if value is not None})


def _default_store(config: Config) -> SessionDB:
    from hermes_state import SessionDB

    return SessionDB(config.database_url(), limits=config.limits)
