"""The line chat: a prompt, the answer as it comes, and again.

While an answer is on its way a typed line goes along with the next tool result, or becomes the next message; a slash
command is answered at once. Ctrl-C stops the turn and keeps what was done; pressed again, or twice at the prompt, it
leaves, as Ctrl-D does. The conversation is stored as it happens, so leaving loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hermes_agent import process_identity, sync_loop
from hermes_agent.commands import registry
from hermes_agent.commands.base import CommandContext, SlashCommand
from hermes_cli.chat import approval, oneshot
from hermes_cli.chat.keyboard import Keyboard
from hermes_cli.chat.render import Screen
from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit
from hermes_cli.chat_desk import Desk, Wishes, named
from hermes_cli.framework import output, text
from hermes_cli.sessions import lookup
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_agent.approvals.types import ApprovalQuestion, Choice
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns.turns import Turn

PROMPT = "> "
_RECALLED = 50
_LAST_WORDS = 300


class LineChat:
    """One sitting at a terminal."""

    def __init__(self, db: SessionDB, config: Config, wishes: Wishes, *, session_id: str | None) -> None:
        self._db, self._config, self._wishes = db, config, wishes
        self._stage, self._screen, self._keyboard = TerminalLoop(), Screen(), Keyboard()
        self._leaving = False
        self._beside: list[Future[bool]] = []
        """Commands that were typed while a turn ran."""
        self._next: list[str] = []
        """Messages that were typed while no turn could take them."""
        self._desk = Desk(
            db=db, config=config, wishes=wishes, stage=self._stage, screen=self._screen, session_id=session_id,
            approver=self, ask=self._clarify, prefill=self._keyboard.prefill, ended=self._told,
        )  # fmt: skip
        registry.add(
            SlashCommand(
                name="quit", aliases=("exit",), category="About", handler=self._quit, surfaces=frozenset({"cli"}),
                description="leave; the conversation is kept", stops=True,
            )
        )  # fmt: skip
        self._keyboard.complete(lambda: [f"/{name}" for name in registry.table("cli")], self._desk.file_names)

    # -- the sitting ---------------------------------------------------------------------------------------

    def run(self) -> int:
        code = 0
        try:
            self._screen.banner(self._opening())
            self._look_back()
            while not self._leaving and (self._next or not self._stage.typing_ended):
                self._screen.say("")
                message = self._typed()
                if message is None:
                    break
                if message.strip():
                    self._heard(message)
        except UserQuit:
            self._screen.say("\nStopped. What was done so far is kept.")
            code = 130
        finally:
            self._goodbye()
            self._stage.close()
        return code

    def _typed(self) -> str | None:
        """The next message; None when the person leaves."""
        if self._next:
            message = self._next.pop(0)
            self._screen.say(f"{PROMPT}{message}")
            return message
        return self._keyboard.next(PROMPT, self._screen.say)

    def _heard(self, message: str) -> None:
        try:
            self._drive(self._answer(message))
        except HermesError as error:
            self._screen.trouble(error.one_line())

    def _drive(self, work: Coroutine[Any, Any, Any]) -> Any:
        def drive(work: Coroutine[Any, Any, Any]) -> Any:
            return self._stage.drive(
                work, interrupt=self._interrupt, idle=self._screen.waiting, typed=self._typed_meanwhile
            )

        result = drive(work)
        while self._beside:  # commands that were typed meanwhile: their end, and their errors, belong here
            drive(_end_of(self._beside.pop(0)))
        return result

    async def _answer(self, message: str) -> None:
        if await registry.run(self._desk, message):
            return
        await self._told(await self._desk.turn(message))

    async def _told(self, result: Mapping[str, Any]) -> None:
        """The end of a turn: what went wrong, and the footer."""
        footer = await asyncio.to_thread(
            oneshot.line, result, db=self._db, config=self._config, person_id=self._desk.person.id
        )
        self._stage.post(lambda: self._show_end(result, footer))

    def _show_end(self, result: Mapping[str, Any], footer: str) -> None:
        said, error = result.get("final_response"), result.get("error")
        if said and (result.get("response_transformed") or (result.get("partial") and not result.get("interrupted"))):
            self._screen.end_answer()
            self._screen.answer(str(said))  # it is not, or not all, what was streamed
        self._screen.end_answer()
        if result.get("interrupted"):
            self._screen.note("interrupted; what was done so far is kept")
        elif error and error != said:
            self._screen.trouble(str(error))
        if result.get("total_tokens"):
            self._screen.say(f"\n{footer}", style="dim")

    # -- while a turn runs ---------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._screen.note("stopping (Ctrl-C again leaves)")
        self._desk.interrupt()

    def _typed_meanwhile(self, line: str) -> None:
        self._screen.typed()
        if registry.parse(line) is not None:
            self._beside.append(sync_loop.submit(registry.run(self._desk, line)))
        elif self._desk.steer(line):
            self._screen.note("noted: it goes along with the next step, or is answered next")
        else:
            self._next.append(line)
            self._screen.note("noted: it is answered next")

    async def ask(self, question: ApprovalQuestion) -> Choice:
        """Permission, from the person at this terminal. (This is the approver of the conversation.)"""
        person = self._desk.person
        whom = f"{person.display_name or 'you'} ({person.role}), who asked for it in this terminal"
        screen, keyboard = self._screen, self._keyboard
        with self._desk.not_counted():
            return await self._stage.ask(
                lambda over: approval.put(question, screen=screen, keyboard=keyboard, whom=whom, over=over)
            )

    async def _clarify(self, question: str, choices: tuple[str, ...]) -> str | None:
        with self._desk.not_counted():
            return await self._stage.ask(
                lambda over: approval.clarify(
                    question, choices, screen=self._screen, keyboard=self._keyboard, over=over
                )
            )

    async def _quit(self, ctx: CommandContext, args: str) -> None:
        self._leaving = True

    # -- coming and going ------------------------------------------------------------------------------------

    def _opening(self) -> list[str]:
        agent = self._desk.agent
        model = text.harmless(f"{agent.model} ({agent.provider})")
        lines = [f"{output.style('Hermes', 'bold')} · {model} · /help lists commands, Ctrl-D leaves"]
        if self._wishes.yolo:
            lines.append(output.style("yolo: you are not asked for permission in this chat", "yellow"))
        return lines

    def _look_back(self) -> None:
        """In a conversation that goes on: where it stood, and the rest of a turn that was lost."""
        session_id = self._desk.session_id
        if session_id is None:
            self._tell_of_lost_turns()
            return
        rows = self._db.get_messages_as_conversation(session_id)
        self._keyboard.remember(
            row["content"] for row in rows[-_RECALLED:] if row["role"] == "user" and isinstance(row["content"], str)
        )
        self._screen.say(f"{named(self._db, session_id)} · {text.counted(len(rows), 'message')} · {session_id}")
        for row in [row for row in rows if row["role"] in ("user", "assistant") and _words(row)][-2:]:
            mark = PROMPT if row["role"] == "user" else ""
            self._screen.say(f"{mark}{text.shorten(text.harmless(_words(row)), _LAST_WORDS)}", style="dim")
        if not self._desk.is_mine(session_id):
            self._screen.note("this conversation is not yours alone; what is remembered of you stays out of it")
        result = self._drive(self._desk.take_up())
        if result is not None:
            self._drive(self._told(result))

    def _tell_of_lost_turns(self) -> None:
        running = self._db.turns.list(state="running")
        lost = next((turn.conversation_id for turn in running if self._is_lost(turn)), None)
        if lost is not None:
            where = self._db.get_compression_tip(lost)
            self._screen.note(f"a turn was lost with its process; to take it up: hermes --resume {where}")

    def _is_lost(self, turn: Turn) -> bool:
        """One of the person's own, and nobody works on it."""
        return not process_identity.at_work(self._db, turn.conversation_id) and self._desk.is_mine(turn.conversation_id)

    def _goodbye(self) -> None:
        sync_loop.run(self._desk.close())
        session_id = self._desk.session_id
        if session_id is None or not (self._db.get_session(session_id) or {}).get("message_count"):
            return
        self._screen.banner(lookup.way_back(session_id, self._db.get_session_title(session_id)))


async def _end_of(future: Future[bool]) -> None:
    await asyncio.wrap_future(future)


def talk(db: SessionDB, config: Config, wishes: Wishes, *, session_id: str | None = None) -> int:
    """Sit down at the terminal and talk; the exit code."""
    return LineChat(db, config, wishes, session_id=session_id).run()


def _words(row: Mapping[str, Any]) -> str:
    content = row.get("content")
    return content.strip() if isinstance(content, str) else ""
