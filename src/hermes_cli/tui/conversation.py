"""The window's side of a conversation: shows events of the server and sends typed messages.

The server makes all decisions. A message typed during a turn is shown as waiting until a turn takes it. A sent message
is on the screen at once, and in the store when its turn begins; until then it is unsent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_cli.tui.blocks import (
    INTERRUPTED,
    AnswerBlock,
    ChildrenBlock,
    IntroBlock,
    NoteBlock,
    ScreenBlock,
    ToolBlock,
    UserBlock,
    WelcomeBlock,
    of_history,
)
from hermes_cli.tui.editor import Editor
from hermes_cli.tui.rpc_client import ChatOptions, Event, RequestRefused, RpcClient, ServerLost
from hermes_cli.tui.transcript import TranscriptView
from hermes_cli.tui.widgets import StatusBar, WaitingBar

PAGE = 60
"""Messages per page."""
_NEXT_SECONDS = 3.0
"""A waiting message that no turn takes within this time joined the turn before."""
_EARLY = 100
_LOOK_SECONDS = 1.0
_OWN_SECONDS = 2.0
"""Changes that the store reports within this time after a command of this window are its own."""
_REREAD = frozenset({"undo", "redo", "retry", "compress", "compact"})
"""Commands after which the conversation is read again."""


class Conversation:
    """One conversation. `asked`: the handlers of a turn's questions, by event."""

    def __init__(
        self, client: RpcClient, editor: Editor, transcript: TranscriptView, waiting: WaitingBar,
        status: StatusBar, start: ChatOptions, asked: Mapping[str, Callable[[Mapping[str, Any]], None]],
    ) -> None:  # fmt: skip
        self._client, self._editor, self._start = client, editor, start
        self._transcript, self._status = transcript, status
        self._opening = asyncio.Lock()
        self.sid = ""
        self.stored_id = start.session_id or ""
        self.running = False
        self.count = 0
        """Messages of the conversation, as far as this window knows."""
        self._first = 0
        """The number of the oldest message that is on the screen."""
        self._said_last = ""
        """The person's last message among those stored when the screen was filled."""
        self._filled = 0
        """How often the screen was filled."""
        self._fetching = False
        self._early: deque[Event] = deque(maxlen=_EARLY)
        """Events of a conversation that is being opened come right behind the server's answer, before it is shown."""
        self._turn = TurnView(transcript)
        self.unsent = Unsent(waiting, editor.give_back)
        self._greeted = False
        self._watching: asyncio.Task[None] | None = None
        self._own_change = ("", 0.0)
        """The last command of this window that changes stored messages, and its time."""
        self._rereading: asyncio.Task[None] | None = None
        self._handlers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "message.start": self._began, "message.user": self._said_elsewhere, "message.delta": self._delta,
            "message.interim": self._turn.interim, "message.complete": self._completed, "tool.start": self._tool_began,
            "tool.output": self._turn.call_said, "tool.complete": self._tool_ended, "session.info": self._informed,
            "session.title": self._titled, "status.update": self._updated, "error": self._failed,
            "notification.show": self._notified, "reasoning.delta": self._thinks, "tool.generating": self._writes_call,
            **dict.fromkeys(("subagent.start", "subagent.tool", "subagent.complete"), self._turn.child), **asked,
        }  # fmt: skip

    # -- beginning -----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Open a new conversation, or continue one and recover its interrupted turn."""
        await self._begin()
        await self._recover()

    async def _begin(self) -> None:
        """Open the conversation; keep messages typed before the server was ready."""
        async with self._opening:
            if self.sid:
                return
            state = await self._client.open(self._start, stored_id=self.stored_id, limit=PAGE, details=True)
            early = list(self._transcript.blocks)
            self._show(state)
            for block in (*self._first_words(), *early):
                self._transcript.add(block)

    def _first_words(self) -> list[ScreenBlock]:
        """Return the welcome blocks: once, and again only on an empty screen."""
        greeted, self._greeted = self._greeted, True
        if self._start.card and not (greeted and self.count):
            return [IntroBlock(self._start.card)]
        return [] if self.count else [WelcomeBlock(self._status.info)]

    async def _recover(self) -> None:
        """Recover the turn of a dead process without waiting for a new message."""
        if await self._still_elsewhere(self.sid):
            self._watching = asyncio.create_task(self._recover_later(self.sid))

    async def _still_elsewhere(self, sid: str) -> bool:
        """Try to recover the turn; return True while another process works on it."""
        said_something = self.count or self.unsent.queue
        if sid != self.sid or not said_something or self.running or self._status.by_gateway():
            return False
        return (await self._client.ask("session.recover", session_id=sid)).get("status") == "elsewhere"

    async def _recover_later(self, sid: str) -> None:
        with contextlib.suppress(
            RequestRefused, ServerLost
        ):  # the server is gone: the next one is asked as this one was
            while await self._still_elsewhere(sid):  # noqa: ASYNC110 - it is another process that is waited for
                await asyncio.sleep(_LOOK_SECONDS)

    async def resume(self, stored_id: str) -> None:
        before, self.stored_id = (self.sid, self.stored_id), stored_id
        try:
            state = await self._client.ask("session.resume", session_id=stored_id, limit=PAGE, details=True)
        except RequestRefused:
            self.stored_id = before[1]
            raise
        waited = self.unsent.all
        self._show(state)
        if before[0] != self.sid or not state.get("queued"):
            self.unsent.back(waited)
        if before[0] and before[0] != self.sid:
            await self._client.ask("session.close", session_id=before[0])
        await self._recover()

    def _show(self, state: Mapping[str, Any]) -> None:
        self.sid = str(state["session_id"])
        info = state.get("info") or {}
        self.stored_id = str(state.get("session_key") or state.get("stored_session_id") or "")
        self._turn.forget()
        self._status.usage = {}
        self._fill(state)
        known = [said.text for said in self.unsent.queue]
        for text in state.get("waiting") or ():  # a lost server stored it
            if text not in known:
                said = UserBlock(str(text))
                self.unsent.wait(said)
                self.unsent.stored(said)
        self.running = bool(state.get("running"))
        inflight = state.get("inflight") or {}
        if inflight.get("user"):
            self._transcript.add(UserBlock(str(inflight["user"])))
        if inflight.get("assistant"):
            self._turn.more(str(inflight["assistant"]))
        self._inform(info)
        early, self._early = self._early, deque(maxlen=_EARLY)
        for event in early:
            if event.get("session_id") == self.sid:
                self.heard(event)

    def _fill(self, state: Mapping[str, Any]) -> None:
        """Fill the screen with the last page of stored messages."""
        messages = self._page_of(state)
        self._filled += 1
        self._transcript.replace(_blocks_of(messages), more=self._first > 0)
        said = [str(one["text"]) for one in messages if one.get("role") == "user"]
        self._said_last = said[-1] if said else ""
        self._editor.remember(said)

    def _page_of(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        messages = [dict(one) for one in state.get("messages") or ()]
        self._first = int(state.get("first") or 0)
        self.count = int(state.get("message_count") or state.get("count") or len(messages))
        return messages

    async def older(self) -> None:
        """Load the page above the oldest message on the screen."""
        if self._fetching or not self._first or not self.sid:
            return
        self._fetching, filled = True, self._filled
        try:
            page = await self._stored(before=self._first)
            if filled == self._filled:
                self._transcript.put_above(_blocks_of(self._page_of(page)), more=self._first > 0)
        finally:
            self._fetching = False

    async def _stored(self, **wanted: Any) -> dict[str, Any]:
        return await self._client.ask("session.history", session_id=self.sid, limit=PAGE, details=True, **wanted)

    @property
    def title(self) -> str:
        return str(self._status.info.get("title") or "")

    def _inform(self, info: Mapping[str, Any]) -> None:
        self.stored_id = str(info.get("stored_session_id") or self.stored_id)
        self._status.info = info
        self._status.usage = info.get("usage") or {}
        self._show_state()

    def _show_state(self) -> None:
        self._status.show("working" if self.running else "ready")

    # -- typed messages ------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        at_once, said = not self.running, UserBlock(text)
        self._transcript.follow()
        if at_once:
            self._transcript.add(said)
            self.unsent.sent, self.running = said, True
            self._status.show("working")
        else:
            self.unsent.wait(said)
        try:
            await self.begin()
            if at_once:
                self.running = True
                self._status.show("working")
            answer = await self._client.ask("prompt.submit", session_id=self.sid, text=text)
        except (RequestRefused, ServerLost) as error:
            if isinstance(error, ServerLost) and error.told:
                return  # `restarted` finds it unsent
            self.running = self.running and not at_once
            self._show_state()
            self._transcript.take_out(said)
            self.unsent.back([said])
            self.trouble(error.one_line())
            return
        said.went_along(answer.get("files") or ())
        self._answered(said, str(answer.get("status") or ""), driver=str(answer.get("driver") or ""))

    def _answered(self, said: UserBlock, status: str, *, driver: str) -> None:
        """Handle the server's acknowledgement of a message."""
        if said is self.unsent.sent and status == "queued":  # behind a turn that we did not know of
            self._transcript.take_out(said)
            self.unsent.take([said])
            self.unsent.wait(said)
        elif said in self.unsent.queue and status != "queued":
            self.unsent.take([said])
            said.source = "goes along with this turn" if status == "steered" else ""
            self._transcript.add(said)
        elif said.files:
            self._transcript.show_change()
        if said is self.unsent.sent and driver == "gateway":
            self.unsent.sent = None  # the gateway has it, and will answer it
        self.unsent.stored(said)

    async def interrupt(self) -> None:
        """Stop the running turn; waiting messages return to the editor."""
        if not self.sid:
            return
        self.unsent.back(self.unsent.queue)
        self._status.show("stopping")
        await self._client.ask("session.interrupt", session_id=self.sid)

    async def slash(self, typed: str) -> None:
        name = typed.lstrip("/").partition(" ")[0]
        if not self._status.by_gateway():  # else it is done later, and told
            self._own_change = ({"retry": "undo"}.get(name, name), time.monotonic())
        answer = await self._client.ask("slash.exec", session_id=self.sid, command=typed)
        if shown := answer.get("session"):
            await self.resume(str(shown["session_key"]))  # read by pages
        elif name in _REREAD:
            await self._reread()
        if said := str(answer.get("output") or "").strip():
            self._transcript.add(NoteBlock(said, "plain"))
        if answer.get("prefill"):
            self._editor.give_back(str(answer["prefill"]))
        if answer.get("message") is not None:
            await self.say(str(answer["message"]))

    async def _reread(self) -> None:
        """Read the conversation again, but not during a turn: the store lacks its streamed text."""
        if not self.running:
            state = await self._stored()
            if not self.running:
                self._fill(state)

    # -- events --------------------------------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        kind, sid = str(event.get("type")), event.get("session_id")
        payload: Mapping[str, Any] = event.get("payload") or {}
        if sid and sid != self.sid:
            self._early.append(event)
            return
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(payload)

    def _began(self, payload: Mapping[str, Any]) -> None:
        self._turn.forget()
        self.running = True
        self.count += 1
        if not (payload.get("recovered") or payload.get("elsewhere")):
            self.unsent.sent = None
            self._flush()
        self._status.show("working")

    def _flush(self) -> None:
        """Show the waiting messages as sent."""
        for said in self.unsent.take(self.unsent.queue):
            self._transcript.add(said)

    def _said_elsewhere(self, payload: Mapping[str, Any]) -> None:
        source = str(payload.get("source") or "")
        where = "" if payload.get("own") else {"tui": "another window"}.get(source, source)
        self._transcript.add(UserBlock(str(payload.get("text") or ""), where, payload.get("files") or ()))

    def _delta(self, payload: Mapping[str, Any]) -> None:
        self.running = True
        self._turn.more(str(payload.get("text") or ""))
        if self._status.state != "writing":
            self._status.show("writing")

    def _completed(self, payload: Mapping[str, Any]) -> None:
        text, status = str(payload.get("text") or ""), str(payload.get("status") or "")
        if status == "error" and not self._turn.has_said(text):
            self.trouble(text.removeprefix("Error: "))
        self._turn.end(text, status)
        if status == "interrupted" and (sent := self.unsent.sent) is not None:
            self._transcript.take_out(sent)
            self.unsent.back([sent])
        elif status == "interrupted":
            self.note(INTERRUPTED)
        if warning := payload.get("warning"):
            self.trouble(str(warning))
        self.running, self.unsent.sent = False, None
        self._status.usage = {**self._status.usage, **(payload.get("usage") or {})}
        self._status.show("ready")
        if self.unsent.queue and self._status.by_gateway():
            asyncio.get_running_loop().call_later(_NEXT_SECONDS, self._taken, self.unsent.queue)

    def _taken(self, waited: list[UserBlock]) -> None:
        """Show messages that no turn began with as part of the ended turn."""
        for said in [] if self.running else self.unsent.take(waited):
            self._transcript.add(UserBlock(said.text, "went along with the turn above"))

    def _tool_began(self, payload: Mapping[str, Any]) -> None:
        self._turn.call(payload)
        self._status.show(f"running {payload.get('name')}")

    def _tool_ended(self, payload: Mapping[str, Any]) -> None:
        self._turn.call_ended(payload)
        self._status.show("working")

    def _informed(self, payload: Mapping[str, Any]) -> None:
        by_gateway = payload.get("driver") == "gateway"
        self.running = self.running if by_gateway else bool(payload.get("running"))
        self._inform(payload)
        if not (by_gateway or self.running or payload.get("queued", True)):
            self.unsent.back(self.unsent.known)  # stopped elsewhere, or by /stop: it does not wait there any more
        change, (own, given_at) = str(payload.get("rewound") or ""), self._own_change
        known = change == own and time.monotonic() - given_at < _OWN_SECONDS
        if change and not known and not self.running:
            self._rereading = asyncio.create_task(self._changed_elsewhere(change))

    async def _changed_elsewhere(self, change: str) -> None:
        """Handle an undo or redo by another client."""
        with contextlib.suppress(RequestRefused, ServerLost):
            await self._reread()
            self.note("the last turn was taken back" if change == "undo" else "what was taken back is here again")

    def _titled(self, payload: Mapping[str, Any]) -> None:
        self._inform({**self._status.info, "title": payload.get("title")})

    def _updated(self, payload: Mapping[str, Any]) -> None:
        kind, text = payload.get("kind"), str(payload.get("text") or "")
        if kind == "compressing":
            self._status.show(text)
        elif kind == "ready":
            self._show_state()
        elif text:
            self.note(text)

    def _failed(self, payload: Mapping[str, Any]) -> None:
        self._turn.forget()
        self.unsent.sent = None
        self._flush()
        self.trouble(str(payload.get("message") or "something went wrong"))

    def _notified(self, payload: Mapping[str, Any]) -> None:
        if text := str(payload.get("text") or ""):
            self._transcript.add(NoteBlock(text, "plain"))

    def _thinks(self, payload: Mapping[str, Any]) -> None:
        if self._status.state != "thinking":
            self._status.show("thinking")

    def _writes_call(self, payload: Mapping[str, Any]) -> None:
        self._status.show(f"calling {payload.get('name')}")

    # -- notes and the end ---------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self._transcript.add(NoteBlock(text))

    def trouble(self, text: str) -> None:
        self._transcript.add(NoteBlock(text, "trouble"))

    async def restarted(self, why: str) -> None:
        """Continue with a new server: load the stored messages and say why the old server ended."""
        self.sid, self.running = "", False
        waited = [said for said in self.unsent.all if not self.unsent.is_stored(said)]
        self._turn.forget()
        self._status.show("starting")
        if not self.count and len(waited) == len(self.unsent.all):  # nothing is stored
            self.stored_id = self._start.session_id or ""
        if self.stored_id:
            self._start = replace(self._start, model=None)  # stored there, or /model has changed it since
        self.unsent.take(self.unsent.all)  # the store has what is not given back below
        self._transcript.replace([], more=False)
        try:
            await self._begin()
        except (RequestRefused, ServerLost):
            self._give_back(waited)
            raise
        self.note(f"{why}; a new one continues here")
        known = {self._said_last.strip(), *(said.text.strip() for said in self.unsent.queue)}
        self._give_back([said for said in waited if said.text.strip() not in known])
        await self._recover()

    def _give_back(self, waited: Sequence[UserBlock]) -> None:
        if waited:
            self._editor.give_back("\n\n".join(said.text for said in waited))

    def left(self, *, on_purpose: bool) -> list[str]:
        """Close the conversation and return the messages that nobody will answer.

        With `on_purpose`, waiting messages are withdrawn. Otherwise they stay in the store and are answered when the
        conversation is opened next. A gateway answers the messages that it has taken.
        """
        kept = self.unsent.known if self._status.by_gateway() or not on_purpose else []
        if self.unsent.known and not kept:
            self._client.tell("session.interrupt", session_id=self.sid, only_waiting=True)
        return [said.text for said in self.unsent.all if said not in kept]

    def given_up(self) -> None:
        """Give up, because no further server will start."""
        self.running, self.sid = False, ""
        stored = [said for said in self.unsent.all if self.unsent.is_stored(said)]
        self.unsent.take(stored)
        self.unsent.back(self.unsent.all)
        if stored:
            self.note("what waited is stored, and answered when this conversation is opened next")


def _blocks_of(messages: Sequence[Mapping[str, Any]]) -> list[ScreenBlock]:
    blocks: list[ScreenBlock] = []
    for block in (block for message in messages for block in of_history(message)):
        if isinstance(block, ToolBlock):
            block.margin = not blocks or not isinstance(blocks[-1], ToolBlock)
        blocks.append(block)
    return blocks


class TurnView:
    """Shows the running turn; `forget` begins the next one."""

    def __init__(self, transcript: TranscriptView) -> None:
        self._transcript = transcript
        self._parts: list[AnswerBlock] = []
        """The answer blocks since the last tool call; the last one grows."""
        self._streamed = ""
        """Their whole text."""
        self._calls: dict[str, ToolBlock] = {}
        self._children: ChildrenBlock | None = None

    def forget(self) -> None:
        self._pause()
        self._calls = {}

    def _pause(self) -> None:
        """Close the current answer blocks."""
        self._parts, self._streamed = [], ""

    def has_said(self, text: str) -> bool:
        return not text.strip() or text.strip() == self._streamed.strip()

    def more(self, piece: str) -> None:
        """Add streamed text. Empty lines at the beginning are dropped."""
        if not self._parts:
            piece = piece.lstrip("\n")
            if not piece.strip():
                return
            self._add_part(AnswerBlock())
        self._streamed += piece
        self._parts[0].said = self._streamed
        self._parts[-1].add(piece)
        while (rest := self._parts[-1].rest()) is not None:
            self._add_part(rest)
        self._transcript.grew()

    def _add_part(self, part: AnswerBlock) -> None:
        self._parts.append(part)
        self._transcript.blocks.append(part)

    def interim(self, payload: Mapping[str, Any]) -> None:
        """End the text before tool calls."""
        if not payload.get("already_streamed") and not self._parts:
            self.more(str(payload.get("text") or ""))
        self._pause()

    def end(self, text: str, status: str) -> None:
        """End the turn; `text` is its whole answer, which may already be on the screen."""
        for call in self._calls.values():
            call.stopped()
        if status != "error" and not self.has_said(text) and (not self._streamed or status == "complete"):
            # The streamed text differs from the answer: a plug-in changed it, or the turn was recovered.
            gone = {id(part) for part in self._parts}
            self._transcript.blocks[:] = [block for block in self._transcript.blocks if id(block) not in gone]
            self._pause()
            self.more(text)
        self.forget()
        self._transcript.show_change()

    # -- tool calls ----------------------------------------------------------------------------------------

    def call(self, payload: Mapping[str, Any]) -> None:
        self._pause()
        call = ToolBlock(str(payload.get("name")), str(payload.get("context") or ""), tool_id=str(payload["tool_id"]))
        last = self._transcript.blocks[-1] if self._transcript.blocks else None
        call.margin = not isinstance(last, ToolBlock)
        self._calls[call.tool_id] = call
        self._transcript.add(call)

    def call_said(self, payload: Mapping[str, Any]) -> None:
        """Add tool output to the tool call that began last: output events name no call."""
        running = [call for call in self._calls.values() if call.running]
        if running:
            running[-1].heard(str(payload.get("text") or ""))
            self._transcript.grew()

    def child(self, payload: Mapping[str, Any]) -> None:
        """Show delegated work below the call, also when the turn no longer waits for it."""
        if self._children is None or not self._children.takes(payload):
            self._children = ChildrenBlock()
            self._transcript.add(self._children)
        self._children.told(payload)
        self._transcript.show_change()

    def call_ended(self, payload: Mapping[str, Any]) -> None:
        call = self._calls.pop(str(payload.get("tool_id")), None)
        if call is not None:
            seconds = float(payload.get("duration_s") or 0.0)
            call.ended(str(payload.get("result") or ""), seconds=seconds, failed=bool(payload.get("is_error")))
            self._transcript.show_change()


class Unsent:
    """Sent messages that no turn has taken yet.

    A turn takes each message, or it returns to the editor once, or the closing window prints it. Messages that the
    server has acknowledged are also in the store. `bar` shows messages that wait behind a turn; `give_back` gets
    messages that return.
    """

    def __init__(self, bar: WaitingBar, give_back: Callable[[str], None]) -> None:
        self._bar, self._give_back = bar, give_back
        self.sent: UserBlock | None = None
        """The message on the screen whose turn has not begun."""
        self._queue: list[UserBlock] = []
        self._stored: set[UserBlock] = set()
        """The messages that the server has stored and that wait for their turn."""

    @property
    def queue(self) -> list[UserBlock]:
        return list(self._queue)

    @property
    def known(self) -> list[UserBlock]:
        """The messages that wait at the server."""
        return [said for said in self._queue if said in self._stored]

    @property
    def all(self) -> list[UserBlock]:
        return [*([] if self.sent is None else [self.sent]), *self._queue]

    def wait(self, said: UserBlock) -> None:
        self._queue.append(said)
        self._show()

    def stored(self, said: UserBlock) -> None:
        if said in self.all:
            self._stored.add(said)

    def is_stored(self, said: UserBlock) -> bool:
        return said in self._stored

    def take(self, words: Iterable[UserBlock]) -> list[UserBlock]:
        """Remove these messages and return those that were still unsent."""
        given = set(words)
        taken = [said for said in self.all if said in given]
        if self.sent in given:
            self.sent = None
        self._queue = [said for said in self._queue if said not in given]
        self._stored -= given
        self._show()
        return taken

    def back(self, words: Iterable[UserBlock]) -> None:
        """Return these messages to the editor if they are still unsent."""
        if taken := self.take(words):
            self._give_back("\n\n".join(said.text for said in taken))

    def _show(self) -> None:
        self._bar.show([said.text for said in self._queue], "next")
