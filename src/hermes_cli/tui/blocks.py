"""The blocks of a transcript: a person's message, an answer, a tool call, a note. Each draws itself as lines.

A block caches its lines for one width and one set of colours, and draws them again after a change or after `forget`
(lines take many times the memory of their text). This module makes all text from models, tools and strangers harmless
before it is drawn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from hermes_agent.text import as_typed
from hermes_cli.chat.render import duration
from hermes_cli.framework import text as words
from hermes_cli.tui import markdown
from hermes_cli.tui.widgets import Inks, folder

_OUTPUT_CHARACTERS = 60_000
"""Characters kept from the end of a tool's output."""
_OUTPUT_LINES = 200
"""Lines of an unfolded output that are shown."""
_LIVE_LINES = 4
"""Lines of the output that are shown while the tool runs."""
_ESTIMATE = 40
"""Characters per line, for the height of an undrawn block."""
_SAID_CHARACTERS, _SAID_LINES = 12_000, 200
"""How much of a person's message is shown: a paste may be a whole file."""
INTERRUPTED = "interrupted; finished work is kept"
EMPTY = Strip([])
_BOLD = Style(bold=True)


class ScreenBlock:
    """A block of lines. `margin`: an empty line goes above it."""

    margin = True

    def __init__(self) -> None:
        self.drawn: list[Strip] = []
        """The lines of the last drawing."""
        self._for: tuple[int, Inks] | None = None
        self._height = 0

    def lines(self, width: int, inks: Inks) -> list[Strip]:
        if self._for != (width, inks):
            self.drawn = [*([EMPTY] if self.margin else []), *self.draw(width, inks)]
            self._for, self._height = (width, inks), len(self.drawn)
        return self.drawn

    def is_drawn(self, width: int, inks: Inks) -> bool:
        return self._for == (width, inks)

    @property
    def height(self) -> int:
        """Return the height of the last drawing; a guess before the first."""
        return self._height or self.guess()

    def changed(self) -> None:
        self._for = None

    def forget(self) -> None:
        """Drop the cached lines, but keep their number."""
        self.drawn, self._for = [], None

    def guess(self) -> int:
        return 2

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        raise NotImplementedError


class UserBlock(ScreenBlock):
    """A message of the person at this terminal, or from another `source`, with its attached `files`."""

    def __init__(self, text: str, source: str = "", files: Sequence[str] = ()) -> None:
        super().__init__()
        self.text, self.source, self.files = text, source, list(files)

    def went_along(self, files: Sequence[str]) -> None:
        self.files = list(files)
        self.changed()

    def guess(self) -> int:
        return 2 + len(self.text) // _ESTIMATE

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        said = as_typed(self.text.strip("\n"))
        lines = words.harmless_block(said[:_SAID_CHARACTERS]).rstrip("\n").split("\n")[:_SAID_LINES]
        body = Text("\n".join(lines))
        if hidden := said.count("\n") + 1 - len(lines):
            body.append(f"\n… {words.counted(hidden, 'more line')}", style=inks.dim)
        elif len(self.text) > _SAID_CHARACTERS:
            body.append(f" … {words.counted(len(self.text), 'character')} in all", style=inks.dim)
        if self.source:
            body.append(f"  ({words.harmless(self.source)})", style=inks.dim)
        for name in self.files:
            body.append(f"\n+ {words.harmless(name)}", style=f"not bold {inks.dim}")
        made = [line.apply_style(_BOLD) for line in markdown.drawn(body, width - 2, inks)]
        return _led("❯ ", inks.person, made)


class AnswerBlock(ScreenBlock):
    """The streamed answer of the model, or one part of a long answer."""

    def __init__(self, text: str = "", *, margin: bool = True, said: str = "") -> None:
        super().__init__()
        self.margin, self.said = margin, said
        """The whole answer if this is its first part; else empty."""
        self.text = words.harmless_block(text)
        self._cut = 0
        """The start of the unfinished Markdown block; everything above it is drawn once."""
        self._above: list[Strip] = []
        self._above_for: tuple[int, Inks] | None = None

    def add(self, piece: str) -> None:
        self.text += words.harmless_block(piece)
        self.changed()

    def rest(self) -> AnswerBlock | None:
        """Cut off the end of a long answer and return it as the next part; None if it is short."""
        parts = markdown.parted(self.text)
        if parts is None:
            return None
        self.text, self._above_for = parts[0], None
        self.changed()
        return AnswerBlock(parts[1], margin=parts[2])

    def guess(self) -> int:
        return 2 + len(self.text) // _ESTIMATE

    def forget(self) -> None:
        super().forget()
        self._cut, self._above, self._above_for = 0, [], None

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        if self._above_for != (width, inks):
            self._cut, self._above, self._above_for = 0, [], (width, inks)
        for cut in markdown.cuts(self.text, self._cut)[0]:
            self._above += [*markdown.strips(self.text[self._cut : cut], width, inks), EMPTY]
            self._cut = cut
        return [*self._above, *markdown.strips(self.text[self._cut :], width, inks)]


class ToolBlock(ScreenBlock):
    """A tool call: one line, with its output below: the last lines while it runs, more of it when unfolded."""

    margin = False

    def __init__(self, name: str, summary: str, *, tool_id: str = "") -> None:
        super().__init__()
        self.tool_id, self._name, self._summary = tool_id, words.harmless(name), words.harmless(summary)
        self._result = self._output = ""
        self.running, self._failed, self._seconds = True, False, 0.0
        self.unfolded = False

    def heard(self, output: str) -> None:
        self._output = (self._output + words.harmless_block(output))[-_OUTPUT_CHARACTERS:]
        self.changed()

    def ended(self, result: str, *, seconds: float, failed: bool) -> None:
        self.running, self._seconds, self._failed = False, seconds, failed
        self._result = words.harmless_block(result)[-_OUTPUT_CHARACTERS:]
        self.changed()

    def stopped(self) -> None:
        """Mark the call as ended without a result, because the turn ended."""
        if self.running:
            self.running, self._failed = False, True
            self.changed()

    def fold(self, unfolded: bool) -> None:
        self.unfolded = unfolded
        self.changed()

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        mark, style = ("…", inks.dim) if self.running else ("✗", inks.bad) if self._failed else ("✓", inks.good)
        content = self._result or self._output
        fold = "▾" if self.unfolded else "▸" if content else " "
        time = f" · {duration(self._seconds)}" if self._seconds else ""
        call = words.shorten(f"{self._name}  {self._summary}".rstrip(), max(width - 4 - len(time), 8))
        line = Text.assemble((f"{fold} ", inks.dim), (mark, style), f" {call}", (time, inks.dim))
        return [*markdown.drawn(line, width, inks), *self._below(content, width, inks)]

    def _below(self, content: str, width: int, inks: Inks) -> list[Strip]:
        if self.unfolded:
            shown, hidden = _last_lines(content, _OUTPUT_LINES)
        elif self.running and self._output:
            shown, hidden = _last_lines(self._output, _LIVE_LINES)
        else:
            return []
        above = f"    … {words.counted(hidden, 'line')} above\n" if hidden and self.unfolded else ""
        indented = "\n".join(f"    {line}" for line in shown)
        if self.running and not self.unfolded:
            indented = "\n".join(words.shorten(line, width) for line in indented.split("\n"))
        return markdown.drawn(Text(above + indented, style=inks.dim), width, inks)


class ChildrenBlock(ScreenBlock):
    """The children of a call that delegated work: one line each, with the tool that it runs."""

    margin = False

    def __init__(self) -> None:
        super().__init__()
        self._children: dict[str, dict[str, Any]] = {}

    @property
    def over(self) -> bool:
        return all("duration_seconds" in child for child in self._children.values())

    def takes(self, payload: Mapping[str, Any]) -> bool:
        """Whether the child is one of these, or could be."""
        return payload.get("subagent_id") in self._children or not self.over

    def told(self, payload: Mapping[str, Any]) -> None:
        self._children.setdefault(str(payload.get("subagent_id")), {}).update(payload)
        self.changed()

    def guess(self) -> int:
        return len(self._children)

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        made = Text()
        children = sorted(self._children.values(), key=lambda child: int(child.get("task_index") or 0))
        for number, child in enumerate(children, start=1):
            status, branch = str(child.get("status")), "└" if number == len(children) else "├"
            mark, style = {"done": ("✓", inks.good), "failed": ("✗", inks.bad), "cancelled": ("✗", inks.bad)}.get(
                status, ("…", inks.dim)
            )
            took = child.get("duration_seconds")
            doing = "" if took is not None else words.harmless(f"{child.get('tool_name', '')} {child.get('text', '')}")
            after = f" · {duration(float(took))}" if took else f" · {doing.strip()}" if doing.strip() else ""
            after = words.shorten(after, max(width // 2, 8))
            goal = words.shorten(
                " ".join(words.harmless(str(child.get("goal"))).split()), max(width - 7 - len(after), 8)
            )
            lead = "\n" if number > 1 else ""
            made.append_text(
                Text.assemble((f"{lead}  {branch} ", inks.dim), (mark, style), f" {goal}", (after, inks.dim))
            )
        return markdown.drawn(made, width, inks)


class NoteBlock(ScreenBlock):
    """A note of the window."""

    def __init__(self, text: str, kind: Literal["note", "trouble", "plain"] = "note") -> None:
        super().__init__()
        self.text, self._kind = text, kind

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        mark = {"note": "· ", "trouble": "✗ ", "plain": ""}[self._kind]
        style = {"note": inks.dim, "trouble": inks.bad, "plain": ""}[self._kind]
        said = hung(words.harmless_block(self.text), width - len(mark), inks.console)
        made = markdown.drawn(Text(said, style=style), width - len(mark), inks)
        return _led(mark, style, made) if mark else made


def _led(mark: str, style: str, lines: Sequence[Strip]) -> list[Strip]:
    """Put a mark before the first line and indent the others."""
    lead, indent = Strip([Segment(mark, Style.parse(style))]), Strip([Segment(" " * len(mark))])
    return [Strip.join([indent if at else lead, line]) for at, line in enumerate(lines)]


class WelcomeBlock(ScreenBlock):
    """The welcome text of a new conversation."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        super().__init__()
        self._info = info

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        model, where = str(self._info.get("model") or ""), str(self._info.get("cwd") or "")
        provider = words.harmless(str(self._info.get("provider") or ""))
        trouble = ""
        if not provider:  # then there is no model, and what stands in its place says why
            trouble = f"✗ {words.harmless(model)}\n  hermes setup finds a model, or asks for a key.\n"
        made = Text.assemble(
            ("Hermes", "bold"), f" · {words.harmless(model)} ({provider})\n" if provider else " · no model yet\n",
            (trouble, inks.bad), (f"{folder(where)}\n\n", inks.dim),
            ("Enter sends · Ctrl+J new line · / commands · @ files · F1 all keys", inks.dim),
        )  # fmt: skip
        return markdown.drawn(made, width, inks)


class IntroBlock(ScreenBlock):
    """Lines from the caller that opened the window, each a label and a text; the first is a title."""

    def __init__(self, card: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._card = card

    def guess(self) -> int:
        return 2 + len(self._card)

    def draw(self, width: int, inks: Inks) -> list[Strip]:
        made = Text.assemble(("─" * width, inks.dim))
        for at, (label, said) in enumerate(self._card):
            label, start = words.harmless(label), len(made) + 1
            line = f"{label}{words.harmless(said)}"
            made.append("\n" + "\n".join(_broken(line, len(label), width, inks.console) if at else [line]))
            made.stylize(inks.dim if at else "bold", start, start + len(label))
        return markdown.drawn(made, width, inks)


def _last_lines(content: str, most: int) -> tuple[list[str], int]:
    found = content.rstrip("\n").split("\n")
    return found[-most:], max(0, len(found) - most)


def of_history(message: Mapping[str, Any]) -> list[ScreenBlock]:
    """Turn a stored message into blocks."""
    role, said = message.get("role"), str(message.get("text") or "")
    if role == "tool":
        name, context = str(message.get("name") or "tool"), str(message.get("context") or "")
        call = ToolBlock(name, context)
        call.ended(said, seconds=0.0, failed=bool(message.get("is_error")))
        return [call]
    if not said.strip():
        return []
    if role != "assistant":
        source = str(message.get("source") or "")
        return [UserBlock(said, source, message.get("files") or ()) if role == "user" else NoteBlock(said)]
    answers = [AnswerBlock(said, said=said)]
    while (more := answers[-1].rest()) is not None:
        answers.append(more)
    cut_off = {"interrupted": INTERRUPTED, "error": "cut off by an error; what was said so far is kept"}
    stopped = cut_off.get(str(message.get("cut_off")))
    return [*answers, *([] if stopped is None else [NoteBlock(stopped)])]


_FIRST_COLUMN = re.compile(r" *\S.*? {2,}(?=\S)")
_ROOM = 24
"""Columns that text needs beside another column."""
_BELOW = 6
_LEAST = 8
"""Columns that must be left after an indent."""


def hung(text: str, width: int, console: Console) -> str:
    """Wrap the long lines of a harmless text with a hanging indent."""
    lines = text.split("\n")
    seconds = [found.end() if (found := _FIRST_COLUMN.match(line)) else 0 for line in lines]
    times = Counter(seconds)
    made: list[str] = []
    for line, second in zip(lines, seconds, strict=True):
        if words.width(line) <= width:
            made.append(line)
        else:
            at = second if times[second] > 1 else 0
            made += _broken(line, at or len(line) - len(line.lstrip(" ")), width, console)
    return "\n".join(made)


def _broken(line: str, at: int, width: int, console: Console) -> list[str]:
    """Wrap a line and indent the rest to column `at`, or to the first column if that leaves too little space."""
    lead, above = line[:at], []
    if lead.strip() and width - words.width(lead) < _ROOM:
        first = lead.rstrip(" ")
        above = _broken(first, len(first) - len(first.lstrip(" ")), width, console)
        lead = " " * _BELOW
    indent = words.width(lead)
    if width - indent < _LEAST:
        return [*above, f"{lead}{line[at:]}"]
    found = [row.plain.rstrip() for row in Text(line[at:]).wrap(console, width - indent)]
    return [*above, *(f"{' ' * indent if number else lead}{row}" for number, row in enumerate(found))]


_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^`\n]*\n(.*?)^ {0,3}\1", re.MULTILINE | re.DOTALL)


class Clipboard:
    """Copies the last answer, and its code blocks on repeated calls."""

    def __init__(self) -> None:
        self._of = ""
        self._place = 0

    def next(self, blocks: Sequence[ScreenBlock]) -> tuple[str, str]:
        """Return the text to copy and its description; empty without an answer."""
        answer = next((one.said for one in reversed(blocks) if isinstance(one, AnswerBlock) and one.said), "")
        if not answer:
            return "", "there is no answer to copy yet"
        code = [found[2].rstrip("\n") for found in reversed(list(_FENCED.finditer(answer)))]
        self._place = (self._place + 1) % (len(code) + 1) if answer == self._of else 0
        self._of = answer
        if self._place:
            of = f" {len(code) - self._place + 1} of {len(code)}" if len(code) > 1 else ""
            lines = code[self._place - 1].count("\n") + 1
            return code[self._place - 1], f"copied code block{of}: {words.counted(lines, 'line')}"
        again = " · again: its code" if code else ""
        return answer.strip(), f"copied the answer: {words.counted(len(answer.strip()), 'character')}{again}"
