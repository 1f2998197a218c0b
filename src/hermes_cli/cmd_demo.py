"""`hermes demo` (and `make run`): Hermes on a throw-away home, with made-up conversations.

Builds the home anew each time, in `./.demo`, and shows what the memory can do, each screen under the command that
prints it. A folder is only ever cleared when it carries the marker file that a demo left there, so no home of
somebody can be mistaken for one. Needs no key, no network and no terminal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from hermes_cli import cmd_sessions_list, cmd_sessions_search, demo_home, finding, lineage_view, output
from hermes_cli.parser import Parser
from hermes_config.errors import UsageError
from hermes_config.home import private_open
from hermes_state import SessionDB

_MARKER = "THIS_IS_A_DEMO"
_MARKER_TEXT = "Made by hermes demo, which clears this folder each time it runs. Nothing here is real.\n"
_COLUMNS = 80

_OPENING = """\
{name} · demo home {home}   (throw-away; ~/.hermes is not touched)
model  none yet: this is the memory, where what was said is kept and found
data   {count} made-up conversations in one SQLite file; nothing leaves this machine"""

_CLOSING = """\
{go_on}
  {shell}
  hermes sessions show "Trip to Kyoto"    what was said; --lineage for all of it
  hermes sessions search nuts -C 1        with the messages around each hit
  hermes sessions export trip.zip trip    one file, to take elsewhere
  hermes sessions stats                   where the data is, and how much
  hermes --help                           everything else"""


def register(parser: Parser) -> None:
    parser.epilog = "examples:\n  hermes demo\n  hermes demo --home try-hermes"
    parser.add_argument("--home", default=".demo", metavar="FOLDER", help="build the demo home here (default ./.demo)")
    parser.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> None:
    home = Path(args.home)
    shown = str(home) if home.is_absolute() else f"./{home}"
    _clear(home)
    demo_home.build(home / "state.db", time.time())
    db = SessionDB(home / "state.db")
    try:
        print("\n".join(_screens(db, home, shown)))
    finally:
        db.close()


def _clear(home: Path) -> None:
    """An empty, marked, private folder; refused when there is one that no demo made."""
    marker = home / _MARKER
    try:
        if home.is_symlink() or (home.exists() and not (_is_empty(home) or marker.is_file())):
            raise UsageError(
                "this folder was not made by a demo, so it is left alone",
                where=str(home),
                hint="Choose another one with hermes demo --home FOLDER.",
            )
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_open(marker) as file:
            file.write(_MARKER_TEXT)
        # The marker stays, so that a demo that was interrupted here can be run again.
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry != marker:
                entry.unlink()
    except OSError as error:
        raise UsageError(f"the demo home cannot be made: {error.strerror}", where=str(home)) from error


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _screens(db: SessionDB, home: Path, shown: str) -> list[str]:
    rows = db.list_sessions_rich(order_by_last_active=True, compact_rows=True)
    total = db.session_count(exclude_children=True, include_archived=True)
    opening = _OPENING.format(name=output.style("Hermes", "bold"), home=shown, count=total)
    screens = [opening, "", _command("hermes sessions list"), cmd_sessions_list.listing(rows, window=_COLUMNS)]
    for query in ("京都", "ryokan"):
        screens += ["", _command(f"hermes sessions search {query}"), _found(db, query)]
    trip = finding.find(db, "Trip to Kyoto")
    screens += ["", _command('hermes sessions lineage "Trip to Kyoto"'), _tree(db, trip["id"])]
    go_on = output.style("Go on in this shell:", "bold")
    return [*screens, "", _CLOSING.format(go_on=go_on, shell=_shell_line(home, shown))]


def _command(line: str) -> str:
    return output.style("$ ", "dim") + output.style(line, "bold")


def _found(db: SessionDB, query: str) -> str:
    return cmd_sessions_search.results(cmd_sessions_search.grouped(db, db.search_messages(query)), columns=_COLUMNS)


def _tree(db: SessionDB, session_id: str) -> str:
    from hermes_state import family

    found = family.of(db, session_id)
    assert found is not None  # it was built a moment ago, and nobody else has this folder
    return lineage_view.tree(found, asked=session_id, columns=_COLUMNS)


def _shell_line(home: Path, shown: str) -> str:
    """What makes `hermes` mean this home: the folder, and the command itself where it is not on the path."""
    folder = shown if home.is_absolute() else f"$PWD/{shown.removeprefix('./')}"
    words = [f'export HERMES_HOME="{folder}"']
    if os.environ.get("HERMES_DATABASE_URL"):  # it would win over the home
        words.append("HERMES_DATABASE_URL=")
    bin_folder = Path(sys.prefix) / "bin"
    if shutil.which("hermes") != str(bin_folder / "hermes"):
        local = Path(".venv")
        inside = "$PWD/.venv/bin" if local.exists() and local.samefile(sys.prefix) else str(bin_folder)
        words.append(f'PATH="{inside}:$PATH"')
    return " ".join(words)
