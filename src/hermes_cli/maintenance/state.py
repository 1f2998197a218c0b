"""`hermes state`: check, fix, prune, index and move the store; convert a hermes-agent home.

Nothing here is needed for everyday use. Each verb shows what it would do before it removes or fixes anything.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

from hermes_agent import home_inventory
from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer, Progress
from hermes_cli.framework.parser import Parser, Verbs, positive
from hermes_cli.maintenance.config import hook_notes
from hermes_cli.maintenance.import_home import problem_lines
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_folder, ensure_home, hermes_home
from hermes_state import SessionDB
from hermes_state.errors import StateError
from hermes_state.maintenance import check, retention
from hermes_state.maintenance.retention import RetentionStep
from hermes_state.transfer import backup, copy_all
from hermes_state.transfer.copy_all import MoveResult
from hermes_state.transfer.import_home import in_use, rights, source, upgrade, write
from hermes_state.transfer.import_home.upgrade import Upgraded

_ADDRESS = "HERMES_DATABASE_URL"


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    about = "check the store; exit code 1 when there is a problem"
    checks = verbs.add("check", _check, about, "", "--fix", db=True, json=True)
    checks.add_argument("--fix", action="store_true", help="run the fixes that cannot lose data")
    checks.add_argument("--quick", action="store_true", help="do not read the whole database file")
    maintain = verbs.add(
        "maintain", _maintain, "remove expired data, and bring index and log up to date",
        "--dry-run", "--yes --vacuum", db=True, json=True, yes=True,
    )  # fmt: skip
    maintain.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    maintain.add_argument("--prune-days", type=positive, metavar="N", help="also remove ended conversations this old")
    maintain.add_argument("--vacuum", action="store_true", help="free unused disk space and wipe erased rows")
    move = verbs.add(
        "move", _move, "copy the whole store into an empty database, compared row by row",
        "--to postgresql://hermes@db.example/hermes", "--to sqlite:////srv/hermes/state.db", "--home", json=True,
    )  # fmt: skip
    where = move.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="URL", help="an empty database: postgresql://… or sqlite:///PATH")
    back = "move back to the home's own file and use it from then on; its old content is kept"
    where.add_argument("--home", action="store_true", help=back)
    verbs.add("reindex", _reindex, "rebuild the search index from the transcripts", db=True, json=True)
    verbs.add("upgrade", _upgrade, "convert a hermes-agent home in place, after a verified backup", json=True, yes=True)


def _check(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    fixed = check.fix(db) if args.fix else {}
    found = check.check(db, quick=args.quick)
    wrong = [one for one in found if not one.note]
    lines = [f"fixed   {code}: {count:,}" for code, count in fixed.items()]
    for one in sorted(found, key=lambda one: one.note):
        mark = output.style("note   ", "dim") if one.note else output.style("problem", "red")
        lines.append(f"{mark} {text.harmless(f'{one.code}: {one.what} ({one.count:,})')}")
        if one.examples:
            lines.append(text.harmless(f"        such as {', '.join(one.examples)}"))
        lines.append(text.harmless(f"        {one.fix}"))
    where = db.engine.where
    lines.append(text.harmless(f"{where}: {text.counted(len(wrong), 'problem') if wrong else 'no problem'}."))
    facts = {"where": where, "ok": not wrong, "findings": [asdict(one) for one in found], "mended": fixed}
    return CommandAnswer(facts, drawn="\n".join(lines), pages=False, code=1 if wrong else 0)


def _maintain(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    settings, home = config.load().sessions, hermes_home()
    days = args.prune_days or (settings.retention_days if settings.auto_prune else None)
    due = [step for step in retention.run(db, dry_run=True, prune_days=days, home=home) if step.count]
    would = _steps(due, dry_run=True)
    if args.dry_run:
        return would
    if due and not args.yes:
        if not args.json:
            would.print(as_json=False)
        names = ", ".join(step.what for step in due)
        prompts.confirm(f"Do this: {names}?" if args.json else "Do this?", yes=False)
    done = retention.run(db, prune_days=days, vacuum=args.vacuum, home=home)
    return _steps([step for step in done if step.count], dry_run=False)


def _steps(steps: list[RetentionStep], *, dry_run: bool) -> CommandAnswer:
    said = ["Would be done:" if dry_run else "Done:", *(f"  {step.count:>9,}  {step.what}" for step in steps)]
    document = {"dry_run": dry_run, "steps": [asdict(step) for step in steps]}
    return CommandAnswer(document, *(said if steps else ["There is nothing to remove."]))


def _move(args: argparse.Namespace) -> CommandAnswer:
    if args.home:
        return _move_home()
    target_file = store.database_file(args.to)
    if target_file is not None and not args.to.startswith("sqlite:///"):
        raise UsageError("the target is not an address", hint="Use postgresql://USER@HOST/DATABASE or sqlite:///PATH.")
    moved, here, there = _copied(args.to)
    said = _copied_lines(moved, here, there)
    said.append("To use it, set HERMES_DATABASE_URL to the address you gave, in the environment or in .env.")
    said.append(f"The source is unchanged: {here}")
    return _move_answer(moved, here, there, said)


def _copied(to: str) -> tuple[MoveResult, str, str]:
    """Copy the store to an address; return the result, the source and the target."""
    with store.open_store() as ours, closing(SessionDB(to, limits=config.load().limits)) as target:
        with Progress("moving", unit="rows") as progress:
            moved = copy_all.move(ours.engine, target.engine, progress=progress.update)
        return moved, ours.engine.where, target.engine.where


def _copied_lines(moved: MoveResult, here: str, there: str) -> list[str]:
    said = [f"Copied {moved.total:,} rows from {here} to {there}. Every row was read back and compared."]
    if moved.left:
        left = ", ".join(f"{name} ({text.counted(count, 'row')})" for name, count in moved.left.items())
        said.append(f"Not copied, because another program made them and Hermes does not use them: {left}.")
    return said


def _move_answer(moved: MoveResult, here: str, there: str, said: list[str]) -> CommandAnswer:
    error = StateError(
        "the source changed during the copy, and the copy lacks these changes", where=here,
        hint="Stop the gateway and move again, into an empty database.",
    )  # fmt: skip
    document = {
        "from": here, "to": there, "rows": moved.rows, "left": moved.left, "source_changed": moved.source_changed,
    }  # fmt: skip
    return CommandAnswer(document, *said, error=error if moved.source_changed else None)


def _move_home() -> CommandAnswer:
    """Copy into a draft, rename it to the home's file, then remove the other address from the settings."""
    home = hermes_home()
    database = home / "state.db"
    file = store.database_file(store.address())
    if file is not None and os.path.realpath(file) == os.path.realpath(database):
        raise UsageError("the store is already in the home's own file", where=str(database))
    with tempfile.TemporaryDirectory(prefix=".moving-", dir=ensure_folder(backup.FOLDER)) as folder:
        draft = Path(folder) / "state.db"
        moved, here, _ = _copied(f"sqlite:///{draft}")
        said = _copied_lines(moved, here, str(database))
        if moved.source_changed:
            return _move_answer(moved, here, str(database), ["Nothing was changed in the home."])
        kept = backup.restore(draft, database, home=home, limits=config.load().limits)
    if kept is not None:
        said.append(f"The old content of the file: {kept}")
    config.remove_variable(_ADDRESS)
    config.unset_value("state.database_url")
    if config.load().database_url():
        said.append(f"{_ADDRESS} is still set in the environment: unset it, or the old address is used.")
    else:
        said.append("Hermes uses this file from the next start on; .env and config.yaml no longer name the other.")
    said.append(f"The source is unchanged: {here}")
    return _move_answer(moved, here, str(database), said)


def _reindex(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    with Progress("indexing", unit="messages") as progress:
        db.reindex(progress.update)
    status = db.search_status()
    return CommandAnswer(status, f"The search index is rebuilt ({text.size(status['bytes'])}, {status['where']}).")


def _upgrade(args: argparse.Namespace) -> CommandAnswer:
    """Convert a hermes-agent home in place, and say how to go back."""
    in_use.refuse_hermes_agent_installed()
    home = hermes_home()
    file = store.database_file(store.address())
    if file is None or os.path.realpath(file) != os.path.realpath(home / "state.db"):
        raise UsageError(
            "an upgrade in place converts state.db of the home, but another database is configured",
            where=str(home),
            hint="Import the home instead: hermes import hermes PATH.",
        )
    found = upgrade.look(home)
    question = (
        f"Convert {home} in place ({len(found.sessions):,} sessions, {found.messages:,} messages)? "
        "A backup is made first; hermes-agent cannot use the home afterwards."
    )
    prompts.confirm(question, yes=args.yes)
    ensure_home()
    with ExitStack() as bars:
        upgraded = upgrade.upgrade(
            home, step=lambda what: bars.enter_context(Progress(what)).update, limits=config.load().limits
        )
    return _upgraded(upgraded)


def _changes() -> list[str]:
    """List the settings that work differently than in hermes-agent."""
    found = [*filter(None, [rights.backend_note(rights.read(hermes_home()))]), *hook_notes(config.load())]
    if unsafe := sum(one.stops_start for one in home_inventory.of(config.load())):
        what = "an entry" if unsafe == 1 else f"{unsafe} entries"
        found.append(f"Hermes does not use {what} that must be acknowledged before it starts: hermes config check")
    return found


def _upgraded(upgraded: Upgraded) -> CommandAnswer:
    home = hermes_home()
    with source.HomeDatabase(upgraded.backup) as opened:
        upgraded.found.source = opened
        facts = write.facts(upgraded.found, done=upgraded.done)
        folder = ensure_folder("import") / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
        write.keep(folder, upgraded.found, upgraded.done, facts)
    facts |= {"home": str(home), "backup": str(upgraded.backup), "report": str(folder)}
    brought = facts["brought"]
    database, copy = shlex.quote(f"{home}/state.db"), shlex.quote(str(upgraded.backup))
    return CommandAnswer(
        facts,
        f"{home} is converted: {brought['sessions']:,} sessions in {brought['conversations']:,} conversations, "
        f"{brought['messages']:,} messages, {brought['routes']:,} routes. Every row was compared.",
        *problem_lines(facts),
        *(f"Note: {note}." for note in _changes()),
        f"The backup: {upgraded.backup}",
        f"The full report and the entries set aside: {folder}",
        "To go back, stop Hermes and run this (newer data is not in the backup):",
        f"  rm -f {database}-wal {database}-shm && cp {copy} {database}",
    )
