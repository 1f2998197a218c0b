"""`hermes demo` (and `make run`): Hermes on a throw-away home, with made-up conversations and the built-in model.

Builds the home anew each time, in `./.demo`, starts a pretend Telegram and a gateway on it, and opens the chat; without
a terminal it plays one turn and ends. `hermes demo crash` (`make crash`) kills that gateway. Tools work in the home's
own workspace, where there is something to list and something to delete. A folder is only ever cleared when it carries
the marker file that a demo left there and no demo runs on it. Needs no key and no network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_cli import demo_home, output, text
from hermes_cli.demo_processes import MARKER, OWNER_ID, PHONE, Backstage, Port, Telegram
from hermes_cli.parser import Parser, Verbs
from hermes_config.errors import UsageError
from hermes_config.home import private_open
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER

if TYPE_CHECKING:
    from gateway.entries import SessionSource

_MARKER_TEXT = "Made by hermes demo, which clears this folder each time it runs. Nothing here is real.\n"
_LISTED = 3
_PLAYED = "list the files here"
_ENDING_SECONDS = 5.0
_PACE = 60
"""Tokens a second at a terminal: quick to read, and the long story lasts long enough to be killed in."""
_PLACES = {"telegram": "phone", "api_server": "api", "cli": "terminal"}

_CONFIG = """\
# The demo's configuration; hermes config show prints it.
model: demo
demo:
  tokens_per_second: {pace}
budget:
  day:
    usd: 1
platforms:
  telegram:
    enabled: true
    home_channel: {{chat_id: "{owner}", name: Ada}}
    extra:
      base_url: {address}/bot
      base_file_url: {address}/file/bot
api_server:
  enabled: true
  port: {port}
gateway:
  drain_seconds: 2
"""
_FILES = {
    "notes.md": "# Notes\n\nKyoto: Yanagi is booked. Ask Omen about nuts.\n",
    "packing.txt": "passport\nadapter\nrain jacket\n",
    "old/draft-2019.txt": "Nothing in here is needed any more.\n",
}

_OPENING = """\
{name} · demo home {home}   (throw-away; ~/.hermes is not touched)
model  demo — built in, offline, scripted; it does not pretend to be clever
phone  pretend Telegram ({phone})
api    127.0.0.1:{port}      nothing leaves this machine

{talks}  {chats}
{wishes}            list the files here · remember that Ada is allergic to nuts
               search our chats for 京都 · delete the folder old
               tell me the long story · /new · /help · Ctrl-D leaves"""

_CLOSING = """\
{go_on}
  {shell}
  hermes trace last                       the life of the last message
  hermes --continue                       go on talking
  hermes -q "what is 17 * 4?"             one question, and back to the shell
  hermes sessions list                    what there is; search, show, lineage
  hermes sessions export trip.zip trip    one file, to take elsewhere
  hermes usage                            what it cost, and what is left
  hermes --help                           everything else"""


def register(parser: Parser) -> None:
    parser.epilog = "examples:\n  hermes demo\n  hermes demo --home try-hermes\n  hermes demo crash"
    parser.add_argument("--home", default=".demo", metavar="FOLDER", help="build the demo home here (default ./.demo)")
    parser.set_defaults(run=_demo)
    crash = Verbs(parser).add(
        "crash", _crash, help="kill the demo's gateway with -9 and see what becomes of the message it worked on",
        example="hermes demo crash",
    )  # fmt: skip
    crash.add_argument("--home", default=argparse.SUPPRESS, metavar="FOLDER", help="of the demo (default ./.demo)")


def _crash(args: argparse.Namespace) -> int:
    from hermes_cli import demo_crash

    return demo_crash.crash(Path(args.home))


def _demo(args: argparse.Namespace) -> int:
    home = Path(args.home)
    shown = str(home) if home.is_absolute() else f"./{home}"
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    _clear(home)
    closing = _CLOSING.format(go_on=output.style("Go on in this shell:", "bold"), shell=_shell_line(home, shown))
    # From here on this process lives in the demo home, and nowhere else.
    os.environ["HERMES_HOME"] = str(home.resolve())
    os.environ.pop("HERMES_DATABASE_URL", None)
    for number in (signal.SIGTERM,) if sys.platform == "win32" else (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    backstage, port = Backstage(home.resolve()), Port()
    try:
        backstage.start_telegram()
        demo_home.build(home / "state.db", time.time(), phone=OWNER_ID)
        _furnish(home, backstage.telegram(), port=port.number, pace=_PACE if at_terminal else 0)
        backstage.start_gateway()
        code = _talk(backstage, shown, port.number, at_terminal=at_terminal)
    finally:
        backstage.end()
        port.close()
    print(f"\n{closing}")
    return code


def _leave(number: int, frame: object) -> None:
    # What reads the line at the prompt may swallow the exit; the children end with our pipes.
    last = threading.Timer(5, os._exit, (128 + number,))
    last.daemon = True
    last.start()
    raise SystemExit(128 + number)


def _talk(backstage: Backstage, shown: str, port: int, *, at_terminal: bool) -> int:
    from hermes_cli import store
    from hermes_cli.demo_desk import DeskChat
    from hermes_config import config

    with store.open_store() as db:
        opening = _opening(db, shown, port)
        chat = DeskChat(db, config.load(), _phone(), trouble=lambda: backstage.problem)
        if at_terminal:
            return chat.talk(opening.split("\n"))
        print(f"{opening}\n")
        return chat.play(_PLAYED)


def _phone() -> SessionSource:
    """Ada's chat with the bot: the place that desk and phone share."""
    from gateway.config import Platform
    from gateway.entries import SessionSource

    chat = str(OWNER_ID)
    return SessionSource(Platform.TELEGRAM, chat, chat_type="dm", user_id=chat, user_name=demo_home.OWNER)


def _furnish(home: Path, telegram: Telegram, *, port: int, pace: int) -> None:
    """A configuration, the two secrets, and a workspace with a few files; where the tools work."""
    from gateway.api import keys
    from hermes_config import config

    with private_open(home / "config.yaml") as file:
        file.write(_CONFIG.format(pace=pace, address=telegram.address, port=port, owner=OWNER_ID))
    config.add_variable("TELEGRAM_BOT_TOKEN", telegram.token, home.resolve())
    keys.make(home.resolve())
    workspace = home / "workspace"
    for name, content in _FILES.items():
        path = workspace / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _opening(db: SessionDB, shown: str, port: int) -> str:
    rows = db.list_sessions_rich(owner=LOCAL_OWNER, order_by_last_active=True, compact_rows=True, limit=_LISTED)
    places = [_PLACES.get(row["source"], row["source"]) for row in rows]
    listed = [
        f"{row['title']} · {place} · {text.ago(row['last_active'])}" for row, place in zip(rows, places, strict=True)
    ]
    chats = "\n                 ".join(listed)
    return _OPENING.format(
        name=output.style("Hermes", "bold"), home=shown, chats=f"▸ {chats}", port=port, phone=_phone_line(shown),
        talks=output.style("Conversations", "dim"), wishes=output.style("Try", "dim"),
    )  # fmt: skip


def _phone_line(shown: str) -> str:
    """How to take the phone into one's hand, from this folder."""
    if shown == "./.demo" and Path("Makefile").is_file():
        return "in a second terminal: make phone"
    return f"python -m hermes_testing.phone --at {shown}/{PHONE}"


def _clear(home: Path) -> None:
    """An empty, marked, private folder; refused when there is one that no demo made, or that one lives on."""
    marker = home / MARKER
    _wait_for_the_last(home)
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


def _wait_for_the_last(home: Path) -> None:
    """The gateway of a demo that was killed ends within a moment; that of one that runs does not."""
    from gateway import status

    until = time.monotonic() + _ENDING_SECONDS
    while home.is_dir() and status.is_running(home):
        if time.monotonic() > until:
            raise UsageError(
                "a demo runs on this folder already", where=str(home),
                hint=f"Talk there, or end it with HERMES_HOME={home} hermes gateway stop, "
                     "or choose another folder with hermes demo --home FOLDER.",
            )  # fmt: skip
        time.sleep(0.1)


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
