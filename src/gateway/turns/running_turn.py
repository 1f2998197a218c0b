"""A turn from the moment a lane begins it until its end, and its watchers: a chat, an HTTP response, a terminal.

A watcher is told on the gateway's loop, never awaited by the turn, and nothing it does can change or stop the turn.
What it shows is a preview; what counts is what `commit_turn` stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
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
    from hermes_state.turns.outbox import Parcel


class Watcher(Protocol):
    def began(self, work: Work) -> None:
        """The turn has its row; also called when a turn of a lost process is taken up."""

    def delta(self, text: str) -> None:
        """A piece of the answer."""

    def broke_off(self) -> None:
        """The answer broke off and is asked for again: what was streamed of it since the last step is void."""

    def step(self) -> None:
        """What was streamed so far was said before tool calls; the answer proper may begin anew."""

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        """`tool.started`, `tool.completed`, `tool.output`."""
        return

    def status(self, kind: str, text: str) -> None:
        """A line for the person: compressing, trying again, falling back."""
        return

    def ended(self, result: dict[str, Any]) -> None:
        """The turn is over and committed; `result` is the agent's, with `outbox_item` when one is owed."""

    def left(self) -> None:
        """The turn broke off here without an end: it never began, or another process has it or will."""


class Stopped(Exception):
    """The person stopped it before it began."""


class ShutOut(Exception):
    """Whoever wrote it may not any more."""


def _nothing() -> None:
    return None


def _nothing_of(waits: bool, here: bool) -> None:
    return None


@dataclass(slots=True)
class RunningTurn:
    """What can be done to it: ask it to stop, or give it a word more."""

    route: SessionKey
    source: SessionSource
    person_id: PersonId | None
    rows: tuple[InboxRow, ...] = ()
    content: Any = None
    """For a turn that a command asked for, which has no rows."""
    agent: AIAgent | None = None
    work: Work | None = None
    left: TurnId | None = None
    """The turn that is taken up, when a lost process left it behind."""
    task: asyncio.Task[Any] | None = None
    tries: int = 0
    """How often it could not be run, and was put off."""
    missed: bool = False
    """Its session was gone, and its route was asked anew."""
    stopped: bool = False
    over: bool = False
    """It has its end; what is still done is about the next one, and nobody needs to wait for it."""
    on_begun: Callable[[], None] = _nothing
    """Told when the turn has its row: the next one may be prepared."""
    asks: int = 0
    """How many questions of it wait for a person."""
    on_asking: Callable[[bool, bool], None] = _nothing_of
    """Told that it waits for a person, and when it does no more; and whether the question stands in its own chat."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    since: float = field(default_factory=time.monotonic)
    begun_at: float = 0.0
    """When the turn had its row, by the same clock."""
    asked_until: float = 0.0
    """Until when it last waited for a person, by the same clock."""

    @property
    def started(self) -> bool:
        return self.work is not None

    def source_for(self, work: Work) -> SessionSource:
        """Where the message came from that the turn answers: in a room the speaker changes.

        It need not be a message of this lane: a turn that was left behind is brought to its end first.
        """
        row = work.inbox[-1] if work.inbox else None
        if row is None or (self.rows and self.rows[-1].payload == row.payload):
            return self.source
        return source_of(row)

    def begun(self, work: Work) -> None:
        self.work, self.begun_at = work, time.monotonic()
        self.on_begun()

    def done(self) -> None:
        """Nothing can be done to it any more."""
        self.over, self.agent = True, None

    @contextlib.contextmanager
    def asking(self, *, here: bool) -> Iterator[None]:
        """While it waits for a person; `here`: who is asked in its own chat."""
        self.asks += 1
        self.on_asking(True, here)
        try:
            yield
        finally:
            self.asks -= 1
            self.asked_until = time.monotonic()
            self.on_asking(False, here)

    def interrupt(self, message: str | None = None, *, reason: str | None = None) -> None:
        """Ask it to stop; what was done is kept. `reason`: when it is not the person's wish."""
        self.stopped = True
        if self.agent is not None and reason is not None:
            self.agent.interrupt(message, reason=reason)
        elif self.agent is not None:
            self.agent.interrupt(message)

    def steer(self, text: str, inbox_id: int) -> bool:
        """True when its words will reach the model; the row joins the turn as they do."""
        return self.work is not None and self.agent is not None and self.agent.steer(text, inbox_id=inbox_id)


@contextlib.contextmanager
def watched(agent: AIAgent, watchers: Sequence[Watcher]) -> Iterator[None]:
    """The agent tells these, and nobody when the turn is over: agents outlive turns. A turn that raises has no end to
    show, and they are told that it broke off."""

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
        for watcher in watchers:
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
    taken_up: Callable[[dict[str, Any] | None], None],
) -> TurnRequest:
    """What the agent is asked to do with the turn's rows, and whom it tells."""
    route = running.route
    account = running.rows[-1].account if running.rows else ""

    def owe(work: Work, ending: TurnEnd) -> Parcel | None:
        if work.turn.route != route:
            return None  # a terminal's turn, which was left here: no chat asked for it
        stands = "" if shown is None else shown.shown
        return reply.owe(work, ending, source=running.source_for(work), account=account, sender=holder, shown=stands)

    def began(work: Work) -> None:
        running.begun(work)
        for one in watchers if work.turn.route == route else ():
            one.began(work)

    return TurnRequest(
        route=route, claim=tuple(row.id for row in running.rows), owe=owe, began=began, taken_up=taken_up,
        person_id=running.person_id, questions_stay_open=running.source.platform is not Platform.API_SERVER,
        identity=lambda work: _identity(work, running.source_for(work), route),
    )  # fmt: skip


def _identity(work: Work, source: SessionSource, route: SessionKey) -> context.TurnIdentity:
    """What tools and their children are told."""
    row, platform = work.inbox[-1] if work.inbox else None, source.platform.value
    return context.TurnIdentity(
        platform=platform, source=platform, chat_id=str(source.chat_id or ""), chat_name=source.chat_name or "",
        thread_id=source.thread_id or "", user_id=source.user_id or "", user_name=source.user_name or "",
        session_key=route, message_id="" if row is None else row.message_id, profile=source.profile or "",
    )  # fmt: skip
