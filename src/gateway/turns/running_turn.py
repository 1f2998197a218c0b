"""`RunningTurn`: a turn from its start in a lane until its end; and `Watcher`: a chat, HTTP response or terminal.

A watcher is called on the gateway's loop; the turn never awaits it, and a watcher cannot change or stop the turn. It
shows a preview; only the text that `Journal.commit` stored counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gateway.config import Platform
from gateway.inbound.stored_message import source_of
from gateway.turns import reply
from hermes_agent import AIAgent, context
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_state.turns.turns import Work

if TYPE_CHECKING:
    from gateway.outbound.streaming import ChatStream
    from gateway.routes.source import SessionSource
    from hermes_state.ids import PersonId, SessionKey, TurnId
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.outbox import NewOutboxItem


class Watcher(Protocol):
    def began(self, work: Work) -> None:
        """The turn has its row; also called when a turn of a dead process is recovered."""

    def delta(self, text: str) -> None:
        """A piece of the answer."""

    def broke_off(self) -> None:
        """The answer broke off and the model is asked again: the text since the last step is void."""

    def step(self) -> None:
        """Tool calls follow the text so far; new text begins after them."""

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        """`tool.started`, `tool.completed`, `tool.output`."""
        return

    def status(self, kind: str, text: str) -> None:
        """A line for the person: compressing, trying again, falling back."""
        return

    def ended(self, result: dict[str, Any]) -> None:
        """The turn has ended and is stored; `result` is the agent's, with `outbox_item` if there is an answer."""

    def left(self) -> None:
        """The turn broke off without an end: it never began, or another process continues it."""


class Stopped(Exception):
    """The person stopped the turn before it began."""


class ShutOut(Exception):
    """The author of the message lost access."""


def _nothing() -> None:
    return None


def _nothing_of(waits: bool, here: bool) -> None:
    return None


@dataclass(slots=True)
class RunningTurn:
    """A turn of a lane, which can be stopped or steered."""

    route: SessionKey
    source: SessionSource
    person_id: PersonId | None
    role: str = ""
    """That person's role, as the policy of this turn has it."""
    rows: tuple[InboxRow, ...] = ()
    content: Any = None
    """For a turn that a command asked for, which has no rows."""
    trace_id: str = ""
    """That command's trace."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """For a turn of Hermes's own row, what the row is (`stored_message.is_own`); `agent`: its model, tools, budget."""
    held: bool = False
    """Its answer is not shown in the chat, and waits until the owner sends it."""
    agent: AIAgent | None = None
    work: Work | None = None
    left: TurnId | None = None
    """The turn of a dead process that this one recovers."""
    left_rows: tuple[InboxRow, ...] = ()
    """The messages of that turn, which has claimed them."""
    task: asyncio.Task[Any] | None = None
    tries: int = 0
    """How often it could not run and was put off."""
    missed: bool = False
    """Its session was deleted, and its route was resolved again."""
    stopped: bool = False
    over: bool = False
    """It has its result; nobody needs to wait for the remaining steps."""
    on_begun: Callable[[], None] = _nothing
    """Called when the turn has its row: the next one may be prepared."""
    asks: int = 0
    """How many of its questions wait for a person."""
    on_asking: Callable[[bool, bool], None] = _nothing_of
    """Called with (whether it waits for a person, whether the question is in its own chat)."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    since: float = field(default_factory=time.monotonic)
    begun_at: float = 0.0
    """When the turn had its row, by the same clock."""
    asked_until: float = 0.0
    """Until when it last waited for a person, by the same clock."""

    @property
    def account(self) -> str:
        """Our account in its chat, as far as its messages say."""
        return self.rows[-1].account if self.rows else ""

    @property
    def started(self) -> bool:
        return self.work is not None

    def source_for(self, work: Work) -> SessionSource:
        """The source of the message that the turn answers: in a group the author changes.

        It need not be a message of this lane: a turn of a dead process is recovered first.
        """
        row = work.inbox[-1] if work.inbox else None
        if row is None or (self.rows and self.rows[-1].payload == row.payload):
            return self.source
        return source_of(row)

    def begun(self, work: Work) -> None:
        self.work, self.begun_at = work, time.monotonic()
        self.on_begun()

    def done(self) -> None:
        """Mark the turn as over: it can no longer be stopped or steered."""
        self.over, self.agent = True, None

    @contextlib.contextmanager
    def asking(self, *, here: bool) -> Iterator[None]:
        """Mark the turn as waiting for a person; `here`: the question is in the turn's own chat."""
        self.asks += 1
        self.on_asking(True, here)
        try:
            yield
        finally:
            self.asks -= 1
            self.asked_until = time.monotonic()
            self.on_asking(False, here)

    def interrupt(self, message: str | None = None, *, reason: str | None = None) -> None:
        """Ask the turn to stop and keep its work. `reason`: why, if it was not the person's wish."""
        self.stopped = True
        if self.agent is not None and reason is not None:
            self.agent.interrupt(message, reason=reason)
        elif self.agent is not None:
            self.agent.interrupt(message)

    def steer(self, text: str, inbox_id: int) -> bool:
        """Give the turn a message; True when the model will read it, and then the row joins the turn."""
        return self.work is not None and self.agent is not None and self.agent.steer(text, inbox_id=inbox_id)


@contextlib.contextmanager
def watched(agent: AIAgent, watchers: Sequence[Watcher]) -> Iterator[None]:
    """Connect the watchers to the agent during one turn: agents outlive turns. If the turn raises, call `left`."""

    def delta(text: str | None) -> None:
        for watcher in watchers:
            if text:
                watcher.delta(text)
            elif text is None:
                watcher.broke_off()

    def step(number: int, names: Sequence[str]) -> None:
        for watcher in watchers:
            watcher.step()

    def tool(event: str, name: str, preview: str, args: Any = None, **more: Any) -> None:
        for watcher in watchers if event.startswith("tool.") else ():
            watcher.tool(
                event, name, preview, duration=more.get("duration"), failed=bool(more.get("is_error"))
            )  # fmt: skip

    def status(kind: str, text: str) -> None:
        for watcher in watchers:
            watcher.status(kind, text)

    agent.stream_delta_callback, agent.step_callback = delta, step
    agent.tool_progress_callback, agent.status_callback = tool, status
    try:
        yield
    except BaseException:
        for watcher in watchers:
            watcher.left()
        raise
    finally:
        agent.stream_delta_callback = agent.step_callback = None
        agent.tool_progress_callback = agent.status_callback = None


def turn_request(
    running: RunningTurn,
    shown: ChatStream | None,
    watchers: list[Watcher],
    *,
    holder: str,
    recovered: Callable[[dict[str, Any] | None], None],
) -> TurnRequest:
    """What the agent is asked to do with the turn's rows, and whom it tells."""
    route = running.route
    job = str(running.own.get("name") or "")

    def make_reply(work: Work, ending: TurnEnd) -> NewOutboxItem | None:
        if work.turn.route != route:
            return None  # a terminal's turn that is recovered here: it has no chat
        stands = "" if shown is None else shown.shown
        return reply.make_reply(
            work, ending, source=running.source_for(work), account=running.account, sender=holder, shown=stands,
            job=job, held=running.held,
        )  # fmt: skip

    def began(work: Work) -> None:
        running.begun(work)
        for one in watchers if work.turn.route == route else ():
            one.began(work)

    return TurnRequest(
        route=route, claim=tuple(row.id for row in running.rows), trace_id=running.trace_id, make_reply=make_reply,
        began=began, recovered=recovered, person_id=running.person_id, role=running.role,
        questions_stay_open=running.source.platform is not Platform.API_SERVER,
        unsent=running.source.platform is Platform.LOCAL,
        identity=lambda work: _identity(work, running.source_for(work), route, held=running.held),
    )  # fmt: skip


def _identity(work: Work, source: SessionSource, route: SessionKey, *, held: bool) -> context.TurnIdentity:
    """The identity that tools and their child processes see."""
    row, platform = work.inbox[-1] if work.inbox else None, source.platform.value
    return context.TurnIdentity(
        platform=platform, source=platform, chat_id=str(source.chat_id or ""), chat_name=source.chat_name or "",
        thread_id=source.thread_id or "", user_id=source.user_id or "", user_name=source.user_name or "",
        session_key=route, message_id="" if row is None else row.message_id, profile=source.profile or "", held=held,
    )  # fmt: skip
