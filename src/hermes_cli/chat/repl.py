"""The interactive line chat: a prompt and the streamed answer, in a loop. A client of `tui_gateway`, like the window.

During a turn of this chat, the main thread shows the turn and reads answers to questions. At the prompt, a second
thread shows messages from other clients (a phone, another window) above the typed line. A line typed during a turn
joins its next step or is answered next; if a gateway answers, the line goes into the gateway's inbox. A slash command
is answered at once. Ctrl-C stops the running turn; a second Ctrl-C leaves.

Limits: at the prompt, text from other clients appears only when it is complete, and a question from another client is
only announced; the person answers it there or with /approve and /deny.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes_agent import sync_loop
from hermes_cli.chat import approval
from hermes_cli.chat.keyboard import Keyboard
from hermes_cli.chat.render import EventLines, Screen
from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit
from hermes_cli.framework import output, text
from hermes_cli.sessions import lookup
from hermes_cli.tui.rpc_client import ChatOptions, Event, RpcClient, is_command
from hermes_config.errors import HermesError

Payload = Mapping[str, Any]
PROMPT = "> "
_LOOK_SECONDS = 0.1
_NEXT_SECONDS = 1.5
"""Seconds within which a gateway starts on a waiting message."""
_LAPSE_SECONDS = 0.5
"""If the server closes a question within this many seconds of its deadline, nobody answered it."""
_RECALLED = 50
_LAST_WORDS = 300
_LEAVE = ("/quit", "/exit")


class LineChat:
    """One conversation at a terminal. Tools that run here work in `folder`.

    `opening` replaces the greeting lines; `remarks` follow them.
    """

    def __init__(
        self,
        options: ChatOptions,
        *,
        folder: Path | None = None,
        opening: Sequence[str] | None = None,
        remarks: Sequence[str] = (),
    ) -> None:
        self._options = options if options.source else replace(options, source="cli")
        self._opening, self._remarks = opening, remarks
        self._folder = folder or Path.cwd()
        self._client = RpcClient(folder=folder)
        self._loop, self._screen = TerminalLoop(), Screen()
        self._events = EventLines(self._screen, at_prompt=lambda: self._at_prompt, ended=self._ended)
        self._keyboard: Keyboard | None = None
        self._sid, self._commands = "", [*_LEAVE]
        self._stored_id = options.session_id or ""
        self._awaited: set[str] = set()
        """Open questions."""
        self._waiting = False
        """A message of this chat waits for the end of the running turn."""
        self._added: list[str] = []
        """Lines given to the running turn; the next turn answers those that came too late."""
        self._next_lines: list[str] = []
        """Lines that wait for a turn of their own. Ctrl-C takes them back."""
        self._leaving = False
        self._over = asyncio.Event()
        self._handed_in_at = 0.0
        self._handing_in = 0
        """Messages that the server has not acknowledged yet: events until then belong to earlier turns."""
        self._lock = threading.Lock()
        """The thread that writes to the terminal holds this lock."""
        self._at_prompt = False
        self._left = threading.Event()

    # -- at a terminal -------------------------------------------------------------------------------------

    def talk(self) -> int:
        """Run the chat until the person leaves; return the exit code."""
        keyboard = self._keyboard = Keyboard()
        keyboard.complete(lambda: self._commands, self._file_names)
        keyboard.when_ready(self._prompted)
        watching = threading.Thread(target=self._look_on, daemon=True, name="look-on")
        code = 0
        try:
            self._open()
            watching.start()
            while not self._loop.typing_ended and (message := self._typed(keyboard)) is not None:
                if message.strip() in _LEAVE:
                    break
                if message.strip():
                    self._drive(self._send(message))
                if self._waiting:
                    self._drive(self._next())
                if self._leaving:
                    break
        except UserQuit:
            self._screen.say("\nStopped. Finished work is kept.")
            code = 130
        finally:
            self._left.set()
            self._close()
        if self._opening is None and self._events.has_messages:
            self._screen.banner(lookup.way_back(self._events.stored_id, self._events.title))
        return code

    def play(self, message: str) -> int:
        """Send one message without a terminal; return the exit code."""
        try:
            self._open()
            self._screen.say(f"{PROMPT}{message}")
            self._drive(self._send(message))
        finally:
            self._close()
        return 0 if self._events.status == "complete" else 1

    def _open(self) -> None:
        self._client.heard, self._client.lost = self._heard, self._lost
        self._client.failed = self._not_started
        self._client.start()
        self._loop.drive(self._begin(), interrupt=lambda: None)
        if self._keyboard is not None and self._loop.drive(self._recover(), interrupt=lambda: None):
            self._drive(self._ends())

    async def _begin(self) -> None:
        self._client.attach(asyncio.get_running_loop())
        # A conversation keeps its model: after a crash the model of the command line may be outdated.
        options = replace(self._options, model=None) if self._sid and self._events.has_messages else self._options
        state = await self._client.open(
            options, stored_id=self._stored_id, limit=_RECALLED, own_turns=self._options.want_own_turns or None
        )  # fmt: skip
        first, self._sid = not self._sid, str(state["session_id"])
        self._events.begin(state)
        self._stored_id = self._events.stored_id
        if first:
            self._loop.post(lambda: self._greet(state))
            catalog = await self._client.ask("commands.catalog")
            self._commands += [str(pair[0]) for pair in catalog.get("pairs") or ()]
        else:
            await self._client.ask("session.recover", session_id=self._sid)

    def _greet(self, state: Payload) -> None:
        """Show the greeting, the end of the conversation so far, and the remarks."""
        info: Payload = state.get("info") or {}
        if self._opening is not None:
            self._screen.banner(self._opening)
            return
        said = [one for one in state.get("messages") or () if one.get("role") in ("user", "assistant")]
        title = str(info.get("title") or next((one["text"] for one in said), "untitled"))
        count = text.counted(int(state.get("message_count") or 0), "message")
        about = f"{text.shorten(text.harmless(title), 60)} · {count}"
        if info.get("driver") == "gateway":
            dim = output.style("/help lists commands, Ctrl-D leaves", "dim")
            self._screen.banner([f"{about} · the gateway answers", dim])
        else:
            model = text.harmless(f"{info.get('model')} ({info.get('provider')})")
            self._screen.banner([f"{output.style('Hermes', 'bold')} · {model} · /help lists commands, Ctrl-D leaves"])
            if self._options.yolo:
                yolo = "yolo: you are not asked for permission in this chat"
                self._screen.banner([output.style(yolo, "yellow")])
            if said:
                self._screen.say(f"{about} · {self._events.stored_id}")
                for one in said[-2:]:
                    mark = PROMPT if one["role"] == "user" else ""
                    shown = text.shorten(text.harmless(str(one["text"]).strip()), _LAST_WORDS)
                    self._screen.say(f"{mark}{shown}", style="dim")
                if (last := state["messages"][-1])["role"] == "system":
                    self._screen.note(str(last["text"]))
        if self._keyboard is not None:
            self._keyboard.remember(str(one["text"]) for one in said if one["role"] == "user")
        for remark in self._remarks:
            self._screen.note(remark)

    async def _recover(self) -> bool:
        """Recover the unfinished turn of a dead process; return whether there is one."""
        self._over.clear()
        return (await self._client.ask("session.recover", session_id=self._sid)).get("status") == "streaming"

    async def _ends(self) -> None:
        await self._over.wait()

    def _heard(self, event: Event) -> None:
        """Take an event, on the loop. A closed question is noted at once: the code that asks it polls for that."""
        kind, payload = event.get("type"), event.get("payload") or {}
        if kind in ("approval.request", "clarify.request"):
            self._awaited.add(_number(payload))
        elif kind in ("approval.closed", "clarify.expire"):
            self._awaited.discard(_number(payload))
        elif kind in ("session.info", "session.title"):
            self._events.inform(payload)
            idle = not (payload.get("running", True) or payload.get("queued", True))
            fresh = self._handing_in or time.monotonic() - self._handed_in_at < _NEXT_SECONDS
            if idle and not fresh:  # nothing more comes; otherwise the event may belong to the previous turn
                self._waiting, self._added = False, []
                self._tell(self._rest(0.0))
            return
        self._loop.post(lambda: self._show(event))

    def _lost(self, why: str) -> None:
        """Handle the loss of the server, on the loop. A new server continues: messages are stored, questions return."""
        self._over.set()
        self._awaited.clear()
        again = self._client.may_restart()
        self._loop.post(
            lambda: self._screen.trouble(f"{why}; {'a new one continues here' if again else 'Ctrl-D leaves'}")
        )
        if again:
            self._client.start()
            self._tell(self._begin())

    def _not_started(self, error: HermesError) -> None:
        self._over.set()
        self._loop.post(lambda: self._screen.trouble(f"{error.one_line()}; Ctrl-D leaves"))

    def _close(self) -> None:
        self._client.close()
        self._loop.close()

    def _typed(self, keyboard: Keyboard) -> str | None:
        """Read the next message; None when the person leaves."""
        self._screen.say("")
        try:
            return keyboard.next(PROMPT, self._aside)
        finally:
            self._left_prompt()

    def _file_names(self, word: str) -> list[str]:
        """Return the completions of a word that begins with @."""
        from hermes_agent import mentions

        found = mentions.offers(word, self._folder, os.environ)
        return [one.text if one.is_folder else f"{one.text} " for one in found]

    def _aside(self, line: str) -> None:
        self._left_prompt()
        self._screen.say(line)

    def _prompted(self) -> None:
        self._at_prompt = True

    def _left_prompt(self) -> None:
        with self._lock:
            self._at_prompt = False

    def _look_on(self) -> None:
        """Show events above the typed line while the person is at the prompt. Runs on its own thread."""
        while not self._left.wait(_LOOK_SECONDS):
            with self._lock:
                if self._at_prompt and self._loop.has_posted:
                    with self._above_prompt():
                        self._loop.show_posted()

    @contextmanager
    def _above_prompt(self) -> Iterator[None]:
        typed = "" if self._keyboard is None else self._keyboard.so_far()
        sys.stdout.write("\r\x1b[K")
        yield
        # An empty line marks the end of a turn.
        sys.stdout.write(f"{'' if self._events.turning else chr(10)}{PROMPT}{typed}")
        sys.stdout.flush()

    # -- typed lines ---------------------------------------------------------------------------------------

    def _drive(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            typed = None if self._keyboard is None else self._typed_meanwhile  # without a terminal nobody types
            self._loop.drive(work, interrupt=self._interrupt, idle=self._screen.waiting, typed=typed)
        except HermesError as error:
            self._screen.trouble(error.one_line())

    async def _send(self, message: str) -> None:
        """Send a message and show its turn to the end."""
        self._over.clear()
        self._handing_in += 1
        if await self._handed_in(self._hand_in(message)):
            await self._over.wait()

    async def _handed_in(self, work: Coroutine[Any, Any, bool]) -> bool:
        try:
            return await work
        finally:
            self._handing_in -= 1
            self._handed_in_at = time.monotonic()

    async def _next(self) -> None:
        """Show the next turn, which a line typed at the end of the last one may have begun."""
        self._over.clear()
        sync_loop.submit(self._rest(_NEXT_SECONDS))
        await self._over.wait()
        self._waiting = False

    async def _hand_in(self, message: str) -> bool:
        """Send a message or command; return whether a turn follows. A server command may return a message to send."""
        if not is_command(message):
            await self._submit(message)
            return True
        answer = await self._client.ask("slash.exec", session_id=self._sid, command=message)
        if shown := answer.get("session"):
            self._events.begin(shown)
        if said := str(answer.get("output") or "").strip():
            own = "\n\nIn this chat: /quit, /exit (Ctrl-D)" if message.strip() == "/help" else ""
            self._loop.post(lambda: self._screen.say(f"{said}{own}"))
        if (prefill := answer.get("prefill")) is not None and self._keyboard is not None:
            self._keyboard.prefill(str(prefill))
        return answer.get("message") is not None and await self._hand_in(str(answer["message"]))

    async def _submit(self, message: str) -> None:
        answer = await self._client.ask("prompt.submit", session_id=self._sid, text=message)
        if answer.get("status") == "queued" and answer.get("driver") != "gateway":
            self._next_lines.append(message)

    def _typed_meanwhile(self, line: str) -> None:
        self._screen.typed()
        if line.strip() in _LEAVE:
            self._leaving = True  # after the turn
            return
        self._waiting = self._waiting or not is_command(line)
        self._handing_in += 1
        direct = is_command(line) or self._events.by_gateway
        self._tell(self._handed_in(self._hand_in(line) if direct else self._add(line)))

    async def _add(self, line: str) -> bool:
        """Give a line to the running turn; if no turn takes it, send it as a message."""
        answer = await self._client.ask("session.steer", session_id=self._sid, text=line)
        if answer.get("status") == "queued":
            self._added.append(line)
            said = "noted: Hermes reads it with the next step, or answers it next"
        else:
            await self._submit(line)
            said = "noted: Hermes answers it next"
        self._loop.post(lambda: self._screen.note(said))
        return True

    def _interrupt(self) -> None:
        self._screen.note("stopping (Ctrl-C again leaves)")
        self._waiting = bool(self._added)  # the server drops the prompts that wait, not what the turn was given
        if self._next_lines and self._keyboard is not None:
            self._keyboard.prefill(" ".join(self._next_lines))
        self._next_lines = []
        self._tell(self._client.ask("session.interrupt", session_id=self._sid))

    def _tell(self, work: Coroutine[Any, Any, Any]) -> None:
        """Send a request to the server; a refusal is shown as a line."""

        async def told() -> None:
            try:
                await work
            except HermesError as error:
                line = error.one_line()
                self._loop.post(lambda: self._screen.trouble(line))

        sync_loop.submit(told())

    # -- events, on the thread that has the terminal -------------------------------------------------------------

    def _show(self, event: Event) -> None:
        kind, payload = str(event.get("type")), event.get("payload") or {}
        if kind == "message.start" and not payload.get("elsewhere"):
            self._waiting, self._next_lines = False, []
            if self._added:
                self._screen.note(f"now answering what you added: {' '.join(self._added)}")
                self._added = []
        self._events.show(kind, payload)
        if kind == "approval.request":
            self._asked(payload)
        elif kind == "clarify.request":
            self._clarify(payload)

    def _ended(self) -> None:
        """Return to the prompt; wait a moment if a message of this chat is pending, since this turn may include it."""
        sync_loop.submit(self._rest(_NEXT_SECONDS if self._waiting else 0.0))

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._waiting and not seconds:  # a line was typed meanwhile: its turn may begin
            await asyncio.sleep(_NEXT_SECONDS)
        if not self._events.turning:
            self._waiting = False
            self._over.set()

    # -- questions -----------------------------------------------------------------------------------------------

    def _asked(self, payload: Payload) -> None:
        """Ask the question here during a turn of this chat. The first answer wins, from any client."""
        from hermes_agent.approvals.types import CHOICES, ApprovalQuestion
        from hermes_state.ids import ConversationId, TurnId

        if self._at_prompt or self._keyboard is None:
            self._screen.note(
                f"Hermes asks to run {payload.get('command')}. You can also answer here: /approve once or /deny"
            )
            return
        number, seconds = _number(payload), float(payload.get("expires_in") or 0.0)
        why = str(payload.get("description") or "").partition(": ")[2]
        question = ApprovalQuestion(
            id=number, kind=str(payload.get("kind") or ""), command=str(payload.get("command") or ""),
            workdir=str(payload.get("workdir") or ""), detail=str(payload.get("detail") or ""), why=why,
            conversation_id=ConversationId(""), turn_id=TurnId(""), call_id="", person_id=None, platform="",
            expires_at=time.time() + seconds, seconds=seconds,
            choices=tuple(one for one in CHOICES if one in (payload.get("choices") or ())),
            labels=dict(payload.get("labels") or {}), sandbox=str(payload.get("sandbox") or ""),
            content=str(payload.get("content") or ""),
        )  # fmt: skip
        where, lapses = "conversation" if self._events.by_gateway else "terminal", time.monotonic() + seconds

        def unanswered() -> str:
            elsewhere = self._is_closed(number) and time.monotonic() < lapses - _LAPSE_SECONDS
            return "answered on another device or window" if elsewhere else "no answer: denied"

        choice = approval.put(
            question, screen=self._screen, keyboard=self._keyboard,
            whom=f"{payload.get('requester')}, who asked for it in this {where}",
            over=lambda: self._loop.interrupted or self._is_closed(number), unanswered=unanswered,
        )  # fmt: skip
        if not self._is_closed(number):
            self._tell(self._client.ask("approval.respond", session_id=self._sid, approval_id=number, choice=choice))

    def _is_closed(self, number: str) -> bool:
        return number not in self._awaited

    def _clarify(self, payload: Payload) -> None:
        """Ask a question of the model; at the prompt the next line is its answer."""
        asked, choices = str(payload.get("question") or ""), tuple(str(one) for one in payload.get("choices") or ())
        if self._at_prompt or self._keyboard is None:
            offered = f" ({' · '.join(choices)})" if choices else ""
            self._screen.note(f"Hermes asks: {asked}{offered}")
            return
        number = _number(payload)
        said = approval.clarify(
            asked, choices, screen=self._screen, keyboard=self._keyboard,
            over=lambda: self._loop.interrupted or self._is_closed(number),
        )  # fmt: skip
        if not self._is_closed(number):
            self._tell(self._client.ask("clarify.respond", request_id=number, answer=said or ""))


def _number(question: Payload) -> str:
    return str(question.get("approval_id") or question.get("request_id"))
