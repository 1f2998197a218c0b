"""`hermes sessions export`: conversations into a file.

Whole conversations are exported, all segments of each. Three formats: `archive` (our zip, with checksums; nothing is
lost), `jsonl` (one object a session with its messages, as other tools write and read it), `md` (for reading). A file is
written beside its name and put in place when it is complete, private to its owner. Secrets in what was said are
covered, and the person is told in how many places, unless `--keep-secrets` asks for everything as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hermes_cli import finding, markdown_view, output, store, text
from hermes_cli.parser import Verbs, add_yes
from hermes_cli.progress import Progress
from hermes_config.errors import UsageError
from hermes_config.home import private_open

if TYPE_CHECKING:
    from hermes_config.redaction import Redactor
    from hermes_state import SessionDB

_FORMATS = {".zip": "archive", ".jsonl": "jsonl", ".json": "jsonl", ".md": "md"}
_PAGE = 500


def add(verbs: Verbs) -> None:
    export = verbs.add(
        "export",
        _export,
        help="write conversations to a file: one, some or all",
        example="""hermes sessions export everything.zip
                   hermes sessions export trip.zip "Trip to Kyoto"
                   hermes sessions export - --source telegram --format jsonl""",
    )
    export.add_argument("output", metavar="FILE", help="where to; - is the standard output")
    export.add_argument("ids", nargs="*", metavar="ID", help="ids, beginnings of ids, or titles; none: all of them")
    export.add_argument("--session-id", action="append", default=[], metavar="ID", help="the same, as a flag")
    export.add_argument(
        "--lineage", action="store_true", help="all segments of each (always so; taken for old scripts)"
    )
    export.add_argument("--source", metavar="NAME", help="only those from one source")
    export.add_argument(
        "--format", choices=("archive", "jsonl", "md"), help="default: by the name's ending, else an archive"
    )
    export.add_argument(
        "--keep-secrets", action="store_true", help="leave keys and passwords in the text (default: they are covered)"
    )
    export.add_argument("--dry-run", action="store_true", help="only say how many conversations would be written")
    add_yes(export)


def _export(args: argparse.Namespace) -> int:
    kind = args.format or _by_name(args.output)
    with store.open_store() as db:
        roots = _chosen(db, [*args.ids, *args.session_id], args.source)
        named = text.counted(len(roots), "conversation")
        if args.dry_run:
            print(f"Would write {named} as {kind}.")
            return 0
        if args.output != "-" and not _may_write(Path(args.output), yes=args.yes):
            print("Nothing was written.")
            return 1
        from hermes_config import redaction

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
    return 0


def _by_name(target: str) -> str:
    ending = Path(target).suffix.lower()
    if target == "-":
        return "jsonl"
    if ending and ending not in _FORMATS:
        hint = f"Those there are: {', '.join(_FORMATS)}; or say it with --format."
        raise UsageError(f"what {ending[:20]} would be is not known", where=target, hint=hint)
    return _FORMATS.get(ending, "archive")


def _chosen(db: SessionDB, wanted: list[str], source: str | None) -> list[str]:
    """Root ids, oldest first, so that what began in another comes after it."""
    if wanted:
        return list(dict.fromkeys(finding.find(db, name, guess=True)["root_id"] for name in wanted))
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


def _may_write(path: Path, *, yes: bool) -> bool:
    """Never over the database, and over another file only when that is wanted."""
    store.refuse_database(path)
    if path.is_dir():
        raise UsageError("that is a folder", where=str(path), hint="Give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise UsageError("there is no such folder", where=str(path.absolute().parent))
    return not path.exists() or output.confirm(f"{path} exists. Replace it?", yes=yes)


def _write_archive(db: SessionDB, target: str, roots: list[str] | None, redact: Redactor | None) -> None:
    from hermes_state.transfer import archive_write

    with Progress("exporting", unit="messages") as progress:
        if target != "-":
            archive_write.export(
                db, Path(target), conversations=roots, replace=True, progress=progress.update, redact=redact
            )
            return
        if output.is_terminal():
            raise UsageError("an archive is no text for a terminal", hint="Give a file name, or --format jsonl.")
        import shutil
        import tempfile

        with tempfile.TemporaryDirectory(prefix="hermes-export-") as folder:
            made = Path(folder) / "archive.zip"
            archive_write.export(db, made, conversations=roots, progress=progress.update, redact=redact)
            sys.stdout.flush()
            with made.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


def _write_text(db: SessionDB, target: str, roots: list[str], kind: str, redact: Redactor | None) -> None:
    with Progress("exporting", unit="conversations") as progress, _writing(target) as file:
        for number, root in enumerate(roots):
            segments = [made for made in map(db.export_session, _segments(db, root)) if made is not None]
            if redact is not None:
                segments = [_covered(segment, redact) for segment in segments]
            if kind == "md" and segments:
                file.write(("\n\n" if number else "") + markdown_view.conversation(segments))
            elif kind == "jsonl":
                file.writelines(map(_json_line, segments))
            progress.update(number + 1, len(roots))


def _covered(session: dict[str, Any], redact: Redactor) -> dict[str, Any]:
    """A session with its messages, the secrets in their texts covered. Ids stay, so that it can be imported."""
    from hermes_state.transfer import archive_write

    def row(found: dict[str, Any]) -> dict[str, Any]:
        return {
            name: _covered_text(item, redact) if archive_write.is_free_text(name) else item
            for name, item in found.items()
        }

    for name in ("model_config", "origin_json"):
        session = {**session, name: archive_write.without(session.get(name))}
    messages = [row(message) for message in session.pop("messages")]
    return {**row(session), "messages": messages}


def _covered_text(value: Any, redact: Redactor) -> Any:
    """Text, or what holds some: the parts of a message, a tool call."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(name)): _covered_text(item, redact) for name, item in value.items()}
    return [_covered_text(item, redact) for item in value] if isinstance(value, list) else value


def _json_line(session: dict[str, Any]) -> str:
    return text.harmless_json(json.dumps(session, ensure_ascii=False, default=str)) + "\n"


def _segments(db: SessionDB, root: str) -> list[str]:
    from hermes_state.conversations import lineage

    found = lineage.of(db, root)
    return [] if found is None else [segment["id"] for segment in found.root.segments]


@contextmanager
def _writing(target: str) -> Iterator[IO[str]]:
    """A text file that appears under its name when it is complete."""
    if target == "-":
        yield sys.stdout
        return
    path = Path(os.path.realpath(target))
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with private_open(draft, "x") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=target) from error
    finally:
        with suppress(OSError):  # gone already when all went well
            draft.unlink()
