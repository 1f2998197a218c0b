"""Terminals of this machine that look on at a conversation, and the answer they see while the gateway makes it.

Whoever looks on says so, again and again, by touching a file of the conversation's (`look_on`). A turn that begins
while somebody does is written down as it comes in a second one, which is gone when the turn has ended; `made` reads it.
Nothing depends on either: what counts is what the store has. Files are named by a digest, because an id may come from
anywhere.

Limits: whoever comes in the middle of a turn sees what was said when it is stored, and the next turn as it comes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from hermes_config.home import private_open

if TYPE_CHECKING:
    from gateway.turns.running_turn import Watcher
    from hermes_state.turns.turns import Work

_log = logging.getLogger("hermes.gateway")
_FRESH_SECONDS = 10.0
TOUCH_SECONDS = 3.0
"""How often whoever looks on has to say so."""


class Made(NamedTuple):
    """What a turn has said so far: the words of its steps, of which the last may not be whole."""

    turn_id: str
    steps: list[str]


def look_on(home: Path, conversation_id: str) -> None:
    """Somebody looks on, for the next seconds."""
    eye = _file(home, conversation_id, ".eye")
    with contextlib.suppress(OSError):  # a full or read-only disk: they see the answer when it is stored
        eye.parent.mkdir(mode=0o700, exist_ok=True)
        eye.touch(mode=0o600)


def writer(home: Path, conversation_id: str) -> Watcher | None:
    """The watcher that writes a turn's answer down; None while nobody looks on."""
    try:
        touched = os.stat(_name(home, conversation_id, ".eye")).st_mtime  # noqa: PTH116 - asked at every turn
    except OSError:
        return None
    return _Writer(_file(home, conversation_id, ".live")) if time.time() - touched < _FRESH_SECONDS else None


def made(home: Path, conversation_id: str) -> Made | None:
    """What the turn that runs has said, if it is written down."""
    try:
        lines = _file(home, conversation_id, ".live").read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:  # it has not begun, or has ended
        return None
    if not lines:
        return None
    turn_id, *pieces = map(json.loads, lines)
    said: list[list[str]] = [[]]
    for piece in pieces:
        if piece is None:
            said.append([])
        else:
            said[-1].append(piece)
    return Made(str(turn_id), ["".join(step) for step in said])


def forget(home: Path) -> None:
    """At a start: what a lost process had begun to say is said anew, and whoever looked on long ago has gone."""
    for file in (home / "beside").glob("*"):
        with contextlib.suppress(OSError):  # somebody else was quicker
            if file.suffix != ".eye" or time.time() - file.stat().st_mtime > _FRESH_SECONDS:
                file.unlink()


def _file(home: Path, conversation_id: str, kind: str) -> Path:
    return Path(_name(home, conversation_id, kind))


@functools.lru_cache(maxsize=256)
def _name(home: Path, conversation_id: str, kind: str) -> str:
    name = hashlib.sha256(conversation_id.encode("utf-8", "replace")).hexdigest()[:32]
    return f"{home}/beside/{name}{kind}"


class _Writer:
    """One JSON value a line: the turn's id, then its words as they come, and null where a step has ended.

    A watcher is told on the event loop and a disk may be slow, so the file is touched by the pen alone: a thread that
    does one thing after the other, for all writers, because the next turn's file has the name of the last one's. What
    comes while it is busy is written at once when it is not: a disk that hangs costs the words, and nothing for each.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: deque[str | None] = deque()
        self._called = False
        """The pen knows that there is something to write."""
        self._file: IO[str] | None = None
        """The pen's."""

    def began(self, work: Work) -> None:
        _pen().submit(self._open)
        self._say(work.turn.id)

    def delta(self, text: str) -> None:
        self._say(text)

    def step(self) -> None:
        self._say(None)

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        return None

    def status(self, kind: str, text: str) -> None:
        return None

    def ended(self, result: dict[str, Any]) -> None:
        _pen().submit(self._close)

    def left(self) -> None:
        _pen().submit(self._close)

    def _say(self, value: str | None) -> None:
        self._said.append(value)
        if not self._called:
            self._called = True
            _pen().submit(self._write)

    # -- the pen's side --------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            self._file = private_open(self._path)
        except OSError as error:
            self._give_up(error)

    def _write(self) -> None:
        self._called = False  # first: what is said from here on is written now, or calls again
        lines = []
        while self._said:
            lines.append(f"{json.dumps(self._said.popleft())}\n")
        try:
            if self._file is not None:
                self._file.write("".join(lines))
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        with contextlib.suppress(OSError):  # half an answer would stand there as if it were being made
            self._path.unlink(missing_ok=True)
        _log.warning("nobody can look on at this turn: %s", error.strerror, extra={"action": "onlookers"})


@functools.cache
def _pen() -> ThreadPoolExecutor:
    """Made when somebody first looks on."""
    return ThreadPoolExecutor(1, thread_name_prefix="onlookers")
