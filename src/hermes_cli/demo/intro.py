"""The demo's first screen and its last words, the same in the window and line by line.

A line of the card has two parts, a label and text, which are styled by the window or by `in_lines`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_cli.demo.processes import PHONE
from hermes_cli.framework import output, text
from hermes_state.ids import LOCAL_OWNER

if TYPE_CHECKING:
    from hermes_state import SessionDB

Lines = tuple[tuple[str, str], ...]
_LISTED = 3
_SOURCES = {"telegram": "phone", "api_server": "api", "cli": "terminal"}
_WIDE = 15
_EXAMPLES = (
    "list the files here · remember that Ada is allergic to nuts",
    "search our chats for 京都 · delete the folder old",
    "tell me the long story · /help · Ctrl-D leaves",
)
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


def card(db: SessionDB, shown: str, port: int, *, again: bool = False) -> Lines:
    """`shown`: the demo's folder, as the person typed it. `again`: another demo was there before."""
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
        *((("anew   ", "what was said in the last demo is gone; --home FOLDER begins another"),) if again else ()),
        ("", ""),
        *_listed("Conversations", [f"{'▸' if at == 0 else ' '} {talk}" for at, talk in enumerate(talks)]),
        *_listed("Try", _EXAMPLES),
    )


def _listed(label: str, lines: list[str] | tuple[str, ...]) -> Lines:
    return tuple((f"{label if at == 0 else '':<{_WIDE}}", line) for at, line in enumerate(lines))


def _phone(shown: str) -> str:
    """The command that opens the phone, from this folder."""
    if shown == "./.demo" and Path("Makefile").is_file():
        return "in a second terminal: make phone"
    return f"python -m hermes_testing.phone.app --at {shown}/{PHONE}"


def in_lines(card: Lines) -> list[str]:
    """The card for a terminal or a pipe."""
    (name, rest), *more = card
    styled = [f"{output.style(label, 'dim') if label.strip() else label}{words}" for label, words in more]
    return [f"{output.style(name, 'bold')}{rest}", *styled]


def closing(home: Path, shown: str) -> str:
    """How to continue in a shell in this folder."""
    return _CLOSING.format(go_on=output.style("Go on in this shell:", "bold"), shell=_shell_line(home, shown))


def _shell_line(home: Path, shown: str) -> str:
    """The line that points `hermes` at this home, and puts it on the path where it is not."""
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
