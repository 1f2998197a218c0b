"""`hermes turns`: list turns and who works on them, show the receipt of one, and cancel one.

A turn of a live process gets a request to stop; the gateway checks for such requests every second. A turn whose process
has certainly died, or whose lease has expired, is closed here.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from hermes_agent import process_identity
from hermes_agent.receipts import receipt
from hermes_agent.receipts.receipt import NoSuchTurn
from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_offset
from hermes_config.errors import UsageError
from hermes_state import SessionDB
from hermes_state.errors import TurnOver
from hermes_state.ids import TurnId
from hermes_state.turns.turns import Turn

STATES = ("running", "waiting", "done", "failed", "cancelled", "given_up")
_REASON = "cancelled with hermes turns cancel"
_LEASE_SECONDS = 30.0
_COLUMNS = output.columns("Turn", "State", ">Began", ">Try", "Conversation…16", "Route…", "By or why…")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list, "list turns, newest first",
        "", "--state running", "--offset 20 --json", db=True, json=True, limit=20,
    )  # fmt: skip
    listing.add_argument("--state", choices=STATES, help="only those in this state")
    add_offset(listing)
    about = "show how an answer came about: commands, permissions, files, model calls, delivery"
    show = verbs.add("show", _show, about, "turn_3f9a2c41d0b7e856", "last", "1207 --json", db=True, json=True)
    show.add_argument("id", metavar="ID", help="a turn or its beginning, a trace, the number of a delivery, or last")
    about = "cancel a running turn; its message is not answered"
    cancel = verbs.add("cancel", _cancel, about, "turn_3f9a", db=True, json=True)
    cancel.add_argument("id", metavar="TURN", help="the turn's id, or its beginning")


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    turns = db.turns.list(state=args.state, offset=args.offset, limit=args.limit)
    holders = {turn.id: holder_of(db, turn) for turn in turns if turn.state == "running"}
    counts = db.turns.counts()
    cells = [
        (
            turn.id, turn.state, text.ago(turn.started_at), str(turn.attempt), turn.conversation_id, turn.route or "—",
            _by(holders[turn.id]) if turn.state == "running" else turn.reason or "—",
        )
        for turn in turns
    ]  # fmt: skip
    notes = [f"In all: {output.tally(counts)}."]
    if len(turns) == args.limit:
        notes.append(f"--offset {args.offset + args.limit} shows older ones.")
    document = {"turns": [{**asdict(turn), "holder": holders.get(turn.id)} for turn in turns], "counts": counts}
    nothing = "Nothing matches." if args.state or args.offset else "There were no turns yet."
    return output.list_answer(document, _COLUMNS, cells, nothing=nothing, notes=notes)


def holder_of(db: SessionDB, turn: Turn) -> str | None:
    """Return the process that works on a running turn; None when there is none."""
    lease = db.leases.get(turn.conversation_id)
    if lease is None or lease.fence != turn.fence or process_identity.is_gone(lease.holder):
        return None
    return lease.holder


def _show(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    found = receipt.receipt_of(db, receipt.find(db, args.id))
    lines = receipt.short_text(found).splitlines()[:-1]
    for number, call in enumerate(found["model_calls"], start=1):
        task = f" ({call['task']})" if call["task"] else ""
        tokens = "no usage reported" if call["input_tokens"] is None else (
            f"{call['input_tokens']:,} + {call['output_tokens']:,} tokens"
        )  # fmt: skip
        lines.append(f"  request {number}  {call['model']}{task}  {tokens}, {call['seconds']:.1f} s, {call['outcome']}")
    for one in found["web_requests"]:
        lines.append(f"  fetched  {one['url']}  {one['error'] or one['status']}, {one['bytes']:,} bytes")
    for one in found["attempts"][1:]:
        lines.append(f"  attempt {one['attempt']}  {one['why']}")
    trace = found["trace_id"]
    notes = [f"trace {trace}; hermes trace {trace} --request N prints what the model received."]
    return CommandAnswer(found, drawn=text.harmless_block("\n".join(lines)), notes=notes)


def _by(holder: str | None) -> str:
    if holder is None:
        return "nobody: its process died"
    host, pid, *_rest = holder.split("/")
    return f"process {pid} on {host}"


def _cancel(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    turn = _find(db, args.id)
    holder = None if turn.state == "waiting" else holder_of(db, turn)
    if turn.state == "waiting" and db.approvals.withdraw(turn.reason or "", reason=_REASON):
        # A gateway that runs, or the next one, ends the turn and shows on the question's card why.
        done, said = "asked", "no longer waits: its question is closed."
    elif turn.state == "waiting":
        db.turns.end_waiting(turn.id, reason=_REASON)
        done, said = "closed", "is closed; nothing continues it, also /catchup does not."
    elif holder is None:
        _close(db, turn)
        done, said = "closed", "is closed, because its process died. Its unfinished work is dropped."
    elif db.turns.ask_to_stop(turn.id, reason=_REASON):
        done, said = "asked", f"was asked to stop; {_by(holder)} works on it."
    else:
        raise UsageError(f"turn {turn.id} ended just now")
    return CommandAnswer({"turn": turn.id, "holder": holder, "outcome": done}, f"Turn {turn.id} {said}")


def _find(db: SessionDB, wanted: str) -> Turn:
    exact = db.turns.get(TurnId(wanted)) if wanted else None
    running = [*db.turns.running(), *db.turns.waiting()] if wanted and not exact else []
    fits = [exact] if exact else [turn for turn in running if str(turn.id).startswith(wanted)]
    if len(fits) > 1:
        raise UsageError(f"{len(fits)} running turns begin with {wanted!r:.80}", hint="Give more of the id.")
    if not fits:
        raise NoSuchTurn(f"no running turn begins with {wanted!r:.80}")
    turn = fits[0]
    if turn.state not in ("running", "waiting"):
        raise UsageError(f"turn {turn.id} has already ended ({turn.state})")
    return turn


def _close(db: SessionDB, turn: Turn) -> None:
    """Close a turn without a live process: take the lease of its conversation and end the turn."""
    process_identity.release_gone(db, turn.conversation_id)
    lease = db.leases.acquire(turn.conversation_id, holder=process_identity.new_holder(), ttl=_LEASE_SECONDS)
    if lease is None:
        raise UsageError("another process has just taken over the turn", hint="Try again: it will be asked to stop.")
    try:
        db.turns.cancel(turn.id, fence=lease.fence, reason=_REASON)
    except TurnOver:
        raise UsageError(f"turn {turn.id} ended just now") from None
    finally:
        db.leases.release(lease)
