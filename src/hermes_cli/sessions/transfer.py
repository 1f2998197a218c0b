"""`hermes sessions export` and `import`: write conversations to a file and read them back.

A conversation is exported with all its segments. Three formats: `archive` (a zip with checksums and all data), `jsonl`
(one object per session with its messages, for other tools), `md` (for reading). The file is private to its owner and
appears under its name only when it is complete. Secrets in messages are covered unless `--keep-secrets` is given, and
the number of covered secrets is shown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer, Progress
from hermes_cli.framework.parser import Verbs
from hermes_cli.sessions import lookup, render
from hermes_config import redaction
from hermes_config.errors import UsageError
from hermes_config.home import replacing
from hermes_config.limits import Limits
from hermes_config.redaction import Redactor
from hermes_state import SessionDB
from hermes_state.conversations import lineage
from hermes_state.transfer import archive_import, archive_write, session_json

_FORMATS = {".zip": "archive", ".jsonl": "jsonl", ".json": "jsonl", ".md": "md"}
_PAGE = 500


def add(verbs: Verbs) -> None:
    export = verbs.add(
        "export", _export, "write conversations to a file: one, some or all", "everything.zip",
        'trip.zip "Trip to Kyoto"', "- --source {platform} --format jsonl", yes=True,
    )  # fmt: skip
    export.add_argument("output", metavar="FILE", help="the file to write; - is standard output")
    lookup.add_id(export, many="*", note="; none: all conversations")
    export.add_argument("--session-id", action="append", default=[], metavar="ID", help="an ID, as an option")
    # Every segment is exported anyway; scripts written for hermes-agent give this.
    export.add_argument("--lineage", action="store_true", help=argparse.SUPPRESS)
    export.add_argument("--source", metavar="NAME", help="only conversations from one source")
    formats = "default: by the file's extension, else an archive"
    export.add_argument("--format", choices=("archive", "jsonl", "md"), help=formats)
    export.add_argument("--keep-secrets", action="store_true", help="do not cover keys and passwords in the text")
    export.add_argument("--dry-run", action="store_true", help="only count the conversations")
    bring = verbs.add(
        "import", _import, "read conversations from an archive or a JSONL file", "trip.zip", "sessions.jsonl", json=True
    )
    bring.add_argument("file", metavar="FILE", help="an export in the format archive or jsonl")
    bring.add_argument("--dry-run", action="store_true", help="only check the file and show what would be done")


def _export(args: argparse.Namespace) -> None:
    kind = args.format or _by_name(args.output)
    with store.open_store() as db:
        roots = _chosen(db, [*args.ids, *args.session_id], args.source)
        named = text.counted(len(roots), "conversation")
        if args.dry_run:
            print(f"Would write {named} as {kind}.")
            return
        if args.output != "-":
            _check_target(Path(args.output), yes=args.yes)
        redact = None if args.keep_secrets else redaction.redactor()
        if kind == "archive":
            _write_archive(db, args.output, roots if args.ids or args.session_id or args.source else None, redact)
        else:
            _write_text(db, args.output, roots, kind, redact)
    if args.output != "-":
        print(text.harmless(f"Wrote {named} to {args.output} ({text.size(Path(args.output).stat().st_size)})."))
    if redact is not None and redact.places:
        places = text.counted(redact.places, "place")
        said = f"Secrets were covered in {places}. --keep-secrets leaves them in."
        print(said, file=sys.stderr if args.output == "-" else sys.stdout)


def _by_name(target: str) -> str:
    ending = Path(target).suffix.lower()
    if target == "-":
        return "jsonl"
    if ending and ending not in _FORMATS:
        hint = f"Known are {', '.join(_FORMATS)}; or give --format."
        raise UsageError(f"unknown file extension {ending[:20]}", where=target, hint=hint)
    return _FORMATS.get(ending, "archive")


def _chosen(db: SessionDB, wanted: list[str], source: str | None) -> list[str]:
    """Return the root ids, oldest first, so that a branch comes after its origin."""
    if wanted:
        return list(dict.fromkeys(lookup.find(db, name, guess=True)["root_id"] for name in wanted))
    roots: dict[str, float] = {}
    for offset in range(0, sys.maxsize, _PAGE):
        rows = db.list_sessions_rich(
            source=source, include_children=True, include_archived=True, compact_rows=True, limit=_PAGE, offset=offset
        )
        for row in rows:
            roots[row["root_id"]] = min(row["started_at"], roots.get(row["root_id"], row["started_at"]))
        if len(rows) < _PAGE:
            break
    return sorted(roots, key=lambda root: (roots[root], root))


def _check_target(path: Path, *, yes: bool) -> None:
    """Refuse to overwrite the database, and ask before replacing another file."""
    store.refuse_database(path)
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), hint="Give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            "the folder does not exist", where=str(path.absolute().parent), hint="Make it, or name another one."
        )
    if path.exists():
        prompts.confirm(f"{path} exists. Replace it?", yes=yes)


def _write_archive(db: SessionDB, target: str, roots: list[str] | None, redact: Redactor | None) -> None:
    with Progress("exporting", unit="messages") as progress:
        if target != "-":
            archive_write.export(
                db, Path(target), conversations=roots, replace=True, progress=progress.update, redact=redact
            )
            return
        if output.is_terminal():
            raise UsageError("an archive is not text for a terminal", hint="Give a file name, or --format jsonl.")
        with tempfile.TemporaryDirectory(prefix="hermes-export-") as folder:
            made = Path(folder) / "archive.zip"
            archive_write.export(db, made, conversations=roots, progress=progress.update, redact=redact)
            sys.stdout.flush()
            with made.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


def _write_text(db: SessionDB, target: str, roots: list[str], kind: str, redact: Redactor | None) -> None:
    with Progress("exporting", unit="conversations") as progress, _writing(target) as file:
        for number, root in enumerate(roots):
            found = lineage.of(db, root)
            ids = [] if found is None else [segment["id"] for segment in found.root.segments]
            segments = [made for made in map(db.export_session, ids) if made is not None]
            if redact is not None:
                segments = [_covered(segment, redact) for segment in segments]
            if kind == "md" and segments:
                file.write(("\n\n" if number else "") + render.conversation(segments))
            elif kind == "jsonl":
                lines = (json.dumps(segment, ensure_ascii=False, default=str) for segment in segments)
                file.writelines(f"{text.harmless_json(line)}\n" for line in lines)
            progress.update(number + 1, len(roots))


def _covered(session: dict[str, Any], redact: Redactor) -> dict[str, Any]:
    """Cover the secrets in a session's messages. Ids stay, so that it can be imported."""

    def row(found: dict[str, Any]) -> dict[str, Any]:
        return {
            name: _covered_text(item, redact) if archive_write.is_free_text(name) else item
            for name, item in found.items()
        }

    for name in ("model_config", "origin_json"):
        session = {**session, name: archive_write.without_credentials(session.get(name))}
    messages = [row(message) for message in session.pop("messages")]
    return {**row(session), "messages": messages}


def _covered_text(value: Any, redact: Redactor) -> Any:
    """Cover the secrets in a text, or in the texts of a message part or a tool call."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(name)): _covered_text(item, redact) for name, item in value.items()}
    return [_covered_text(item, redact) for item in value] if isinstance(value, list) else value


@contextmanager
def _writing(target: str) -> Iterator[IO[str]]:
    """Open a text file that appears under its name only when it is complete."""
    if target == "-":
        yield sys.stdout
        return
    try:
        with replacing(target) as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=target) from error


_NOUNS = {"people": "people", "identities": "accounts", "routes": "routes"}


def _import(args: argparse.Namespace) -> CommandAnswer:
    file = Path(args.file)
    store.refuse_database(file)
    kind = _kind_of(file)  # before the store is open: reading the database's file would drop its locks
    take_in = _import_archive if kind == "archive" else _import_lines
    with store.open_store(create=not args.dry_run) as db, Progress("importing", unit="messages") as progress:
        return take_in(db, file, dry_run=args.dry_run, progress=progress)


def _kind_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            start = opened.read(16)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(file)) from error
    if start.startswith(b"SQLite format 3"):
        hint = "For a backup: hermes backup restore; for a hermes-agent home: hermes import hermes."
        raise UsageError("this is a database, not an export", where=str(file), hint=hint)
    return "archive" if start.startswith(b"PK") else "jsonl"


def _import_archive(db: SessionDB, file: Path, *, dry_run: bool, progress: Progress) -> CommandAnswer:
    report = archive_import.import_archive(db, file, dry_run=dry_run, progress=progress.update)
    did = "Would import" if dry_run else "Imported"
    count = text.counted(len(report.imported), "conversation")
    lines = [f"{did} {count}, {text.counted(report.messages, 'message')}."]
    if report.already_here:
        lines.append(f"Already here: {text.counted(len(report.already_here), 'conversation')}.")
    lines += [f"{root} already exists with other messages; it was not changed." for root in report.different]
    lines += [
        f'{session_id} is now called "{title}": its title was taken.' for session_id, title in report.renamed.items()
    ]
    if report.imported:
        lines.append("They belong to you; no chat is connected to them.")
    if report.left_out:
        parts = ", ".join(f"{_NOUNS[name]} ({count:,})" for name, count in report.left_out.items())
        lines.append(f"Left out: {parts}. An archive holds no rights and no routes; a backup does.")
    return CommandAnswer(asdict(report), *lines)


def _import_lines(db: SessionDB, file: Path, *, dry_run: bool, progress: Progress) -> CommandAnswer:
    """Check every line before storing the first; then use one transaction per batch, so that a re-run continues."""
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
        said = f"Readable: {text.counted(count, 'session')}; sessions that already exist would be skipped."
        return CommandAnswer({**facts, "readable": count}, said)
    lines = [f"Imported {text.counted(facts['imported'], 'session')}."]
    if facts["skipped"]:
        lines.append(f"Already here and not changed: {text.counted(facts['skipped'], 'session')}.")
    if facts["detached"]:
        lines.append(f"Imported without their missing parent: {text.counted(facts['detached'], 'session')}.")
    return CommandAnswer(facts, *lines)


_Batch = list[tuple[int, Any]]


def _batches(file: Path, limits: Limits) -> Iterator[_Batch]:
    """Read the objects of a JSONL file with their line numbers, in batches that fit one call of the store."""
    batch: _Batch = []
    said = size = 0
    for number, line in _lines(file):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError("this line is not JSON", where=f"{file}:{number}", hint="Nothing was imported.") from None
        messages = record.get("messages") if isinstance(record, dict) else None
        count = len(messages) if isinstance(messages, list) else 0
        room = 2 * len(line.encode())  # the store's own spelling may be longer than the file's
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
