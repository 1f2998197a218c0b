"""The demo's chat at the desk: one conversation with the phone, driven by the gateway.

What is typed here goes into the gateway's inbox like a message from the phone, and what is shown here is read from the
store, so there is one driver and both windows tell the same. While the person sits at the prompt a thread shows what
comes in; while a message of theirs is worked on, the main thread does, and takes answers to questions. Ctrl-C stops
what runs, as /stop does; pressed again it leaves.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

from gateway import beside
from hermes_agent import commands
from hermes_agent.approvals import showing
from hermes_agent.approvals.base import ApprovalQuestion, Choice
from hermes_cli import chat_approval, chat_footer, text
from hermes_cli.chat_keyboard import Keyboard
from hermes_cli.chat_screen import Screen
from hermes_cli.demo_follow import Asked, Called, Ended, Follower, News, Piece, Said, TakenUp, Typed

if TYPE_CHECKING:
    from gateway.entries import SessionSource
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.approvals import Approval
    from hermes_state.inbox import InboxRow

PROMPT = "> "
_LOOK_SECONDS = 0.12
_IDLE_SECONDS = 0.7
_LINE_BYTES = 4_096
_LEAVE = ("/quit", "/exit")


class DeskChat:
    """One sitting. `trouble` says why no gateway answers, and is empty as long as one does."""

    def __init__(
        self, db: SessionDB, config: Config, source: SessionSource, *, trouble: Callable[[], str] = lambda: ""
    ) -> None:
        self._db, self._config, self._source, self._trouble = db, config, source, trouble
        self._owner = db.people.owner()
        self._screen = Screen()
        self._follower = Follower(db, config.home, beside.route_of(source), source.chat_id)
        self._lock = threading.Lock()
        """Whoever shows something holds it."""
        self._at_prompt = False
        self._over = threading.Event()
        self._keyboard: Keyboard | None = None

    # -- at a terminal -------------------------------------------------------------------------------------

    def talk(self, opening: Sequence[str]) -> int:
        """Until the person leaves; the exit code."""
        self._keyboard = Keyboard()
        self._keyboard.complete(lambda: [f"/{name}" for name in commands.table("gateway")])
        self._keyboard.when_ready(self._prompted)
        self._screen.banner(opening)
        watching = threading.Thread(target=self._look_on, daemon=True, name="look-on")
        watching.start()
        try:
            while (message := self._typed(self._keyboard)) is not None and message.strip() not in _LEAVE:
                if message.strip() and not self._work(message):
                    break
        finally:
            self._over.set()
            watching.join(2.0)
        return 0

    def _typed(self, keyboard: Keyboard) -> str | None:
        """The next message; None when the person leaves."""
        self._screen.say("")
        warned = False
        while True:
            try:
                return keyboard.message(PROMPT)
            except EOFError:
                self._screen.say("")
                return None
            except KeyboardInterrupt:
                self._left_prompt()
                self._screen.say("" if warned else "\n(Ctrl-C again leaves)")
                if warned:
                    return None
                warned = True
            finally:
                self._left_prompt()

    def _prompted(self) -> None:
        self._at_prompt = True

    def _left_prompt(self) -> None:
        with self._lock:
            self._at_prompt = False

    def _look_on(self) -> None:
        """On a thread of its own: what comes in while the person sits at the prompt, above the line they type."""
        while not self._over.wait(_LOOK_SECONDS):
            with self._lock:
                if self._at_prompt and (news := self._follower.news()):
                    with self._above_prompt(apart=not (self._follower.busy or isinstance(news[-1], Typed))):
                        for one in news:
                            self._show(one, here=False)

    @contextmanager
    def _above_prompt(self, *, apart: bool) -> Iterator[None]:
        """`apart`: an empty line between what is shown and the prompt, because nothing more belongs to it."""
        typed = "" if self._keyboard is None else self._keyboard.so_far()
        sys.stdout.write("\r\x1b[K")
        yield
        sys.stdout.write(f"{chr(10) if apart else ''}{PROMPT}{typed}")
        sys.stdout.flush()

    # -- while a message is worked on ----------------------------------------------------------------------

    def _work(self, message: str) -> bool:
        """Hand the message in and show what comes of it; False when the person leaves."""
        mine = [self._hand_in(message)]
        stopped = False
        while True:
            try:
                self._see_through(mine)
                return True
            except EOFError:
                self._screen.say("\nLeft in the middle of it; what was done so far is kept.")
                return False
            except KeyboardInterrupt:
                if stopped:
                    self._screen.say("\nStopped. What was done so far is kept.")
                    return False
                stopped = True
                self._screen.note("stopping (Ctrl-C again leaves)")
                mine.append(self._hand_in("/stop"))

    def play(self, message: str) -> int:
        """One message where nobody is there to type; the exit code."""
        self._screen.say(f"{PROMPT}{message}")
        row = self._hand_in(message)
        self._see_through([row])
        ended = self._db.inbox.get(row.id)
        return 0 if ended is not None and ended.state == "answered" else 1

    def _hand_in(self, message: str) -> InboxRow:
        return beside.hand_in(self._db, self._source, message, person_id=self._owner.id)

    def _see_through(self, mine: list[InboxRow]) -> None:
        """Show what happens until every message of ours has its outcome. Lines typed meanwhile are messages too."""
        quiet_since = time.monotonic()
        while True:
            over = all(self._has_ended(row) for row in mine)  # asked before the last look
            news = self._follower.news()
            for one in news:
                self._show(one, here=True)
            if over and not news:
                self._screen.end_answer()
                return
            if self._trouble():
                self._screen.trouble(self._trouble())
                return
            if news:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > _IDLE_SECONDS:
                self._screen.waiting()
            if (line := self._line_meanwhile()) is not None:
                mine.append(self._hand_in(line))

    def _has_ended(self, row: InboxRow) -> bool:
        now = self._db.inbox.get(row.id)
        return now is None or now.ended_at is not None

    def _line_meanwhile(self) -> str | None:
        if self._keyboard is None or os.name != "posix":
            time.sleep(_LOOK_SECONDS)
            return None
        if not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            return None
        read = os.read(sys.stdin.fileno(), _LINE_BYTES)
        if not read:  # Ctrl-D
            raise EOFError
        self._screen.typed()
        return read.decode("utf-8", "replace").strip() or None

    # -- showing -------------------------------------------------------------------------------------------

    def _show(self, news: News, *, here: bool) -> None:
        screen = self._screen
        match news:
            case Typed():
                screen.say(f"phone {PROMPT}{text.harmless_block(news.text)}", style="bold")
            case Piece():
                screen.answer(news.text)
            case Said(notice=True):
                screen.note(news.text)
            case Said():
                if news.reply:
                    screen.end_answer()
                screen.answer(news.text)
                screen.end_answer()
            case Called():
                screen.tool_ended(news.name, news.summary, seconds=news.seconds, failed=news.failed, why=news.why)
            case TakenUp():
                screen.note("the gateway was lost and is back; the turn is taken up where it stood")
            case Asked() if here and self._keyboard is not None:
                self._put(news.approval, self._keyboard)
            case Asked():
                screen.note(f"asked on the phone: may it run {news.approval.call.get('text')}?")
            case Ended():
                self._show_end(news)

    def _show_end(self, ended: Ended) -> None:
        if ended.tokens:
            facts = {"model": ended.model, "total_tokens": ended.tokens}
            line = chat_footer.line(facts, db=self._db, config=self._config, person_id=self._owner.id)
            self._screen.say(f"\n{line}", style="dim")

    def _put(self, approval: Approval, keyboard: Keyboard) -> None:
        """Ask here; the phone is asked too, and whoever answers first has answered."""
        question = _question(approval, seconds=max(1.0, approval.expires_at - self._db.clock()))

        def now() -> Approval | None:
            return self._db.approvals.get(approval.id)

        def over() -> bool:
            return (found := now()) is None or found.state != "pending"

        def unanswered() -> str:
            found = now()
            if found is None or found.state in ("pending", "lapsed"):
                return "no answer: denied"
            return f"{showing.SAID[_scope(found)]}, on the phone"

        whom = f"{self._owner.display_name or 'you'} ({self._owner.role}), who asked for it in this conversation"
        try:
            choice = chat_approval.put(
                question, screen=self._screen, keyboard=keyboard, whom=whom, over=over, unanswered=unanswered
            )
        except KeyboardInterrupt:
            self._screen.say("")  # the line with the prompt, where the terminal has put its ^C
            raise
        self._db.approvals.decide(approval.id, choice, approver_id=self._owner.id)  # the first answer counts


def _scope(approval: Approval) -> Choice:
    found: Choice | None = next((one for one in get_args(Choice) if one == approval.scope), None)
    return found or "deny"


def _question(approval: Approval, *, seconds: float) -> ApprovalQuestion:
    call = approval.call
    return ApprovalQuestion(
        id=approval.id, kind=str(call["kind"]), command=str(call["text"]), workdir=str(call["workdir"]),
        detail=str(call["detail"]), why=str(call["why"]), conversation_id=approval.conversation_id,
        turn_id=approval.turn_id, call_id=str(call["call_id"]), person_id=approval.requester_id,
        platform=str(call["platform"]), expires_at=approval.expires_at, seconds=seconds,
    )  # fmt: skip
