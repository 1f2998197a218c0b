"""The loop of one turn: ask the model, run its tools, again, until it has an answer.

    user's row → [ compress? → ask → step's row → calls → results' rows ] … → commit

Everything that happened is stored before the next thing happens outside, so the loop has no state of its own that
matters: a turn that was killed is taken up by looking at its last rows (`recovery`). It ends in exactly one `Outcome`,
written down by the journal together with the last row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_agent import compacting, hooks
from hermes_agent.models.base import Endpoint, ErrorKind, ModelError, Reply, ToolCall
from hermes_agent.prompt import transcript
from hermes_agent.prompt.transcript import TranscriptCache
from hermes_agent.setup import Setup
from hermes_agent.turn import control, tool_calls
from hermes_agent.turn.callbacks import Callbacks
from hermes_agent.turn.control import Signals, Stop
from hermes_agent.turn.model_step import Asker, Interrupted, Spent
from hermes_agent.turn.recovery import PendingCalls
from hermes_agent.turn.tool_calls import Workbench
from hermes_config.errors import HermesError
from hermes_state.errors import StaleFence
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import OutboxItem, Parcel
from hermes_state.turns.turns import EndState

_log = logging.getLogger("hermes.agent")
_EMPTY_TRIES = 2
_BAD_CALLS = 3
NO_ANSWER = "The model gave no answer. This may pass: try again, or say it in other words."


@dataclass(slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended."""

    text: str | None
    exit_reason: str
    spent: Spent
    endpoint: Endpoint
    failed: bool = False
    partial: bool = False
    interrupted: bool = False
    error: str | None = None
    error_kind: ErrorKind | None = None
    """What kind of model error it was; None for every other end."""
    compression_exhausted: bool = False
    reasoning: str | None = None
    transformed: bool = False
    steps: int = 0
    owed: OutboxItem | None = None
    """What a chat is owed for it, when a chat asked."""


def nothing_owed(state: EndState, outcome: TurnOutcome) -> Parcel | None:
    """For turns that nobody but their caller waits for."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A turn's parts."""

    setup: Setup
    track: TranscriptCache
    journal: Journal
    asker: Asker
    bench: Workbench
    listeners: Callbacks
    signals: Signals
    stop: Stop
    compactor: compacting.Compactor
    owe: Callable[[EndState, TurnOutcome], Parcel | None] = nothing_owed
    facts: Mapping[str, Any] = field(default_factory=dict)


async def run(turn: Running, *, pending: PendingCalls | None = None) -> TurnOutcome:
    """To the end, whatever comes. Only losing the lease is the caller's business: then nothing may be written."""
    async with LeaseKept(turn.journal, turn.setup.lease_seconds):
        try:
            return await _loop(turn, pending)
        except Interrupted as stopped:
            return await _interrupted(turn, stopped.text)
        except ModelError as error:
            return await _failed(turn, error)


async def _loop(turn: Running, pending: PendingCalls | None) -> TurnOutcome:
    empty, bad = 0, 0
    if pending is not None and pending.calls:
        await _run_calls(turn, pending.mark, pending.calls, first=pending.first)
    for step in range(turn.setup.max_steps):
        if turn.signals.stopped:
            raise Interrupted("")
        await turn.compactor.before_call(turn.asker)
        reply = await turn.compactor.asked(turn.asker, turn.stop)
        if not reply.tool_calls:
            text = (reply.content or "").strip()
            if text:
                return await _answered(turn, reply, text, step + 1)
            empty += 1
            if empty > _EMPTY_TRIES or reply.finish_reason == "length":
                return await _no_answer(turn, reply, step + 1)
            continue
        bad = bad + 1 if _all_unknown(reply.tool_calls, turn.bench) else 0
        row_id = await _store_step(turn, reply)
        turn.listeners.tell_step(step + 1, [call.name for call in reply.tool_calls])
        await _run_calls(turn, row_id, reply.tool_calls)
        if bad >= _BAD_CALLS:
            said = f"The model asked {bad} times for tools that do not exist ({reply.tool_calls[0].name}). Try again."
            return await _end(turn, said, f"guardrail_halt({bad})", step + 1, partial=True, error=said)
    said = f"I stopped after {turn.setup.max_steps} steps. Say “go on” to continue from here."
    limit = turn.setup.max_steps
    return await _end(turn, said, f"max_iterations_reached({limit}/{limit})", limit, partial=True)


async def _run_calls(turn: Running, step: int | str, made: Sequence[ToolCall], *, first: int = 0) -> None:
    """The calls of a step; behind their results stands what the person added meanwhile, in a row of its own."""
    rows = await tool_calls.run_all(step, made, turn.bench, first=first)
    turn.track.append(rows, [row["id"] for row in rows])
    added = turn.signals.take_steer()
    if not added:
        return

    def row(waited: Collection[int]) -> Mapping[str, Any] | None:
        words = control.words(one for one in added if one.inbox_id is None or one.inbox_id in waited)
        if not words:
            return None
        return transcript.user_message(
            f"{control.ADDED}\n{words}", persist=words, added="", timestamp=turn.setup.db.clock(),
            person_id=turn.setup.person_id,
        )  # fmt: skip

    if stored := await turn.journal.append_with(control.messages(added), row):
        turn.track.append([stored[0]], [stored[1]])


async def _store_step(turn: Running, reply: Reply) -> int:
    """The model's step, before any of its calls runs."""
    row = {
        "role": "assistant", "content": reply.content or "", "timestamp": turn.setup.db.clock(),
        "finish_reason": reply.finish_reason,
        "tool_calls": [_call_json(call) for call in reply.tool_calls], "reasoning": reply.reasoning,
        "reasoning_details": reply.reasoning_details,
    }  # fmt: skip
    saved = _noted(turn)
    (row_id,) = await turn.journal.append(row)
    await saved
    turn.track.append([row], [row_id])
    if reply.content and reply.content.strip():
        turn.listeners.tell_interim(reply.content)
    return row_id


async def _answered(turn: Running, reply: Reply, text: str, steps: int) -> TurnOutcome:
    facts = {"session_id": turn.journal.session_id, "model": turn.asker.endpoint.model, "platform": turn.setup.platform}
    replaced = hooks.first_text(await hooks.fire("transform_llm_output", response_text=text, **facts))
    outcome = TurnOutcome(
        text=replaced or text, exit_reason=f"text_response(finish_reason={reply.finish_reason})",
        spent=turn.asker.spent, endpoint=turn.asker.endpoint, reasoning=reply.reasoning, steps=steps,
        transformed=replaced is not None,
    )  # fmt: skip
    row = {
        "role": "assistant", "content": replaced or reply.content, "timestamp": turn.setup.db.clock(),
        "finish_reason": reply.finish_reason,
        "reasoning": reply.reasoning, "reasoning_details": reply.reasoning_details,
    }  # fmt: skip
    return await _commit(turn, row, outcome)


async def _no_answer(turn: Running, reply: Reply, steps: int) -> TurnOutcome:
    """Nothing but reasoning, or nothing at all, several times over."""
    if reply.finish_reason == "length":
        said = "The model used up its output on thinking and gave no answer. Raise model.max_tokens, or ask for less."
    else:
        said = NO_ANSWER
    return await _end(turn, said, "empty_response_exhausted", steps, partial=True, error=said)


async def _end(
    turn: Running, said: str, exit_reason: str, steps: int, *, partial: bool, error: str | None = None
) -> TurnOutcome:
    """An end in our words; they are part of the transcript, so that the person and the model know it."""
    row = {"role": "assistant", "content": said, "timestamp": turn.setup.db.clock(), "finish_reason": "stopped"}
    outcome = TurnOutcome(
        text=said, exit_reason=exit_reason, spent=turn.asker.spent, endpoint=turn.asker.endpoint, partial=partial,
        error=error, steps=steps,
    )  # fmt: skip
    return await _commit(turn, row, outcome)


async def _commit(turn: Running, row: Mapping[str, Any], outcome: TurnOutcome) -> TurnOutcome:
    owed = turn.owe("done", outcome)
    asked_in_a_chat = turn.journal.work.turn.route is not None
    silence = "the model chose not to answer" if owed is None and asked_in_a_chat else ""
    ended = await turn.journal.commit(
        row, used=turn.asker.spent.used(turn.asker.endpoint), reply=owed, reason=silence,
        note=turn.track.watch.note(), also=turn.track.watch.breaking(),
    )  # fmt: skip
    turn.track.append([row], ended.message_ids)
    outcome.owed = ended.reply
    return outcome


def _noted(turn: Running) -> asyncio.Future[None]:
    """What the watch has seen, on its way to the store. When the rows behind it fail, that is the error people see."""
    saved = turn.track.watch.save(turn.journal.turn_id, fence=turn.journal.fence)
    saved.add_done_callback(lambda done: done.cancelled() or done.exception())
    return saved


async def _interrupted(turn: Running, shown: str) -> TurnOutcome:
    """What was shown stays; calls without a result have got theirs already."""
    row = {"role": "assistant", "content": shown, "timestamp": turn.setup.db.clock(), "finish_reason": "interrupted"}
    last = [row] if shown.strip() else []
    outcome = TurnOutcome(
        text=shown or None, exit_reason="interrupted_during_api_call" if shown else "interrupted_by_user",
        spent=turn.asker.spent, endpoint=turn.asker.endpoint, interrupted=True,
    )  # fmt: skip
    return await _gave_up(turn, "cancelled", last, outcome, reason=turn.signals.reason)


async def _gave_up(
    turn: Running, state: EndState, last: Sequence[Mapping[str, Any]], outcome: TurnOutcome, *, reason: str
) -> TurnOutcome:
    ended = await turn.journal.give_up(
        state, *last, reason=reason, used=turn.asker.spent.used(turn.asker.endpoint), reply=turn.owe(state, outcome)
    )
    turn.track.append(last, ended.message_ids)
    outcome.owed = ended.reply
    return outcome


async def _failed(turn: Running, error: ModelError) -> TurnOutcome:
    """What was said and shown stays; what went wrong is said once and is no part of the transcript."""
    shown = (error.partial.content or "").strip() if error.partial is not None else ""
    row = {"role": "assistant", "content": shown, "timestamp": turn.setup.db.clock(), "finish_reason": "error"}
    last = [row] if shown else []
    outcome = TurnOutcome(
        text=None, exit_reason="all_retries_exhausted_no_response", spent=turn.asker.spent,
        endpoint=turn.asker.endpoint, failed=True, error=error.one_line(), error_kind=error.kind,
        compression_exhausted=error.kind == "context_overflow",
    )  # fmt: skip
    return await _gave_up(turn, "failed", last, outcome, reason=error.one_line())


class LeaseKept:
    """Renews the lease while the turn runs; when it is lost, stops the work, which may write nothing any more.

    Most turns are over before a renewal is due: until then it is a timer, not a task.
    """

    def __init__(self, journal: Journal, seconds: float) -> None:
        self._journal, self._seconds = journal, seconds
        self._worker = asyncio.current_task()
        self._keeper: asyncio.Task[None] | None = None
        self._lost = False

    async def __aenter__(self) -> None:
        self._due = asyncio.get_running_loop().call_later(self._seconds / 3, self._begin)

    def _begin(self) -> None:
        self._keeper = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        while True:
            try:
                kept = await self._journal.renew(ttl=self._seconds)
            except HermesError as error:  # the store is busy, say; there is time for another try
                _log.warning("a lease was not renewed", extra={"action": "lease", "error": type(error).__name__})
                kept = True
            if not kept:
                self._lost = True
                if self._worker is not None:
                    self._worker.cancel()
                return
            await asyncio.sleep(self._seconds / 3)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        stopped = self._lost and isinstance(error, asyncio.CancelledError)
        if stopped and self._worker is not None:
            self._worker.uncancel()  # it was us, and `StaleFence` is the answer to it
        self._due.cancel()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if stopped:
            raise StaleFence("another process took this conversation over") from None


def _all_unknown(made: Sequence[ToolCall], bench: Workbench) -> bool:
    return all(call.name not in bench.tools for call in made)


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
