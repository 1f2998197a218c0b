"""The lines above and below the editor: what waits, and how things stand. Built for the width there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from rich.text import Text
from textual.widgets import Input, Static

from hermes_cli.framework import text as words

_METER = 8
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def folder(path: str) -> str:
    """A place, as people write it: `~/trip`."""
    place = PurePath(path)
    inside = path and place.is_relative_to(Path.home())
    return words.harmless(f"~/{place.relative_to(Path.home())}" if inside else path)


class Line(Input):
    """A line to type into, in a box. Its cursor does not blink: an idle window writes nothing to the terminal."""

    def on_mount(self) -> None:
        self.cursor_blink = False


class Waiting(Static):
    """What was typed and is not answered yet."""

    DEFAULT_CSS = """
    Waiting { display: none; height: auto; max-height: 3; padding: 0 1; color: $text-muted; background: $background; }
    Waiting.open { display: block; }
    """

    def show(self, texts: list[str], how: str) -> None:
        lines = [f"{how}: {words.shorten(words.harmless(text), 160)}" for text in texts[-3:]]
        self.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
        self.set_class(bool(lines), "open")


class Status(Static):
    """What it does, the model, how full the context is, what it cost, who drives, the title.

    What does not fit is left out, the least important first (the highest rank).
    """

    DEFAULT_CSS = """
    Status { height: 1; padding: 0 1; background: $panel; color: $text-muted; }
    """

    def __init__(self, is_behind: Callable[[], bool]) -> None:
        super().__init__(id="status")
        self._is_behind = is_behind
        self.info: Mapping[str, Any] = {}
        self.usage: Mapping[str, Any] = {}
        self.state = "starting"
        self.reads_back = False
        """The reader is not at the end."""
        self._tick = 0

    def by_gateway(self) -> bool:
        """The gateway drives the conversation."""
        return self.info.get("driver") == "gateway"

    def on_mount(self) -> None:
        self.set_interval(0.2, self._turn)

    def on_resize(self) -> None:
        self.show()

    def _turn(self) -> None:
        if self.state not in ("ready", "") and not self._is_behind():
            self._tick += 1
            self.show()

    def show(self) -> None:
        self.update(Text(self._line(max(self.size.width - 2, 1)), no_wrap=True, overflow="ellipsis"))

    def _line(self, width: int) -> str:
        busy = self.state not in ("ready", "")
        state = f"{_FRAMES[self._tick % len(_FRAMES)]} {words.harmless(self.state)}" if busy else "ready"
        ranked = [
            (0, words.shorten(state, width)), (2, "↓ Ctrl+End newest" if self.reads_back else ""),
            (5, words.harmless(str(self.info.get("model") or ""))), (6, self._fullness() or self._tokens()),
            (7, self._cost()), (3, "gateway answers" if self.by_gateway() else ""), (1, self._yolo()),
            (9, words.shorten(words.harmless(str(self.info.get("title") or "")), 40)),
            (4, "Esc stops") if busy else (8, "F1 keys"),
        ]  # fmt: skip
        kept, room = set[int](), width + 3
        for rank, part in sorted(ranked):
            if part and words.width(part) + 3 <= room:
                kept.add(rank)
                room -= words.width(part) + 3
        return " · ".join(part for rank, part in ranked if rank in kept)

    def _fullness(self) -> str:
        percent = self.usage.get("context_percent")
        if percent is None:
            return ""
        full = min(_METER, round(float(percent) / 100 * _METER))
        return f"context {'▰' * full}{'▱' * (_METER - full)} {float(percent):.0f}%"

    def _cost(self) -> str:
        """Of the day; nothing before something was used."""
        return str(self.usage.get("today") or "") if self.usage.get("total") else ""

    def _tokens(self) -> str:
        total = int(self.usage.get("total") or 0)
        return words.counted(total, "token") if total else ""

    def _yolo(self) -> str:
        return "yolo: nothing is asked" if self.info.get("yolo") else ""
