"""One compression: planned, summarised, and applied as one rotation or not at all.

The turn's lease prevents two compressions at once, and a late one is harmless because the ledger refuses to rotate a
segment that has changed. The model is asked for a summary at most twice. Without a usable one, a text made without a
model replaces it, and the session's row stores until when automatic compression waits. If the summariser cannot be
reached at all (no key, no network, no budget), nothing is left out unless the conversation no longer fits.

The caller fires hooks and events.
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
"""(prompt, maximum tokens) → the summary. May raise `ModelError` or `TimeoutError`."""

_BUDGET_SHARE, _BUDGET_LEAST, _BUDGET_MOST = 0.20, 2_000, 10_000
_ELSEWHERE = "somebody else is working on this conversation"
_NOTHING = "there is nothing to leave out yet: the conversation is too short, or its newest part fills it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionOutcome:
    """The result of a compression."""

    kind: Literal["rotated", "not_needed", "not_applied", "busy"]
    reason: str = ""
    """Why nothing was compressed, for a person; may be empty."""
    summary_calls: int = 0
    before_tokens: int = 0
    after_tokens: int = 0
    fallback: bool = False
    """Whether the summary was made without a model."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """A summary, or the reason for its absence."""

    text: str | None
    failure: str = ""
    kind: str = ""
    """The kind of the failure, as in `ModelError`."""


@dataclass(slots=True, kw_only=True)
class Compression:
    """The input of one compression."""

    db: SessionDB
    writer: Journal
    """The fence of the running turn, which holds the lease."""
    session_id: str
    summarise: Summarise
    window: ContextWindow
    focus: str | None = None
    force: bool = False
    """Whether a person asked for the compression."""
    must: bool = False
    """Whether the last request did not fit, so that rows must go even without a summary."""
    calls_left: int = SUMMARY_CALLS
    calls: int = 0
    """Summary calls made so far."""


async def compress(job: Compression) -> CompressionOutcome:
    """Make the segment smaller, or leave it as it is."""
    for _ in range(2):
        try:
            return await _once(job)
        except HeadMoved:
            continue
        except SessionEnded as ended:
            return CompressionOutcome(kind="busy", reason=f"it was compressed already and continues as {ended.tip}")
    return CompressionOutcome(kind="busy", reason=_ELSEWHERE, summary_calls=job.calls)


async def _once(job: Compression) -> CompressionOutcome:
    """Plan, summarise, rotate. Raises `HeadMoved`, and changes nothing, if another process wrote meanwhile."""
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
    # Without a call now: the reason is that of the last failure.
    before_now = str((cooling or {}).get("error") or "the last attempts failed")
    made = _Summary(None, before_now if cooling or streak else "no call was left") if plan.middle else _Summary("")
    if plan.middle and mode == "summarise":
        made = await _ask_for_summary(job, plan)
    if made.text is None and not job.must and policy.gives_up(window, made.kind):
        await _back_off(db, session_id, made, streak)
        said = f"no summary could be made ({made.failure}); nothing was left out"
        return CompressionOutcome(kind="not_applied", reason=said, summary_calls=job.calls, before_tokens=before)
    return await _apply(job, plan, made, rows[-1]["id"], streak)


async def _apply(job: Compression, plan: CompressionPlan, made: _Summary, head: int, streak: int) -> CompressionOutcome:
    """Rotate to the rows that the plan keeps, with the summary or its replacement."""
    db, old = job.db, job.session_id
    failed = made.text is None
    compacted = plan.applied(_fallback(plan, job) if made.text is None else made.text)
    after = sum(tokens_of(row, job.window.model) for row in compacted)
    # Stored before the rotation, which copies it; a crash in between only loses a count.
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


async def _back_off(db: SessionDB, session_id: str, made: _Summary, streak: int) -> None:
    until = db.clock() + policy.cooldown(made.kind, streak)
    await asyncio.to_thread(db.record_compression_failure_cooldown, session_id, until, made.failure)


# -- the summary ---------------------------------------------------------------------------------------------------


async def _ask_for_summary(job: Compression, plan: CompressionPlan) -> _Summary:
    """Ask the model for a summary; once more after a bad answer, but not after a time-out or without a connection."""
    window = job.window
    weight = sum(tokens_of(row, window.model) for row in plan.middle)
    budget = min(max(int(weight * _BUDGET_SHARE), _BUDGET_LEAST), _BUDGET_MOST, plan.room)
    most_chars = window.usable * 2
    made = _Summary(None, "no call was left")
    while job.calls < job.calls_left:
        job.calls += 1
        text = summary.prompt(plan.new, previous=plan.earlier, focus=job.focus, budget=budget, most_chars=most_chars)
        try:
            answer = await asyncio.wait_for(job.summarise(text, budget), job.db.limits.summary_seconds)
        except TimeoutError:
            return _Summary(None, "the model took too long", "timeout")
        except HermesError as error:
            kind = error.kind if isinstance(error, ModelError) else "server"
            made = _Summary(None, error.what, kind)
            if policy.unreachable(kind) or kind == "timeout":
                return made
            most_chars //= 2  # perhaps the question was too long
            continue
        made = await asyncio.to_thread(_checked_answer, answer, plan, window)
        if made.text is not None:
            return made
    return made


def _checked_answer(answer: str, plan: CompressionPlan, window: ContextWindow) -> _Summary:
    text = summary.with_todos(summary.cleaned(answer), _todos(plan))
    if _weight(text, window) > plan.room:
        wrong: str | None = "it was longer than what it should stand for"
    else:
        wrong = summary.problem(summary.cleaned(answer), plan.new)
    return _Summary(text) if wrong is None else _Summary(None, f"the summary was not usable: {wrong}", "protocol")


def _fallback(plan: CompressionPlan, job: Compression) -> str:
    """A summary made without a model; it always fits."""
    most = summary.MOST_CHARS
    todos = _todos(plan)
    while True:
        made = summary.mechanical_summary(plan.new, previous=plan.earlier, focus=job.focus, most_chars=most)
        text = summary.with_todos(made, todos[: most // 4])
        if _weight(text, job.window) <= plan.room or not most:
            return text
        most = most * 3 // 4


def _todos(plan: CompressionPlan) -> str:
    """The open to-do items, if their newest state is in the left-out part."""
    if any(row.get("tool_name") == "todo" for row in plan.tail):
        return ""
    return summary.open_todos(plan.middle)


def _weight(text: str, window: ContextWindow) -> int:
    return tokens_of(summary.message(text, "user"), window.model)
