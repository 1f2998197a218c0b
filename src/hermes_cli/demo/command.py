"""`hermes demo` (and `make run`): Hermes on a throw-away home, with made-up conversations and the built-in model.

Builds the home anew each time, in `./.demo`, starts a fake Telegram and a gateway on it, and opens the chat; without a
terminal it plays one turn and ends. `hermes demo crash` (`make crash`) kills that gateway. Tools work in the home's own
workspace. A folder is cleared only when it has the marker file of a demo and no demo runs on it. Needs no key and no
network.
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
from types import FrameType

from gateway import status
from gateway.api import auth
from gateway.platforms import registry
from hermes_agent import process_identity
from hermes_cli.chat import keyboard
from hermes_cli.demo import crash as demo_crash
from hermes_cli.demo import home as demo_home
from hermes_cli.demo.processes import MARKER, OWNER_ID, PHONE, DemoFailed, DemoProcesses, DemoTelegram
from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs
from hermes_cli.sessions import lookup
from hermes_cli.tui import launch
from hermes_cli.tui.rpc_client import ChatOptions
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import private_open
from hermes_config.version import module_command
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER

_MARKER_TEXT = """\
Made by hermes demo, which clears this folder each time it runs. Nothing here is real. Its process:
{pid}
"""
_PLAYED = "list the files here"
_ENDING_SECONDS = 5.0
_BY_SIGNAL = 128
_AGAIN_SECONDS = 0.05
_PACE = 60
"""Tokens a second at a terminal: quick to read, and the long story lasts long enough to be killed in."""

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


def register(parser: Parser) -> None:
    parser.add_examples("", "--plain", "--home try-hermes", "$ hermes demo crash")
    parser.add_argument("--plain", action="store_true", help="talk line by line, without the window")
    parser.add_argument("--home", default=".demo", metavar="FOLDER", help="build the demo home here (default ./.demo)")
    parser.set_defaults(run=_demo)
    about = "kill the demo's gateway with -9 and report what became of the message it worked on"
    verbs = Verbs(parser)
    crash = verbs.add("crash", _crash, about)
    phone = verbs.add("phone", _open_phone, "open a pretend phone for the running demo", "", "--as mallory")
    phone.add_argument("--as", dest="name", default="ada", metavar="NAME", help="whose phone it is (default ada)")
    for verb in (crash, phone):
        verb.add_argument("--home", default=argparse.SUPPRESS, metavar="FOLDER", help="of the demo (default ./.demo)")


def _crash(args: argparse.Namespace) -> int:
    return demo_crash.crash(Path(args.home))


def _open_phone(args: argparse.Namespace) -> int:
    phone = [*module_command("hermes_testing.phone"), "--at", str(Path(args.home) / PHONE), "--as", args.name]
    return output.give_terminal(phone)


def _demo(args: argparse.Namespace) -> int:
    home = Path(args.home)
    shown = str(home) if home.is_absolute() else f"./{home}"
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    registry.installed("telegram")
    again = _clear(home)
    last_words = closing(home, shown)
    # From here on this process uses the demo home alone.
    os.environ["HERMES_HOME"] = str(home.resolve())
    os.environ.pop("HERMES_DATABASE_URL", None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _quit)
    processes = DemoProcesses(home.resolve())
    try:
        processes.start_telegram()
        demo_home.build(home / "state.db", time.time(), phone=OWNER_ID)
        _furnish(home, processes.telegram(), port=processes.port, pace=_PACE if at_terminal else 0)
        processes.start_gateway()
        with store.open_store() as db:
            intro = card(db, shown, processes.port, again=again)
        if not args.plain and launch.can_open():
            code = _open_window(processes, intro, home / "workspace")
        else:
            code = _talk(processes, intro, home / "workspace", at_terminal=at_terminal)
    finally:
        processes.end()
    if processes.problem:
        raise DemoFailed(processes.problem, where=str(home))
    if code < _BY_SIGNAL:  # after a signal nobody may read it
        print(f"\n{last_words}")
    return code


def _quit(number: int, frame: FrameType | None) -> None:
    if keyboard.in_readline(frame):  # readline would swallow the exit; it is repeated when readline waits for keys
        again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    raise SystemExit(128 + number)


def _open_window(processes: DemoProcesses, intro: Lines, workspace: Path) -> int:
    """Open the window at the phone's conversation, while the gateway gets ready."""
    print(in_lines(intro)[0], flush=True)

    def wanted() -> ChatOptions:
        return ChatOptions(session_id=_trip(processes), card=intro)

    return launch.open_window(wanted, folder=workspace)


def _talk(processes: DemoProcesses, intro: Lines, workspace: Path, *, at_terminal: bool) -> int:
    """Open the line chat there instead; without a terminal, play one turn."""
    from hermes_cli.chat.repl import LineChat

    lines = in_lines(intro)
    chat = LineChat(ChatOptions(session_id=_trip(processes)), folder=workspace, opening=lines if at_terminal else [])
    if at_terminal:
        return chat.talk()
    print("\n".join([*lines, ""]), flush=True)
    return chat.play(_PLAYED)


def _trip(processes: DemoProcesses) -> str:
    """Wait for the gateway and return the phone's conversation."""
    processes.wait()
    with store.open_store() as db:
        return str(lookup.find(db, demo_home.TRIP)["id"])


def _furnish(home: Path, telegram: DemoTelegram, *, port: int, pace: int) -> None:
    """Write a configuration, the two secrets, and a workspace with a few files for the tools."""
    with private_open(home / "config.yaml") as file:
        file.write(_CONFIG.format(pace=pace, address=telegram.address, port=port, owner=OWNER_ID))
    config.add_variable("TELEGRAM_BOT_TOKEN", telegram.token, home.resolve())
    auth.make(home.resolve())
    workspace = home / "workspace"
    for name, content in _FILES.items():
        path = workspace / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _clear(home: Path) -> bool:
    """Make an empty, marked, private folder; refused when no demo made the present one, or one runs on it.

    Returns whether an earlier demo's conversations were removed.
    """
    marker = home / MARKER
    _wait_for_the_last(home)
    try:
        empty = home.is_dir() and not any(home.iterdir())
        if home.is_symlink() or (home.exists() and not (empty or marker.is_file())):
            hint = "Choose another one with hermes demo --home FOLDER."
            raise UsageError("this folder was not made by a demo, so nothing was changed", where=str(home), hint=hint)
        again = (home / "state.db").is_file()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_open(marker) as file:
            file.write(_MARKER_TEXT.format(pid=os.getpid()))
        # The marker stays, so that the demo can be run again when it is interrupted here.
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry != marker:
                entry.unlink()
    except OSError as error:
        raise UsageError(f"the demo home cannot be made: {error.strerror}", where=str(home)) from error
    return again


def _wait_for_the_last(home: Path) -> None:
    """Wait for the gateway of a killed demo, which ends within a moment; refuse when it does not."""
    until = time.monotonic() + _ENDING_SECONDS
    while home.is_dir() and status.is_running(home):
        if time.monotonic() > until:
            hint = f"Talk there, or end it with {_ending(home)}, or choose another: hermes demo --home FOLDER."
            raise UsageError("a demo runs on this folder already", where=str(home), hint=hint)
        time.sleep(0.1)


def _ending(home: Path) -> str:
    """Return the way to end the demo on this folder, or a gateway that runs there without a demo."""
    marker = home / MARKER
    number = marker.read_text(encoding="utf-8").split()[-1] if marker.is_file() else ""
    if number.isdecimal() and process_identity.started(int(number)) is not None:
        return f"Ctrl-D there (or kill {number})"
    return f"HERMES_HOME={home} hermes gateway stop"


# -- the first screen and the last words, the same in the window and line by line -------------------------------------

Lines = tuple[tuple[str, str], ...]
"""A line has two parts, a label and text."""
_LISTED = 3
_SOURCES = {**text.SOURCE_NAMES, "telegram": "phone"}
_WIDE = 15
_EXAMPLES = (
    "list the files here · remember that Ada is allergic to nuts",
    "search our chats for 京都 · delete the folder old",
    "remind me in 5 minutes to eat · compare tea and coffee",
    "tell me the long story · /help · Ctrl-D leaves",
)
_CLOSING = """\
{go_on}
  {shell}
  hermes trace last                       what happened to the last message
  hermes --continue                       continue the conversation
  hermes -q "what is 17 * 4?"             one question, and back to the shell
  hermes sessions list                    your conversations; search, show …
  hermes sessions export trip.zip trip    one conversation as a file
  hermes usage                            what it cost, and what is left
  hermes --help                           everything else"""


def card(db: SessionDB, shown: str, port: int, *, again: bool = False) -> Lines:
    """Make the first lines. `shown`: the demo's folder as the person typed it; `again`: a demo was there before."""
    rows = db.list_sessions_rich(owner=LOCAL_OWNER, order_by_last_active=True, compact_rows=True, limit=_LISTED)
    talks = [
        f"{row['title']} · {_SOURCES.get(row['source'], row['source'])} · {text.ago(row['last_active'])}"
        for row in rows
    ]
    return (
        ("Hermes", f" · demo home {shown}   (throw-away; ~/.hermes is not touched)"),
        ("model  ", "demo — built in, offline, scripted; it does not pretend to be clever"),
        ("phone  ", f"pretend Telegram ({_phone(shown)})"),
        ("api    ", f"127.0.0.1:{port}      nothing leaves this machine"),
        *((("new    ", "the last demo's conversations were removed; --home FOLDER: another home"),) if again else ()),
        ("", ""),
        *_listed("Conversations", [f"{'▸' if at == 0 else ' '} {talk}" for at, talk in enumerate(talks)]),
        *_listed("Try", _EXAMPLES),
    )


def _listed(label: str, lines: list[str] | tuple[str, ...]) -> Lines:
    return tuple((f"{label if at == 0 else '':<{_WIDE}}", line) for at, line in enumerate(lines))


def _phone(shown: str) -> str:
    """Return the command that opens the phone from this folder."""
    if shown == "./.demo" and Path("Makefile").is_file():
        return "in a second terminal: make phone"
    return f"in a second terminal: hermes demo phone{'' if shown == './.demo' else f' --home {shown}'}"


def in_lines(card: Lines) -> list[str]:
    """Return the card as lines for a terminal or a pipe."""
    (name, rest), *more = card
    styled = [f"{output.style(label, 'dim') if label.strip() else label}{words}" for label, words in more]
    return [f"{output.style(name, 'bold')}{rest}", *styled]


def closing(home: Path, shown: str) -> str:
    """Return the last lines: how to continue in a shell in this folder."""
    return _CLOSING.format(go_on=output.style("Continue in this shell:", "bold"), shell=_shell_line(home, shown))


def _shell_line(home: Path, shown: str) -> str:
    """Return the line that sets HERMES_HOME, and PATH if `hermes` is not on it."""
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
