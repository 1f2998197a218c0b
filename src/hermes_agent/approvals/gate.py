"""The permission gate: every call that executes or changes something passes `CommandGate.permit`.

The executor's sandbox confines a command; the gate decides whether the sandbox must be opened, and whom to ask. It
checks in order: the floor, which nothing passes; deny rules; then the needs of the call. A call without needs runs
confined. The owner's configuration, existing grants, or a person's yes can cover a need; otherwise the call is refused.

A question is stored as a row before a person sees it, bound to the turn, the person and the exact call, and its answer
becomes grants. Only grants permit: whichever surface answers the question, the call runs only if `spend` finds grants
for all its needs, under the turn's fence, and uses them. No approver, no answer in time, a failing approver and an
unintelligible answer are denials, and so is the same call later in the turn. After a restart the turn finds its
question: answered, still open, or expired.

The permit of a yes holds the hash of exactly what was permitted; the executor compares it with its input.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import os.path
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, get_args

from hermes_agent import context, hooks, process_identity
from hermes_agent.approvals import policy, targets, text
from hermes_agent.approvals.types import CHOICES, ApprovalQuestion, Approver, Choice, Judgement, Need, Yolo, question_of
from hermes_agent.execution.base import CLOSED, Permit, SandboxKind, SandboxOpening, content_digest, digest
from hermes_agent.text import brief
from hermes_agent.tools.base import Action, GateDecision, PersonWait
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.turns.approvals import Exit, Wanted

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns.approvals import Approval

log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.25
_JUDGE_SECONDS = 1.0
_JUDGED_KINDS = ("command", "write", "read")
_OPENINGS = ("network", "folder", "file", "host")
_UNCONFINED = {"read": "reads it", "plugin": "a plug-in", "reach": "a target from outside"}
_TOOL_KINDS = ("plugin", "mcp", "reach")
"""Kinds whose text is a tool's name and its arguments."""
_ALLOWED = GateDecision(True)


@dataclass(frozen=True, slots=True)
class _Reason:
    """One reason to ask. `kind`: a need's, `tool`, `target`, `rule` or `file` (a folder that is not opened as a whole).

    `Grant.covers` decides what permits it; other kinds than folder, network, tool and target need a grant of the exact
    call.
    """

    kind: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call and the reasons to ask about it."""

    action: Action
    reasons: tuple[_Reason, ...]
    opening: SandboxOpening
    bound: str
    """The hash of the exact call, which the permit carries."""
    hash: str
    """The hash including plug-ins' reasons: an approval without them does not cover a call with them."""
    names: tuple[str, ...] = ()
    """What the line of a command that leaves the sandbox names: perhaps files."""

    @property
    def why(self) -> str:
        return "; ".join(dict.fromkeys(reason.why for reason in self.reasons if reason.why))

    @property
    def needs_opening(self) -> bool:
        return any(reason.kind in _OPENINGS for reason in self.reasons)

    @property
    def verdict(self) -> GateDecision:
        """Allow the call; with a permit if it needs an opening in the sandbox, or a change of the workspace, which may
        also change protected files."""
        approved = bool(self.opening) or (
            self.action.kind == "command" and any(r.kind == "change" for r in self.reasons)
        )
        return GateDecision(True, permit=Permit(self.bound, self.opening) if approved else None)

    @property
    def leaves(self) -> Exit | None:
        """The log entry for a call that leaves the sandbox; None for one that stays inside."""
        action = self.action
        unconfined = action.place or _UNCONFINED.get(action.kind, "")
        shown = self.opening.shown or (unconfined if self.reasons else "")
        return Exit(action.kind, action.text, action.workdir, shown, self.bound) if shown else None

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        return tuple(Wanted(reason.kind, reason.value, _arguments(self.action)) for reason in self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGate:
    """The permission gate of one turn. `for_call` returns the gate for a single call."""

    db: SessionDB
    home: Path
    config: Config
    sandbox: SandboxKind
    """The sandbox around a command that nobody approved."""
    conversation_id: ConversationId
    turn_id: TurnId
    person_id: PersonId | None
    approver: Approver | None
    approver_id: PersonId | None = None
    fence: int | None = None
    yolo: Yolo = field(default_factory=Yolo)
    platform: str = ""
    workspace: Path | None = None
    """The folder in which commands and writes need no question; by default each call's working directory."""
    task_id: TurnId | None = None
    """The turn that started this one, to whose task it belongs; None: this turn itself."""
    asks_for: str = ""
    """The goal of a child conversation, which its questions name."""
    call_id: str = ""
    mark: str = ""
    """The name of the call's mark, unique in the turn."""
    extra_reasons: tuple[str, ...] = ()
    """Reasons of plug-ins, which make the gate ask even if the judge sees no need."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Ensures that a person is asked one question at a time."""
    open_seconds: float = 0.0
    """How long an unanswered question stays open while its turn waits; 0: it becomes a denial."""
    waits: list[str] = field(default_factory=list)
    """The questions for which the turn waits; all calls of the turn share the list."""
    person_wait: PersonWait = field(default_factory=PersonWait)
    """Measures the time that a person takes to answer."""
    answers: str = ""
    """The question that was answered while the turn waited: its answer permits this call, which is not asked again.
    What else the call needs is asked now."""

    def for_call(self, call_id: str, *, mark: str = "", extra_reasons: Sequence[str] = ()) -> CommandGate:
        """This gate, bound to one tool call."""
        return replace(self, call_id=call_id, mark=mark, extra_reasons=tuple(extra_reasons))

    # -- the decision ----------------------------------------------------------------------------------------

    async def permit(self, action: Action) -> GateDecision:
        judged = await self._judged(action)
        if judged is not None and judged.level == "never":
            return _refused(f"Hermes never does this: {judged.why}. No approval can change that")
        denied = policy.denied(self.config, action.kind, action.text, judged or _NOT_JUDGED)
        if denied:
            return _refused(denied)
        inside = action.is_write and await asyncio.to_thread(_is_inside, action.text, self._workspace(action))
        call = self._needs(action, judged, await self._unknown_targets(action), inside=inside)
        call = await self._bound_to_files(call)
        unconfined = self.sandbox == "host" and action.kind == "command"
        off = self.config.approvals.mode == "off" or self.yolo.on
        if off and self.sandbox == "host":
            if judged is None:
                return _refused("it could not be judged, and without a sandbox nobody can say that it is harmless")
            return await self._permit_by_setting(call, "executor: host")
        if not call.reasons or (off and not call.needs_opening):
            return await self._permit_by_setting(call, "executor: host") if unconfined else _ALLOWED
        if policy.allows(self.config, action.text) and action.kind == "command" and _only_seen_needs(call):
            return await self._permit_by_setting(call, "command_allowlist")
        if await self._spend(call):
            return call.verdict
        if off:
            return _refused(_not_opened(call, self.sandbox))
        return await self._permit_by_answer(call)

    async def _judged(self, action: Action) -> Judgement | None:
        """The judge's result, computed in a thread within its time limit; None without one."""
        if action.kind not in _JUDGED_KINDS:
            return Judgement("run")
        workspace = self._workspace(action)

        def judge() -> Judgement:
            from hermes_agent.approvals.shell.judge import judge_action  # brings the parser

            return judge_action(
                action.kind, action.text, workdir=action.workdir, workspace=workspace, home=str(self.home)
            )

        try:
            async with asyncio.timeout(_JUDGE_SECONDS):
                return await asyncio.to_thread(judge)
        except Exception as error:  # noqa: BLE001 - the sandbox holds whatever the judge does
            extra = {"action": "approval", "kind": action.kind, "error": type(error).__name__}
            log.warning("a call could not be judged", extra=extra)
            return None

    def _workspace(self, action: Action) -> str:
        return action.workdir if self.workspace is None else str(self.workspace)

    async def _unknown_targets(self, action: Action) -> list[_Reason]:
        """A reason for each target that neither the person nor staff named here."""
        if not action.targets:
            return []
        found = await asyncio.to_thread(
            targets.unknown, self.db, action, conversation_id=self.conversation_id, person_id=self.person_id,
            turn_id=self.turn_id, home=self.home,
        )  # fmt: skip
        return [_Reason("target", one.value, one.why) for one in found]

    def _needs(
        self, action: Action, judged: Judgement | None, unknown: Sequence[_Reason] = (), *, inside: bool
    ) -> _Call:
        """Every reason to ask about this call, and its smallest opening. `inside`: it stays in the workspace."""
        sandbox = self.sandbox
        reasons = [*unknown, *(_Reason("rule", "", why) for why in self.extra_reasons)]
        ask = policy.asks(self.config, action.kind, action.text, judged or _NOT_JUDGED)
        if ask:
            reasons.append(_Reason("rule", "", ask))
        for need in _needs_of(action, judged, sandbox):
            alone = need.kind == "folder" and (inside or _holds_a_home(need.value, str(self.home)))
            reasons.append(_Reason("file" if alone else need.kind, need.value, need.why))
        if action.outside:
            reasons += _outside(action, reasons, inside=inside)
        if sandbox == "none" and action.kind == "command":
            reasons.append(_Reason("host", "", "no sandbox works on this machine, so every command asks"))
        if action.kind in ("plugin", "mcp") and not self.extra_reasons:
            name = action.text.partition(" ")[0]
            whose = action.detail if action.kind == "mcp" else "a tool of a plug-in"
            reasons.append(_Reason("tool", name, f"{name} is {whose}"))
        elif action.kind == "spend":
            reasons.append(_Reason("rule", "", action.detail))
        elif action.kind not in (*_JUDGED_KINDS, *_TOOL_KINDS):
            reasons.append(_Reason("rule", "", f"a call of the kind {action.kind[:40]} always asks"))
        opening = _opening(action, reasons, unconfined=sandbox == "host")
        bound = _bound(action, opening)
        exact = _hash([bound, *self.extra_reasons]) if self.extra_reasons else bound
        leaves = action.kind == "command" and opening.host and reasons
        names = _names(action.text, judged) if leaves else ()
        return _Call(action=action, reasons=tuple(reasons), opening=opening, bound=bound, hash=exact, names=names)

    async def _bound_to_files(self, call: _Call) -> _Call:
        """Bind a call that leaves the sandbox to what the files of the workspace hold that its line names.

        Commands may change those files without a question, so a yes to `./deploy.sh` is one for this deploy.sh.
        """
        if not call.names:
            return call
        more = map(os.path.expanduser, self.config.sandbox.write)
        folders = (self._workspace(call.action), str(self.home / "workspace"), gettempdir(), *more)
        found = await asyncio.to_thread(_named_files, call, folders)
        exact = [call.bound, *self.extra_reasons, *found]
        return replace(call, hash=_hash(exact) if exact[1:] else call.bound)

    async def _permit_by_setting(self, call: _Call, rule: str) -> GateDecision:
        """Permit a call by the owner's configuration; a call that leaves the sandbox is logged before it runs."""
        leaves = call.leaves
        if leaves is not None:
            await asyncio.to_thread(
                self.db.approvals.log_exit, leaves, person_id=self.person_id, conversation_id=self.conversation_id,
                turn_id=self.turn_id, rule=rule, fence=self.fence,
            )  # fmt: skip
        return call.verdict

    async def _spend(self, call: _Call) -> bool:
        used = await asyncio.to_thread(
            self.db.approvals.spend, conversation_id=self.conversation_id, turn_id=self.turn_id, call_hash=call.hash,
            person_id=self.person_id, needs=call.wanted, task_id=self.task_id or self.turn_id, leaves=call.leaves,
            fence=self.fence,
        )  # fmt: skip
        return bool(used)

    # -- the question ----------------------------------------------------------------------------------------

    async def _permit_by_answer(self, call: _Call) -> GateDecision:
        """Allow the call if grants cover it, from an earlier answer or from one given now."""
        approver = self.approver
        answered = await asyncio.to_thread(self.db.approvals.get, self.answers) if self.answers else None
        if answered is not None and await asyncio.to_thread(self._was_permitted, call, answered):
            return call.verdict
        if answered is not None and _is_about(answered, call.action):
            reason = "what was approved has changed since"
            await asyncio.to_thread(self.db.approvals.revoke, self.answers, reason=reason)
            return _denial(call.why, _CHANGED)
        if approver is None:
            return _denial(call.why, f"there is nobody here who could be asked ({_BEFOREHAND})")
        async with self.asking:
            if await self._spend(call):  # the answer to the previous question may cover this call, too
                return call.verdict
            asked = await asyncio.to_thread(self._ask, call)
            now = self.db.clock()
            choice: Choice | None = None
            if asked.state == "pending" and asked.expires_at > now:
                with self.person_wait:
                    choice = await self._ask_person(approver, question_of(asked, now=now))
            if choice not in (None, "deny") and (await self._bound_to_files(call)).hash != call.hash:
                return _denial(call.why, _CHANGED)
            if await self._spend(call):
                return call.verdict
            unanswered = choice is None and asked.state != "denied"
            if unanswered and self.open_seconds and await asyncio.to_thread(self._is_open, asked.id):
                self.waits.append(asked.id)
                return GateDecision(False, _waiting(asked.id, self.open_seconds))
        return _denial(call.why, "nobody answered in time" if unanswered else await self._denial_reason(asked.id))

    def _ask(self, call: _Call) -> Approval:
        action = call.action
        needs = [[reason.kind, reason.value] for reason in call.reasons]
        choices = _choices(call, known=self.person_id is not None)
        shown = {
            "kind": action.kind, "text": action.text, "workdir": action.workdir, "detail": action.detail,
            "why": f"{call.why} · for the delegated task “{brief(self.asks_for)}”" if self.asks_for else call.why,
            "call_id": self.call_id, "mark": self.mark, "platform": self.platform,
            "machine": process_identity.machine(),
            "needs": needs, "task": self.task_id or self.turn_id, "choices": list(choices),
            "labels": text.labels(action.kind, needs, choices),
            "sandbox": action.place or text.opens(action.kind, self.sandbox, call.opening.shown),
            "content": text.difference(action.before, action.after) if _has_content(action) else "",
        }  # fmt: skip
        return self.db.approvals.ask(
            conversation_id=self.conversation_id, turn_id=self.turn_id, call_hash=call.hash, call=shown,
            requester_id=self.person_id, approver_id=self.approver_id, fence=self.fence,
            seconds=max(self.config.approvals.timeout, self.open_seconds),
        )  # fmt: skip

    def _was_permitted(self, call: _Call, answered: Approval) -> bool:
        """Whether this was allowed once before the turn waited for another answer that the same tool call needs."""
        mark = answered.call.get("mark")
        once = [one for one in self.db.approvals.of_turn(self.turn_id) if (one.state, one.scope) == ("used", "once")]
        return bool(mark) and any((one.call_hash, one.call.get("mark")) == (call.hash, mark) for one in once)

    def _is_open(self, question_id: str) -> bool:
        row = self.db.approvals.get(question_id)
        return row is not None and row.state == "pending" and row.expires_at > self.db.clock()

    async def _denial_reason(self, question_id: str) -> str:
        """The reason for the denial: the person's no, with their reason if any, or that nobody could be asked."""
        row = await asyncio.to_thread(self.db.approvals.get, question_id)
        reason = " ".join(((row.reason if row is not None else "") or "").split())
        if not reason:
            return "the person said no"
        return reason if row is not None and row.approver_id is None else f"the person said no: {reason}"

    async def _ask_person(self, approver: Approver, question: ApprovalQuestion) -> Choice | None:
        """Ask, store and return the answer; None if there was none in time. Another surface may answer first."""
        await self._fire("pre_approval_request", question)
        answering = asyncio.ensure_future(_answer(approver, question))
        elsewhere = asyncio.ensure_future(self._answered_elsewhere(question.id))
        try:
            done, _ = await asyncio.wait(
                (answering, elsewhere),
                timeout=min(question.seconds, self.config.approvals.timeout),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in (answering, elsewhere):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        choice: Choice | None = None
        if answering in done:
            choice = answering.result()
            # Without a named approver, the surface asked the turn's own person.
            who = self.approver_id or self.person_id
            await asyncio.to_thread(self.db.approvals.decide, question.id, choice, approver_id=who)
        elif elsewhere in done:
            choice = elsewhere.result()
        await self._fire("post_approval_response", question, choice=choice or "timeout")
        return choice

    async def _answered_elsewhere(self, question_id: str) -> Choice:
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            row = await asyncio.to_thread(self.db.approvals.get, question_id)
            if row is None or row.state != "pending":
                return next((one for one in get_args(Choice) if row is not None and one == row.scope), "deny")

    async def _fire(self, hook: str, question: ApprovalQuestion, **more: str) -> None:
        await hooks.fire(
            hook, command=question.command, description=question.why, pattern_key=question.kind,
            pattern_keys=[question.kind], session_key=context.get_session_env("HERMES_SESSION_KEY"),
            surface="cli" if question.platform in ("", "cli") else "gateway", turn_id=question.turn_id,
            tool_call_id=question.call_id, **more,
        )  # fmt: skip


_CHANGED = "what was approved is not what would happen now: something has changed since"
_BEFOREHAND = "start hermes without -q to be asked, or permit it beforehand: hermes approvals add --help"
_NOT_JUDGED = Judgement("run", understood=False)


async def _answer(approver: Approver, question: ApprovalQuestion) -> Choice:
    """The approver's answer. Any error of the surface counts as a denial."""
    try:
        choice = await approver.ask(question)
    except Exception as error:  # noqa: BLE001 - the boundary to a surface
        log.warning("an approver failed: %s", type(error).__name__, extra={"action": "approval", "id": question.id})
        return "deny"
    return choice if choice in get_args(Choice) else "deny"


def _is_about(question: Approval, action: Action) -> bool:
    return all(question.call.get(name) == getattr(action, name) for name in ("kind", "text", "workdir"))


def _needs_of(action: Action, judged: Judgement | None, sandbox: SandboxKind) -> tuple[Need, ...]:
    """The needs that the judge found. Without a sandbox, and for file tools, an unjudged call asks."""
    if judged is None:
        confined = action.kind == "command" and sandbox not in ("none", "host")
        return () if confined else (Need("host", "", "it could not be judged"),)
    if judged.level == "ask" and not judged.needs:
        return (Need("host", "", judged.why),)
    return judged.needs


def _holds_a_home(folder: str, home: str) -> bool:
    """Whether a folder contains the person's home or is part of the Hermes home: too much to open as a whole."""
    ours, theirs = os.path.realpath(home), os.path.realpath(Path.home())
    holds = any(one == folder or one.startswith(folder.rstrip("/") + "/") for one in (ours, theirs))
    return holds or folder.startswith(ours + "/")


def _outside(action: Action, reasons: Sequence[_Reason], *, inside: bool) -> list[_Reason]:
    """The reason for a command that the model asks to run outside the sandbox, or for a file outside the workspace."""
    if action.kind == "command":
        return [_Reason("host", "", "Hermes asks to run exactly this outside the sandbox")]
    if action.kind != "write" or any(reason.kind in _OPENINGS for reason in reasons):
        return []
    folder = action.text.rpartition("/")[0] or "/"
    return [_Reason("file" if inside else "folder", folder, f"{action.text} is not an ordinary file of the workspace")]


def _is_inside(path: str, workspace: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(workspace) + "/")


def _opening(action: Action, reasons: Sequence[_Reason], *, unconfined: bool) -> SandboxOpening:
    """The smallest opening that covers these reasons."""
    kinds = {reason.kind for reason in reasons}
    if action.kind == "command" and (unconfined or "host" in kinds):
        return SandboxOpening(host=True)
    if action.kind not in ("command", "write"):
        return CLOSED
    if "host" in kinds:
        return SandboxOpening(host=True)
    folders = sorted({reason.value for reason in reasons if reason.kind in ("folder", "file")})
    return (
        SandboxOpening(network="network" in kinds, folders=tuple(folders))
        if kinds & {"network", "folder", "file"}
        else CLOSED
    )


def _bound(action: Action, opening: SandboxOpening) -> str:
    """The hash of the exact effect: the executor's input, or a file's new content."""
    if action.kind == "command" and not action.detail:
        return digest(action.text, action.workdir, opening)
    if _has_content(action):
        return content_digest(action.text, action.before, action.after)
    # Here the detail of a command names the process that reads it: a yes for one is none for another.
    # The cost of a model call differs from call to call; a lasting approval covers all of them.
    return _hash([action.kind, action.text, action.workdir, "" if action.kind == "spend" else action.detail])


_NAME = re.compile(r"[^\s'\"`;|&<>()$={}]+")
_WRITTEN = re.compile(r"(?<!<)>{1,2}\|?\s*[^\s;|&<>()]+")
"""Where output goes: such a file holds something else after each run."""
_MOST_NAMES, _MOST_FOLDERS, _HASHED_BYTES = 1_000, 50, 1024 * 1024


def _names(line: str, judged: Judgement | None) -> tuple[str, ...]:
    """Everything that may be a path in a line: its words as they are written, and as the shell makes them."""
    written = _NAME.findall(re.sub(r"\$\w+", " ", _WRITTEN.sub(" ", line.replace("~/", f"{Path.home()}/"))))
    made = () if judged is None else itertools.chain.from_iterable(one.words for one in judged.programs)
    names: dict[str, None] = {}
    for word in (*written, *made):  # also in `@FILE`, `FILE:/there` and `-fFILE`; in `$(pwd)/FILE` it begins with /
        parts = (word, word.lstrip("/"), *re.split("[:,@]", word), word[2:] if word.startswith("-") else "")
        names |= dict.fromkeys(filter(None, parts))
    return tuple(names)[:_MOST_NAMES]


def _named_files(call: _Call, folders: Iterable[str]) -> list[str]:
    """The files in these folders that a command names, each with what it holds: also below folders that it names."""
    ours = [os.path.realpath(folder).rstrip("/") + "/" for folder in folders]
    starts, found = [call.action.workdir], set[str]()
    for start in starts:
        for path in _existing(start, call.names):
            real = os.path.realpath(path)
            written, held = (any(f"{one}/".startswith(folder) for folder in ours) for one in (path, real))
            if not (written or held) or real in starts:
                continue
            if not Path(real).is_dir():
                found.add(f"{path}\0{real}\0{_content(Path(real)) if held else ''}")
            elif len(starts) < _MOST_FOLDERS:
                starts.append(real)
    return sorted(found)


def _existing(start: str, names: Iterable[str]) -> Iterator[str]:
    """What is there under these names. A pattern counts in the last part of a path."""
    for name in names:
        path = Path(start, name)
        with suppress(OSError, ValueError):  # it is no path
            found = path.parent.glob(re.sub(r"\*+", "*", path.name)) if re.search(r"[*?[]", path.name) else ()
            every = (path, *itertools.islice(found, _MOST_NAMES))
            yield from filter(os.path.lexists, map(os.path.normpath, every))


def _content(path: Path) -> str:
    """The hash of a file; of a large or closed one, or a pipe, the facts that change with every write."""
    try:
        facts = path.stat()
        if stat.S_ISREG(facts.st_mode) and facts.st_size <= _HASHED_BYTES and os.access(path, os.R_OK):
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"
    except OSError:
        return "gone"


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode("utf-8", "surrogatepass")).hexdigest()


def _has_content(action: Action) -> bool:
    return action.is_write and (action.before is not None or action.after is not None)


def _arguments(action: Action) -> Mapping[str, Any] | None:
    """The arguments of a plug-in's tool, for grants with patterns."""
    if action.kind not in _TOOL_KINDS:
        return None
    try:
        found = json.loads(action.text.partition(" ")[2] or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _only_seen_needs(call: _Call) -> bool:
    """Whether only the command's own needs ask: no rule, no plug-in, no request of the model to run outside."""
    return not call.action.outside and all(reason.kind != "rule" for reason in call.reasons)


def _choices(call: _Call, *, known: bool) -> tuple[Choice, ...]:
    """The possible answers.

    Writing outside is never allowed for always, because the content differs each time. A costly model call is allowed
    for its task at most, because the cost of later ones is not known.
    """
    if not known:
        return ("once", "deny")
    if call.action.kind == "spend":
        return ("task", "once", "deny")
    writes = call.action.is_write or any(reason.kind == "folder" for reason in call.reasons)
    return tuple(one for one in CHOICES if one != "always" or not writes)


def _not_opened(call: _Call, sandbox: SandboxKind) -> str:
    return (
        f"nobody is asked here (approvals are off) and it would leave the sandbox ({call.why})."
        " Stay inside, or tell the owner: approvals.mode manual asks them, command_allowlist permits one exact command"
        + ("" if sandbox == "none" else ", executor: host removes the sandbox")
    )


def _refused(why: str) -> GateDecision:
    return GateDecision(False, f"{why}. Do not retry or work around it")


def _waiting(question_id: str, seconds: float) -> str:
    return (
        f"it waits for permission. A person was asked ({question_id}) and has not answered yet, so it was not done."
        f" The question stays open for {text.wait(seconds)}. Once it is answered, exactly this call runs, and its"
        " result is added to the conversation. Do not make the call again"
    )


def _denial(why: str, how: str) -> GateDecision:
    return _refused(f"it was not approved: {how}. It needs a person because {why}")
