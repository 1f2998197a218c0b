"""A live session: the agent of one conversation, and the clients' actions on it.

The agent is made at first need, and again when the session changes to another conversation or model; nothing is lost by
that. Every callback of the agent becomes an event of the session. Coroutines run on the agents' loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gateway.access.policy import PolicyKeeper
from hermes_agent import AIAgent, process_identity, sync_loop
from hermes_agent.knowledge import skills
from hermes_agent.messages import text_of
from hermes_agent.models import providers
from hermes_agent.models.base import Endpoint
from hermes_agent.tools import registry
from hermes_agent.tools.base import FileContext
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_state.conversations.sessions import chosen_mark
from hermes_state.ids import LOCAL_OWNER, ConversationId, SessionId, is_child
from hermes_state.turns.inbox import LOCAL, OWN, local_route
from tui_gateway.session import attach
from tui_gateway.session.approvals import SessionApprovals
from tui_gateway.wire import frames

if TYPE_CHECKING:
    from hermes_agent.turn.request import TurnRequest
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import SessionKey, TurnId
    from hermes_state.turns.children import Child
    from hermes_state.turns.turns import Work
    from tui_gateway.session.attach import ServedChat
    from tui_gateway.session.services import RpcServices, Session
    from tui_gateway.wire.frames import Params
    from tui_gateway.wire.transports import FrameTransport

_OWN = 64
_MOST_STEPS = 100_000
_SUMMARY = 500


@dataclass(slots=True)
class Prompt:
    """A person's message, or a row of Hermes itself, until its turn has begun."""

    content: Any
    sender: FrameTransport | None = None
    """The client that wrote it and already shows it; None when all clients of the session have it."""
    rows: tuple[int, ...] = ()
    """Ids of its inbox rows; empty in a session without a store."""
    lane: SessionKey | None = None
    """The route of these rows."""
    own: bool = False
    """Whether Hermes stored it, so that no client has it."""
    known: bool = False
    """Whether it was stored before, under the same key of its client."""

    @property
    def text(self) -> str:
        return text_of(self.content)


def child_facts(child: Child) -> dict[str, Any]:
    """A child conversation, as the events about it tell."""
    shown = {
        "subagent_id": child.id, "parent_id": child.parent_id, "child_session_id": child.id, "goal": child.goal,
        "task_index": child.position, "task_count": child.spec.get("count", 1), "depth": child.depth,
        "model": child.spec.get("model"), "status": child.state,
    }  # fmt: skip
    if child.ended_at is None:
        return shown
    took = child.ended_at - (child.started_at or child.ended_at)
    return {**shown, "summary": (child.result or "")[:_SUMMARY], "duration_seconds": round(took, 3)}


class LiveSession:
    """The agent and state of one live session."""

    def __init__(self, services: RpcServices, sid: str, session: Session, db: SessionDB, given: Params) -> None:
        """`given`: the parameters of `session.create` or `session.resume`."""
        self._services, self._sid, self._session, self.db = services, sid, session, db
        self.approvals = SessionApprovals(services, sid)
        self._policy = PolicyKeeper(db)
        self._given = {name: said for name in ("model", "provider") if (said := str(given.get(name) or "").strip())}
        """Command-line choices, for each conversation of this session without its own choice."""
        self._choice = self._given or db.chosen_model(str(session["session_key"]))
        self._toolsets = None if given.get("toolsets") is None else tuple(map(str, given["toolsets"]))
        self._max_turns = frames.whole(given, "max_turns", 0, most=_MOST_STEPS) or None
        self._own_turns = bool(given.get("own_turns"))
        """Run turns in this process, even if a gateway serves the conversation."""
        self.yolo = False
        self.platform = "cli" if session["source"] == "cli" else "tui"
        self._skills: dict[str, list[str]] | None = None
        self._made_with: Config | None = None
        """The configuration of the newest agent."""
        self.turn: TurnId | None = None
        """The running turn of this process, once it has its row."""
        self._done: dict[str, Any] = {}
        self._waited = 0.0
        self._holder = process_identity.new_holder()
        """The process name by which others know whether our prompts are abandoned."""
        self.compressing = False
        """Whether the agent works without a turn; a prompt has to wait."""
        self.own: deque[TurnId] = deque(maxlen=_OWN)
        """The turns of this session that the event log may still report."""
        self.handed_in: dict[int, FrameTransport | None] = {}
        """Messages from here that the gateway answers, and the client that typed them; None: all clients."""
        self.known_notices: deque[str] = deque(maxlen=_OWN)
        """Outbox keys of gateway messages that this screen shows in another way."""
        self.own_queued = True
        """Whether rows of Hermes itself may wait in the lane; `follow` sees their events."""

    # -- the agent -----------------------------------------------------------------------------------------

    def build(self) -> AIAgent:
        """Make a new agent for the session's conversation. Raises our errors."""
        session, config = self._session, self.config
        key = str(session["session_key"])
        model, provider = self._choice.get("model"), self._choice.get("provider")
        origin = {"source": session["source"]}
        if self._choice:
            origin["model_config"] = json.dumps(chosen_mark(model, provider))
        agent = AIAgent(
            model, provider, session_db=self.db, session_id=key, config=config, platform=self.platform,
            person_id=LOCAL_OWNER, workdir=Path(session["cwd"]), approver=self.approvals, ask=self.approvals.clarify,
            yolo=self.yolo, enabled_toolsets=self._toolsets, max_iterations=self._max_turns,
            origin=origin, skip_memory=not self.is_mine(key),
        )  # fmt: skip
        self._skills, self._made_with = None, config
        agent.tool_gen_callback = lambda name: self._tell("tool.generating", {"name": name})
        agent.tool_start_callback = self._tool_started
        agent.tool_progress_callback = self._tool_progress
        agent.reasoning_callback = lambda text: self._tell("reasoning.delta", {"text": text})
        agent.status_callback = lambda kind, text: self._tell("status.update", {"kind": kind, "text": text})
        agent.tool_complete_callback = self._tool_completed
        return agent

    def skills(self) -> dict[str, list[str]]:
        """Skills by category, searched once for each agent. Reads files: do not call it on the agents' loop."""
        found = self._skills
        if found is None:
            found = {}
            for skill in skills.discover(self.config, platform=self.platform).skills:
                found.setdefault(skill.category, []).append(skill.name)
            self._skills = found
        return found

    def is_mine(self, session_id: str) -> bool:
        """Whether only the owner reads the conversation; else the owner's memory stays out of it."""
        if self.db.get_session(session_id) is None:
            return True
        return self.db.ledger.owner(self.db.get_conversation_root(session_id)) == LOCAL_OWNER

    def conversation(self) -> ConversationId:
        return ConversationId(self.db.get_conversation_root(self._session["session_key"]))

    def served(self) -> ServedChat | None:
        """The chat whose gateway drives this conversation now; None when this process does."""
        return None if self._own_turns else attach.served(self.db, self._session["session_key"], self._policy)

    def has_open_turn(self) -> bool:
        """Whether a turn of the conversation, here or elsewhere, has begun and not ended."""
        return bool(self.db.turns.list(state="running", conversation_id=self.conversation(), limit=1))

    def other_turn(self) -> Literal["", "elsewhere", "lost"]:
        """For an idle session: whether its conversation has an open turn, and whether somebody works on it.

        A lost turn, whose process died, has to end before the next one. A compression counts as elsewhere.
        """
        conversation = self.conversation()
        delegated = self.db.children.get(conversation) if is_child(conversation) else None
        if self.compressing or (delegated is not None and delegated.is_open):  # `delegation` runs a child
            return "elsewhere"
        if not self.has_open_turn():
            return ""
        if process_identity.at_work(self.db, self.conversation()):
            return "elsewhere"
        return "lost" if self.has_open_turn() else ""  # it may have ended since the read

    def file_context(self) -> FileContext:
        """The context in which a person names a file."""
        return FileContext(
            db=self.db, home=self.config.home, workdir=Path(self._session["cwd"]), environ=os.environ,
            config=self.config,
            conversation_id=self.conversation(),
        )  # fmt: skip

    def stored(self, content: Any, sender: FrameTransport | None, key: str | None = None) -> Prompt:
        """Store a prompt as an inbox row that waits for its turn; only once under a `key` of its client."""
        conversation = self.conversation()
        lane = local_route(conversation)
        payload: dict[str, Any] = {"text": text_of(content), "holder": self._holder, "at": self.db.clock()}
        if not isinstance(content, str):
            payload["content"] = content
        accepted = self.db.inbox.accept(
            platform=LOCAL, chat_id=conversation, message_id=f"{LOCAL}:{key or secrets.token_hex(8)}", route=lane,
            payload=payload, person_id=LOCAL_OWNER,
        )  # fmt: skip
        return Prompt(content, sender, (accepted.row.id,), lane, known=not accepted.new)

    def left_prompts(self) -> list[Prompt]:
        """Waiting prompts of this conversation whose process died, and rows of Hermes itself but a child's own."""
        lane, found = local_route(self.conversation()), []
        for row in self.db.inbox.queued(lane):
            kept, own = row.payload or {}, row.message_id.startswith(OWN)
            if own and is_child(row.chat_id):
                continue
            if own or process_identity.is_gone(str(kept.get("holder") or "")):
                found.append(Prompt(kept.get("content", kept.get("text")), None, (row.id,), lane, own))
        return found

    def recover_children(self) -> None:
        """Run delegated work of this conversation whose process died."""
        conversation = self.conversation()
        if any(one.is_open or one.returned in (None, "later") for one in self.db.children.of_parent(conversation)):
            from hermes_agent import delegation  # most conversations delegate nothing

            sync_loop.submit(delegation.recover(self.db, self.config, approver=self.approvals, parent=conversation))

    def turn_request(
        self, prompt: Prompt | None = None, *, started: Callable[[], object] = lambda: None
    ) -> TurnRequest:
        """A turn without a route; its row is needed because the event log reports the turn, too.

        `prompt`: the prompt it answers. `started`: called when a new turn has begun; a recovered one had begun before.
        """

        def began(work: Work) -> None:
            with self._services.event_lock:
                self.turn = work.turn.id
                self.own.append(work.turn.id)
                self._session["told"] += 1
                if work.turn.attempt == 1:
                    started()

        claim, lane = ((), None) if prompt is None else (prompt.rows, prompt.lane)
        return attach.turn_request(self.db, self._session["session_key"], began=began, claim=claim, lane=lane)

    def typed(self, said: Mapping[str, Any], *, by: FrameTransport, shown: bool = True) -> None:
        """Show the other clients of this session what one of them typed."""
        self._services.typed(self._sid, self._session, said, by=by, shown=shown)

    def _tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        self._services.emit(kind, self._sid, payload)

    def _tool_started(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        self._waited = self.approvals.waited  # calls run one after the other
        with self._services.event_lock:
            if (turn := self._session["inflight_turn"]) is not None:
                turn["assistant"] = ""  # the text before the call is a row by now
        tool = registry.shared().get(name)
        summary = "" if tool is None else tool.summary(dict(arguments))
        shown: dict[str, Any] = {"tool_id": call_id, "name": name, "context": summary}
        if self._session["tool_progress_mode"] == "verbose":
            shown["args_text"] = str(dict(arguments))
        self._tell("tool.start", shown)

    def _tool_completed(self, call_id: str, name: str, arguments: Mapping[str, Any], content: str) -> None:
        """`_tool_progress` reports the result a moment later."""
        self._done = {"tool_id": call_id, "name": name, "args": dict(arguments), "result": content}

    def _tool_progress(self, event: str, name: str, preview: str, args: Any, **more: Any) -> None:
        if event == "tool.output" and self._session["tool_progress_mode"] != "off":
            self._tell("tool.output", {"text": preview})
        elif event.startswith("subagent."):
            said = {"tool_name": name, "text": preview} if event == "subagent.tool" else {}
            self._tell(event, {**child_facts(more["child"]), **said})
        elif event == "tool.completed":
            # The time that a person takes to answer does not count for the tool.
            seconds = max(0.0, float(more.get("duration") or 0.0) - (self.approvals.waited - self._waited))
            ended = {"duration_s": round(seconds, 3), "summary": preview, "is_error": bool(more.get("is_error"))}
            self._tell("tool.complete", {**self._done, **ended})

    # -- the conversation ----------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        return configuration.load_or_last_good()[0]

    @property
    def session_id(self) -> SessionId | None:
        key = str(self._session["session_key"])
        return None if self.db.get_session(key) is None else SessionId(key)

    def busy(self) -> bool:
        """Whether a turn runs here."""
        return bool(self._session["running"])

    @property
    def model(self) -> str:
        agent = self._session["agent"]
        return str(agent.model) if agent is not None else self.endpoint()[0]

    def endpoint(self) -> tuple[str, str]:
        """(model, provider) of the next turn; the reason instead of the model when there is none."""
        try:
            found = self.asked_endpoint()
        except ConfigError as error:
            return error.one_line(), ""
        return found.model, found.provider

    def asked_endpoint(self) -> Endpoint:
        """The endpoint of the next turn. Raises our errors."""
        return providers.primary(self.config, model=self._choice.get("model"), provider=self._choice.get("provider"))

    async def stop(self) -> bool:
        """Interrupt the turn that runs here and wait for its end; False when there is none."""
        if not self.busy():
            return False
        from tui_gateway.session import prompt

        prompt.forget(self._session)
        self._session["_turn_cancel_requested"] = True
        if self._session["agent"] is not None:
            self._session["agent"].interrupt()
        while self.busy():  # noqa: ASYNC110 - the turn's thread rings no bell of this loop
            await asyncio.sleep(0.02)
        return True

    def move(self, session_id: str) -> None:
        """Show another conversation in the session."""
        self._session["session_key"] = session_id
        self._choice = self.db.chosen_model(session_id)
        if not self._choice and self._given:
            self._choice = self._given
            self.db.choose_model(session_id, self._given.get("model"), self._given.get("provider"))
        self.drop_agent()
        self._session["history"], self._session["pending_title"] = [], None
        self._session["history_version"] += 1
        self._session["following"] = None

    def drop_agent(self) -> None:
        """Make the next turn build a new agent, even if one is being built; a running turn keeps its own."""
        with self._services.lock:
            agent, self._session["agent"] = self._session["agent"], None
            self._session["agent_ready"].clear()
            self._session.update(agent_build_started=False, agent_build=None)
        if agent is not None and not self.busy():
            agent.release()

    def drop_outdated_agent(self) -> None:
        """Drop the agent when its configuration has changed, so that the next turn has a new one."""
        made_with, now = self._made_with, self.config
        if made_with is None or made_with is now:
            return
        self._made_with = now
        if made_with.agent_settings() != now.agent_settings():
            self.drop_agent()

    def _install(self, agent: AIAgent) -> AIAgent:
        """Install a finished agent in the session."""
        with self._services.lock:
            self._session.update(agent=agent, agent_build=None)
            self._session["agent_ready"].set()
        return agent

    async def changed(self) -> None:
        """Tell the agent that another writer changed the transcript."""
        self._session["history_version"] += 1
        if self._session["agent"] is not None:
            self._session["agent"].release()

    async def compress(self, focus: str | None) -> str:
        """Compress now; returns a sentence about the result."""
        agent = self._session["agent"] or self._install(self.build())
        self.compressing = True
        try:
            done = await agent.compress(focus, request=await asyncio.to_thread(self.turn_request))
            if done:
                self._services.sync(self._sid, self._session)
        finally:
            self.compressing = False
        return agent.compressed_words() if done else "There is nothing to compress yet."

    async def use_model(self, name: str) -> str:
        """Choose another model for this conversation permanently; returns a sentence about it. Raises our errors."""
        before, self._choice = self._choice, {"model": name}
        try:
            agent = self.build()
        except Exception:
            self._choice = before
            raise
        self._choice = {"model": agent.model, "provider": agent.provider}
        self.db.choose_model(str(self._session["session_key"]), agent.model, agent.provider)
        self.drop_agent()
        self._install(agent)
        return f"From now on here: {agent.model} ({agent.provider}), {agent.context_length:,} tokens of context."

    def set_yolo(self, on: bool) -> None:
        """Approve everything without asking, in this session; the floor and deny rules still apply."""
        self.yolo = on
        self.drop_agent()
