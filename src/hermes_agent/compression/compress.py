"""One compression: planned, summarised, and applied as one rotation or not at all.

The turn's lease keeps two compressions apart, and what makes a late one harmless is the ledger, which refuses to rotate
what has moved. The summary is asked for at most twice. When no good one
can be had, a text put together without a model takes its place, and the session's row says until when nobody should
try again by itself. Where the summariser cannot be reached at all (no key, no network, no money) nothing is left out,
unless the conversation does not fit any more.

Hooks and events are the caller's business: it knows for whom it did this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_agent.compression import policy, summary
from hermes_agent.compression.plan import CompressionPlan, plan_for
from hermes_agent.compression.policy import SUMMARY_CALLS, ContextWindow
from hermes_agent.messages import tokens_of
from hermes_agent.models.base import ModelError
from hermes_config.errors import HermesError
from hermes_state.errors import HeadMoved, SessionEnded

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.journal import Journal

_log = logging.getLogger("hermes.agent")

Summarise = Callable[[str, int], Awaitable[str]]
"""(prompt, most tokens of the answer) → the summary. May raise `ModelError` or `TimeoutError`."""

_BUDGET_SHARE, _BUDGET_LEAST, _BUDGET_MOST = 0.20, 2_000, 10_000
_ELSEWHERE = "somebody else is working on this conversation"
_NOTHING = "there is nothing to leave out yet: the conversation is too short, or its newest part fills it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionOutcome:
    """What came of it."""

    kind: Literal["rotated", "not_needed", "not_applied", "busy"]
    reason: str = ""
    """Why not, for a person; empty when there is nothing to say."""
    summary_calls: int = 0
    before_tokens: int = 0
    after_tokens: int = 0
    fallback: bool = False
    """The summary was put together without a model."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A summary, or the reason why there is none."""

    text: str | None
    failure: str = ""
    kind: str = ""
    """Of the failure, in the words of `ModelError`."""


@dataclass(slots=True, kw_only=True)
class Compression:
    """What to compress, and how."""

    db: SessionDB
    writer: Journal
    """The running turn's, which holds the lease."""
    session_id: str
    summarise: Summarise
    window: ContextWindow
    focus: str | None = None
    force: bool = False
    """A person asked for it."""
    must: bool = False
    """The last request did not fit, so something has to go whatever the summariser does."""
    calls_left: int = SUMMARY_CALLS
    calls: int = 0
    """Summary calls that were made."""


async def compress(job: Compression) -> CompressionOutcome:
    """Make the segment smaller, or leave it as it is."""
    for _ in range(2):
        try:
            return await _once(job)
        except HeadMoved:
            continue
        except SessionEnded as ended:
            return CompressionOutcome(kind="busy", reason=f"it was compressed already and goes on as {ended.tip}")
    return CompressionOutcome(kind="busy", reason=_ELSEWHERE, summary_calls=job.calls)


async def _once(job: Compression) -> CompressionOutcome:
    """Plan, summarise, rotate. `HeadMoved` when somebody wrote meanwhile: then nothing has changed."""
    db, window, session_id = job.db, job.window, job.session_id
    rows = await asyncio.to_thread(db.get_messages, session_id)
    before = window.prefix_tokens + sum(tokens_of(row, window.model) for row in rows)
    if len(rows) < policy.MIN_ROWS and not job.must:
        return CompressionOutcome(kind="not_needed", reason=_NOTHING if job.force else "", before_tokens=before)
    cooling = await asyncio.to_thread(db.get_compression_failure_cooldown, session_id)
    streak = await asyncio.to_thread(db.get_compression_fallback_streak, session_id)
    mode = policy.mode(
        window, tokens=before, cooling=cooling is not None, streak=streak, calls_left=job.calls_left - job.calls,
        force=job.force, must=job.must,
    )  # fmt: skip
    if mode == "wait":
        return CompressionOutcome(kind="not_applied", before_tokens=before)
    plan = await asyncio.to_thread(plan_for, rows, window, force=job.force, must=job.must)
    if plan is None:
        said = _NOTHING if job.force or job.must else ""
        return CompressionOutcome(kind="not_needed", reason=said, before_tokens=before, summary_calls=job.calls)
    made = _Made(None) if plan.middle else _Made("")
    if plan.middle and mode == "summarise":
        made = await _asked(job, plan)
    if made.text is None and not job.must and policy.gives_up(window, made.kind):
        await _back_off(db, session_id, made, streak)
        said = f"no summary could be made ({made.failure}); nothing was left out"
        return CompressionOutcome(kind="not_applied", reason=said, summary_calls=job.calls, before_tokens=before)
    return await _applied(job, plan, made, rows[-1]["id"], streak)


async def _applied(job: Compression, plan: CompressionPlan, made: _Made, head: int, streak: int) -> CompressionOutcome:
    """Rotate to what the plan keeps, with the summary or what takes its place."""
    db, old = job.db, job.session_id
    failed = made.text is None
    compacted = plan.applied(_fallback(plan, job) if made.text is None else made.text)
    after = sum(tokens_of(row, job.window.model) for row in compacted)
    # Before the rotation, which takes it along; a crash in between costs nothing but a count.
    wanted = streak + 1 if failed else 0
    if wanted != streak and plan.middle:
        await asyncio.to_thread(db.set_compression_fallback_streak, old, wanted)
    handle = await asyncio.to_thread(job.writer.rotate, compacted, expected_head=head)
    if failed and made.kind:
        await _back_off(db, handle.session_id, made, streak)
    _log.info("compressed", extra={"action": "compressed", "session": handle.session_id, "fallback": failed})
    return CompressionOutcome(
        kind="rotated", reason=made.failure, summary_calls=job.calls, fallback=failed,
        before_tokens=job.window.prefix_tokens + plan.before,
        after_tokens=job.window.prefix_tokens + after,
    )  # fmt: skip


async def _back_off(db: SessionDB, session_id: str, made: _Made, streak: int) -> None:
    until = db.clock() + policy.cooldown(made.kind, streak)
    await asyncio.to_thread(db.record_compression_failure_cooldown, session_id, until, made.failure)


# -- the summary ---------------------------------------------------------------------------------------------------


async def _asked(job: Compression, plan: CompressionPlan) -> _Made:
    """The model's summary. A bad answer is asked for once more; a time-out and a model out of reach are not."""
    window = job.window
    previous = [body for row in plan.middle if (body := summary.body(row))]
    middle = [row for row in plan.middle if summary.body(row) is None]
    weight = sum(tokens_of(row, window.model) for row in plan.middle)
    budget = min(max(int(weight * _BUDGET_SHARE), _BUDGET_LEAST), _BUDGET_MOST, plan.room)
    most_chars = window.usable * 2
    made = _Made(None, "no call was left")
    while job.calls < job.calls_left:
        job.calls += 1
        text = summary.prompt(middle, previous=previous, focus=job.focus, budget=budget, most_chars=most_chars)
        try:
            answer = await asyncio.wait_for(job.summarise(text, budget), job.db.limits.summary_seconds)
        except TimeoutError:
            return _Made(None, "the model took too long", "timeout")
        except HermesError as error:
            kind = error.kind if isinstance(error, ModelError) else "server"
            made = _Made(None, error.what, kind)
            if policy.unreachable(kind) or kind == "timeout":
                return made
            most_chars //= 2  # perhaps it was too much
            continue
        made = await asyncio.to_thread(_judged, answer, plan, window)
        if made.text is not None:
            return made
    return made


def _judged(answer: str, plan: CompressionPlan, window: ContextWindow) -> _Made:
    text = summary.with_todos(summary.cleaned(answer), _todos(plan))
    if _weight(text, window) > plan.room:
        wrong: str | None = "it was longer than what it should stand for"
    else:
        wrong = summary.problem(summary.cleaned(answer), [row for row in plan.middle if summary.body(row) is None])
    return _Made(text) if wrong is None else _Made(None, f"the summary was of no use: {wrong}", "protocol")


def _fallback(plan: CompressionPlan, job: Compression) -> str:
    """A text that fits, whatever the rows are."""
    previous = [body for row in plan.middle if (body := summary.body(row))]
    middle = [row for row in plan.middle if summary.body(row) is None]
    most = summary.MOST_CHARS
    todos = _todos(plan)
    while True:
        text = summary.with_todos(
            summary.mechanical_summary(middle, previous=previous, focus=job.focus, most_chars=most), todos[: most // 4]
        )
        if _weight(text, job.window) <= plan.room or not most:
            return text
        most = most * 3 // 4


def _todos(plan: CompressionPlan) -> str:
    """The open list, when its newest state is about to be left out."""
    if any(row.get("tool_name") == "todo" for row in plan.tail):
        return ""
    return summary.open_todos(plan.middle)


def _weight(text: str, window: ContextWindow) -> int:
    return tokens_of(summary.message(text, "user"), window.model)
