"""The conversation a person has on the table: its agent, and what slash commands may ask of this place.

The agent is made anew when the place turns to another conversation or another model; nothing is lost by that, because
everything that matters is in the store. All coroutines here run on the agents' loop; what they have to show is posted
to the stage.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hermes_agent import AIAgent, mentions
from hermes_cli import plugins
from hermes_cli.chat.render import Screen
from hermes_cli.chat.terminal_loop import TerminalLoop
from hermes_cli.framework import text
from hermes_config import logs
from hermes_config.errors import HermesError
from hermes_state.ids import LOCAL_OWNER, ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_agent.approvals.types import Approver
    from hermes_agent.tools.base import Ask
    from hermes_agent.turn.request import TurnRequest
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.conversations.ledger import Handle
    from hermes_state.people.people import Person

Result = dict[str, Any]
T = TypeVar("T")
_LOOK_AGAIN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the command line says about the chat."""

    model: str | None = None
    provider: str | None = None
    yolo: bool = False
    source: str | None = None
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    workdir: Path | None = None


class Desk:
    """One place, one conversation at a time. It is the `CommandContext` of the line chat."""

    surface: Literal["cli"] = "cli"
    platform = "cli"
    private = True
    shared = False
    route = None
    scope = ""

    def __init__(
        self,
        *,
        db: SessionDB,
        config: Config,
        wishes: Wishes,
        stage: TerminalLoop,
        screen: Screen,
        session_id: str | None = None,
        approver: Approver | None = None,
        ask: Ask | None = None,
        streams: bool = True,
        prefill: Callable[[str], bool] = lambda text: False,
        ended: Callable[[Result], Awaitable[None]] | None = None,
    ) -> None:
        """`ended` shows the end of a turn that a command began, as /retry does."""
        self.db, self.config = db, config
        self.person: Person = db.people.owner()
        self._wishes, self._stage, self._screen = wishes, stage, screen
        self._approver, self._ask, self._streams = approver, ask, streams
        self._prefill, self._ended = prefill, ended
        self._model = wishes.model
        self._idle = asyncio.Event()
        self._idle.set()
        self._hears = False
        self._doing = ""
        self._waited = 0.0
        self._gave_up = False
        logs.install()
        plugins.discover_plugins()
        self.agent = self._agent(session_id)

    # -- turns -------------------------------------------------------------------------------------------

    async def turn(self, content: Any) -> Result:
        """One turn, shown as it happens. What the person added too late for it becomes the next."""
        if isinstance(content, str):
            content = await asyncio.to_thread(mentions.whole, content, self._names())
        while True:
            self._hears = True
            try:
                result = await self._occupied(self._when_free(content))
            finally:
                self._hears = False
            added = result.get("pending_steer")
            if not added:
                return result
            self._say_next(added)
            content = added

    def _names(self) -> mentions.MentionContext:
        """What files that are named with @ are looked up against."""
        session_id = self.session_id
        return mentions.MentionContext(
            db=self.db, home=self.config.home, workdir=self._wishes.workdir or Path.cwd(), environ=os.environ,
            config=self.config,
            conversation_id=ConversationId("" if session_id is None else self.db.get_conversation_root(session_id)),
        )  # fmt: skip

    def file_names(self, word: str) -> list[str]:
        """What a word that begins with @ could become."""
        found = mentions.offers(word, self._wishes.workdir or Path.cwd(), os.environ)
        return [one.text if one.is_folder else f"{one.text} " for one in found]

    async def _when_free(self, content: Any) -> Result:
        """The turn, as soon as nobody else works on the conversation: a gateway, say, that answers a phone."""
        from hermes_agent.agent import ConversationBusy

        self._gave_up, told = False, False
        while True:
            try:
                return await self.agent.arun_conversation(content, request=await self._turn_request())
            except ConversationBusy:
                if self._gave_up:
                    raise
            if not told:
                self._stage.post(lambda: self._screen.note("another place is at work here; this waits. Ctrl-C stops"))
                told = True
            await asyncio.sleep(_LOOK_AGAIN)

    async def take_up(self) -> Result | None:
        """The rest of a turn that was lost with its process, if there is one."""
        return await self._occupied(self.agent.resume_unfinished(request=await self._turn_request()))

    async def _turn_request(self) -> TurnRequest:
        from tui_gateway.session import attach

        return await asyncio.to_thread(attach.turn_request, self.db, self.session_id)

    async def _occupied(self, work: Coroutine[Any, Any, T]) -> T:
        self._idle.clear()
        try:
            return await work
        finally:
            self._idle.set()

    def _say_next(self, added: str) -> None:
        self._stage.post(lambda: self._screen.note(f"now to what you added: {added}"))

    def steer(self, line: str) -> bool:
        """From any thread: a word for the model in the middle of a turn; False when no turn can take it."""
        return self._hears and self.agent.steer(line)

    def interrupt(self) -> None:
        """From any thread: stop the turn and keep what was done."""
        self._gave_up = True
        self.agent.interrupt()

    async def close(self) -> None:
        """Tell whoever listens that this place is left. The conversation has ended, until somebody comes back to it."""
        from hermes_agent import hooks

        await self.agent.aclose()
        if self.session_id is not None:
            await hooks.conversation_left(session_id=self.session_id, platform=self.platform)
            await asyncio.to_thread(self._end, self.session_id)

    def _end(self, session_id: SessionId) -> None:
        from tui_gateway.session import attach

        if not attach.has_route(self.db, session_id):  # a chat's goes on there
            self.db.end_session(session_id, "cli_close")

    # -- what commands ask ---------------------------------------------------------------------------------

    @property
    def session_id(self) -> SessionId | None:
        return self.agent.session_id

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    @property
    def model(self) -> str:
        return self.agent.model

    async def reply(self, text: str) -> None:
        self._stage.post(lambda: self._screen.say(text))

    async def stop(self) -> bool:
        if not self.busy:
            return False
        self.agent.interrupt()
        await self._idle.wait()
        return True

    async def show(self, handle: Handle, *, why: str) -> None:
        self.agent.release()
        self.agent = self._agent(handle.session_id)

    async def changed(self, reason: str) -> None:
        self.agent.release()

    async def run_turn(self, content: Any) -> None:
        result = await self.turn(content)
        if self._ended is not None:
            await self._ended(result)

    async def prefill(self, text: str) -> bool:
        return self._prefill(text)

    async def compress(self, focus: str | None) -> str:
        if await self._occupied(self.agent.compress(focus, request=await self._turn_request())):
            return "Compressed: the older part is a summary now. /uncompress takes it back."
        return "There is nothing to compress yet."

    async def use_model(self, name: str) -> str:
        before, self._model = self._model, name
        try:
            agent = self._agent(self.session_id)
        except HermesError:
            self._model = before
            raise
        self.agent.release()
        self.agent = agent
        return f"From now on here: {agent.model} ({agent.provider}), {agent.context_length:,} tokens of context."

    # -- the agent -----------------------------------------------------------------------------------------

    def _agent(self, session_id: str | None) -> AIAgent:
        wishes = self._wishes
        origin = {"source": wishes.source} if wishes.source else {}
        agent = AIAgent(
            self._model, wishes.provider if self._model == wishes.model else None, session_db=self.db,
            session_id=session_id, config=self.config, platform=self.platform, person_id=LOCAL_OWNER,
            workdir=wishes.workdir or Path.cwd(), approver=self._approver, ask=self._ask, yolo=wishes.yolo,
            enabled_toolsets=wishes.toolsets, max_iterations=wishes.max_turns, origin=origin,
            skip_memory=not self.is_mine(session_id),
        )  # fmt: skip
        if self._streams:
            agent.stream_delta_callback = self._heard
        agent.tool_progress_callback = self._tool
        agent.status_callback = self._status
        return agent

    def is_mine(self, session_id: str | None) -> bool:
        """Whether nobody else reads what the model knows of me: my memory stays out of others' conversations."""
        if session_id is None:
            return True
        return self.db.ledger.owner(self.db.get_conversation_root(session_id)) == LOCAL_OWNER

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """The time a person takes to answer is not the tool's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - began

    # -- what the agent tells, on its loop -------------------------------------------------------------------

    def _heard(self, piece: str | None) -> None:
        if piece:
            self._stage.post(lambda: self._screen.answer(piece))

    def _status(self, kind: str, said: str) -> None:
        self._stage.post(lambda: self._screen.note(said))

    def _tool(self, event: str, name: str, preview: str, args: Any, **more: Any) -> None:
        if event == "tool.started":
            self._doing, self._waited = preview, 0.0  # calls run one after the other
            self._stage.post(lambda: self._screen.tool_started(name, preview))
        elif event == "tool.completed":
            summary = self._doing
            seconds = max(0.0, float(more.get("duration", 0.0)) - self._waited)
            failed = bool(more.get("is_error"))
            self._stage.post(
                lambda: self._screen.tool_ended(name, summary, seconds=seconds, failed=failed, why=preview)
            )


def named(db: SessionDB, session_id: str) -> str:
    """What a conversation is called for a person."""
    row = db.get_session(session_id) or {}
    return text.shorten(text.harmless(row.get("title") or row.get("preview") or "untitled"), 60)
