"""A pretend phone in the terminal: somebody's chat with the bot, on a fake Telegram.

    python -m hermes_testing.phone --as ada
    echo "hello" | python -m hermes_testing.phone --as ada

At a terminal it takes the whole window: messages appear and change where they stand, buttons have numbers. In a pipe
it sends each line of its input, waits until the answer rests, and prints what was said.

It finds the fake by the file that `telegram --announce` writes (`--at`, by default `.demo/phone.json`), and looks
there again when the connection is lost: the next fake is elsewhere. It knows one chat: the private one with the
bot, or a group by `--chat`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import httpx2

from hermes_cli.framework.text import shorten
from hermes_cli.framework.text import width as width_of
from hermes_testing.phone import screen
from hermes_testing.phone.screen import Style, harmless
from hermes_testing.telegram.answers import Json
from hermes_testing.telegram.client import FakePerson, RemoteTelegram

DEFAULT_AT = Path(".demo/phone.json")
_HELP = ":file :photo :voice PATH · :edit TEXT (your last message) · :press N · :quit"
_HINT = "Enter sends · 1 2 3 press a button · PgUp scrolls · :help · Ctrl-C leaves"
_NO_CONNECTION = "no connection to the pretend Telegram; trying again (make run starts one)"
_FRAME_SECONDS = 0.05
_AGAIN_SECONDS = 0.5
_NOT_THE_END = "▉"
"""Stands behind an answer that is still being written (`streaming.cursor`)."""
_SETTLE_SECONDS = 2.0
"""Longer than the pause between two edits of an answer."""
_FIRST = "first make run, in another terminal"
_LOST = (httpx2.HTTPError, OSError)


class CannotReach(Exception):
    """There is no pretend Telegram to talk to."""


def found(path: Path) -> RemoteTelegram:
    """The fake that announced itself in this file. Raises `CannotReach`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return RemoteTelegram(raw["address"], raw["token"])
    except (OSError, ValueError, KeyError) as error:
        raise CannotReach(f"no demo is running here ({path} names none): {_FIRST}") from error


class Phone:
    """One person: does what a typed line says."""

    def __init__(self, at: Path, name: str, chat: int | None) -> None:
        """Raises `CannotReach`, and what the connection raises."""
        self._at, self._name = at, name
        self.chat = chat
        self.telegram, self.person = self._found()

    def _found(self) -> tuple[RemoteTelegram, FakePerson]:
        telegram = found(self._at)
        try:
            return telegram, telegram.person(self._name)
        except BaseException:
            telegram.close()
            raise

    def find_again(self) -> None:
        """Connect to the fake that is announced now: a new one has another address. Raises like `__init__`."""
        before = self.telegram
        self.telegram, self.person = self._found()
        before.close()

    def close(self) -> None:
        self.telegram.close()

    def look(self) -> Json:
        return self.person.look(chat=self.chat)

    def enter(self, line: str) -> str:
        """Do what the line says; return a text for the status line, or an empty one."""
        if line.strip().isdigit() and self._press(int(line)):
            return ""
        if not line.startswith(":"):
            if line.strip():
                self.person.say(line, chat=self.chat)
            return ""
        verb, _space, rest = line[1:].partition(" ")
        match verb:
            case "file" | "photo" | "voice":
                return self._attach(verb, rest.strip())
            case "edit":
                return self._edit(rest)
            case "press" if rest.strip().isdigit():
                return "" if self._press(int(rest)) else f"there is no button {rest.strip()}"
        return _HELP

    def _press(self, number: int) -> bool:
        shown = screen.buttons(self.look()["messages"])
        if not 1 <= number <= len(shown):
            return False
        message, button = shown[number - 1]
        if "callback_data" in button:
            self.telegram.call(
                "press", name=self.person.name, message=message, data=button["callback_data"], chat=self.chat
            )
        return True

    def _attach(self, kind: str, named: str) -> str:
        path = Path(named).expanduser()
        if not path.is_file():
            return f"there is no file {named}"
        send = {"file": self.person.document, "photo": self.person.photo, "voice": self.person.voice}[kind]
        send(path, chat=self.chat)
        return ""

    def _edit(self, text: str) -> str:
        mine = [message["id"] for message in self.look()["messages"] if message["mine"]]
        if not mine or not text.strip():
            return "nothing to edit"
        self.person.edit(mine[-1], text, chat=self.chat)
        return ""


class _Window:
    """The chat on a terminal. One thread watches the fake; the main thread reads keys and draws."""

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._chat = phone.look()
        self._line = InputLine()
        self._status = ""
        self._lost = False
        """Whether the connection is lost; then the last known action of the bot is not shown."""
        self._scrolled = 0
        self._left = threading.Event()
        self._drawn = ""
        self._laid_out: tuple[tuple[int, int], list[str]] = ((-1, 0), [])
        """Version, width and lines of the last layout: a long chat is not laid out again for every key."""

    def run(self) -> None:
        watcher = threading.Thread(target=self._watch, daemon=True)
        write("\x1b[?1049h\x1b[?2004l")
        try:
            with every_key():
                watcher.start()
                while not self._left.is_set():
                    self._draw()
                    for key in pressed(_FRAME_SECONDS):
                        self._key(key)
        finally:
            self._left.set()
            write("\x1b[?1049l")

    def _watch(self) -> None:
        while not self._left.is_set():
            try:
                chat = self._news()
            except (*_LOST, CannotReach, RuntimeError):  # the last: another fake, which does not know us yet
                self._lost = True
                self._left.wait(_AGAIN_SECONDS)
                continue
            self._lost = False
            if chat["toasts"] != self._chat["toasts"] and chat["toasts"]:
                self._status = harmless(chat["toasts"][-1]["text"])
            self._chat = chat

    def _news(self) -> Json:
        """Return the chat when it changes, or after a while; at once after a lost connection."""
        phone = self._phone
        if not self._lost:
            return phone.telegram.watch(phone.person.name, version=self._chat["version"], chat=phone.chat, within=2.0)
        phone.find_again()
        return phone.look() | {"version": -1}  # it counts on its own: what is seen next is laid out anew

    def _key(self, key: str) -> None:
        match key:
            case "ctrl-c" | "gone":
                self._left.set()
            case "ctrl-d" if not self._line.text:
                self._left.set()
            case "enter":
                self._enter(self._line.take())
            case "page up" | "up":
                self._scrolled += 10 if key == "page up" else 1
            case "page down" | "down":
                self._scrolled = max(0, self._scrolled - (10 if key == "page down" else 1))
            case "ctrl-l":
                self._drawn = ""
            case _:
                self._line.press(key)

    def _enter(self, line: str) -> None:
        if line.strip() in (":quit", ":q"):
            self._left.set()
            return
        self._scrolled = 0
        try:
            self._status = self._phone.enter(line)
        except _LOST:
            self._status = "not sent: no connection to the pretend Telegram"
            self._line.text, self._line.at = line, len(line)
        except RuntimeError as error:  # the fake says no: a message that cannot be sent
            self._status = harmless(str(error))

    def _draw(self) -> None:
        width, height = shutil.get_terminal_size()
        frame = "\r\n".join(self._rows(width, height))
        _typed, cursor = screen.window(harmless(self._line.text), self._line.at, width - 6)
        frame += f"\x1b[{height - 1};{5 + cursor}H"
        if frame != self._drawn:
            self._drawn = frame
            # Hidden while it moves over the screen, shown again at the line being typed.
            write(f"\x1b[?25l\x1b[H{frame}\x1b[?25h")

    def _rows(self, width: int, height: int) -> list[str]:
        style = Style()
        chat = self._chat
        room = max(1, height - 4)
        if (chat["version"], width) != self._laid_out[0]:
            self._laid_out = ((chat["version"], width), screen.lines(chat, width, style))
        every = self._laid_out[1]
        self._scrolled = min(self._scrolled, max(0, len(every) - room))
        end = len(every) - self._scrolled
        shown = every[max(0, end - room) : end]
        title = f"  ● {harmless(chat['title'])}   @{chat['bot']} · pretend Telegram"
        owner = f"you are {harmless(self._phone.person.name)}  "
        head = shorten(title + " " * max(1, width - width_of(title) - width_of(owner)) + owner, width)
        news = (self._status, _NO_CONNECTION if self._lost else screen.doing(chat))
        state = " · ".join(filter(None, news)) or ("↓ more below" if self._scrolled else "")
        typed, _cursor = screen.window(harmless(self._line.text), self._line.at, width - 6)
        foot = [
            "  " + style.paint(shorten(state, width - 3), "2;3"),
            f"  {style.paint('>', '1;34')} {typed}",
            "  " + style.paint(shorten(_HINT, width - 3), "2"),
        ]
        rows = [style.paint(head, "7"), *[""] * (room - len(shown)), *shown, *foot]
        return [f"{row}\x1b[K" for row in rows]


def _piped(phone: Phone, *, wait: float, settle: float) -> int:
    """Send the lines of stdin and print the conversation; return 1 when an answer did not come in time."""
    said: dict[int, tuple[str, list[list[Json]]]] = {
        message["id"]: (message["text"], message["buttons"]) for message in phone.look()["messages"]
    }
    missing = 0
    for line in sys.stdin:
        word = phone.enter(line.rstrip("\n"))
        if word:
            print(word, flush=True)
        rested = _rested(phone, wait=wait, settle=settle)
        for message in phone.look()["messages"]:
            now = (message["text"], message["buttons"])
            if said.get(message["id"]) != now:
                print(screen.plain(message, again=message["id"] in said), flush=True)
                said[message["id"]] = now
        if not rested:
            print(f"(no answer within {wait:g} s)", flush=True)
            missing = 1
    return missing


def _rested(phone: Phone, *, wait: float, settle: float) -> bool:
    """Wait until the bot has answered and then changed nothing for `settle` seconds; return whether it did."""
    deadline = time.monotonic() + wait
    chat = phone.look()
    quiet_since = time.monotonic()
    while time.monotonic() < deadline:
        known = chat["version"]
        chat = phone.telegram.watch(phone.person.name, version=known, chat=phone.chat, within=min(settle, 0.2))
        if chat["version"] != known or chat["action"]:
            quiet_since = time.monotonic()
        if chat["version"] != known:
            deadline = time.monotonic() + wait  # an answer that still grows is not missing
        last = chat["messages"][-1] if chat["messages"] else None
        answered = last is not None and last["bot"] and not last["text"].endswith(_NOT_THE_END)
        if answered and time.monotonic() - quiet_since >= settle:
            return True
    return False


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hermes_testing.phone",
        description="A pretend phone: one person's chat with the bot, on a pretend Telegram.",
        epilog="example: python -m hermes_testing.phone --as mallory",
    )
    parser.add_argument("--as", dest="name", default="ada", metavar="NAME", help="whose phone it is (ada)")
    parser.add_argument("--at", type=Path, default=DEFAULT_AT, help=f"where the fake announced itself ({DEFAULT_AT})")
    parser.add_argument("--chat", type=int, help="a group's id instead of the chat with the bot")
    parser.add_argument("--wait", type=float, default=30.0, help="in a pipe: seconds to wait for an answer (30)")
    parser.add_argument("--settle", type=float, default=_SETTLE_SECONDS, help="in a pipe: seconds without a change (2)")
    options = parser.parse_args(arguments)
    try:
        with contextlib.closing(Phone(options.at, options.name, options.chat)) as phone:
            if sys.stdin.isatty() and sys.stdout.isatty():
                _Window(phone).run()
                return 0
            return _piped(phone, wait=options.wait, settle=options.settle)
    except (CannotReach, *_LOST) as error:
        said = error if isinstance(error, CannotReach) else f"the demo of {options.at} does not answer: {_FIRST}"
        print(f"phone: {said}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"phone: {error}", file=sys.stderr)
        return 1


_NAMES = {
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x03": "ctrl-c", "\x04": "ctrl-d",
    "\x15": "ctrl-u", "\x17": "ctrl-w", "\x01": "home", "\x05": "end", "\x0c": "ctrl-l",
    "\x1b[D": "left", "\x1b[C": "right", "\x1b[A": "up", "\x1b[B": "down", "\x1b[H": "home", "\x1b[F": "end",
    "\x1b[1~": "home", "\x1b[4~": "end", "\x1b[7~": "home", "\x1b[8~": "end", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b[3~": "delete", "\x1b[5~": "page up", "\x1b[6~": "page down",
}  # fmt: skip
_SEQUENCE = re.compile(r"\x1b(?:\[\[.|\[[0-?]*[ -/]*[@-~]|O.)")
"""Of a key, whether it means something here or not."""


@contextlib.contextmanager
def every_key() -> Iterator[None]:
    """Read single keys instead of lines inside the block; restore the terminal afterwards."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setraw(number)
        # A line feed written goes on to mean "and to the first column", as everywhere else.
        mode = termios.tcgetattr(number)
        mode[1] |= termios.OPOST | termios.ONLCR
        termios.tcsetattr(number, termios.TCSADRAIN, mode)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def pressed(seconds: float) -> list[str]:
    """Return the keys pressed within this time: names (`enter`, `left`) or characters; `gone` without a terminal."""
    number = sys.stdin.fileno()
    if not select.select([number], [], [], seconds)[0]:
        return []
    raw = os.read(number, 4096)
    while raw and _unfinished(raw) and select.select([number], [], [], 0.05)[0]:
        raw += os.read(number, 4096)
    return list(_keys(raw.decode("utf-8", "ignore"))) if raw else ["gone"]


def _unfinished(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return re.search(rb"\x1b(?:O|\[[0-?]*)?$", raw) is not None


def _keys(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = next((mark for mark in sorted(_NAMES, key=len, reverse=True) if text.startswith(mark, at)), None)
        if found is not None:
            yield _NAMES[found]
            at += len(found)
            continue
        other = _SEQUENCE.match(text, at)  # F5, say: no text either
        if other is None and text[at] >= " ":
            yield text[at]
        at = other.end() if other else at + 1


class InputLine:
    """The line that the person types."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0

    def take(self) -> str:
        """Return the line and clear it."""
        text, self.text, self.at = self.text, "", 0
        return text

    def press(self, key: str) -> None:
        match key:
            case "backspace" if self.at:
                self.text = self.text[: self.at - 1] + self.text[self.at :]
                self.at -= 1
            case "delete":
                self.text = self.text[: self.at] + self.text[self.at + 1 :]
            case "left":
                self.at = max(0, self.at - 1)
            case "right":
                self.at = min(len(self.text), self.at + 1)
            case "home":
                self.at = 0
            case "end":
                self.at = len(self.text)
            case "ctrl-u":
                self.text, self.at = self.text[self.at :], 0
            case "ctrl-w":
                kept = self.text[: self.at].rstrip().rpartition(" ")
                start = len(kept[0]) + len(kept[1])
                self.text, self.at = self.text[:start] + self.text[self.at :], start
            case _ if len(key) == 1:
                self.text = self.text[: self.at] + key + self.text[self.at :]
                self.at += 1
