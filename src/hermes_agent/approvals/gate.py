"""The one way to permission: every call that executes or changes something passes `CommandGate.permit`.

In order: the floor, which nothing passes; deny rules; the mode and an explicit yolo, which pass what is left; then
what the judge finds harmless and what `command_allowlist` names; then a person's standing approvals; then a question.
(A harmless call is let through before standing approvals are looked up: the outcome is the same without a read.)

A question is a row before a person sees it, bound to the turn, the person and the exact call, and it is the row that
permits: whatever answers it — the surface that asked, another one, nobody — the call runs only if `spend` finds leave
for it, under the turn's fence, and uses it up. No approver, no answer in time, an approver that fails and an answer
nobody understands are denials, and so is the same call later in the turn. After a restart the turn finds its question:
answered, open for the rest of its time, or lapsed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hermes_agent.approvals.base import ApprovalQuestion, Approver, Choice, Judgement, Yolo
from hermes_agent.approvals.policy import Policy, read_policy
from hermes_agent.tools.base import Action, Verdict
from hermes_config.records import field, record
from hermes_state.ids import ConversationId, PersonId, TurnId

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.approvals import Approval

log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.25
_ALLOWED = Verdict(True)


@record(kw_only=True)
class _Turn:
    """What all gates of a turn share."""

    db: SessionDB
    home: Path
    workspace: Path | None
    config: Mapping[str, Any]
    conversation_id: ConversationId
    turn_id: TurnId
    person_id: PersonId | None
    approver: Approver | None
    approver_id: PersonId | None
    fence: int | None
    yolo: Yolo
    platform: str
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A person is asked one question at a time."""

    @property
    def policy(self) -> Policy:
        """Read when a call asks for permission: most turns make none."""
        return read_policy(self.config)


class CommandGate:
    """Permission for the calls of one turn. `for_call` gives the gate that a tool's context carries."""

    def __init__(
        self,
        *,
        db: SessionDB,
        home: Path,
        config: Mapping[str, Any],
        conversation_id: ConversationId,
        turn_id: TurnId,
        person_id: PersonId | None,
        approver: Approver | None,
        approver_id: PersonId | None = None,
        fence: int | None = None,
        yolo: Yolo | None = None,
        platform: str = "",
        workspace: Path | None = None,
    ) -> None:
        """`workspace`: where commands and writes need no question; without it, wherever a call runs."""
        self._turn = _Turn(
            db=db, home=home, workspace=workspace, config=config, conversation_id=conversation_id,
            turn_id=turn_id, person_id=person_id, approver=approver, approver_id=approver_id, fence=fence,
            yolo=yolo or Yolo(), platform=platform,
        )  # fmt: skip
        self._call_id = self._mark = ""
        self._extra: tuple[str, ...] = ()

    def for_call(self, call_id: str, *, mark: str = "", extra_reasons: Sequence[str] = ()) -> CommandGate:
        """The same gate for one tool call; `extra_reasons` (a plug-in's) make it ask whatever the judge says.

        `mark`: the name of the call's own mark, which no other call of the turn has.
        """
        gate = CommandGate.__new__(CommandGate)
        gate._turn, gate._call_id, gate._extra, gate._mark = self._turn, call_id, tuple(extra_reasons), mark
        return gate

    async def was_waiting(self, mark: str) -> bool:
        """Whether a call that a lost process had begun was still waiting for leave: then nothing of it was done.

        A call asks for all it needs before it does anything, and leave for once is used up before that. Leave that
        became a standing rule may have served already, so after it nobody knows.
        """
        rows = await asyncio.to_thread(self._turn.db.approvals.of_turn, self._turn.turn_id)
        own = [row for row in rows if mark and row.call.get("mark") == mark]
        return bool(own) and all(row.state != "used" and row.scope in (None, "once") for row in own)

    async def permit(self, action: Action) -> Verdict:
        judged = _judged(action, self._turn)
        if judged.level == "never":
            return Verdict(False, f"Hermes never does this: {judged.why}. No approval can change that; do not retry")
        policy = self._turn.policy
        rule = policy.denied(action.text, judged.calls)
        if rule:
            return Verdict(False, f"the rule {rule!r} of approvals.deny forbids this; do not retry or work around it")
        if policy.mode == "off" or self._turn.yolo.on:
            return _ALLOWED
        asks = policy.asks(action.text, judged.calls)
        reasons = [*self._extra, *([f"the rule {asks!r} of approvals.ask"] if asks else [])]
        if not reasons and (judged.level == "harmless" or policy.allows(action.text, judged)):
            return _ALLOWED
        return await self._with_leave(action, "; ".join(filter(None, [*reasons, judged.why])))

    async def _with_leave(self, action: Action, why: str) -> Verdict:
        """Allowed when a row says so: a standing rule, an answer that is there already, or one given now."""
        call_hash = _hash(action, self._extra)
        if await self._spend(call_hash):
            return _ALLOWED
        approver = self._turn.approver
        if approver is None:
            return _denial(why, "there is nobody here who could be asked")
        async with self._turn.asking:
            asked = await asyncio.to_thread(self._ask, action, call_hash, why)
            left = asked.expires_at - self._turn.db.clock()
            choice: Choice | None = None
            if asked.state == "pending" and left > 0:
                choice = await self._put(approver, self._question(action, asked, why, left))
            if await self._spend(call_hash):
                return _ALLOWED
        unanswered = choice is None and asked.state != "denied"
        return _denial(why, "nobody answered in time" if unanswered else await self._said_no(asked.id))

    def _ask(self, action: Action, call_hash: str, why: str) -> Approval:
        turn = self._turn
        call = {
            "kind": action.kind, "text": action.text, "workdir": action.workdir, "detail": action.detail, "why": why,
            "call_id": self._call_id, "mark": self._mark, "platform": turn.platform,
        }  # fmt: skip
        return turn.db.approvals.ask(
            conversation_id=turn.conversation_id, turn_id=turn.turn_id, call_hash=call_hash, call=call,
            requester_id=turn.person_id, approver_id=turn.approver_id, seconds=turn.policy.seconds, fence=turn.fence,
        )  # fmt: skip

    async def _spend(self, call_hash: str) -> bool:
        turn = self._turn
        granted = await asyncio.to_thread(
            turn.db.approvals.spend, conversation_id=turn.conversation_id, turn_id=turn.turn_id, call_hash=call_hash,
            person_id=turn.person_id, fence=turn.fence,
        )  # fmt: skip
        return granted is not None

    async def _said_no(self, question_id: str) -> str:
        """How it was denied: by a person, perhaps with a word about it, or because nobody could be asked."""
        row = await asyncio.to_thread(self._turn.db.approvals.get, question_id)
        reason = " ".join(((row.reason if row is not None else "") or "").split())
        if not reason:
            return "the person said no"
        return reason if row is not None and row.approver_id is None else f"the person said no: {reason}"

    def _question(self, action: Action, asked: Approval, why: str, left: float) -> ApprovalQuestion:
        turn = self._turn
        choices: tuple[Choice, ...] = ("once", "session", "always", "deny") if turn.person_id else ("once", "deny")
        return ApprovalQuestion(
            id=asked.id, kind=action.kind, command=action.text, workdir=action.workdir, detail=action.detail, why=why,
            conversation_id=turn.conversation_id, turn_id=turn.turn_id, call_id=self._call_id,
            person_id=turn.person_id, platform=turn.platform, expires_at=asked.expires_at, seconds=left,
            choices=choices,
        )  # fmt: skip

    async def _put(self, approver: Approver, question: ApprovalQuestion) -> Choice | None:
        """The answer, written down; None when nobody gave one in time. Another surface may answer the row first."""
        await self._tell("pre_approval_request", question)
        answering = asyncio.ensure_future(_answer(approver, question))
        elsewhere = asyncio.ensure_future(self._answered_elsewhere(question.id))
        try:
            done, _ = await asyncio.wait(
                (answering, elsewhere), timeout=question.seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (answering, elsewhere):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        choice: Choice | None = None
        if answering in done:
            choice = answering.result()
            if choice in ("session", "always") and choice not in question.choices:
                choice = "once"  # nobody we know has standing rules; what was meant covers this one call
            await asyncio.to_thread(
                self._turn.db.approvals.decide, question.id, choice, approver_id=self._turn.approver_id
            )
        elif elsewhere in done:
            choice = elsewhere.result()
        await self._tell("post_approval_response", question, choice=choice or "timeout")
        return choice

    async def _answered_elsewhere(self, question_id: str) -> Choice:
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            row = await asyncio.to_thread(self._turn.db.approvals.get, question_id)
            if row is None or row.state != "pending":
                return next((one for one in get_args(Choice) if row is not None and one == row.scope), "deny")

    async def _tell(self, hook: str, question: ApprovalQuestion, **more: str) -> None:
        from hermes_agent import context  # where hooks are not used nothing of this is imported
        from hermes_cli import plugins

        await plugins.ainvoke_hook(
            hook, None, command=question.command, description=question.why, pattern_key=question.kind,
            pattern_keys=[question.kind], session_key=context.get_session_env("HERMES_SESSION_KEY"),
            surface="cli" if question.platform in ("", "cli") else "gateway", turn_id=question.turn_id,
            tool_call_id=question.call_id, **more,
        )  # fmt: skip


async def _answer(approver: Approver, question: ApprovalQuestion) -> Choice:
    """What the approver says. This is the boundary to a surface: whatever goes wrong in it is a denial."""
    try:
        choice = await approver.ask(question)
    except Exception as error:  # noqa: BLE001 - the boundary to a surface
        log.warning("an approver failed: %s", type(error).__name__, extra={"action": "approval", "id": question.id})
        return "deny"
    return choice if choice in get_args(Choice) else "deny"


def _judged(action: Action, turn: _Turn) -> Judgement:
    """What would happen. A judge that fails has not shown that the floor is kept, so nothing may pass."""
    from hermes_agent.approvals.shell import judge  # brings the parser

    workspace = str(turn.workspace) if turn.workspace is not None else action.workdir
    try:
        found = judge.judge_action(
            action.kind, action.text, workdir=action.workdir, home=str(turn.home), workspace=workspace
        )
        calls = tuple(" ".join(program.words) for program in found.programs)
        return Judgement("harmless" if found.level == "run" else found.level, found.why, calls)
    except Exception as error:
        log.exception("a call could not be judged", extra={"action": "approval", "kind": action.kind})
        return Judgement("never", f"it could not be judged ({type(error).__name__})")


def _hash(action: Action, extra: Sequence[str]) -> str:
    """The exact call. A command is its text and place; for anything else what is done there belongs to it."""
    detail = "" if action.kind == "command" else action.detail
    exact = json.dumps([action.kind, action.text, action.workdir, detail, list(extra)])
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def _denial(why: str, how: str) -> Verdict:
    needs = f"It needs a person because {why}. Do not retry or work around it"
    return Verdict(False, f"it was not approved: {how}. {needs}")
