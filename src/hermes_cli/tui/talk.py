"""A conversation as the window knows it: what comes from the server is put on the screen, what is typed is sent.

It decides nothing about the conversation. What is typed while a turn runs is shown as waiting until the server takes it
up; a message is on the screen when it is sent, and in the store when the server has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hermes_cli.tui.bars import Status, Waiting
from hermes_cli.tui.blocks import Block, Card, Opening, Remark, Said, of_history
from hermes_cli.tui.launch import Start
from hermes_cli.tui.link import Event, Link, Refused, ServerLost
from hermes_cli.tui.transcript import Transcript
from hermes_cli.tui.turn import Turn

PAGE = 60
"""Messages that are asked for at a time."""
_REREAD = frozenset({"undo", "redo", "retry", "compress", "compact"})
"""Commands after which the conversation is read anew."""


class Window(Protocol):
    """What a conversation needs of the window it is in."""

    def ask_leave(self, question: Mapping[str, Any]) -> None: ...
    def ask_person(self, question: str, choices: Sequence[str], *, secret: bool, method: str, number: str) -> None: ...
    def withdraw(self, number: str) -> None: ...
    def prefill(self, text: str) -> None: ...
    def remember(self, said: Sequence[str]) -> None: ...


class Talk:
    def __init__(
        self, link: Link, window: Window, transcript: Transcript, waiting: Waiting, status: Status, start: Start
    ) -> None:
        self._link, self._window, self._start = link, window, start
        self._transcript, self._waiting, self._status = transcript, waiting, status
        self._opening = asyncio.Lock()
        self.sid = ""
        self.stored_id = start.session_id or ""
        self.count = 0
        """How many messages the conversation has, as far as is known here."""
        self.running = False
        self._first = 0
        self._fetching = False
        self._turn = Turn(transcript)
        self._queue: list[Said] = []

    # -- beginning -----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """A new conversation, or the one to go on with. What was typed before the server was there stays."""
        async with self._opening:
            if self.sid:
                return
            state = await self._open()
            early = list(self._transcript.blocks)
            self._show(state)
            for block in (*self._first_words(), *early):
                self._transcript.add(block)
            if self._start.model and self._start.session_id:
                await self._link.ask("config.set", key="model", value=self._start.model, session_id=self.sid)
            if self._start.yolo:
                await self._link.ask("config.set", key="yolo", value=True, session_id=self.sid)
                self._inform({**self._status.info, "yolo": True})

    def _first_words(self) -> list[Block]:
        if self._start.card:
            return [Card(self._start.card)]
        return [] if self.count else [Opening(self._status.info)]

    async def _open(self) -> dict[str, Any]:
        start = self._start
        wishes = {"source": start.source, "toolsets": start.toolsets, "max_turns": start.max_turns}
        if self.stored_id:
            wishes |= {"session_id": self.stored_id, "limit": PAGE, "details": True}
        else:
            wishes |= {"model": start.model, "provider": start.provider}
        given = {name: value for name, value in wishes.items() if value is not None}
        return await self._link.ask("session.resume" if self.stored_id else "session.create", **given)

    async def resume(self, stored_id: str) -> None:
        before, self.stored_id = (self.sid, self.stored_id), stored_id
        try:
            state = await self._link.ask("session.resume", session_id=stored_id, limit=PAGE, details=True)
        except Refused:
            self.stored_id = before[1]
            raise
        self._show(state)
        if before[0] and before[0] != self.sid:
            await self._link.ask("session.close", session_id=before[0])

    def _show(self, state: Mapping[str, Any]) -> None:
        self.sid = str(state["session_id"])
        info = state.get("info") or {}
        self.stored_id = str(state.get("session_key") or state.get("stored_session_id") or "")
        self._turn.forget()
        self._queue = []
        self._status.usage = {}
        self._page(state, fresh=True)
        self.running = bool(state.get("running"))
        inflight = state.get("inflight") or {}
        if self.running and inflight.get("user"):
            self._transcript.add(Said(str(inflight["user"])))
            self._turn.more(str(inflight.get("assistant") or ""))
        self._inform(info)

    def _page(self, state: Mapping[str, Any], *, fresh: bool) -> None:
        messages = [dict(one) for one in state.get("messages") or ()]
        self._first = int(state.get("first") or 0)
        self.count = int(state.get("message_count") or state.get("count") or len(messages))
        blocks: list[Block] = [block for message in messages for block in of_history(message)]
        if fresh:
            self._transcript.replace(blocks, more=self._first > 0)
            self._window.remember([str(one["text"]) for one in messages if one.get("role") == "user"])
        else:
            self._transcript.put_above(blocks, more=self._first > 0)

    async def older(self) -> None:
        """The page above the oldest message that is on the screen."""
        if self._fetching or not self._first or not self.sid:
            return
        self._fetching = True
        try:
            sid = self.sid
            page = await self._link.ask("session.history", session_id=sid, before=self._first, limit=PAGE, details=True)
            if sid == self.sid:
                self._page(page, fresh=False)
        finally:
            self._fetching = False

    async def reread(self) -> None:
        state = await self._link.ask("session.history", session_id=self.sid, limit=PAGE, details=True)
        self._page(state, fresh=True)

    def _inform(self, info: Mapping[str, Any]) -> None:
        self.stored_id = str(info.get("stored_session_id") or self.stored_id)
        self._status.info = info
        self._status.usage = {**self._status.usage, **(info.get("usage") or {})}
        self._state("working" if self.running else "ready")

    def _state(self, state: str) -> None:
        self._status.state = state
        self._status.show()

    # -- what is typed -------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        at_once, said = not self.running, Said(text)
        if at_once:
            self._transcript.add(said)
            self.running = True
            self._state("working")
        else:
            self._queue.append(said)
            self._show_queue()
        try:
            await self.begin()
            if at_once:
                self.running = True
                self._state("working")
            answer = await self._link.ask("prompt.submit", session_id=self.sid, text=text)
        except (Refused, ServerLost) as error:
            self.running = self.running and not at_once
            self._state("working" if self.running else "ready")
            self._drop(said)
            self._transcript.take_out(said)
            self._window.prefill(text)
            self.trouble(error.one_line())
            return
        self.count += 1
        said.went_along(answer.get("files") or ())
        if not at_once and answer.get("status") != "queued":
            self._drop(said)
            said.source = "goes along with this turn" if answer["status"] == "steered" else ""
            self._transcript.add(said)
        elif said.files:
            self._transcript.show_change()

    def _drop(self, said: Said) -> None:
        if said in self._queue:
            self._queue.remove(said)
        self._show_queue()

    def _show_queue(self) -> None:
        self._waiting.show([said.text for said in self._queue], "next")

    async def interrupt(self) -> None:
        """What runs is stopped; what waited comes back into the editor."""
        if not self.sid:
            return
        waiting, self._queue = self._queue, []
        self._show_queue()
        self._state("stopping")
        await self._link.ask("session.interrupt", session_id=self.sid)
        if waiting:
            self._window.prefill("\n\n".join(said.text for said in waiting))

    async def slash(self, typed: str) -> None:
        answer = await self._link.ask("slash.exec", session_id=self.sid, command=typed)
        if shown := answer.get("session"):
            await self.resume(str(shown["session_key"]))  # read by pages
        elif typed.lstrip("/").partition(" ")[0] in _REREAD:
            await self.reread()
        if said := str(answer.get("output") or "").strip():
            self._transcript.add(Remark(said, "plain"))
        if answer.get("prefill"):
            self._window.prefill(str(answer["prefill"]))
        if answer.get("message") is not None:
            await self.say(str(answer["message"]))

    # -- what comes ----------------------------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        kind, sid = str(event.get("type")), event.get("session_id")
        payload: Mapping[str, Any] = event.get("payload") or {}
        if sid and sid != self.sid:
            return
        handler = {
            "message.start": self._began, "message.user": self._said_elsewhere, "message.delta": self._delta,
            "message.interim": self._turn.interim, "message.complete": self._completed, "tool.start": self._tool_began,
            "tool.output": self._turn.call_said, "tool.complete": self._tool_ended, "session.info": self._informed,
            "session.title": self._titled, "status.update": self._updated, "error": self._failed,
            "approval.request": self._window.ask_leave, "approval.closed": self._closed,
            "clarify.request": self._clarify, "secret.request": self._secret, "sudo.request": self._sudo,
            "secret.expire": self._expired, "sudo.expire": self._expired, "notification.show": self._notified,
            "reasoning.delta": self._thinks, "tool.generating": self._writes_call,
        }.get(kind)  # fmt: skip
        if handler is not None:
            handler(payload)

    def _began(self, payload: Mapping[str, Any]) -> None:
        self._turn.forget()
        self.running = True
        for said in self._queue:
            self._transcript.add(said)
        self._queue = []
        self._show_queue()
        self._state("working")

    def _said_elsewhere(self, payload: Mapping[str, Any]) -> None:
        source = str(payload.get("source") or "")
        where = {"tui": "another window"}.get(source, source)
        self._transcript.add(Said(str(payload.get("text") or ""), where, payload.get("files") or ()))

    def _delta(self, payload: Mapping[str, Any]) -> None:
        self._turn.more(str(payload.get("text") or ""))
        if self._status.state != "writing":
            self._state("writing")

    def _completed(self, payload: Mapping[str, Any]) -> None:
        text, status = str(payload.get("text") or ""), str(payload.get("status") or "")
        if status == "error" and not self._turn.has_said(text):
            self.trouble(text.removeprefix("Error: "))
        self._turn.end(text, status)
        if status == "interrupted":
            self.note("interrupted; what was done so far is kept")
        if warning := payload.get("warning"):
            self.trouble(str(warning))
        self.running = False
        self._status.usage = {**self._status.usage, **(payload.get("usage") or {})}
        self._state("ready")

    def _tool_began(self, payload: Mapping[str, Any]) -> None:
        self._turn.call(payload)
        self._state(f"running {payload.get('name')}")

    def _tool_ended(self, payload: Mapping[str, Any]) -> None:
        self._turn.call_ended(payload)
        self._state("working")

    def _informed(self, payload: Mapping[str, Any]) -> None:
        self.running = self.running if payload.get("driver") == "gateway" else bool(payload.get("running"))
        self._inform(payload)

    def _titled(self, payload: Mapping[str, Any]) -> None:
        self._inform({**self._status.info, "title": payload.get("title")})

    def _updated(self, payload: Mapping[str, Any]) -> None:
        kind, text = payload.get("kind"), str(payload.get("text") or "")
        if kind == "compressing":
            self._state(text)
        elif kind == "ready":
            self._state("working" if self.running else "ready")
        elif text:
            self.note(text)

    def _failed(self, payload: Mapping[str, Any]) -> None:
        self._turn.forget()
        self.trouble(str(payload.get("message") or "something went wrong"))

    def _closed(self, payload: Mapping[str, Any]) -> None:
        self._window.withdraw(str(payload.get("approval_id")))

    def _clarify(self, payload: Mapping[str, Any]) -> None:
        choices = [str(one) for one in payload.get("choices") or ()]
        self._window.ask_person(
            str(payload.get("question") or ""), choices, secret=False, method="clarify.respond answer",
            number=str(payload.get("request_id")),
        )  # fmt: skip

    def _secret(self, payload: Mapping[str, Any]) -> None:
        question = f"{payload.get('prompt') or 'A secret is needed'} ({payload.get('env_var') or ''})"
        self._window.ask_person(
            question, (), secret=True, method="secret.respond value", number=str(payload.get("request_id"))
        )  # fmt: skip

    def _sudo(self, payload: Mapping[str, Any]) -> None:
        self._window.ask_person(
            "A command asks for your password", (), secret=True, method="sudo.respond password",
            number=str(payload.get("request_id")),
        )  # fmt: skip

    def _expired(self, payload: Mapping[str, Any]) -> None:
        self._window.withdraw(str(payload.get("request_id")))

    def _notified(self, payload: Mapping[str, Any]) -> None:
        if text := str(payload.get("text") or ""):
            self._transcript.add(Remark(text, "plain"))

    def _thinks(self, payload: Mapping[str, Any]) -> None:
        if self._status.state != "thinking":
            self._state("thinking")

    def _writes_call(self, payload: Mapping[str, Any]) -> None:
        self._state(f"calling {payload.get('name')}")

    # -- of our own ----------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self._transcript.add(Remark(text))

    def trouble(self, text: str) -> None:
        self._transcript.add(Remark(text, "trouble"))

    async def restarted(self, why: str) -> None:
        """The server is another one: what was stored is there, what it was doing is told."""
        was_running, self.sid, self.running = self.running, "", False
        self._turn.forget()
        self._state("starting")
        if not self.count:  # nothing was said, so nothing is stored
            self.stored_id = self._start.session_id or ""
        self._transcript.replace([], more=False)
        await self.begin()
        self.note(f"{why}; a new one goes on here" + (", the last turn was cut off" if was_running else ""))
