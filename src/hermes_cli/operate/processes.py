"""`hermes process`: background processes of the terminal tool, their output and their end."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import Any

from hermes_agent import processes
from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_offset
from hermes_config.errors import HermesError, UsageError
from hermes_config.home import hermes_home
from hermes_state import SessionDB
from hermes_state.turns.processes import ProcessRow

_COLUMNS = output.columns("Process", "State", ">Began", ">Took", ">Output", "Conversation…16", "Command…")
_MOST = 1_000


class NoSuchProcess(HermesError):
    """There is no such process."""

    default_hint = "hermes process list shows them."


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list, "list background processes, newest first", "", "--running --json", "--offset 20",
        db=True, json=True, limit=20,
    )  # fmt: skip
    listing.add_argument("--running", action="store_true", help="only those that run now")
    add_offset(listing)
    for name, run, about in (
        ("show", _show, "show one process and the end of its output"),
        ("log", _log, "print the output of a process; a dropped middle is marked"),
        ("kill", _kill, "end a process and everything it started; nobody is told"),
    ):
        verb = verbs.add(name, run, about, "proc_3f9a1c2b", db=True, json=True)
        verb.add_argument("id", metavar="PROCESS", help="the process's id, or its beginning")


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    processes.settle(db, hermes_home())
    if args.running:
        rows = db.processes.running()[::-1][args.offset : args.offset + args.limit]
    else:
        rows = db.processes.newest(limit=args.limit, offset=args.offset)
    cells = [
        (row.id, _how(row), text.ago(row.started_at), processes.span(_took(row)), text.size(_size(row)),
         row.conversation_id, row.command)
        for row in rows
    ]  # fmt: skip
    notes = [f"--offset {args.offset + args.limit} shows older ones."] if len(rows) == args.limit else []
    document = {"processes": [_document(row) for row in rows], "running": db.processes.running_count()}
    nothing = "None runs." if args.running else "There are no background processes."
    return output.list_answer(document, _COLUMNS, cells, nothing=nothing, notes=notes)


def _show(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    row = _find(db, args.id)
    tail = processes.tail(hermes_home(), row)
    facts = [
        ("process", row.id), ("state", _how(row)), ("command", row.command), ("folder", row.workdir),
        ("sandbox", row.wall), ("machine", row.machine), ("conversation", row.conversation_id),
        ("person", row.person_id or ""), ("began", text.ago(row.started_at)), ("took", processes.span(_took(row))),
        ("tells", "the chat, when it ends" if row.notify else "nobody"),
    ]  # fmt: skip
    shown = output.facts([(name, value) for name, value in facts if value], wide=14)
    return CommandAnswer({**_document(row), "tail": tail[1:]}, drawn="\n".join([shown, "", *tail]))


def _log(args: argparse.Namespace, db: SessionDB) -> CommandAnswer | None:
    row = _find(db, args.id)
    kept = processes.read(hermes_home(), row.id, offset=0, most=2 * db.limits.process_output_bytes)
    said = kept.data.decode("utf-8", "replace")
    if args.json:
        document = {"process": row.id, "output_bytes": kept.size, "dropped_bytes": kept.dropped, "output": said}
        return CommandAnswer(document)
    if sys.stdout.isatty():
        return CommandAnswer({}, drawn=text.harmless_block(said.rstrip("\n")))
    sys.stdout.flush()
    sys.stdout.buffer.write(kept.data)
    return None


def _kill(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    row = _find(db, args.id)
    if not row.running:
        raise UsageError(f"process {row.id} has already ended ({_how(row)})")
    ended = processes.kill(db, hermes_home(), row, quiet=True)
    if ended.running:
        raise UsageError(f"process {row.id} did not end", hint=f"It runs on {row.machine}, with another home.")
    return CommandAnswer(_document(ended), f"Process {row.id}: {_how(ended)}.")


def _find(db: SessionDB, wanted: str) -> ProcessRow:
    processes.settle(db, hermes_home())
    exact = db.processes.get(wanted) if wanted else None
    newest = db.processes.newest(limit=_MOST) if wanted and not exact else ()
    fits = [exact] if exact else [row for row in newest if row.id.startswith(wanted)]
    if len(fits) > 1:
        raise UsageError(f"{len(fits)} processes begin with {wanted!r:.80}", hint="Give more of the id.")
    if not fits:
        raise NoSuchProcess(f"no process begins with {wanted!r:.80}")
    return fits[0]


def _how(row: ProcessRow) -> str:
    return "lost" if row.state == "lost" else processes.ending(row.state, row.exit_code, row.trouble)


def _took(row: ProcessRow) -> float:
    return (row.ended_at or time.time()) - row.started_at


def _size(row: ProcessRow) -> int:
    return processes.read(hermes_home(), row.id, most=0).size if row.running else row.output_bytes


def _document(row: ProcessRow) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(row).items() if name not in ("address", "wall")}
    return facts | {"sandbox": row.wall}
