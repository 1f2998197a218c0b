"""Shows a turn as plain lines: the streamed answer, one line per tool call, notes and a footer.

The answer and the notes are two streams, so a program that reads the answer from a pipe gets only the answer. This
module makes all text from models, tools and strangers harmless.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from hermes_cli.framework import output, text

_WAITING = "…"
_SHOWN = 200


class Screen:
    """The output of one chat. Only the main thread uses it."""

    def __init__(self, *, answer: TextIO | None = None, aside: TextIO | None = None) -> None:
        self._answer = sys.stdout if answer is None else answer
        self._aside = sys.stdout if aside is None else aside
        self._live = self._aside.isatty() and _draws()
        self._wrap = Wrap(_window) if self._answer.isatty() and _draws() else None
        self._mid_line = False
        self._passing = False
        """The last line is temporary: a running tool call, or the waiting mark."""

    # -- the answer --------------------------------------------------------------------------------------

    def answer(self, piece: str) -> None:
        """Show the next piece of the answer."""
        shown = text.harmless_block(piece)
        if not self._mid_line:
            shown = shown.lstrip("\n")  # some models begin with empty lines
        if not shown:
            return
        self._wipe_temporary()
        self._answer.write(self._wrap.add(shown) if self._wrap else shown)
        self._answer.flush()
        self._mid_line = not shown.endswith("\n")

    def end_answer(self) -> None:
        self._wipe_temporary()
        if self._mid_line:
            self._answer.write(f"{self._wrap.rest()}\n" if self._wrap else "\n")
            self._answer.flush()
            self._mid_line = False
        if self._wrap:
            self._wrap = Wrap(_window)

    # -- notes -------------------------------------------------------------------------------------------

    def banner(self, lines: Iterable[str]) -> None:
        """Show lines that already have their colours."""
        self.end_answer()
        self._aside.write("".join(f"{line}\n" for line in lines))
        self._aside.flush()

    def say(self, block: str, *, style: str = "") -> None:
        """Show lines outside the answer."""
        self.end_answer()
        shown = text.harmless_block(block)
        if self._live:
            wrap = Wrap(_window)
            shown = wrap.add(shown) + wrap.rest()
        for line in shown.split("\n"):
            self._aside.write(f"{output.style(line, style) if style and self._live and line else line}\n")
        self._aside.flush()

    def note(self, line: str) -> None:
        """Show a note in one dim line."""
        self.say(f"· {text.harmless(line)}", style="dim")

    def trouble(self, line: str) -> None:
        self.say(f"✗ {text.harmless(line)}", style="red")

    def tool_started(self, name: str, summary: str) -> None:
        """Show a running tool call as a temporary line; a pipe shows only its outcome."""
        self.end_answer()
        self._pass(self._fit(f"{_WAITING} {_call(name, summary)}"))

    def tool_ended(self, name: str, summary: str, *, seconds: float, failed: bool, why: str) -> None:
        self.end_answer()
        call = _call(name, summary)
        told = f" · {text.harmless(why.strip().partition(chr(10))[0])}" if failed and why.strip() else ""
        line = self._fit(f"{'✗' if failed else '✓'} {call}", end=f" · {duration(seconds)}", more=told)
        styled = output.style(line, "yellow" if failed else "dim") if self._live else line
        self._aside.write(f"{styled}\n")
        self._aside.flush()

    def waiting(self) -> None:
        """Show the waiting mark after a moment without output."""
        if not self._mid_line and not self._passing:
            self._pass(_WAITING)

    def typed(self) -> None:
        """Note that the person pressed Enter, so the terminal has begun a new line."""
        if self._wrap:
            self._answer.write(self._wrap.rest())
        self._mid_line = self._passing = False

    def _pass(self, line: str) -> None:
        if self._live:
            self._passing = True
            self._aside.write(output.style(line, "dim"))
            self._aside.flush()

    def _wipe_temporary(self) -> None:
        """Wipe the temporary line."""
        if self._passing:
            self._passing = False
            self._aside.write("\r\x1b[K")
            self._aside.flush()

    def _fit(self, line: str, *, end: str = "", more: str = "") -> str:
        """Shorten a line to the window but keep its `end`; a pipe has a fixed limit."""
        columns = _window() if self._live else _SHOWN
        call = text.shorten(line, max(columns - text.width(end) - min(text.width(more), columns // 3), 16))
        return text.shorten(f"{call}{end}{more}", columns)


def _draws() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb"


def _window() -> int:
    return shutil.get_terminal_size().columns - 1


def _call(name: str, summary: str) -> str:
    return f"{text.harmless(name)}  {text.harmless(summary)}".rstrip()


def duration(seconds: float) -> str:
    """`12 ms`, `1.4 s`, `2:05 min`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return time.strftime("%-H:%M:%S h" if seconds >= 3_600 else "%-M:%S min", time.gmtime(seconds))


_FENCE = "```"
_ITEM = re.compile(r" {0,3}(?:[-*•·✗]|\d{1,3}[.)]) +|> +")
_CODE_INDENT = "    "


class Wrap:
    """Wraps one streamed harmless text. `columns` is called for every word: windows change their size."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._word = ""
        self._gap = ""
        self._line = ""
        """The shown part of the current line, without wrapped lines."""
        self._at = 0
        self._fenced = False

    def add(self, piece: str) -> str:
        """Add a piece; return the text that can be shown now."""
        shown: list[str] = []
        for character in piece:
            if character == "\n":
                shown += [self._let(), self._end_line()]
            elif character == " ":
                shown.append(self._let())
                self._gap += " "
            elif text.width(character) == 2:
                shown.append(self._let())
                self._word = character
                shown.append(self._let())
            else:
                self._word += character
        return "".join(shown)

    def rest(self) -> str:
        """Return the text that is still held back."""
        shown = self._let()
        self._gap = ""
        return shown

    def _let(self) -> str:
        """Return the held word, on a new line when it does not fit on this one."""
        word, gap = self._word, self._gap
        if not word:
            return ""
        self._word = self._gap = ""
        wide = text.width(word)
        room = self._columns()
        breaks = self._at and self._at + len(gap) + wide > room and wide <= room and not self._is_code()
        indent = self._indent() if breaks else ""
        reached = len(indent) + wide if breaks else self._at + len(gap) + wide
        self._at = reached if reached <= room else reached % max(room, 1)  # the terminal wraps a wider word
        self._line += gap + word
        return f"\n{indent}{word}" if breaks else gap + word

    def _end_line(self) -> str:
        if self._line.lstrip().startswith(_FENCE):
            self._fenced = not self._fenced
        self._line, self._gap, self._at = "", "", 0
        return "\n"

    def _is_code(self) -> bool:
        return self._fenced or self._line.startswith((_CODE_INDENT, _FENCE))

    def _indent(self) -> str:
        """Return the indent under the first word of a list item."""
        item = _ITEM.match(self._line)
        return " " * len(item[0]) if item else ""


Payload = Mapping[str, Any]
_CLIENTS = {"tui": "another window"}


class EventLines:
    """Shows the events of one conversation. `at_prompt`: a person is typing; `ended` is called after each turn."""

    def __init__(self, screen: Screen, *, at_prompt: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._screen, self._at_prompt, self._ended = screen, at_prompt, ended
        self.turning = False
        """Whether a turn runs."""
        self.status = ""
        """The status of the last finished turn."""
        self.title = self.stored_id = ""
        self.by_gateway = self.has_messages = False
        self._model = ""
        self._used = 0
        """Tokens of the conversation before the running turn."""
        self._said = self._held = ""
        """The text streamed since the last tool call; the text held back while a person types."""
        self._calls: dict[str, str] = {}
        self._shows: Mapping[str, Callable[[Payload], None]] = {
            "message.start": self._began, "message.user": self._said_elsewhere, "message.delta": self._delta,
            "message.interim": self._whole, "message.complete": self._completed, "tool.start": self._tool_began,
            "tool.complete": self._tool_ended, "status.update": self._updated, "notification.show": self._notified,
            "error": self._failed,
        }  # fmt: skip

    def begin(self, state: Payload) -> None:
        """Take the state of an opened conversation, the result of `session.create` or `session.resume`."""
        info = state.get("info") or {}
        self.stored_id = str(state.get("session_key") or state.get("stored_session_id") or "")
        self.has_messages = bool(state.get("message_count"))
        self._used = int((info.get("usage") or {}).get("total") or 0)
        self.title = ""
        self.inform(info)

    def inform(self, info: Payload) -> None:
        """Take the facts of `session.info` or `session.title`; nothing is shown."""
        self.title = str(info.get("title") or self.title)
        self.stored_id = str(info.get("stored_session_id") or self.stored_id)
        self._model = str(info.get("model") or self._model)
        self.by_gateway = info.get("driver", "gateway" if self.by_gateway else "here") == "gateway"

    def show(self, kind: str, payload: Payload) -> None:
        if self._held and kind != "message.delta":
            held, self._held = self._held, ""
            self._screen.answer(held)
        show = self._shows.get(kind)
        if show is not None:
            show(payload)

    def _began(self, payload: Payload) -> None:
        self._said, self.turning, self.has_messages = "", True, True

    def _said_elsewhere(self, payload: Payload) -> None:
        self.turning = True
        source = str(payload.get("source") or "")
        words = text.harmless_block(str(payload.get("text") or ""))
        who = "you" if payload.get("own") else text.harmless(_CLIENTS.get(source, source))
        self._screen.say(f"{who} > {words}", style="bold")

    def _delta(self, payload: Payload) -> None:
        piece = str(payload.get("text") or "")
        self._said += piece
        if self._at_prompt():
            self._held += piece
        else:
            self._screen.answer(piece)

    def _whole(self, payload: Payload) -> None:
        self._said = ""
        self._screen.end_answer()

    def _completed(self, payload: Payload) -> None:
        said, self.status = str(payload.get("text") or ""), str(payload.get("status") or "")
        if self.status == "error":
            self._screen.trouble(said.removeprefix("Error: "))
        elif self.status == "complete" and said.strip() != self._said.strip():
            self._screen.end_answer()
            self._screen.answer(said)  # it differs from the streamed text
        self._screen.end_answer()
        if self.status == "interrupted":
            self._screen.note("interrupted; finished work is kept")
        self._foot(payload.get("usage") or {})
        self._said, self.turning = "", False
        self._ended()

    def _foot(self, usage: Payload) -> None:
        before, self._used = self._used, int(usage.get("total") or 0)
        if self._used > before:
            tokens = text.counted(self._used - before, "token")
            self._screen.say(f"\n{self._model} · {tokens} · {usage.get('today') or ''}", style="dim")

    def _tool_began(self, payload: Payload) -> None:
        name, summary = str(payload.get("name")), str(payload.get("context") or "")
        self._calls[str(payload.get("tool_id"))] = summary
        self._said = ""
        if not self._at_prompt():
            self._screen.tool_started(name, summary)

    def _tool_ended(self, payload: Payload) -> None:
        self._screen.tool_ended(
            str(payload.get("name")), self._calls.pop(str(payload.get("tool_id")), ""),
            seconds=float(payload.get("duration_s") or 0.0), failed=bool(payload.get("is_error")),
            why=str(payload.get("result") or ""),
        )  # fmt: skip

    def _updated(self, payload: Payload) -> None:
        if payload.get("kind") != "ready" and payload.get("text"):
            self._screen.note(str(payload["text"]))

    def _notified(self, payload: Payload) -> None:
        said = str(payload.get("text") or "")
        if payload.get("kind") == "notice":
            self._screen.note(said)
        else:
            self._screen.say(said)

    def _failed(self, payload: Payload) -> None:
        self._screen.trouble(str(payload.get("message") or "something went wrong"))
        self.turning = False
        self._ended()
