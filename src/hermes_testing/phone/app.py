"""A pretend phone in the terminal: somebody's chat with the bot, on a fake Telegram.

    python -m hermes_testing.phone --as ada
    echo "hello" | python -m hermes_testing.phone --as ada

At a terminal it takes the whole window (`window`): messages appear and change where they stand, buttons have numbers.
In a pipe, and without Textual, it sends each line of its input, waits until the answer rests, and prints what was said.

It finds the fake by the file that `telegram --announce` writes (`--at`, by default `.demo/phone.json`), and looks
there again when the connection is lost: the next fake is elsewhere. It knows one chat: the private one with the
bot, or a group by `--chat`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import httpx2

from hermes_testing.phone import screen
from hermes_testing.telegram.answers import Json
from hermes_testing.telegram.client import FakePerson, RemoteTelegram

DEFAULT_AT = Path(".demo/phone.json")
_HELP = ":file :photo :voice PATH · :edit TEXT (your last message) · :press N · :quit"
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
            if sys.stdin.isatty() and sys.stdout.isatty() and find_spec("textual") is not None:
                from hermes_cli.main import flush_output
                from hermes_testing.phone.window import PhoneWindow

                code = PhoneWindow(phone).run() or 0
                flush_output()  # the terminal may be gone
                return code
            return _piped(phone, wait=options.wait, settle=options.settle)
    except (CannotReach, *_LOST) as error:
        said = error if isinstance(error, CannotReach) else f"the demo of {options.at} does not answer: {_FIRST}"
        print(f"phone: {said}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"phone: {error}", file=sys.stderr)
        return 1
