"""The receipt of a turn: what was run and who allowed it, files, model calls, cost, crashes, waits, and its delivery.

`receipt_of` builds it from the store alone, so it is the same on every surface: `/why` in a chat or window, and
`hermes turns show`. It is the JSON document of `hermes turns show --json`; `short_text` is the text for a phone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.messages import arguments_of, calls_of, text_of
from hermes_agent.text import brief, counted, inline_code
from hermes_agent.tools import output
from hermes_config import redaction
from hermes_config.errors import HermesError, UsageError
from hermes_state import columns
from hermes_state.ids import LOCAL_OWNER, ConversationId, TurnId, is_possible_id
from hermes_state.turns.events import WEB_REQUEST
from hermes_state.turns.inbox import BESIDE, LOCAL
from hermes_state.turns.turns import SET_ASIDE

if TYPE_CHECKING:
    from hermes_agent.models.base import ToolCall
    from hermes_state import SessionDB
    from hermes_state.turns.approvals import Approval, LoggedExit
    from hermes_state.turns.effects import Effect
    from hermes_state.turns.events import Event
    from hermes_state.turns.model_calls import ModelCall
    from hermes_state.turns.outbox import OutboxItem
    from hermes_state.turns.turns import Turn

_LINES = 12
_LINE = 110
_COMMANDS = 4
_SHOWN_WAIT = 1.0
_COMPRESS_ONLY = frozenset({"compress", "nothing to compress"})
_READS = frozenset({"read_file"})
_WRITES = frozenset({"write_file", "patch"})
_OWN_LINES = _READS | _WRITES | {"delegate_task"}
"""Tools that other lines tell of, if they did not fail."""
_INTERRUPTED = {
    "turn.left": "the gateway was stopped in between", "turn.interrupted": "the database was full or away",
}  # fmt: skip
_SPANS = {"once": "once", "task": "for this task"} | dict.fromkeys(("session", "conversation"), "in this conversation")


Receipt = dict[str, Any]


class NoSuchTurn(HermesError):
    """There is no such turn."""

    default_hint = "hermes turns list shows them."


# -- which turn --------------------------------------------------------------------------------------------------


def find_or_none(db: SessionDB, wanted: str) -> Turn | None:
    """The turn with this id, trace, or number of an outbox item."""
    if not is_possible_id(wanted):
        return None
    if wanted.startswith("turn_"):
        return db.turns.get(TurnId(wanted))
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 16:
        item = db.outbox.get(int(wanted))
        if item is not None and item.turn_id is not None:
            return db.turns.get(item.turn_id)
    return next(iter(reversed(db.turns.of_trace(wanted))), None)


def find(db: SessionDB, wanted: str) -> Turn:
    """As `find_or_none`, and for people at the machine also `last` (the newest turn that is not a child's) and the
    beginning of a turn's id. Raises `NoSuchTurn`."""
    if wanted == "last":
        newest = (turn for turn in db.turns.list(limit=100) if db.children.get(turn.conversation_id) is None)
        if (found := next(newest, None)) is None:
            raise NoSuchTurn("there were no turns yet")
        return found
    if (found := find_or_none(db, wanted)) is None and re.fullmatch(r"turn_[0-9a-f]{1,64}", wanted):
        fits = db.turns.beginning_with(wanted)
        if len(fits) > 1:
            raise UsageError(f"more than one turn begins with {wanted}", hint="Give more of the id.")
        found = fits[0] if fits else None
    if found is None:
        raise NoSuchTurn(f"there is no turn, trace or delivery of a turn {brief(wanted, 40)!r}")
    return found


def last_turn(db: SessionDB, conversation_id: ConversationId) -> Turn | None:
    """The newest turn of a conversation that has ended, other than one that only compressed."""
    return next((one for one in db.turns.last_ended(conversation_id) if one.reason not in _COMPRESS_ONLY), None)


# -- from the store ----------------------------------------------------------------------------------------------


def receipt_of(db: SessionDB, turn: Turn) -> Receipt:
    """Everything the store knows about how one answer came about, with secrets covered."""
    rows, events = db.inbox.of_turn(turn.id), db.events.of_turn(turn.conversation_id, turn.id)
    calls = db.model_calls.of_turn(turn.id)
    asked = db.approvals.of_turn(turn.id)
    exits = db.approvals.exits_of_turn(turn.conversation_id, turn.id)
    tools = list(_tools(db, turn, written_in(db, turn, calls), asked, exits))
    received = rows[0].received_at if rows else None
    segments = [*(call.session_id for call in calls), turn.session_id]
    made = [asdict(call) for call in calls]
    for one in made:
        del one["request"]
    known: Receipt = {
        "turn_id": turn.id, "conversation_id": turn.conversation_id, "trace_id": turn.trace_id, "state": turn.state,
        "reason": turn.reason, "origin": _origin(db, turn, rows),
        "own": (rows[0].payload or {}).get("own") if rows else None,
        "received_at": received, "started_at": turn.started_at, "ended_at": turn.ended_at,
        "queued_seconds": max(0.0, turn.started_at - (received or turn.started_at)),
        "asked_seconds": sum(max(0.0, min(q.decided_at or q.expires_at, q.expires_at) - q.created_at) for q in asked),
        "attempts": list(_attempts(turn, events)), "tools": tools,
        "files_read": _files(tools, _READS), "files_written": _files(tools, _WRITES),
        "web_requests": [dict(one.detail) for one in events if one.kind == WEB_REQUEST and one.detail],
        "permissions": [_permission(db, one) for one in asked],
        "exits": [{**asdict(one), "allowed_by": _allowed(db, one)} for one in exits],
        "model_calls": made, "totals": _totals(made), "delegated": list(_delegated(db, turn)),
        # A turn goes on in a new segment after each compression; a failed summary makes none.
        "compressions": sum(old != new for old, new in pairwise(segments)),
        "deliveries": [_delivery(one, events) for one in db.outbox.of_turn(turn.conversation_id, turn.id)],
    }  # fmt: skip
    return {name: redaction.redacted_document(value) for name, value in known.items()}


def written_in(db: SessionDB, turn: Turn, calls: Sequence[ModelCall]) -> list[dict[str, Any]]:
    """The rows that a turn wrote, in order, also those before a compression."""
    segments = dict.fromkeys([*(call.session_id for call in calls), turn.session_id])
    return [row for segment in segments for row in db.turn_rows(segment, turn.id)]


class MadeCall(NamedTuple):
    call: ToolCall
    mark: str
    """The key of its effect, and of the question about it."""
    content: Any
    """Its result; None without one."""


def made_calls(rows: Sequence[dict[str, Any]]) -> list[MadeCall]:
    """The calls in the rows of a turn, each once and with its own result, in order.

    A compression copies steps into a new segment. Within one segment, a model may have used an id twice.
    """
    made: list[MadeCall] = []
    newest: dict[str, int] = {}
    segments: dict[str, str] = {}
    for row in rows:
        at = newest.get(str(row["tool_call_id"])) if row["role"] == "tool" else None
        if at is not None and made[at].content is None:
            made[at] = made[at]._replace(content=row["content"])
        for place, call in enumerate(calls_of(row)):
            if segments.setdefault(call.id, row["session_id"]) == row["session_id"]:
                newest[call.id] = len(made)
                made.append(MadeCall(call, f"{row['id']}:{place}", None))
    return made


def _totals(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of the model calls. `cost_usd` is None when the price of a call is not known."""
    # A call that ended with an error has no usage; one that was interrupted may have been billed.
    costs = [c["cost_usd"] for c in calls if c["input_tokens"] is not None or c["outcome"] == "interrupted"]
    return {
        "calls": len(calls), "retries": sum(call["retries"] for call in calls),
        "input_tokens": sum(call["input_tokens"] or 0 for call in calls),
        "output_tokens": sum(call["output_tokens"] or 0 for call in calls),
        "cost_usd": None if None in costs else sum(costs), "models": list(dict.fromkeys(c["model"] for c in calls)),
    }  # fmt: skip


def _delegated(db: SessionDB, turn: Turn) -> Iterator[dict[str, Any]]:
    for child in db.children.of_turn(turn.id):
        session = db.get_session(child.id) or {}
        known = not child.is_open and session.get("cost_status") != "unknown"
        cost = (session.get("estimated_cost_usd") or 0.0) if known else None
        yield {"id": child.id, "goal": child.goal, "state": child.state, "cost_usd": cost}


def _origin(db: SessionDB, turn: Turn, rows: Sequence[Any]) -> str:
    """Where the turn came from: a person in a chat, a terminal, or a row of Hermes's own."""
    if not rows:
        chat = None if turn.route is None else db.inbox.address(turn.id, route=turn.route)
        return "a terminal" if chat is None or chat.platform == LOCAL else f"a command on {chat.platform}"
    row = rows[-1]
    own = (row.payload or {}).get("own")
    if own:
        job = db.jobs.get(str(own.get("job") or ""))
        about = f" “{brief(job.name, 30)}”" if job is not None else ""
        return f"Hermes itself ({own.get('kind') or row.message_id.split(':')[1]}{about})"
    typed = row.platform == LOCAL or row.message_id.startswith(BESIDE)
    where = "at a terminal" if typed else f"on {row.platform}"
    return f"{_name(db, row.person_id)} {where}"


def _name(db: SessionDB, person_id: Any) -> str:
    person = None if person_id is None else db.people.get(person_id)
    if person is not None and person.display_name:
        return brief(person.display_name, 30)
    return "the owner" if person_id == LOCAL_OWNER else str(person_id or "somebody")


def _attempts(turn: Turn, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """The processes that worked on a turn. The log is bounded, so of an old turn only the number may be known."""
    yield {"attempt": 1, "at": turn.started_at, "why": "the message came"}
    known, before = 1, ""
    for event in events:
        detail = event.detail or {}
        if event.kind in ("turn.resumed", "turn.woken"):
            known = int(detail.get("attempt") or known + 1)
            why = _INTERRUPTED.get(before, "its process died")
            if event.kind == "turn.woken":
                why = "it was asked to go on" if detail.get("question") == SET_ASIDE else "its question was answered"
            yield {"attempt": known, "at": event.at, "why": why}
        if event.kind != "turn.accompanied":
            before = event.kind
    for number in range(known + 1, turn.attempt + 1):
        yield {"attempt": number, "at": None, "why": "not known any more"}


def _tools(
    db: SessionDB, turn: Turn, rows: Sequence[dict[str, Any]], asked: Sequence[Approval], exits: Sequence[LoggedExit]
) -> Iterator[dict[str, Any]]:
    """The tool calls: name, argument, outcome, whether it left the sandbox, who allowed it, and how long it took."""
    waited = {str(row["content"]) for row in rows if row["role"] == "user"}
    marks, before = {effect.call_id: effect for effect in db.effects.of_turn(turn.id)}, 0.0
    for call, key, content in made_calls(rows):
        question = next((one for one in asked if one.call.get("mark", key) == key and _is_about(one, call)), None)
        told = {columns.note(_argument(call)), question and columns.note(str(question.call.get("text")))}
        mark = marks.get(key)
        result = None if content is None else text_of(content)
        if question is not None:  # a call that waited has its result in a row of its own
            result = next((one for one in waited if question.id in one), result)
        outcome = _outcome(call.name, result, mark, question, ended=turn.ended_at is not None)
        here = (one for one in exits if one.text in told and _is_during(one, mark, before))
        left = None if outcome == "not run" else next(here, None)
        before = before if mark is None or mark.finished_at is None else mark.finished_at
        took = None if mark is None or mark.finished_at is None else mark.finished_at - mark.started_at
        allowed = _allowed(db, left) if left else "" if question is None else _permission(db, question)["answer"]
        # Whether it ran without a sandbox: an MCP server has a sandbox of its own, or runs elsewhere.
        outside = left is not None and (left.kind != "mcp" or left.opening.startswith("no sandbox"))
        yield {
            "name": call.name, "summary": _argument(call),
            "outcome": outcome,
            "outside": outside, "allowed_by": allowed, "seconds": took,
        }  # fmt: skip


def _is_about(question: Approval, call: ToolCall) -> bool:
    return bool(question.call.get("call_id") == call.id)


def _is_during(left: LoggedExit, mark: Effect | None, before: float) -> bool:
    """Whether it was this call that left the sandbox: the same command may run inside it, too. It is logged just before
    the call's mark, and after the end of the call `before`."""
    return mark is None or (before <= left.at and (mark.finished_at is None or left.at <= mark.finished_at))


def _argument(call: ToolCall) -> str:
    """The argument that people know a call by."""
    arguments = arguments_of(call)
    if not isinstance(arguments, dict):
        return str(arguments)
    named = (arguments.get(name) for name in ("command", "path", "pattern", "query", "goal", "name"))
    return str(next((one for one in named if one), next(iter(arguments.values()), "")))


def _outcome(name: str, result: str | None, mark: Effect | None, question: Approval | None, *, ended: bool) -> str:
    """How a call ended, by its result, its mark and its question."""
    if result is None:
        begun = mark is not None and mark.finished_at is None
        return ("unknown" if begun else "not run") if ended else "running"
    if f"\n{result}".find("\nThe process was lost") >= 0:
        return "unknown: the process was lost while it ran"
    if question is not None and question.state in ("denied", "lapsed", "revoked"):
        return "not run"
    return output.outcome_of(name, result)


def _files(tools: Sequence[dict[str, Any]], names: frozenset[str]) -> list[str]:
    return list(dict.fromkeys(one["summary"] for one in tools if one["name"] in names and one["outcome"] == "done"))


def _allowed(db: SessionDB, left: LoggedExit) -> str:
    """Who let a call out of the sandbox."""
    if left.rule:
        return f"allowed by the setting {left.rule}"
    words = set()
    for one in db.approvals.named(left.grants).values():
        span = "once" if one.span == "task" and one.uses_left is not None else _SPANS.get(one.span, "always")
        words.add(f"allowed by {_name(db, one.granted_by)}, {span}")
    return " and ".join(sorted(words)) or "a permission that is no longer stored"


def _permission(db: SessionDB, asked: Approval) -> dict[str, Any]:
    """One question about a call, its answer in words, and who decided."""
    if asked.scope is not None:
        answer = f"allowed by {_name(db, asked.approver_id)}, {_SPANS.get(asked.scope, asked.scope)}"
    elif asked.state == "pending":
        answer = "not answered yet"
    elif asked.state == "denied" and asked.approver_id is not None:
        answer = f"denied by {_name(db, asked.approver_id)}" + (f": {asked.reason}" if asked.reason else "")
    else:
        answer = f"not allowed: {asked.reason or asked.state}"
    by = None if asked.state == "pending" or asked.approver_id is None else _name(db, asked.approver_id)
    about = str(asked.call.get("text") or asked.call.get("kind") or "")
    return {
        "id": asked.id, "about": about, "answer": answer, "scope": asked.scope, "by": by,
        "asked_at": asked.created_at, "decided_at": asked.decided_at,
    }  # fmt: skip


def _delivery(item: OutboxItem, events: Sequence[Event]) -> dict[str, Any]:
    """One message for the chat. `streamed`: the chat showed it while it was written. `repeated`: how many of its parts
    were sent again with a mark. `held`: what the owner did with an answer that was held back."""
    shown = {str(one) for event in events for one in (event.detail or {}).get("shown") or ()}
    held = item.payload.get("held") or {}
    by = str(held.get("by") or "somebody")
    did = {"send": f"held until {by} sent it", "edit": f"held, then changed and sent by {by}",
           "drop": f"it was held, and {by} dropped it"}.get(str(held.get("did")), "")  # fmt: skip
    return {
        "id": item.id, "platform": item.platform, "chat_id": item.chat_id, "kind": str(item.payload.get("kind") or ""),
        "state": item.state, "messages": list(item.platform_ids), "attempts": item.attempts,
        "streamed": bool(shown.intersection(item.platform_ids)),
        "repeated": int((item.draft or {}).get("repeated") or 0), "held": did, "error": item.error,
    }  # fmt: skip


# -- a text for a phone ------------------------------------------------------------------------------------------


def short_text(made: Receipt, *, staff: bool = True) -> str:
    """At most twelve lines. Only `staff` reads that an answer is or was held."""
    answers = [one for one in made["deliveries"] if one["kind"] == "answer"]
    if not staff:
        answers = [
            {**one, "held": "", "state": "dropped" if one["state"] == "held" else one["state"]} for one in answers
        ]
    head, lines = [_head(made, answers), *_model_lines(made)], _other_lines(made["tools"])
    for verb, files in (("Read", made["files_read"]), ("Wrote", made["files_written"])):
        lines += [f"{verb} {', '.join(inline_code(brief(file, 60)) for file in files)}"] if files else []
    lines += _web_lines(made["web_requests"])
    if made["delegated"]:
        done = sum(child["state"] == "done" for child in made["delegated"])
        costs = [child["cost_usd"] for child in made["delegated"]]
        cost = "their cost is not known" if None in costs else f"${sum(costs):.4f} more"
        lines.append(f"Delegated {counted(len(made['delegated']), 'task')}, {done} done, {cost}.")
    if any(call["outcome"] == "length" for call in made["model_calls"]):
        lines.append("The model's text was cut short by a limit of its length.")
    if made["compressions"]:
        lines.append(f"Compressed {_times(made['compressions'])} to fit the model.")
    if died := sum(one["why"] == "its process died" for one in made["attempts"]):
        lines.append(f"Recovered: its process died {_times(died)}.")
    waits = [
        f"{_seconds(made[name])} {what}"
        for name, what in (("queued_seconds", "in the queue"), ("asked_seconds", "for permission"))
        if made[name] >= _SHOWN_WAIT
    ]
    lines += [f"Waited {' and '.join(waits)}."] if waits else []
    delivered = [_delivery_line(one) for one in answers[: _LINES // 2]]
    end = [*delivered, f"Details: hermes turns show {made['turn_id']}"]
    room = _LINES - len(head) - len(end)
    commands = _command_lines(made["tools"], most=max(1, min(_COMMANDS, room - len(lines) - 1)))
    return "\n".join(brief(line, _LINE) for line in (*head, *[*commands, *lines][:room], *end))


def _head(made: Receipt, answers: Sequence[dict[str, Any]]) -> str:
    took = "" if made["ended_at"] is None else f" in {_seconds(made['ended_at'] - made['started_at'])}"
    words = {"done": "Answered", "failed": "Failed", "cancelled": "Stopped", "given_up": "Given up", "waiting": "Waits"}
    state, reason = words.get(made["state"], "Running"), made["reason"]
    unsent = bool(answers) and all(one["state"] == "dropped" and not one["held"] for one in answers)
    if made["state"] == "done" and (reason or unsent):
        state = "No answer"
    why = f": {reason}" if reason and made["state"] != "waiting" else ""
    return f"{state}{took}, for {made['origin']}{why}"


def _model_lines(made: Receipt) -> list[str]:
    total, calls = made["totals"], made["model_calls"]
    if not calls:
        return ["Model: no calls are recorded."]
    cost = "cost not known" if total["cost_usd"] is None else f"${total['cost_usd']:.4f}"
    used = f"{total['input_tokens']:,} tokens in, {total['output_tokens']:,} out, {cost}"
    if all(call["input_tokens"] is None for call in calls):
        used = "no usage was reported"
    lines = [f"Model: {' and '.join(total['models'])}, {counted(total['calls'], 'call')}, {used}"]
    if total["retries"]:
        lines.append(f"Asked again {_times(total['retries'])} after temporary errors.")
    return lines


def _has_own_line(call: dict[str, Any]) -> bool:
    """Whether it is a command, or needed permission."""
    return bool(call["name"] == "terminal" or call["allowed_by"] or call["outside"])


def _command_lines(tools: Sequence[dict[str, Any]], *, most: int) -> list[str]:
    """Commands and whatever needed permission, one line each."""
    told = [one for one in tools if _has_own_line(one)]
    lines = []
    for one in told[:most]:
        where = "outside the sandbox" if one["outside"] else "in the sandbox" if one["name"] == "terminal" else ""
        facts = [one["outcome"], where if one["outcome"] != "not run" else "", one["allowed_by"]]
        verb = "Ran" if one["outcome"] not in ("not run", "running") else "Asked for"
        what = inline_code(brief(one["summary"], 44))
        if one["name"] not in _READS | _WRITES | {"terminal"}:  # its argument is no command
            verb, what = verb.replace("Ran", "Used"), brief(one["name"], 64)
        lines.append(f"{verb} {what} ({', '.join(filter(None, facts))})")
    if len(told) > most:
        lines.append(f"… and {counted(len(told) - most, 'more command')}")
    return lines


def _other_lines(tools: Sequence[dict[str, Any]]) -> list[str]:
    """The other calls as a sum, with how many of them failed or were not run."""
    others: dict[str, list[str]] = {}
    for one in tools:
        outcome = "" if one["outcome"] in ("done", "running") else str(one["outcome"]).partition(":")[0]
        if not _has_own_line(one) and (outcome or one["name"] not in _OWN_LINES):
            others.setdefault(one["name"], []).append(outcome)
    sums = []
    for name, outcomes in others.items():
        badly = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes) if one)
        sums.append(f"{name} ×{len(outcomes)}{f' ({badly})' if badly else ''}")
    return [f"Used {', '.join(sums)}"] if sums else []


def _web_lines(requests: Sequence[dict[str, Any]]) -> list[str]:
    """One line: how much came, from which hosts, and what they answered."""
    hosts = (one["url"].partition("://")[2].partition("/")[0].partition("?")[0] for one in requests)
    shown = (f"{host} ({one['status'] or 'no answer'})" for host, one in zip(hosts, requests, strict=True))
    said = ", ".join(dict.fromkeys(shown))
    size = sum(one["bytes"] for one in requests)
    return [f"Fetched {size:,} bytes in {counted(len(requests), 'request')}: {said}"] if requests else []


def _delivery_line(one: dict[str, Any]) -> str:
    ids = f" as message {', '.join(one['messages'])}" if one["messages"] else ""
    known: Receipt = {
        "sent": f"Delivered on {one['platform']}{ids}",
        "failed": f"Not delivered: {one['error'] or 'no reason is known'}",
        "unknown": f"Nobody knows whether it arrived on {one['platform']}",
        "dropped": f"Not sent: {one['held']}" if one["held"] else "No answer was sent",
        "held": "Held back until the owner sends it", "pending": f"Waits to be sent on {one['platform']}",
        "sending": f"Being sent on {one['platform']}",
    }  # fmt: skip
    more = (
        "shown while it was written, then edited" if one["streamed"] else "",
        "sent again with a mark, because an earlier copy may have arrived" if one["repeated"] else "",
        f"{one['attempts']} attempts" if one["attempts"] > 1 else "", one["held"] if one["state"] != "dropped" else "",
    )  # fmt: skip
    return ", ".join(filter(None, (known.get(one["state"], one["state"]), *more)))


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
