"""`hermes state upgrade`: convert a home of the reference in place, and say how to go back."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hermes_cli import cmd_import, output, store, text
from hermes_cli.progress import Progress
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_folder, ensure_home, hermes_home

if TYPE_CHECKING:
    from hermes_state.transfer.import_home.upgrade import Upgraded


def run_upgrade(args: argparse.Namespace) -> None:
    """Takes `yes` and `json` from the arguments."""
    from hermes_state.transfer.import_home import in_use, upgrade

    in_use.refuse_hermes_agent_installed()
    home = hermes_home()
    file = store.database_file(store.address())
    if file is None or os.path.realpath(file) != os.path.realpath(home / "state.db"):
        raise UsageError(
            "an upgrade in place converts state.db of the home, but another database is configured",
            where=str(home),
            hint="Bring the home over instead: hermes import hermes PATH.",
        )
    found = upgrade.look(home)
    question = (
        f"Convert {home} in place ({len(found.sessions):,} sessions, {found.messages:,} messages)? "
        "A backup is made first; the other program will not be able to use the home afterwards."
    )
    if not output.confirm(question, yes=args.yes):
        print("Nothing was changed.")
        return
    ensure_home()
    with ExitStack() as bars:
        upgraded = upgrade.upgrade(
            home, step=lambda what: bars.enter_context(Progress(what)).update, limits=config.load().limits
        )
    _tell(upgraded, as_json=args.json)


def _changes() -> list[str]:
    """What the same configuration means here and did not mean before."""
    from gateway import hooks
    from hermes_state.transfer.import_home import rights

    backend, enabled = rights.backend_note(rights.read(hermes_home())), hooks.enabled_hooks(config.load())
    found = [backend.removesuffix(". The line stays behind")] if backend else []
    for name in hooks.hooks_off(config.load()):
        found.append(f"the hook {name} is not loaded; to load it: {hooks.how_to_enable(name, enabled)}")
    return found


def _tell(upgraded: Upgraded, *, as_json: bool) -> None:
    from hermes_state.transfer.import_home import source, write

    home = hermes_home()
    with source.HomeDatabase(upgraded.backup) as opened:
        upgraded.found.source = opened
        facts = write.facts(upgraded.found, done=upgraded.done)
        folder = ensure_folder("import") / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
        write.keep(folder, upgraded.found, upgraded.done, facts)
    facts |= {"home": str(home), "backup": str(upgraded.backup), "report": str(folder)}
    if as_json:
        output.print_json(facts)
        return
    brought = facts["brought"]
    print(
        f"{home} is converted: {brought['sessions']:,} sessions in {brought['conversations']:,} conversations, "
        f"{brought['messages']:,} messages, {brought['routes']:,} routes. Every row was compared."
    )
    for line in cmd_import.problem_lines(facts):
        print(line)
    for note in _changes():
        print(text.harmless(f"Note: {note}."))
    print(f"The backup: {upgraded.backup}")
    print(f"The full report, and what was set aside: {folder}")
    print("To go back, with Hermes stopped (what was written since then is not in the backup):")
    database, backup = shlex.quote(f"{home}/state.db"), shlex.quote(str(upgraded.backup))
    print(f"  rm -f {database}-wal {database}-shm && cp {backup} {database}")
