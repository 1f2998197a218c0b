"""The model's questions to a person in a chat, answered by a button or by the person's next message.

Only the person of the asking turn can answer, in that chat. When a question expires, the model decides by itself. The
question's id is a hash of the turn and the text, so a turn that is recovered after a restart asks the same question
without a second message, and a message that the person wrote meanwhile answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.chat import question_messages
from gateway.chat.question_messages import Adapters, AskingTurn, Recipient
from gateway.config import Platform
from hermes_state.ids import PersonId, SessionKey

if TYPE_CHECKING:
    from gateway.chat.command_context import CommandSender
    from gateway.inbound.lanes import Lanes
    from gateway.services import Services
    from hermes_state.turns.inbox import InboxRow

LAPSES_SECONDS = 600.0
_ID = "clr_"
KEY = f"question:{_ID}"
"""The prefix of the questions' outbox keys."""
_CLOSED = "This question is closed."


@dataclass(slots=True)
class _Open:
    id: str
    turn: AskingTurn
    choices: tuple[str, ...]
    answer: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def is_for(self, person_id: PersonId | None) -> bool:
        """Whether this person may answer: in a private chat everybody, so also for a turn from a terminal."""
        return self.turn.source.chat_type == "dm" or person_id == self.turn.person_id


class Clarifier:
    """Asks the questions of every agent of the gateway (`ask` implements `Ask`)."""

    def __init__(self, services: Services, adapters: Adapters, *, seconds: float = LAPSES_SECONDS) -> None:
        self._services, self._adapters, self._seconds = services, adapters, seconds
        self._open: dict[SessionKey, _Open] = {}

    def serve(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def ask(self, question: str, choices: tuple[str, ...]) -> str | None:
        """The person's answer; empty when the question expired, None where nobody can be asked."""
        turn = question_messages.asking(self._lanes, self._adapters)
        adapter = None if turn is None else self._adapters.get(turn.source.platform)
        if turn is None or adapter is None or turn.person_id is None or adapter.platform is Platform.API_SERVER:
            return None  # an API client expects an answer and cannot be asked
        if turn.running.held:
            return None  # its words would reach the chat before the owner has read them
        route, work = turn.running.route, turn.running.work
        facts = "\0".join((route if work is None else work.turn.id, question, *choices))
        asked = _Open(f"{_ID}{hashlib.sha256(facts.encode('utf-8', 'replace')).hexdigest()[:16]}", turn, choices)
        self._open[route] = asked
        try:
            buttons = adapter.supports_buttons and bool(choices)
            after = await asyncio.to_thread(self._services.db.inbox.last_id)
            text = question_messages.clarification(question, choices, buttons=buttons)
            rows = question_messages.clarify_buttons(asked.id, choices)
            here = Recipient(
                key="", name="", adapter=adapter, chat_id=str(turn.source.chat_id), thread_id=turn.source.thread_id
            )
            item = await self._lanes.say(here.item(f"question:{asked.id}", text, rows, after=after))
            meanwhile = await self._lanes.withdraw(
                route, lambda row: row.id > question_messages.asked_after(item) and self.expects(row)
            )
            if meanwhile is not None:
                self._lanes.put(meanwhile)  # the question is open again, and this message answers it
            answer = ""
            with turn.running.asking(here=True), contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    answer = await asked.answer
            shown = answer or "nobody answered in time"
            text = f"{question_messages.clarification(question, (), buttons=buttons)}\n\n→ {shown}"
            self._lanes.background(question_messages.rewrite(self._services.db, adapter, item, text, end=f"→ {shown}"))
            return answer
        finally:
            if self._open.get(route) is asked:
                del self._open[route]

    # -- answers -------------------------------------------------------------------------------------------

    def expects(self, row: InboxRow) -> bool:
        """Whether a row answers an open question: plain text of that person in that chat."""
        asked = None if row.route is None else self._open.get(row.route)
        if asked is None or asked.answer.done() or not asked.is_for(row.person_id):
            return False
        payload = row.payload or {}
        words = str(payload.get("text") or "").strip()
        return bool(words) and not payload.get("attachments") and not payload.get("album") and not row.version

    def take(self, row: InboxRow) -> bool:
        """Use a row's text as the answer; False when the question is closed by now."""
        if not self.expects(row) or row.route is None:
            return False
        asked, words = self._open[row.route], str((row.payload or {}).get("text") or "").strip()
        number = int(words) if words.isascii() and words.isdecimal() and len(words) < 3 else 0
        asked.answer.set_result(asked.choices[number - 1] if 0 < number <= len(asked.choices) else words)
        return True

    def press(self, sender: CommandSender, row: InboxRow, question_id: str, choice: str) -> str:
        """Handle a pressed button; returns an error for the person, or nothing."""
        asked = None if row.route is None else self._open.get(row.route)
        if asked is None or asked.id != question_id or asked.answer.done():
            return _CLOSED
        if not asked.is_for(sender.person.id):
            return "This question is for somebody else."
        number = int(choice) if choice.isascii() and choice.isdecimal() and len(choice) < 3 else len(asked.choices)
        if number >= len(asked.choices):
            return _CLOSED
        asked.answer.set_result(asked.choices[number])
        return ""
