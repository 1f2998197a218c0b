"""`hermes sessions import`: conversations from an archive, or from a JSONL file as other tools write it.

A file is judged whole before anything of it is stored. What is here already stays as it is, so an import that was
interrupted is finished by running it again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli import output, store, text
from hermes_cli.parser import Verbs, add_json
from hermes_cli.progress import Progress
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_config.limits import Limits
    from hermes_state import SessionDB

_NOUNS = {"people": "people", "identities": "accounts", "routes": "routes"}
Outcome = tuple[dict[str, Any], list[str]]
"""What an import did, for programs and for people."""


def add(verbs: Verbs) -> None:
    bring = verbs.add(
        "import",
        _import,
        help="read conversations from an archive or a JSONL file",
        example="""hermes sessions import trip.zip
                   hermes sessions import sessions.jsonl""",
    )
    bring.add_argument("file", metavar="FILE", help="what export wrote, in its formats archive or jsonl")
    bring.add_argument("--dry-run", action="store_true", help="only check the file and say what would be done")
    add_json(bring)


def _import(args: argparse.Namespace) -> None:
    file = Path(args.file)
    store.refuse_database(file)
    kind = _kind_of(file)  # before the store is open: reading a database's file beside it would drop its locks
    take_in = _import_archive if kind == "archive" else _import_lines
    with store.open_store(create=not args.dry_run) as db, Progress("importing", unit="messages") as progress:
        facts, lines = take_in(db, file, dry_run=args.dry_run, progress=progress)
    if args.json:
        output.print_json(facts)
    else:
        print("\n".join(map(text.harmless, lines)))


def _kind_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            start = opened.read(16)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(file)) from error
    if start.startswith(b"SQLite format 3"):
        raise UsageError(
            "that is a database, not an export",
            where=str(file),
            hint="hermes backup restore takes a backup, hermes import hermes a home of the reference.",
        )
    return "archive" if start.startswith(b"PK") else "jsonl"


def _import_archive(db: SessionDB, file: Path, *, dry_run: bool, progress: Progress) -> Outcome:
    from dataclasses import asdict

    from hermes_state.transfer import archive_import

    report = archive_import.import_archive(db, file, dry_run=dry_run, progress=progress.update)
    did = "Would import" if dry_run else "Imported"
    count = text.counted(len(report.imported), "conversation")
    lines = [f"{did} {count}, {text.counted(report.messages, 'message')}."]
    if report.already_here:
        lines.append(f"Here already: {text.counted(len(report.already_here), 'conversation')}.")
    lines += [f"{root} is here with other messages; ours was kept." for root in report.different]
    lines += [
        f'{session_id} is now called "{title}": its title was taken.' for session_id, title in report.renamed.items()
    ]
    if report.imported:
        lines.append("They belong to you, and no chat leads to them.")
    if report.left_out:
        parts = ", ".join(f"{_NOUNS[name]} ({count:,})" for name, count in report.left_out.items())
        lines.append(f"Left out: {parts}. An archive brings no rights and no routes; a backup does.")
    return asdict(report), lines


def _import_lines(db: SessionDB, file: Path, *, dry_run: bool, progress: Progress) -> Outcome:
    """Every line is judged before the first is stored; then a batch a transaction, so a re-run takes up the rest."""
    from hermes_state.transfer import session_json

    for batch in _batches(file, db.limits):
        _, errors = session_json.check([record for _, record in batch], db.limits, db.clock())
        if errors:
            line = batch[errors[0]["index"] or 0][0]
            raise UsageError(errors[0]["error"], where=f"{file}:{line}", hint="Nothing was imported.")
    facts: dict[str, Any] = {"imported": 0, "skipped": 0, "detached": 0, "imported_ids": [], "skipped_ids": []}
    done = 0
    for batch in [] if dry_run else _batches(file, db.limits):
        outcome = db.import_sessions([record for _, record in batch])
        if outcome["errors"]:  # somebody changed the file between the two readings
            raise UsageError(outcome["errors"][0]["error"], where=str(file), hint="Run it again to finish.")
        for name in facts:
            facts[name] += outcome[name]
        done += sum(len(record.get("messages") or ()) for _, record in batch)
        progress.update(done)
    if dry_run:
        count = sum(map(len, _batches(file, db.limits)))
        return {**facts, "readable": count}, [
            f"Readable: {text.counted(count, 'session')}; what is here already would be skipped."
        ]
    lines = [f"Imported {text.counted(facts['imported'], 'session')}."]
    if facts["skipped"]:
        lines.append(f"Here already, and left as they are: {text.counted(facts['skipped'], 'session')}.")
    if facts["detached"]:
        lines.append(
            f"Standing alone, because what they continue is nowhere: {text.counted(facts['detached'], 'session')}."
        )
    return facts, lines


_Batch = list[tuple[int, Any]]


def _batches(file: Path, limits: Limits) -> Iterator[_Batch]:
    """The objects of a JSONL file with their line numbers, as many at a time as the store takes in one call."""
    batch: _Batch = []
    said = size = 0
    for number, line in _lines(file):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError("this line is not JSON", where=f"{file}:{number}", hint="Nothing was imported.") from None
        messages = record.get("messages") if isinstance(record, dict) else None
        count = len(messages) if isinstance(messages, list) else 0
        room = 2 * len(line.encode())  # the store counts a spelling of its own, which may be longer than the file's
        full = len(batch) >= limits.import_call_sessions or said + count > limits.import_call_messages
        if batch and (full or size + room > limits.import_call_bytes):
            yield batch
            batch, said, size = [], 0, 0
        batch.append((number, record))
        said, size = said + count, size + room
    if batch:
        yield batch


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as opened:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise UsageError("this is neither an archive nor UTF-8 text", where=str(file)) from error
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(file)) from error
