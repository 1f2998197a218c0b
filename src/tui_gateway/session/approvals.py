"""Questions that a turn puts to the person at a client: permission to run something, and the model's own.

Of permission: FIFO for each session, answered by `approval.respond`, by another surface, or by time. A question is a
row of the store, so an answer that is given anywhere counts once; here is only who waits for it on this screen.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.types import ApprovalQuestion, Choice, question_of
from hermes_config import redaction
from hermes_state.ids import LOCAL_OWNER
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Frame, RpcError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.approvals import Approval
    from tui_gateway.session.services import RpcServices

T = TypeVar("T")
_CLARIFY_SECONDS = 300.0


@dataclass(slots=True)
class _Here:
    """A question of a turn that runs in this process."""

    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    def give(self, answer: str) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_settle, self.answer, answer)


class SessionApprovals:
    """Of one live session. It is the `Approver` of its agents."""

    def __init__(self, services: RpcServices, sid: str) -> None:
        self._services, self._sid = services, sid
        self._lock = threading.Lock()
        self._open: dict[str, _Here | None] = {}
        """By approval; None for one that another process waits for."""
        self._clarify: dict[str, _Here] = {}
        """Questions of the model, by request."""
        self._asked: dict[str, Frame] = {}
        """How all of these were put."""
        self.waited = 0.0
        """For how many seconds the turns of this session waited for a person."""

    # -- of permission -------------------------------------------------------------------------------------

    async def ask(self, question: ApprovalQuestion) -> Choice:
        loop = asyncio.get_running_loop()
        here = _Here(loop.create_future(), loop)
        self._put(question, here)
        try:
            return await self._timed(here.answer)
        finally:
            self.closed(question.id)

    def asked_elsewhere(self, approval: Approval, *, now: float) -> None:
        """A turn of the gateway asks; this screen may answer, too."""
        if approval.id not in self._open:
            self._put(question_of(approval, now=now), None)

    def _put(self, question: ApprovalQuestion, here: _Here | None) -> None:
        shown = self._shown(question)
        with self._services.event_lock:  # a client that joins now either hears of it or finds it
            with self._lock:
                self._open[question.id] = here
                self._asked[question.id] = frames.event("approval.request", self._sid, shown)
            self._services.emit("approval.request", self._sid, shown)

    def open_requests(self) -> list[Frame]:
        with self._lock:
            return list(self._asked.values())

    def closed(self, approval_id: str) -> None:
        with self._lock:
            was = approval_id in self._open
            self._open.pop(approval_id, None)
            self._asked.pop(approval_id, None)
        if was:
            self._services.emit("approval.closed", self._sid, {"approval_id": approval_id})

    def elsewhere(self) -> list[str]:
        """Those that wait in another process."""
        with self._lock:
            return [number for number, here in self._open.items() if here is None]

    @property
    def waiting(self) -> bool:
        return bool(self._asked)

    def respond(self, db: SessionDB | None, choice: str, *, everything: bool = False, only: str = "") -> int:
        """Answer the oldest, one by its id, or all; how many."""
        if choice not in get_args(Choice):
            raise RpcError(frames.BAD_VALUE, "choice must be task, once, session, always or deny")
        verdict: Choice = next(one for one in get_args(Choice) if one == choice)
        with self._lock:
            wanted = [number for number in self._open if not only or number == only]
            chosen = {number: self._open[number] for number in (wanted if everything else wanted[:1])}
        for number, here in chosen.items():
            if here is not None:
                here.give(verdict)
            elif db is not None:
                db.approvals.decide(number, verdict, approver_id=LOCAL_OWNER)  # the first answer counts
            self.closed(number)
        return len(chosen)

    def leave(self) -> None:
        """Nobody answers here any more: our own turn's questions are denied, others' are for others to answer."""
        with self._lock:
            asked, clarify = dict(self._open), list(self._clarify.values())
        for one in clarify:
            one.give("")
        for number, here in asked.items():
            if here is not None:
                here.give("deny")
            self.closed(number)

    def _shown(self, question: ApprovalQuestion) -> Mapping[str, Any]:
        db = self._services.get_db()
        person = None if db is None or question.person_id is None else db.people.get(question.person_id)
        whom = "you" if person is None else f"{person.display_name or 'you'} ({person.role})"
        return {**_shown(question), "requester": whom}

    # -- the model's own -----------------------------------------------------------------------------------

    async def clarify(self, question: str, choices: tuple[str, ...]) -> str:
        """The person's answer; empty when none came in time, or nobody is there any more."""
        loop, number = asyncio.get_running_loop(), uuid.uuid4().hex[:8]
        here = _Here(loop.create_future(), loop)
        shown = {"question": question, "choices": list(choices), "request_id": number}
        with self._services.event_lock:  # a client that joins now either hears of it or finds it
            with self._lock:
                self._clarify[number] = here
                self._asked[number] = frames.event("clarify.request", self._sid, shown)
            self._services.emit("clarify.request", self._sid, shown)
        try:
            async with asyncio.timeout(_CLARIFY_SECONDS):
                return await self._timed(here.answer)
        except TimeoutError:
            return ""
        finally:
            with self._lock:
                self._clarify.pop(number, None)
                self._asked.pop(number, None)
            self._services.emit("clarify.expire", self._sid, {"request_id": number})

    def answered(self, number: str, answer: str) -> bool:
        """`clarify.respond`: the first answer counts; False when nobody waits under that id."""
        with self._lock:
            here = self._clarify.pop(number, None)
        if here is not None:
            here.give(answer)
        return here is not None

    async def _timed(self, answer: asyncio.Future[T]) -> T:
        began = time.monotonic()
        try:
            return await answer
        finally:
            self.waited += time.monotonic() - began


def _settle(answer: asyncio.Future[Any], said: Any) -> None:
    if not answer.done():
        answer.set_result(said)


def _shown(question: ApprovalQuestion) -> Mapping[str, Any]:
    """The exact command; what a person must not see on a screen that others may look at is covered."""
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
        "wall": question.wall,
        "content": redaction.redacted(question.content),
        "measure": approval_text.measure(question.command),
        "expires_in": round(question.seconds, 1),
    }
