"""`hermes backup`: make, check, list and restore copies of the home.

A backup holds the store and, in a zip beside it, the files of the home. Configuration and `.env` are copied beside it
only with `--with-secrets`, and never restored by themselves. A backup is named by its path, or by its name when it lies
in the home's `backups` folder.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer, Progress
from hermes_cli.framework.parser import Parser, Verbs
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_folder, hermes_home, write_atomic
from hermes_state import SessionDB
from hermes_state.errors import BackupRefused
from hermes_state.transfer import backup, copy_all, home_backup
from hermes_state.transfer.backup import Backup
from hermes_state.transfer.home_backup import HomeFiles

_SECRETS = ("config.yaml", ".env")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    create = verbs.add(
        "create", _create, "make a verified copy of the store and the home's files, even while they are in use",
        "", "/mnt/disk/hermes.db --with-secrets", db=True, json=True,
    )  # fmt: skip
    create.add_argument("path", nargs="?", metavar="PATH", help="a new file; .zip makes an archive (default: backups/)")
    create.add_argument("--with-secrets", action="store_true", help="copy config.yaml and .env beside it")
    create.add_argument("--with-media", action="store_true", help="also the files that were sent in chats")
    create.add_argument("--with-workspace", action="store_true", help="also the files in the home's workspace")
    verify = verbs.add("verify", _verify, "open a backup and check it completely", "hermes.db", json=True)
    restore = verbs.add(
        "restore", _restore, "replace the store and files by a backup; the replaced data is kept",
        "hermes-20261115-072613.db", json=True, yes=True,
    )  # fmt: skip
    for verb in (verify, restore):
        verb.add_argument("path", metavar="PATH")
    restore.add_argument("--store-only", action="store_true", help="do not change the files of the home")
    verbs.add("list", _list, "list the backups of this home", json=True)


def _create(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    ending = ".db" if db.engine.dialect == "sqlite" else ".zip"
    path = Path(args.path) if args.path else backup.new_path(ensure_folder(backup.FOLDER), ending=ending)
    beside = _secrets_beside(path) if args.with_secrets else {}
    with Progress("copying", unit="pages" if path.suffix != ".zip" else "rows") as progress:
        made = backup.create(db, path, progress=progress.update)
    for target, source in beside.items():
        write_atomic(target, source.read_bytes())
    large = frozenset(name for name in home_backup.LARGE if getattr(args, f"with_{name}"))
    files = home_backup.create(hermes_home(), path, large=large)
    said = [f"Backup {made.path} ({text.size(made.bytes)}): {_holds(made)}. Opened and checked."]
    if made.left:
        left = ", ".join(f"{name} ({text.counted(count, 'row')})" for name, count in made.left.items())
        said.append(f"Not in this backup: {left}. They come from hermes-agent and are not used; a .db backup has them.")
    said += _files_beside(files)
    said += [f"Beside it: {target}, which holds secrets" for target in beside]
    if not beside:
        said.append("The backup does not hold config.yaml and .env; --with-secrets copies them too.")
    error = None
    if made.refused:
        what = f"the backup was made, but a restore would refuse it: {', '.join(made.refused)} of another program"
        hint = "hermes state check says more. A backup whose name ends in .zip leaves these out and can be restored."
        error = BackupRefused(what, where=str(made.path), hint=hint)
    return CommandAnswer({**_facts(made, files), "beside": [str(target) for target in beside]}, *said, error=error)


def _files_beside(files: HomeFiles | None) -> list[str]:
    if files is None:
        return []
    named = ", ".join(files.entries)
    return [text.harmless(f"Beside it: {files.path.name}, {text.counted(files.files, 'file')} of the home ({named}).")]


def _home_files(path: Path) -> HomeFiles | None:
    """Return the checked files beside a backup; None if there are none."""
    files = home_backup.beside(path)
    return home_backup.verify(files) if files.is_file() else None


def _secrets_beside(path: Path) -> dict[Path, Path]:
    """Return the targets of config.yaml and .env; an existing target is refused before anything is written."""
    home = hermes_home()
    found = {path.with_name(f"{path.name}.{name.lstrip('.')}"): home / name for name in _SECRETS}
    wanted = {target: source for target, source in found.items() if source.is_file()}
    taken = next((target for target in wanted if target.exists()), None)
    if taken is not None:
        raise UsageError("the file already exists", where=str(taken), hint="Give a new name.")
    return wanted


def _verify(args: argparse.Namespace) -> CommandAnswer:
    found = backup.verify(_named(args.path), limits=config.load().limits)
    files = _home_files(found.path)
    said = [f"{found.path} is complete: {_holds(found)}, made {text.when(found.made_at)}."]
    if found.others:
        said.append(f"Tables that Hermes does not know or use: {', '.join(found.others[:10])}.")
    if found.broken_links:
        rows = text.counted(found.broken_links, "row")
        said.append(f"{rows} in it refer to missing rows; it can still be restored.")
    said += _files_beside(files)
    return CommandAnswer({**_facts(found, files), "ok": True}, *said)


def _restore(args: argparse.Namespace) -> CommandAnswer:
    path, limits = _named(args.path), config.load().limits
    found = backup.verify(path, limits=limits)
    database = store.database_file(store.address())
    if path.suffix != ".zip" and database is None:
        hint = "Restore it in a home without a database URL, then hermes state move --to URL."
        raise UsageError("this backup is a SQLite file and the store is on PostgreSQL", where=str(path), hint=hint)
    files = None if args.store_only else _home_files(path)
    also = "" if files is None else f" and {', '.join(files.entries)} by what lies beside it"
    question = f"Replace the store by {path.name} ({_holds(found)}, made {text.when(found.made_at)}){also}?"
    prompts.confirm(question, yes=args.yes)
    kept = None
    if path.suffix == ".zip":
        with store.open_store(create=True) as db, Progress("restoring", unit="rows") as progress:
            copy_all.restore_store(db, path, progress=progress.update)
    elif database is not None:
        kept = backup.restore(path, database, home=hermes_home(), limits=limits)
    said = [f"Restored {path.name}: {_holds(found)}. The next search rebuilds the search index."]
    if kept is not None:
        said.append(f"The replaced store: {kept}")
    if files is not None:
        stem = f"{backup.AUTOMATIC}replaced"
        aside = home_backup.beside(kept or backup.new_path(ensure_folder(backup.FOLDER), stem=stem))
        home_backup.restore(files.path, hermes_home(), replaced=aside)
        said.append(f"Restored {text.counted(files.files, 'file')} of the home: {', '.join(files.entries)}.")
        if aside.exists():
            said.append(f"The replaced files: {aside}")
    return CommandAnswer(
        {**_facts(found, files), "restored": True, "replaced": None if kept is None else str(kept)}, *said
    )


def _list(args: argparse.Namespace) -> CommandAnswer:
    found = backup.existing(hermes_home())
    cells = [
        (one.path.name, text.when(one.made_at), text.size(one.bytes), "hermes" if one.automatic else "you")
        for one in found
    ]
    nothing = f"No backups in {hermes_home() / backup.FOLDER}. hermes backup create makes one."
    columns = output.columns("name…", "made", ">size", "by")
    return output.list_answer([_facts(one) for one in found], columns, cells, nothing=nothing)


def _named(name: str) -> Path:
    """A path, or the name of a backup of this home."""
    path, inside = Path(name), hermes_home() / backup.FOLDER / Path(name).name
    return inside if not path.exists() and path.name == name and inside.exists() else path


def _holds(found: Backup) -> str:
    rows = found.rows or {}
    sessions, messages = rows.get("sessions", 0), rows.get("messages", 0)
    return f"{text.counted(sessions, 'session')}, {text.counted(messages, 'message')}"


def _facts(found: Backup, files: HomeFiles | None = None) -> dict[str, Any]:
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.made_at))
    return {
        "path": str(found.path), "bytes": found.bytes, "made_at": made_at, "automatic": found.automatic,
        "rows": found.rows, "broken_links": found.broken_links,
        "left": found.left, "files": None if files is None else str(files.path),
    }  # fmt: skip
