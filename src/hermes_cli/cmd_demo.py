"""`hermes demo` (and `make run`): Hermes on a throw-away home, with made-up conversations and the built-in model.

Builds the home anew each time, in `./.demo`, and opens the line chat on it; without a terminal it plays one turn and
ends. Tools work in the home's own workspace, where there is something to list and something to delete. A folder is only
ever cleared when it carries the marker file that a demo left there, so no home of somebody can be mistaken for one.
Needs no key and no network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from hermes_cli import demo_home, output, text
from hermes_cli.parser import Parser
from hermes_config.errors import UsageError
from hermes_config.home import private_open
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER

_MARKER = "THIS_IS_A_DEMO"
_MARKER_TEXT = "Made by hermes demo, which clears this folder each time it runs. Nothing here is real.\n"
_LISTED = 3
_PLAYED = "list the files here"

_CONFIG = """\
# The demo's configuration; hermes config show prints it.
model: demo
demo:
  tokens_per_second: {pace}
budget:
  day:
    usd: 1
"""
_FILES = {
    "notes.md": "# Notes\n\nKyoto: Yanagi is booked. Ask Omen about nuts.\n",
    "packing.txt": "passport\nadapter\nrain jacket\n",
    "old/draft-2019.txt": "Nothing in here is needed any more.\n",
}

_OPENING = """\
{name} · demo home {home}   (throw-away; ~/.hermes is not touched)
model  demo — built in, offline, scripted; it does not pretend to be clever
data   {count} made-up conversations in one SQLite file; nothing leaves this machine

{talks}  {chats}
{wishes}            list the files here · remember that Ada is allergic to nuts
               search our chats for 京都 · delete the folder old
               tell me the long story · /resume trip · /help · Ctrl-D leaves"""

_CLOSING = """\
{go_on}
  {shell}
  hermes --continue                       go on talking
  hermes -q "what is 17 * 4?"             one question, and back to the shell
  hermes sessions list                    what there is; search, show, lineage
  hermes sessions export trip.zip trip    one file, to take elsewhere
  hermes usage                            what it cost, and what is left
  hermes --help                           everything else"""


def register(parser: Parser) -> None:
    parser.epilog = "examples:\n  hermes demo\n  hermes demo --home try-hermes"
    parser.add_argument("--home", default=".demo", metavar="FOLDER", help="build the demo home here (default ./.demo)")
    parser.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> int:
    home = Path(args.home)
    shown = str(home) if home.is_absolute() else f"./{home}"
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    _clear(home)
    demo_home.build(home / "state.db", time.time())
    workspace = _furnish(home, pace=30 if at_terminal else 0)
    closing = _CLOSING.format(go_on=output.style("Go on in this shell:", "bold"), shell=_shell_line(home, shown))
    # From here on this process lives in the demo home, and nowhere else.
    os.environ["HERMES_HOME"] = str(home.resolve())
    os.environ.pop("HERMES_DATABASE_URL", None)
    code = _talk(workspace, shown, at_terminal=at_terminal)
    print(f"\n{closing}")
    return code


def _talk(workspace: Path, shown: str, *, at_terminal: bool) -> int:
    from hermes_cli import chat_desk, chat_line, chat_once, store
    from hermes_config import config

    wishes = chat_desk.Wishes(workdir=workspace)
    with store.open_store() as db:
        opening = _opening(db, shown)
        if at_terminal:
            return chat_line.talk(db, config.load(), wishes, opening=opening.split("\n"))
        print(f"{opening}\n")
        return chat_once.play(db, config.load(), wishes, _PLAYED)


def _furnish(home: Path, *, pace: int) -> Path:
    """A configuration, and a workspace with a few files; where the tools work."""
    with private_open(home / "config.yaml") as file:
        file.write(_CONFIG.format(pace=pace))
    workspace = home.resolve() / "workspace"
    for name, content in _FILES.items():
        path = workspace / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return workspace


def _opening(db: SessionDB, shown: str) -> str:
    rows = db.list_sessions_rich(owner=LOCAL_OWNER, order_by_last_active=True, compact_rows=True, limit=_LISTED)
    count = db.session_count(exclude_children=True, include_archived=True)
    chats = "\n               ".join(
        f"{row['title']} · {row['source']} · {text.ago(row['last_active'])}" for row in rows
    )
    return _OPENING.format(
        name=output.style("Hermes", "bold"), home=shown, count=count, chats=chats,
        talks=output.style("Conversations", "dim"), wishes=output.style("Try", "dim"),
    )  # fmt: skip


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
