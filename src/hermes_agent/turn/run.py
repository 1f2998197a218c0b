"""One turn, from an open journal to a result: ask the model, run its tools, and repeat until the model answers.

    user's row → [ compress? → ask → step's row → calls → results' rows ] … → commit

Each step is stored before the next outside effect, so the loop holds no state that a crash could lose: `recovery`
continues a killed turn from its last rows. A turn ends in exactly one `TurnOutcome`, stored by the journal together
with the last row, also after an unforeseen error. Only two ends write nothing: another process has the conversation
now, or this process must leave the turn to the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

from hermes_agent import context, hooks, messages
from hermes_agent.models.base import ModelError, Reply, ToolCall
from hermes_agent.prompt.transcript import Content, user_message
from hermes_agent.text import is_silence
from hermes_agent.turn import control, recovery, result, tool_calls
from hermes_agent.turn.control import Interrupted, lease_kept
from hermes_agent.turn.recovery import PendingCalls, WaitedCall
from hermes_agent.turn.result import Spent, TurnOutcome
from hermes_agent.turn.state import TurnRun
from hermes_config.errors import HermesError
from hermes_state.conversations import origins
from hermes_state.errors import PASSING, StaleFence
from hermes_state.ids import LOCAL_SOURCES
from hermes_state.people.usage import Used
from hermes_state.turns.turns import EndState

_log = logging.getLogger("hermes.agent")
_EMPTY_TRIES = 2
_BAD_CALLS = 3
_SAME_CALLS = 10
"""How many steps in a row may make the same calls with the same results."""
_UNSURE = 3
"""A turn that ran beside other suspects each time is given up after so many times `limits.turn_attempts` deaths."""
NO_ANSWER = "The model gave no answer. This may pass: try again, or say it in other words."
_NO_TEXT = {
    "length": "The model reached its output limit before it had answered. Raise model.max_tokens, or ask for less.",
    "content_filter": "The provider's content filter refused to answer. Say it differently, or choose another model.",
}
"""Finish reason → what is said instead of an answer; asking again would bring the same."""


# -- entry points: run, recover, compress -------------------------------------------------------------------------


async def run(
    turn: TurnRun,
    *,
    said: Content | None = None,
    pending: PendingCalls | None = None,
    waited: WaitedCall | None = None,
) -> dict[str, Any]:
    """Run the turn to its end; return the result dictionary of the contract."""
    journal, agent = turn.journal, turn.agent
    agent.session_id = journal.session_id
    if turn.request is not None:
        turn.request.began(journal.work)
    with context.bind(turn.identity, context.CurrentSession(journal.session_id)):
        outcome = await _outcome(turn, pending, waited)
    turn.model.ended()
    agent.session_id, agent.spent = journal.session_id, outcome.spent
    reported = await _report(turn, outcome, said)
    if reported["completed"]:
        agent.start_beside(journal)
    return reported


async def recover(turn: TurnRun) -> dict[str, Any] | None:
    """Finish a turn whose process was lost; None if there is nothing left to answer."""
    db, journal = turn.setup.db, turn.journal
    most, unfinished = db.limits.turn_attempts, journal.work.turn
    died = await asyncio.to_thread(db.turns.deaths, unfinished, unfinished.attempt - 1)
    if died.blamed >= most or died.all >= most * _UNSURE:
        said = (
            f"This turn was given up: its process or the database was lost {died.all} times. To try again, resend it."
        )
        reply = turn.reply_for("given_up", _ended(turn, said, "given_up", partial=True))
        await recovery.close(db, journal, "given_up", _assistant_row(turn, said, "stopped"), reason=said, reply=reply)
        turn.agent.tell_status("warn", said)
        return None
    waited = await recovery.waited(db, journal)
    if waited is not None:
        turn.agent.tell_status("lifecycle", "continuing: the question was answered")
        return await run(turn, waited=waited)
    left = await recovery.pending(db, journal)
    if left is None:
        await recovery.close(db, journal, "cancelled", reason="nothing of it is in the conversation")
        return None
    turn.agent.tell_status("lifecycle", "recovering the turn of a process that was lost")
    return await run(turn, pending=left)


async def compress(turn: TurnRun, focus: str | None) -> bool:
    """Run a turn that only compresses the conversation; True if it got smaller."""
    journal = turn.journal
    try:
        async with lease_kept(journal, turn.setup.lease_seconds):
            await turn.transcript.ready(journal.session_id, fence=journal.fence)
            done = await turn.model.compress(force=True, focus=focus)
            await journal.commit(reason="compress" if done else "nothing to compress")
    except (Interrupted, asyncio.CancelledError) as error:
        await _cancelled(turn, turn.signals.reason if isinstance(error, Interrupted) else "cancelled")
        raise
    except BaseException as error:
        await recovery.close(turn.setup.db, journal, "failed", reason=type(error).__name__)
        raise
    turn.agent.session_id = journal.session_id
    if done:
        turn.agent.spent = Spent(notices=turn.model.spent.notices)  # the next turn reports the new size of the context
    return done


# -- the outcome, also after errors ------------------------------------------------------------------------------


async def _outcome(turn: TurnRun, pending: PendingCalls | None, waited: WaitedCall | None) -> TurnOutcome:
    """Run the loop and return the outcome, also after an unforeseen error: a bug never leaves the turn's row open."""
    db, journal = turn.setup.db, turn.journal
    try:
        turn.transcript.pace.turn_began()
        await turn.transcript.ready(journal.session_id, fence=journal.fence, begun=journal.begun)
        if turn.request is not None and turn.request.route is not None:
            return await _answer(turn, pending, waited)
        async with control.cancel_requests_obeyed(db, journal, turn.signals):
            return await _answer(turn, pending, waited)
    except StaleFence:
        raise  # another process has the conversation now and writes the end
    except asyncio.CancelledError:
        await _cancelled(turn, "cancelled", turn.model.spent.used())
        raise
    except HermesError as error:
        if isinstance(error, PASSING) and turn.request is not None and turn.request.route is not None:
            raise  # the turn stays open, and its lane recovers it once the store works
        local = turn.setup.platform in LOCAL_SOURCES
        said, kind = error.one_line() if local else error.in_chat(), type(error).__name__
        if not local:  # a chat gets a shorter message
            _log.warning("a turn failed: %s", error.one_line(), extra={"action": "turn_failed"})
    except Exception as error:  # noqa: BLE001 - boundary: a turn's row never stays open because of a bug of ours
        kind = type(error).__name__
        said = f"something went wrong inside Hermes ({kind})"
        _log.exception("a turn failed", extra={"action": "turn_failed", "turn_id": journal.turn_id})
    outcome = _ended(turn, None, f"local_processing_error({kind})", failed=True, error=said)
    reply, used = turn.reply_for("failed", outcome), outcome.spent.used()
    outcome.outbox_item = await recovery.close(db, journal, "failed", reason=said, used=used, reply=reply)
    return outcome


async def _cancelled(turn: TurnRun, reason: str, used: Sequence[Used] = ()) -> None:
    """Close the row of a cancelled turn, or leave it open if another process should recover the turn."""
    if turn.signals.abandoned:
        await asyncio.shield(recovery.leave(turn.journal))
    else:
        await asyncio.shield(recovery.close(turn.setup.db, turn.journal, "cancelled", reason=reason, used=used))


async def _report(turn: TurnRun, outcome: TurnOutcome, said: Content | None) -> dict[str, Any]:
    """Tell the plug-ins about the end, then make the caller's result."""
    db, session_id = turn.setup.db, turn.journal.session_id
    history = result.ResultHistory(lambda: db.get_messages_as_conversation(session_id))
    facts = {**turn.facts, "model": outcome.endpoint.model, "platform": turn.setup.platform}
    completed = not (outcome.failed or outcome.interrupted)
    if outcome.text and completed:
        await hooks.fire(
            "post_llm_call", user_message=said, assistant_response=outcome.text, conversation_history=history, **facts
        )
    await hooks.fire("on_session_end", completed=completed, interrupted=outcome.interrupted, **facts)
    reported = result.result_of(outcome, session_id=session_id, history=history)
    if turn.signals.message is not None:
        reported["interrupt_message"] = turn.signals.message
    return reported


# -- the loop ----------------------------------------------------------------------------------------------------


async def _answer(turn: TurnRun, pending: PendingCalls | None, waited: WaitedCall | None) -> TurnOutcome:
    """Run the loop and turn its errors into outcomes, except a lost lease: then nothing may be written."""
    async with lease_kept(turn.journal, turn.setup.lease_seconds):
        try:
            if waited is not None:
                row = await tool_calls.run_waited(turn, waited.question, waited.call, begun=waited.begun)
                turn.transcript.append([row], [row["id"]])
            return await _loop(turn, pending)
        except Interrupted as stopped:
            return await _interrupted(turn, stopped.text)
        except ModelError as error:
            return await _failed(turn, error)


async def _loop(turn: TurnRun, pending: PendingCalls | None) -> TurnOutcome:
    empty, bad, same, before = 0, 0, 0, ""
    if pending is not None and pending.calls:
        await _run_calls(turn, pending.mark, pending.calls, first=pending.first, begun=pending.begun)
        if turn.waits_for:
            return await _wait(turn, 0)
    for step in range(1, turn.setup.max_steps + 1):
        if turn.signals.stopped:
            raise Interrupted
        reply = await turn.model.next_reply()
        if not reply.tool_calls:
            text = (reply.content or "").strip()
            if text:
                return await _answered(turn, reply, text, step)
            empty += 1
            if empty > _EMPTY_TRIES or reply.finish_reason in _NO_TEXT:
                said = _NO_TEXT.get(reply.finish_reason, NO_ANSWER)
                return await _end(turn, said, "empty_response_exhausted", step, error=said)
            continue
        calls = [messages.inner_call(call) for call in reply.tool_calls]
        unknown = all(call.name not in turn.tools for call in calls)
        bad = bad + 1 if unknown else 0
        row_id = await _store_step(turn, reply)
        turn.agent.tell("step_callback", step, [call.name for call in calls])
        results = await _run_calls(turn, row_id, calls)
        if turn.waits_for:
            return await _wait(turn, step)
        done = repr([(call.name, call.arguments) for call in calls]) + repr(results)
        same, before = (same + 1 if done == before else 1), done
        if same >= _SAME_CALLS:
            said = f"I stopped: the same call of {calls[0].name} had the same result {same} times in a row."
            return await _end(turn, said, f"guardrail_halt(same call, {same})", step, error=said)
        if bad >= _BAD_CALLS:
            said = f"The model asked {bad} times for tools that do not exist ({calls[0].name}). Try again."
            return await _end(turn, said, f"guardrail_halt({bad})", step, error=said)
    limit = turn.setup.max_steps
    said = f"I stopped after {limit} steps. Say “go on” to continue from here."
    return await _end(turn, said, f"max_iterations_reached({limit}/{limit})", limit)


async def _store_step(turn: TurnRun, reply: Reply) -> int:
    """Store the model's step, before any of its calls runs."""
    row = messages.step_row(reply, turn.setup.db.clock())
    saved = turn.transcript.watch.save(turn.journal.turn_id, fence=turn.journal.fence)
    saved.add_done_callback(lambda done: done.cancelled() or done.exception())  # only the row's error is reported
    (row_id,) = await turn.journal.append(row)
    await saved
    turn.transcript.append([row], [row_id])
    if reply.content and reply.content.strip():
        turn.agent.tell("interim_assistant_callback", reply.content, already_streamed=True)
    return row_id


async def _run_calls(
    turn: TurnRun, step: int | str, made: Sequence[ToolCall], *, first: int = 0, begun: Container[int] = ()
) -> list[str]:
    """Run a step's calls and return their results. Messages added meanwhile follow them in a row of their own."""
    rows = await tool_calls.run_all(turn, step, made, first=first, begun=begun)
    turn.transcript.append(rows, [row["id"] for row in rows])
    results = [str(row["content"]) for row in rows]
    # A stopped turn asks the model nothing more: what was added stays queued, for the next turn or for /stop to drop.
    added = [] if turn.signals.stopped else turn.signals.take_steer()
    if not added:
        return results

    def row(waited: Collection[int]) -> Mapping[str, Any] | None:
        text = control.text_of(one for one in added if one.inbox_id is None or one.inbox_id in waited)
        if not text:
            return None
        return user_message(
            f"{control.ADDED}\n{text}", persist=text, added="", timestamp=turn.setup.db.clock(),
            person_id=turn.setup.person_id, origin=origins.of_words(text, turn.role),
        )  # fmt: skip

    if stored := await turn.journal.append_with(control.inbox_rows(added), row):
        turn.transcript.append([stored[0]], [stored[1]])
    return results


# -- ways to end a turn ------------------------------------------------------------------------------------------


async def _answered(turn: TurnRun, reply: Reply, text: str, steps: int) -> TurnOutcome:
    facts = {"session_id": turn.journal.session_id, "model": turn.model.endpoint.model, "platform": turn.setup.platform}
    replaced = hooks.first_text(await hooks.fire("transform_llm_output", response_text=text, **facts))
    outcome = _ended(
        turn, replaced or text, f"text_response(finish_reason={reply.finish_reason})", reasoning=reply.reasoning,
        steps=steps, transformed=replaced is not None,
    )  # fmt: skip
    row = _assistant_row(
        turn, replaced or reply.content, reply.finish_reason, reasoning=reply.reasoning,
        reasoning_details=reply.reasoning_details,
    )  # fmt: skip
    return await _commit(turn, row, outcome)


async def _wait(turn: TurnRun, steps: int) -> TurnOutcome:
    """Suspend the turn until a person answers its question."""
    outcome = _ended(turn, None, f"waiting_for_permission({turn.waits_for})", partial=True, steps=steps)
    outcome.waits_for = turn.waits_for
    await turn.journal.wait(turn.waits_for, used=turn.model.spent.used())
    return outcome


async def _end(turn: TurnRun, said: str, exit_reason: str, steps: int, *, error: str | None = None) -> TurnOutcome:
    """End the turn with a text of Hermes, stored in the transcript so that the person and the model see it."""
    outcome = _ended(turn, said, exit_reason, partial=True, error=error, steps=steps)
    return await _commit(turn, _assistant_row(turn, said, "stopped"), outcome)


async def _commit(turn: TurnRun, row: Mapping[str, Any], outcome: TurnOutcome) -> TurnOutcome:
    reply = turn.reply_for("done", outcome)
    asked_in_a_chat = turn.journal.work.turn.route is not None
    kept = turn.request is not None and turn.request.unsent and not is_silence(outcome.text or "")
    silence = "the model chose not to answer" if reply is None and asked_in_a_chat and not kept else ""
    ended = await turn.journal.commit(
        row, used=turn.model.spent.used(), reply=reply, reason=silence, answered=kept,
        note=turn.transcript.watch.note(), also=turn.transcript.watch.breaking(),
    )  # fmt: skip
    turn.transcript.append([row], ended.message_ids)
    outcome.outbox_item = ended.reply
    return outcome


async def _interrupted(turn: TurnRun, shown: str) -> TurnOutcome:
    """End an interrupted turn and keep the text already shown; its calls all have results by now."""
    exit_reason = "interrupted_during_api_call" if shown else "interrupted_by_user"
    outcome = _ended(turn, shown or None, exit_reason, interrupted=True)
    return await _give_up(turn, "cancelled", shown, "interrupted", outcome, reason=turn.signals.reason)


async def _failed(turn: TurnRun, error: ModelError) -> TurnOutcome:
    """End a turn after a model error. Shown text stays; the error is reported once and kept out of the transcript."""
    shown = (error.partial.content or "").strip() if error.partial is not None else ""
    outcome = _ended(
        turn, None, "all_retries_exhausted_no_response", failed=True, error=error.one_line(), error_kind=error.kind,
        compression_exhausted=error.kind == "context_overflow",
    )  # fmt: skip
    return await _give_up(turn, "failed", shown, "error", outcome, reason=error.one_line())


async def _give_up(
    turn: TurnRun, state: EndState, shown: str, finish_reason: str, outcome: TurnOutcome, *, reason: str
) -> TurnOutcome:
    last = [_assistant_row(turn, shown, finish_reason)] if shown.strip() else []
    ended = await turn.journal.give_up(
        state, *last, reason=reason, used=turn.model.spent.used(), reply=turn.reply_for(state, outcome)
    )
    turn.transcript.append(last, ended.message_ids)
    outcome.outbox_item = ended.reply
    return outcome


def _ended(turn: TurnRun, text: str | None, exit_reason: str, **more: Any) -> TurnOutcome:
    spent, endpoint = turn.model.spent, turn.model.endpoint
    return TurnOutcome(text=text, exit_reason=exit_reason, spent=spent, endpoint=endpoint, **more)


def _assistant_row(turn: TurnRun, content: str | None, finish_reason: str | None, **more: Any) -> dict[str, Any]:
    now = turn.setup.db.clock()
    return {"role": "assistant", "content": content, "timestamp": now, "finish_reason": finish_reason, **more}
