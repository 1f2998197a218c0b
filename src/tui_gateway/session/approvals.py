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
from dataclasses import dataclass, field
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
    from tui_gateway.session.services import Emit, RpcServices
    from tui_gateway.wire.frames import Frame


T = TypeVar("T")
_Thread = threading.Thread  # as in `transports`
_CLARIFY_SECONDS = 300.0


@dataclass(slots=True)
class _Here:
    """A question of a turn that runs in this process."""

    answer: asyncio.Future[Choice]
    loop: asyncio.AbstractEventLoop

    def give(self, choice: Choice) -> None:
        self.loop.call_soon_threadsafe(_settle, self.answer, choice)


class SessionApprovals:
    """Of one live session. It is the `Approver` of its agents."""

    def __init__(self, host: RpcServices, sid: str) -> None:
        self._host, self._sid = host, sid
        self._lock = threading.Lock()
        self._open: dict[str, _Here | None] = {}
        """By approval; None for one that another process waits for."""
        self._asked: dict[str, Frame] = {}
        """How they were put."""
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
        with self._host.telling:  # whoever comes now either hears of it or finds it
            with self._lock:
                self._open[question.id] = here
                self._asked[question.id] = frames.event("approval.request", self._sid, shown)
            self._host.emit("approval.request", self._sid, shown)

    def open_requests(self) -> list[Frame]:
        with self._lock:
            return [self._asked[number] for number in self._open]

    def closed(self, approval_id: str) -> None:
        with self._lock:
            was = approval_id in self._open
            self._open.pop(approval_id, None)
            self._asked.pop(approval_id, None)
        if was:
            self._host.emit("approval.closed", self._sid, {"approval_id": approval_id})

    def elsewhere(self) -> list[str]:
        """Those that wait in another process."""
        with self._lock:
            return [number for number, here in self._open.items() if here is None]

    @property
    def waiting(self) -> bool:
        return bool(self._open)

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
            asked = dict(self._open)
        for number, here in asked.items():
            if here is not None:
                here.give("deny")
            self.closed(number)

    def _shown(self, question: ApprovalQuestion) -> Mapping[str, Any]:
        db = self._host.get_db()
        person = None if db is None or question.person_id is None else db.people.get(question.person_id)
        whom = "you" if person is None else f"{person.display_name or 'you'} ({person.role})"
        return {**_shown(question), "requester": whom}

    # -- the model's own -----------------------------------------------------------------------------------

    async def clarify(self, question: str, choices: tuple[str, ...]) -> str | None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def wait() -> None:
            payload = {"question": question, "choices": list(choices)}
            said = self._host.block("clarify.request", self._sid, payload, _CLARIFY_SECONDS)
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, answer, said)

        # A thread of its own: a person's pause must not use up the few that the agents' loop has for the store.
        _Thread(target=wait, daemon=True, name="clarify").start()
        try:
            return await self._timed(answer)
        except asyncio.CancelledError:  # the turn was stopped
            self._host.release(self._sid)
            raise

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


_OVER = {"sudo.request": "sudo.expire", "secret.request": "secret.expire", "clarify.request": "clarify.expire"}


@dataclass(slots=True)
class _Request:
    sid: str
    frame: Frame
    """As it was put."""
    rung: threading.Event = field(default_factory=threading.Event)
    answer: str = field(default="", repr=False)


class ClientRequests:
    """Of one server."""

    def __init__(self, emit: Emit, telling: threading.RLock) -> None:
        self._emit, self._telling = emit, telling
        self._lock = threading.Lock()
        self._open: dict[str, _Request] = {}

    def block(self, event: str, sid: str, payload: Mapping[str, Any], timeout: float = 300) -> str:
        """Ask the clients and wait; the answer, or nothing when none came in time."""
        rid = uuid.uuid4().hex[:8]
        shown = {**payload, "request_id": rid}
        request = _Request(sid, frames.event(event, sid, shown))
        with self._telling:  # whoever comes now either hears of it or finds it
            with self._lock:
                self._open[rid] = request
            self._emit(event, sid, shown)
        request.rung.wait(timeout)
        with self._lock:
            self._open.pop(rid, None)
        self._emit(_OVER[event], sid, {"request_id": rid})
        return request.answer

    def open_requests(self, sid: str) -> list[Frame]:
        with self._lock:
            return [request.frame for request in self._open.values() if request.sid == sid]

    def answered(self, request_id: str, answer: str) -> bool:
        """False when nobody waits under that id, or an answer was quicker."""
        with self._lock:  # all of it: a wait that ends at this moment must not miss what was taken
            request = self._open.pop(request_id, None)
            if request is None:
                return False
            request.answer = answer
            request.rung.set()
            return True

    def release(self, sid: str) -> None:
        """Whoever waits for an answer in this session gets an empty one."""
        with self._lock:
            mine = [rid for rid, request in self._open.items() if request.sid == sid]
        for rid in mine:
            self.answered(rid, "")
