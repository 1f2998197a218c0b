"""`hermes trace`: the timeline of one message, from every table that has a row of it; or one of its requests.

`--request N` prints the bytes that the model received in call N of the turn, with secrets covered. They are rendered
again from the store, and called exact only if their hash is the one that was stored when they were sent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, add_json, positive, with_store
from hermes_config import redaction
from hermes_config.errors import HermesError, UsageError
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_state.turns.effects import UNKNOWN
from hermes_state.turns.events import Moment
from hermes_state.turns.inbox import BESIDE, LOCAL, OWN

_WHERE_WIDE = 21
_LOST = "✗ process died"
_SHOWN_WAIT = 0.05
_SOURCES = {
    "job": ("job", "stored when it was due"), "process": ("process", "its end, stored"),
    "child": ("delegation", "the task of a child conversation, stored"),
    "children": ("delegation", "the results of the delegated work, stored"),
}  # fmt: skip
"""Where a row of Hermes's own came from, by the kind in its message id."""
_API = "api_server"
_PENDING = "pending; a running gateway sends it"


class NoSuchTrace(HermesError):
    """Nothing has this trace id."""

    default_hint = "hermes trace last shows the newest message; hermes inbox show N names a message's trace."


class _Line(NamedTuple):
    at: float
    where: str
    what: str = ""


def register(parser: Parser) -> None:
    parser.add_examples("last", "9d89e901a61cf0c7 --json", "last --request 1")
    parser.add_argument("id", metavar="ID|last", help="a trace, a turn, or last for the newest message")
    help_text = "print what the model received in call N of the turn, as hermes turns show counts them"
    parser.add_argument("--request", type=positive, metavar="N", help=help_text)
    add_json(parser)
    parser.set_defaults(run=with_store(_trace))


def _trace(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    # `hermes -q` and a window's own turns have no stored message: then the newest turn.
    trace_id = (db.traces.last() or "last") if args.id == "last" else args.id
    moments = db.traces.get(trace_id)
    if args.request is not None:
        return _request(db, trace_id, args.request, stored=bool(moments))
    if not moments:
        trace_id, moments = _of_turn(db, trace_id)
    if not moments and args.id == "last":
        raise NoSuchTrace("no message has come in yet", hint="hermes gateway status shows the connected platforms.")
    if not moments:
        raise NoSuchTrace(f"there is no trace {text.harmless(args.id)[:60]}")
    moments = tuple(replace(one, detail=redaction.redacted_document(one.detail)) for one in moments)
    lines = sorted(_lines(db, moments), key=lambda line: line.at)
    day = time.strftime("%Y-%m-%d", time.localtime(lines[0].at))
    title = output.style(f"trace {text.harmless(trace_id)} · {day}", "dim")
    document = {"trace_id": trace_id, "moments": [asdict(moment) for moment in moments]}
    return CommandAnswer(document, drawn="\n".join([title, *map(_drawn, lines)]))


def _of_turn(db: SessionDB, wanted: str) -> tuple[str, tuple[Moment, ...]]:
    """The trace of a turn or delivery; no moments if there is none."""
    from hermes_agent.receipts import receipt

    try:
        trace_id = receipt.find(db, wanted).trace_id
    except receipt.NoSuchTurn:
        return wanted, ()
    return trace_id, db.traces.get(trace_id)


def _request(db: SessionDB, wanted: str, number: int, *, stored: bool) -> CommandAnswer:
    from hermes_agent.prompt import sent_request
    from hermes_agent.receipts import receipt

    if stored and receipt.find_or_none(db, wanted) is None:
        raise NoSuchTrace(f"no model was asked for trace {wanted}: it has no turn", hint=f"hermes trace {wanted}")
    turn = receipt.find(db, wanted)
    calls = db.model_calls.of_turn(turn.id)
    if number > len(calls):
        known = f"it has {text.counted(len(calls), 'call')}" if calls else "no calls of it are stored"
        raise UsageError(f"turn {turn.id} has no call {number}: {known}", hint=f"hermes turns show {turn.id}")
    call = calls[number - 1]
    made = sent_request.rendered(db, turn.conversation_id, call)
    plain = made.content.decode("utf-8", "replace")
    shown = redaction.redactor()(plain)
    verdict = "exact: these are the bytes that were sent" if made.exact else f"not exact: {made.why_not}"
    covered = "; secrets in it are covered here, the hash is of the bytes with them" if shown != plain else ""
    document = {
        "turn_id": turn.id, "number": number, "model": call.model, "provider": call.provider, "exact": made.exact,
        "why_not": made.why_not or None, "sha256": made.sha256, "sent_sha256": call.sha256, "bytes": len(made.content),
        "secrets_covered": shown != plain, "body": shown,
    }  # fmt: skip
    notes = [f"sha256 {made.sha256}, {len(made.content):,} bytes, {verdict}{covered}"]
    return CommandAnswer(document, drawn=text.harmless_block(shown), notes=notes)


def _drawn(line: _Line) -> str:
    where = text.pad(text.harmless(line.where), _WHERE_WIDE)
    drawn = f"{output.style(_clock(line.at), 'dim')}  {where}{text.harmless(line.what)}".rstrip()
    return output.style(drawn, "red") if line.where.startswith("✗") else drawn


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"


# -- rows as lines -------------------------------------------------------------------------------------------------


def _lines(db: SessionDB, moments: tuple[Moment, ...]) -> Iterator[_Line]:
    moments = tuple(one for one in moments if one.what != "turn.accompanied")  # it matters only to recovery
    finished = {one.ref for one in moments if (one.where, one.what) == ("effect", "finished")}
    shown = {str(one) for moment in moments if moment.where == "event" for one in moment.detail.get("shown") or ()}
    happened = {(one.where, one.what) for one in moments}
    unsent = ("inbox", "answered") in happened and all(where != "outbox" for where, _ in happened)
    for before, moment in zip((moments[0], *moments), moments, strict=False):
        facts = moment.detail
        if moment.where == "event":
            yield from _event(db, moment, before, unsent=unsent)
        elif moment.where == "inbox":
            yield from _inbox(moment)
        elif moment.where == "effect" and moment.what == "finished":
            took = f"done in {_worked(moments, moment) * 1000:,.0f} ms"
            said = "its process died; the outcome is unknown" if facts.get("result") == UNKNOWN else took
            yield _Line(moment.at, f"tool  {facts['tool']}", said)
        elif moment.where == "effect" and moment.ref not in finished:
            yield _Line(moment.at, f"tool  {facts['tool']}", "started; its outcome is unknown")
        elif moment.where == "approval":
            yield _Line(moment.at, "approval", " · ".join(filter(None, (_approval(moment), _stood(moments, moment)))))
        elif moment.where == "outbox" and moment.what != "stored":
            yield _outbox(moment, shown)
    settled = {one.ref for one in moments if one.where == "outbox" and one.what != "stored"}
    for moment in moments:
        if moment.where == "outbox" and moment.ref not in settled:
            yield _outbox(replace(moment, at=moments[-1].at, what=_PENDING), shown)


def _worked(moments: tuple[Moment, ...], end: Moment) -> float:
    """Return the seconds of a tool's own work, without the wait for an approval."""
    mine = [one for one in moments if one.detail.get("turn_id") == end.detail["turn_id"]]
    began = next(one.at for one in mine if (one.where, one.ref, one.what) == ("effect", end.ref, "started"))
    asked = (one for one in mine if (one.where, one.what) == ("approval", "asked"))
    waits = (_wait(mine, one) for one in asked if one.detail.get("effect") == end.ref and one.at >= began)
    return max(0.0, end.at - began - sum(until - since for since, until in waits if until <= end.at))


def _stood(moments: Sequence[Moment], end: Moment) -> str:
    if end.what == "asked":
        return ""
    since, until = _wait(moments, next(one for one in moments if (one.where, one.ref) == ("approval", end.ref)))
    return f"waited for you {until - since:,.1f} s" if until - since >= _SHOWN_WAIT else ""


def _wait(moments: Sequence[Moment], asked: Moment) -> tuple[float, float]:
    """Return the start and end of the time a question was open.

    Expiry is checked only now and then, and the row of a revoked permission has only the time of the revocation.
    """
    end = next((one for one in moments if (one.where, one.ref) == ("approval", asked.ref) and one is not asked), None)
    if end is not None and end.what == "revoked" and end.detail.get("scope"):
        return asked.at, asked.at
    lapses = float(asked.detail["expires_at"])
    return asked.at, lapses if end is None else min(end.at, lapses)


def _approval(moment: Moment) -> str:
    """Describe the outcome of a question. Without a decision, the reason says more than the state."""
    reason = moment.detail.get("reason")
    if moment.what in ("lapsed", "revoked") and reason:
        return str(reason)
    return moment.what if moment.what == "asked" else " · ".join(filter(None, (moment.what, reason)))


def _inbox(moment: Moment) -> Iterator[_Line]:
    platform = moment.detail["platform"]
    if moment.what == "received" and str(moment.detail.get("message_id") or "").startswith(BESIDE):
        yield _Line(moment.at, "terminal → inbox", f"stored, for the conversation on {platform}")
    elif moment.what == "received" and str(moment.detail.get("message_id") or "").startswith(OWN):
        kind = str(moment.detail["message_id"]).split(":")[1]
        source, what = _SOURCES.get(kind, (kind, "stored"))
        yield _Line(moment.at, f"{source} → inbox", f"{what}, for {'a terminal' if platform == LOCAL else platform}")
    elif moment.what == "received" and platform == LOCAL:
        yield _Line(moment.at, "terminal → inbox", "stored")
    elif moment.what == "received":
        edited = " (an edit of a message)" if moment.detail.get("version") else ""
        yield _Line(moment.at, f"{platform} → inbox", f"stored, then acknowledged to the platform{edited}")
    elif moment.what not in ("answered", "claimed"):
        yield _Line(moment.at, "inbox", " · ".join(filter(None, (moment.what, moment.detail.get("reason")))))


def _event(db: SessionDB, moment: Moment, before: Moment, *, unsent: bool) -> Iterator[_Line]:
    facts, fence = moment.detail, moment.detail.get("fence")
    turn = "turn" if fence is None else f"turn  fence {fence}"
    if moment.what == "turn.begun":
        yield _Line(moment.at, turn, _prefix(db, facts["conversation_id"], moment.at))
    elif moment.what == "turn.resumed":
        if before.what not in ("turn.left", "turn.interrupted"):  # then it is the process's last sign of life
            seen = max(float(facts.get("last_seen") or 0), before.at)
            yield _Line(moment.at, _LOST, f"its last sign of life: {_clock(seen)}")
        yield _Line(moment.at, turn, "recovered from the log, no tool repeated")
    elif moment.what == "turn.left":
        yield _Line(moment.at, turn, "paused when its process stopped; the next one continues it")
    elif moment.what == "turn.done":
        if unsent:  # else a delivery or the inbox shows it
            yield _Line(moment.at, turn, "answered; there is no chat to send it to")
    elif moment.what.startswith("turn."):
        yield _Line(moment.at, "turn", " · ".join(filter(None, (moment.what[5:], facts.get("reason")))))


def _prefix(db: SessionDB, conversation_id: str, began: float) -> str:
    """Describe the prompt prefix at the start of the turn, and whether it changed."""
    conversation = ConversationId(conversation_id)
    epochs, breaks = db.prefixes.epochs(conversation), db.prefixes.break_count(conversation)
    if not epochs:
        return "no prompt was sent"
    before = [epoch for epoch in epochs if epoch.started_at < began]
    epoch = before[-1] if before else epochs[0]
    word = "kept" if before else "made"
    return f"prefix {epoch.hash[:4]}… {word} ({breaks} break{'' if breaks == 1 else 's'})"


def _outbox(moment: Moment, shown: set[str]) -> _Line:
    facts: dict[str, Any] = moment.detail
    where = f"outbox → {facts['platform']}"
    ids = json.loads(facts.get("platform_ids") or "[]")
    if facts["platform"] == _API and ids:  # nothing is sent to a client: the id says whether it took the answer
        return _Line(moment.at, where, str(ids[-1]))
    named = f"message{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}" if ids else ""
    if named and shown.intersection(map(str, ids)):
        named = f"edited {named}"
    error = facts.get("error") if moment.what != "sent" else None
    return _Line(moment.at, where, " · ".join(filter(None, (named, moment.what, error))))
