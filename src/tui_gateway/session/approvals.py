"""Questions of a turn to the person at a client: permission to run something, and the model's own.

Permission questions: FIFO for each session, answered by `approval.respond`, by another surface, or by time-out. A
question is a row of the store, so an answer from anywhere counts once; this module only knows this screen's waiters.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.types import CHOICES, ApprovalQuestion, Choice, question_of
from hermes_config import redaction
from hermes_state.ids import LOCAL_OWNER
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Frame, RpcError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.approvals import Approval
    from tui_gateway.session.services import RpcServices

_CLARIFY_SECONDS = 300.0
_PERMISSION = "approval.request"


@dataclass(frozen=True, slots=True)
class _Open:
    """A question on this screen."""

    frame: Frame
    """The event that showed it."""
    answer: asyncio.Future[str] | None
    """None for a question of another process."""

    @property
    def is_permission(self) -> bool:
        return bool(self.frame["params"]["type"] == _PERMISSION)

    def give(self, answer: str) -> None:
        if self.answer is not None and not (loop := self.answer.get_loop()).is_closed():
            loop.call_soon_threadsafe(_settle, self.answer, answer)


class SessionApprovals:
    """The questions of one live session, and the `Approver` of its agents."""

    def __init__(self, services: RpcServices, sid: str) -> None:
        self._services, self._sid = services, sid
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self.waited = 0.0
        """How many seconds the turns of this session waited for a person."""

    async def ask(self, question: ApprovalQuestion) -> Choice:
        return _choice(await self._answer(question.id, _PERMISSION, self._shown(question)))

    async def clarify(self, question: str, choices: tuple[str, ...]) -> str:
        """The person's answer to the model; empty when none came in time, or no client is left."""
        number = uuid.uuid4().hex[:8]
        shown = {"question": question, "choices": list(choices), "request_id": number}
        try:
            async with asyncio.timeout(_CLARIFY_SECONDS):
                return await self._answer(number, "clarify.request", shown)
        except TimeoutError:
            return ""

    def asked_elsewhere(self, approval: Approval, *, now: float) -> None:
        """Show a question of the gateway's turn; this screen may answer it, too."""
        if approval.id not in self._open:
            self._put(approval.id, _PERMISSION, self._shown(question_of(approval, now=now)), None)

    async def _answer(self, number: str, kind: str, shown: Mapping[str, Any]) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._put(number, kind, shown, answer)
        began = time.monotonic()
        try:
            return await answer
        finally:
            self.waited += time.monotonic() - began
            self.closed(number)

    def _put(self, number: str, kind: str, shown: Mapping[str, Any], answer: asyncio.Future[str] | None) -> None:
        with self._services.event_lock:  # a client that joins now either gets the event or finds the question
            with self._lock:
                self._open[number] = _Open(frames.event(kind, self._sid, shown), answer)
            self._services.emit(kind, self._sid, shown)

    def open_requests(self) -> list[Frame]:
        with self._lock:
            return [one.frame for one in self._open.values()]

    def closed(self, number: str) -> None:
        with self._lock:
            was = self._open.pop(number, None)
        if was is not None and was.is_permission:
            self._services.emit("approval.closed", self._sid, {"approval_id": number})
        elif was is not None:
            self._services.emit("clarify.expire", self._sid, {"request_id": number})

    def elsewhere(self) -> list[str]:
        """Questions of another process."""
        with self._lock:
            return [number for number, one in self._open.items() if one.answer is None]

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    def respond(self, db: SessionDB | None, choice: str, *, everything: bool = False, only: str = "") -> int:
        """Answer the oldest permission question, one by its id, or all; returns their number."""
        verdict = _choice(choice)
        with self._lock:
            wanted = [at for at, one in self._open.items() if one.is_permission and only in ("", at)]
            chosen = {number: self._open[number] for number in (wanted if everything else wanted[:1])}
        for number, one in chosen.items():
            one.give(verdict)
            if one.answer is None and db is not None:
                db.approvals.decide(number, verdict, approver_id=LOCAL_OWNER)  # the first answer wins
            self.closed(number)
        return len(chosen)

    def answered(self, number: str, answer: str) -> bool:
        """`clarify.respond`: the first answer wins; False when nobody waits under that id."""
        with self._lock:
            found = self._open.get(number)
        if found is None or found.is_permission:
            return False
        found.give(answer)
        self.closed(number)
        return True

    def leave(self) -> None:
        """No client is left: deny the questions of our own turn, and leave those of others."""
        with self._lock:
            left = dict(self._open)
        for number, one in left.items():
            one.give("deny" if one.is_permission else "")
            self.closed(number)

    def _shown(self, question: ApprovalQuestion) -> Mapping[str, Any]:
        """The exact command, with secrets covered: others may see the screen."""
        db = self._services.get_db()
        person = None if db is None or question.person_id is None else db.people.get(question.person_id)
        heading = approval_text.heading(question.kind)
        return {
            "approval_id": question.id,
            "command": redaction.redacted(question.command),
            "description": f"{heading}: {question.why}" if question.why else heading,
            "pattern_key": question.kind,
            "pattern_keys": [question.kind],
            "allow_permanent": "always" in question.choices,
            "choices": list(question.choices),
            "labels": {choice: question.label(choice) for choice in question.choices},
            "kind": question.kind,
            "workdir": question.workdir,
            "detail": question.detail,
            "sandbox": question.sandbox,
            "content": redaction.redacted(question.content),
            "measure": approval_text.measure(question.command),
            "expires_in": round(question.seconds, 1),
            "requester": "you" if person is None else f"{person.display_name or 'you'} ({person.role})",
        }


def _choice(said: str) -> Choice:
    for choice in CHOICES:
        if choice == said:
            return choice
    raise RpcError(frames.BAD_VALUE, "choice must be task, once, session, always or deny")


def _settle(answer: asyncio.Future[str], said: str) -> None:
    if not answer.done():
        answer.set_result(said)
