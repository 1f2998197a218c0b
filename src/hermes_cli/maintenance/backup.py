"""`hermes backup`: make, check, list and put back copies of the store.

A backup is of the data. Configuration and `.env` are copied beside it only with `--with-secrets`, and never put back
by themselves. A backup is named by its path, or by its name when it lies in the home's `backups` folder.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, store, text
from hermes_cli.framework.output import Progress
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_yes
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_folder, hermes_home, write_atomic

if TYPE_CHECKING:
    from hermes_state.transfer.backup import Backup

_SECRETS = ("config.yaml", ".env")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    create = verbs.add(
        "create",
        _create,
        help="make a verified copy of the store, also while it is in use",
        example="""hermes backup create
                   hermes backup create /mnt/disk/hermes.db --with-secrets""",
    )
    create.add_argument("path", nargs="?", metavar="PATH", help="a new file; .zip makes an archive (default: backups/)")
    create.add_argument("--with-secrets", action="store_true", help="copy config.yaml and .env beside it")
    verify = verbs.add(
        "verify", _verify, help="open a backup and check all of it", example="hermes backup verify hermes.db"
    )
    verify.add_argument("path", metavar="PATH")
    restore = verbs.add(
        "restore",
        _restore,
        help="put a backup in the place of the store; what it replaces is kept",
        example="hermes backup restore hermes-20261115-072613.db",
    )
    restore.add_argument("path", metavar="PATH")
    add_yes(restore)
    listing = verbs.add("list", _list, help="list the backups of this home", example="hermes backup list")
    for verb in (create, verify, restore, listing):
        add_json(verb)


def _create(args: argparse.Namespace) -> None:
    from hermes_state.transfer import backup

    with store.open_store() as db:
        ending = ".db" if db.engine.dialect == "sqlite" else ".zip"
        path = Path(args.path) if args.path else backup.new_path(ensure_folder(backup.FOLDER), ending=ending)
        beside = _secrets_beside(path) if args.with_secrets else {}
        with Progress("copying", unit="pages" if path.suffix != ".zip" else "rows") as progress:
            made = backup.create(db, path, progress=progress.update)
    for target, source in beside.items():
        write_atomic(target, source.read_bytes())
    if args.json:
        output.print_json({**_facts(made), "beside": [str(target) for target in beside]})
        return
    print(text.harmless(f"Backup {made.path} ({text.size(made.bytes)}): {_holds(made)}. Opened and checked."))
    if made.left:
        left = ", ".join(f"{name} ({text.counted(count, 'row')})" for name, count in made.left.items())
        print(text.harmless(f"Not in it, kept from hermes-agent and not used here: {left}. A .db backup has them."))
    for target in beside:
        print(text.harmless(f"Beside it: {target}, which holds secrets"))
    if not beside:
        print("It holds the data, not config.yaml and .env; --with-secrets copies them too.")


def _secrets_beside(path: Path) -> dict[Path, Path]:
    """Where config.yaml and .env go; refused before anything is made when a name is taken."""
    home = hermes_home()
    found = {path.with_name(f"{path.name}.{name.lstrip('.')}"): home / name for name in _SECRETS}
    wanted = {target: source for target, source in found.items() if source.is_file()}
    taken = next((target for target in wanted if target.exists()), None)
    if taken is not None:
        raise UsageError("there is a file already", where=str(taken), hint="Give a new name.")
    return wanted


def _verify(args: argparse.Namespace) -> None:
    from hermes_state.transfer import backup

    found = backup.verify(_named(args.path), limits=config.load().limits)
    if args.json:
        output.print_json({**_facts(found), "ok": True})
        return
    print(text.harmless(f"{found.path} is whole: {_holds(found)}, made {text.when(found.made_at)}."))
    if found.others:
        print(text.harmless(f"Not of our schema, and not used: {', '.join(found.others[:10])}."))
    if found.broken_links:
        print(
            f"{text.counted(found.broken_links, 'row')} in it name rows that are gone; it can be restored all the same."
        )


def _restore(args: argparse.Namespace) -> int:
    from hermes_state.transfer import backup

    path, limits = _named(args.path), config.load().limits
    found = backup.verify(path, limits=limits)
    database = store.database_file(store.address())
    if path.suffix != ".zip" and database is None:
        raise UsageError(
            "this backup is a SQLite file and the store is on PostgreSQL",
            where=str(path),
            hint="Restore it in a home without a database URL, then hermes state move --to URL.",
        )
    question = f"Put {path.name} ({_holds(found)}, made {text.when(found.made_at)}) in the place of the store?"
    if not output.confirm(question, yes=args.yes):
        print("Nothing was changed.")
        return 1
    kept = None
    if path.suffix == ".zip":
        _restore_archive(path)
    elif database is not None:
        kept = backup.restore(path, database, home=hermes_home(), limits=limits)
    if args.json:
        output.print_json({**_facts(found), "restored": True, "replaced": None if kept is None else str(kept)})
        return 0
    print(text.harmless(f"Restored {path.name}: {_holds(found)}. The search index is made anew at the next search."))
    if kept is not None:
        print(text.harmless(f"What was there before: {kept}"))
    return 0


def _restore_archive(path: Path) -> None:
    from hermes_state.transfer import copy_all

    with store.open_store(create=True) as db, Progress("restoring", unit="rows") as progress:
        copy_all.restore_store(db, path, progress=progress.update)


def _list(args: argparse.Namespace) -> None:
    from hermes_state.transfer import backup

    found = backup.existing(hermes_home())
    if args.json:
        output.print_json([_facts(one) for one in found])
        return
    if not found:
        print(f"No backups in {hermes_home() / backup.FOLDER}. hermes backup create makes one.")
        return
    columns = (
        output.Column("name", shrinks=True),
        output.Column("made"),
        output.Column("size", right=True),
        output.Column("by"),
    )
    rows = [
        (one.path.name, text.when(one.made_at), text.size(one.bytes), "hermes" if one.automatic else "you")
        for one in found
    ]
    output.page(output.table(columns, rows))


def _named(name: str) -> Path:
    """A path, or the name of a backup of this home."""
    from hermes_state.transfer import backup

    path, inside = Path(name), hermes_home() / backup.FOLDER / Path(name).name
    return inside if not path.exists() and path.name == name and inside.exists() else path


def _holds(found: Backup) -> str:
    rows = found.rows or {}
    sessions, messages = rows.get("sessions", 0), rows.get("messages", 0)
    return f"{text.counted(sessions, 'session')}, {text.counted(messages, 'message')}"


def _facts(found: Backup) -> dict[str, Any]:
    return {
        "path": str(found.path),
        "bytes": found.bytes,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.made_at)),
        "automatic": found.automatic,
        "rows": found.rows,
        "broken_links": found.broken_links,
        "left": found.left,
    }
