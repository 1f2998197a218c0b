"""The line chat at a conversation that a gateway drives: a client of `tui_gateway`, as the window is, in lines.

What is typed goes into the gateway's inbox, and what happens there is shown, also what comes from the phone. While the
person sits at the prompt a thread shows it above the line they type; while something of theirs is worked on the main
thread does, and takes answers to questions. Ctrl-C stops what runs; pressed again it leaves.

Limits: at the prompt words are shown when they are whole, and a question that came from another place is told, to be
answered there or with /approve and /deny.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import sync_loop
from hermes_agent.approvals.types import CHOICES, ApprovalQuestion
from hermes_agent.commands import registry
from hermes_cli.chat import approval
from hermes_cli.chat.keyboard import Keyboard
from hermes_cli.chat.render import EventLines, Payload, Screen
from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit
from hermes_cli.chat_desk import named
from hermes_cli.framework import output, text
from hermes_cli.tui.rpc_client import Event, RpcClient
from hermes_config.errors import HermesError
from hermes_state.ids import ConversationId, TurnId

if TYPE_CHECKING:
    from hermes_state import SessionDB

PROMPT = "> "
_LOOK_SECONDS = 0.1
_MOST_LOSSES = 3
_NEXT_SECONDS = 1.5
"""Within so much a gateway turns to what waits."""
_LEAVE = ("/quit", "/exit")


class AttachedChat:
    """One sitting. `stored_id` names the conversation; tools that run here work in `folder`."""

    def __init__(self, stored_id: str, *, folder: Path | None = None) -> None:
        self._stored_id, self._link = stored_id, RpcClient(folder=folder)
        self._stage, self._screen = TerminalLoop(), Screen()
        self._events = EventLines(self._screen, at_prompt=lambda: self._at_prompt, ended=self._ended)
        self._keyboard: Keyboard | None = None
        self._sid, self._losses = "", 0
        self._awaited: set[str] = set()
        """Questions whose answer somebody waits for."""
        self._waiting = False
        """Something of ours waits for the end of the turn that runs."""
        self._over = asyncio.Event()
        self._lock = threading.Lock()
        """Whoever shows something holds it."""
        self._at_prompt = False
        self._left = threading.Event()

    # -- at a terminal -------------------------------------------------------------------------------------

    def talk(self, opening: Sequence[str]) -> int:
        """Until the person leaves; the exit code."""
        keyboard = self._keyboard = Keyboard()
        keyboard.complete(lambda: [f"/{name}" for name in registry.table("tui")])
        keyboard.when_ready(self._prompted)
        self._screen.banner(opening)
        watching = threading.Thread(target=self._look_on, daemon=True, name="look-on")
        code = 0
        try:
            self._open()
            watching.start()
            while not self._stage.typing_ended and (message := self._typed(keyboard)) is not None:
                if message.strip() in _LEAVE:
                    break
                if message.strip():
                    self._drive(self._send(message))
        except UserQuit:
            self._screen.say("\nStopped. What was done so far is kept.")
            code = 130
        finally:
            self._left.set()
            self._close()
        return code

    def play(self, message: str) -> int:
        """One message where nobody is there to type; the exit code."""
        try:
            self._open()
            self._screen.say(f"{PROMPT}{message}")
            self._drive(self._send(message))
        finally:
            self._close()
        return 0 if self._events.status == "complete" else 1

    def _open(self) -> None:
        self._link.start()
        self._link.heard, self._link.lost = self._heard, self._lost
        self._stage.drive(self._begin(), interrupt=lambda: None)

    async def _begin(self) -> None:
        self._link.attach(asyncio.get_running_loop())
        state = await self._link.ask("session.resume", session_id=self._stored_id, limit=1)
        self._sid = str(state["session_id"])
        self._events.begin(state.get("info") or {})

    def _heard(self, event: Event) -> None:
        """On the loop. That a question is closed is known at once, because whoever asks it looks for that."""
        kind, payload = event.get("type"), event.get("payload") or {}
        if kind in ("approval.request", "clarify.request"):
            self._awaited.add(_number(payload))
        elif kind in ("approval.closed", "clarify.expire"):
            self._awaited.discard(_number(payload))
        self._stage.post(lambda: self._show(event))

    def _lost(self, why: str) -> None:
        """On the loop. Another server goes on; what was said is stored, and what is still asked is asked anew."""
        self._over.set()
        self._awaited.clear()
        self._losses += 1
        again = self._losses <= _MOST_LOSSES
        self._stage.post(
            lambda: self._screen.trouble(f"{why}; {'a new one goes on here' if again else 'Ctrl-D leaves'}")
        )
        if again:
            self._link.start()
            self._tell(self._begin())

    def _close(self) -> None:
        self._link.close()
        self._stage.close()

    def _typed(self, keyboard: Keyboard) -> str | None:
        """The next message; None when the person leaves."""
        self._screen.say("")
        try:
            return keyboard.next(PROMPT, self._aside)
        finally:
            self._left_prompt()

    def _aside(self, line: str) -> None:
        self._left_prompt()
        self._screen.say(line)

    def _prompted(self) -> None:
        self._at_prompt = True

    def _left_prompt(self) -> None:
        with self._lock:
            self._at_prompt = False

    def _look_on(self) -> None:
        """On a thread of its own: what comes in while the person sits at the prompt, above the line they type."""
        while not self._left.wait(_LOOK_SECONDS):
            with self._lock:
                if self._at_prompt and self._stage.has_posted:
                    with self._above_prompt():
                        self._stage.show_posted()

    @contextmanager
    def _above_prompt(self) -> Iterator[None]:
        typed = "" if self._keyboard is None else self._keyboard.so_far()
        sys.stdout.write("\r\x1b[K")
        yield
        # An empty line below what is over: nothing more belongs to it.
        sys.stdout.write(f"{'' if self._events.turning else chr(10)}{PROMPT}{typed}")
        sys.stdout.flush()

    # -- what is typed -------------------------------------------------------------------------------------

    def _drive(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._stage.drive(work, interrupt=self._interrupt, idle=self._screen.waiting, typed=self._typed_meanwhile)
        except HermesError as error:
            self._screen.trouble(error.one_line())

    async def _send(self, message: str) -> None:
        """Hand it in, and see it through."""
        self._over.clear()
        if await self._hand_in(message):
            await self._over.wait()

    async def _hand_in(self, message: str) -> bool:
        """True when a turn comes of it. A command of the server's may ask for a message to be sent."""
        if registry.parse(message) is None:
            await self._link.ask("prompt.submit", session_id=self._sid, text=message)
            return True
        answer = await self._link.ask("slash.exec", session_id=self._sid, command=message)
        if said := str(answer.get("output") or "").strip():
            self._stage.post(lambda: self._screen.say(said))
        if (prefill := answer.get("prefill")) is not None and self._keyboard is not None:
            self._keyboard.prefill(str(prefill))
        return answer.get("message") is not None and await self._hand_in(str(answer["message"]))

    def _typed_meanwhile(self, line: str) -> None:
        self._screen.typed()
        self._waiting = self._waiting or registry.parse(line) is None
        self._tell(self._hand_in(line))

    def _interrupt(self) -> None:
        self._screen.note("stopping (Ctrl-C again leaves)")
        self._waiting = False
        self._tell(self._link.ask("session.interrupt", session_id=self._sid))

    def _tell(self, work: Coroutine[Any, Any, Any]) -> None:
        """Something for the server, whose refusal is a line."""

        async def told() -> None:
            try:
                await work
            except HermesError as error:
                line = error.one_line()
                self._stage.post(lambda: self._screen.trouble(line))

        sync_loop.submit(told())

    # -- what comes, on the thread that has the terminal ---------------------------------------------------------

    def _show(self, event: Event) -> None:
        kind, payload = str(event.get("type")), event.get("payload") or {}
        if kind == "message.start" and not payload.get("elsewhere"):
            self._waiting = False
        self._events.show(kind, payload)
        if kind == "approval.request":
            self._asked(payload)
        elif kind == "clarify.request":
            self._clarify(payload)

    def _ended(self) -> None:
        """The prompt comes back; after a moment when something of ours waits, which may have been part of this turn."""
        sync_loop.submit(self._rest(_NEXT_SECONDS if self._waiting else 0.0))

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._events.turning:
            self._waiting = False
            self._over.set()

    # -- questions -----------------------------------------------------------------------------------------------

    def _asked(self, payload: Payload) -> None:
        """Put here when something of ours is worked on; whoever answers first, here or elsewhere, has answered."""
        if self._at_prompt or self._keyboard is None:
            self._screen.note(
                f"asked: may it run {payload.get('command')}? /approve once and /deny answer it here, too"
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
            labels=dict(payload.get("labels") or {}), wall=str(payload.get("wall") or ""),
            content=str(payload.get("content") or ""),
        )  # fmt: skip
        choice = approval.put(
            question, screen=self._screen, keyboard=self._keyboard,
            whom=f"{payload.get('requester')}, who asked for it in this conversation",
            over=lambda: self._stage.interrupted or self._is_closed(number),
            unanswered=lambda: "answered in another place" if self._is_closed(number) else "no answer: denied",
        )  # fmt: skip
        if not self._is_closed(number):
            self._tell(self._link.ask("approval.respond", session_id=self._sid, approval_id=number, choice=choice))

    def _is_closed(self, number: str) -> bool:
        return number not in self._awaited

    def _clarify(self, payload: Payload) -> None:
        """A question of the model; at the prompt the next line is its answer, as in the chat."""
        asked, choices = str(payload.get("question") or ""), tuple(str(one) for one in payload.get("choices") or ())
        if self._at_prompt or self._keyboard is None:
            offered = f" ({' · '.join(choices)})" if choices else ""
            self._screen.note(f"it asks: {asked}{offered}")
            return
        number = _number(payload)
        said = approval.clarify(
            asked, choices, screen=self._screen, keyboard=self._keyboard,
            over=lambda: self._stage.interrupted or self._is_closed(number),
        )  # fmt: skip
        if not self._is_closed(number):
            self._tell(self._link.ask("clarify.respond", request_id=number, answer=said or ""))


def _number(question: Payload) -> str:
    return str(question.get("approval_id") or question.get("request_id"))


def talk(db: SessionDB, session_id: str) -> int:
    """Go on, line by line, with a conversation that a gateway serves; the exit code."""
    rows = db.get_messages_as_conversation(session_id)
    about = f"{named(db, session_id)} · {text.counted(len(rows), 'message')} · the gateway answers"
    return AttachedChat(session_id).talk([about, output.style("/help lists commands, Ctrl-D leaves", "dim")])
