"""The waiting bar, the status bar, the help screen and the colours of the window."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.theme import Theme as RichTheme
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.theme import Theme
from textual.widgets import Input, Static

from hermes_cli.framework import text as words

_METER = 8
_LONG_SECONDS = 3
"""After this time the status bar shows the seconds."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def folder(path: str) -> str:
    """Return a path in its short form: `~/trip`."""
    place = PurePath(path)
    inside = path and place.is_relative_to(Path.home())
    return words.harmless(str(PurePath("~", place.relative_to(Path.home()))) if inside else path)


class LineInput(Input):
    """A one-line input. Its cursor does not blink, so an idle window writes nothing to the terminal."""

    def on_mount(self) -> None:
        self.cursor_blink = False


class WaitingBar(Static):
    """Shows the messages that wait for an answer."""

    DEFAULT_CSS = """
    WaitingBar { display: none; height: auto; max-height: 3; padding: 0 1; color: $text-muted;
                 background: $background; }
    WaitingBar.open { display: block; }
    """

    def show(self, texts: list[str], how: str) -> None:
        lines = [f"{how}: {words.shorten(words.harmless(text), 160)}" for text in texts[-3:]]
        self.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
        self.set_class(bool(lines), "open")


class StatusBar(Static):
    """Shows the state, the model, the context use, the cost, the driver and the title.

    Parts that do not fit are left out, the highest rank first.
    """

    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 1; background: $panel; color: $text-muted; }
    """

    def __init__(self, is_behind: Callable[[], bool]) -> None:
        super().__init__(id="status")
        self._is_behind = is_behind
        self.info: Mapping[str, Any] = {}
        self.usage: Mapping[str, Any] = {}
        self.state = "starting"
        self.reads_back = False
        """Whether the reader has scrolled up."""
        self._tick = 0
        self._busy_since = time.monotonic()

    def by_gateway(self) -> bool:
        """Whether the gateway drives the conversation."""
        return self.info.get("driver") == "gateway"

    def on_mount(self) -> None:
        self.set_interval(0.2, self._turn)

    def on_resize(self) -> None:
        self.show()

    def _turn(self) -> None:
        if self.state not in ("ready", "") and not self._is_behind():
            self._tick += 1
            self.show()

    def show(self, state: str | None = None) -> None:
        """Paint the bar, with a new state if one is given."""
        if state is not None:
            if self.state in ("ready", ""):
                self._busy_since = time.monotonic()
            self.state = state
        self.update(Text(self._line(max(self.size.width - 2, 1)), no_wrap=True, overflow="ellipsis"))

    def _line(self, width: int) -> str:
        busy = self.state not in ("ready", "")
        took = int(time.monotonic() - self._busy_since) if busy else 0
        seconds = f" {words.span(took)}" if took >= _LONG_SECONDS else ""
        state = f"{_FRAMES[self._tick % len(_FRAMES)]} {words.harmless(self.state)}{seconds}" if busy else "ready"
        ranked = [
            (0, words.shorten(state, width)), (2, "↓ Ctrl+End newest" if self.reads_back else ""),
            (5, words.harmless(str(self.info.get("model") or ""))), (6, self._fullness() or self._tokens()),
            (7, str(self.usage.get("today") or "") if self.usage.get("total") else ""),  # once something was used
            (3, "gateway answers" if self.by_gateway() else ""),
            (1, "yolo: nothing is asked" if self.info.get("yolo") else ""),
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

    def _tokens(self) -> str:
        total = int(self.usage.get("total") or 0)
        return words.counted(total, "token") if total else ""


_KEYS = (
    ("Enter", "send"),
    ("Ctrl+J, Alt+Enter", "new line"),
    ("Tab", "complete a /command or an @file"),
    ("↑ ↓", "what was said before"),
    ("Esc, Ctrl+C", "stop what runs"),
    ("Ctrl+C", "clear the line; ↑ brings it back"),
    ("Ctrl+R, F2", "conversations: search, continue one"),
    ("F3", "model"),
    ("F4", "light and dark"),
    ("Ctrl+Y", "copy the answer; again: its code"),
    ("mouse, Ctrl+C", "mark and copy; twice: a message"),
    ("Ctrl+O, click", "open and close tool output"),
    ("PgUp PgDn, wheel", "read back"),
    ("Ctrl+End", "to the newest"),
    ("/undo /branch", "take back a turn, continue in a copy"),
    ("Ctrl+Z", "to the shell; fg comes back"),
    ("Ctrl+D", "leave; the conversation is kept"),
)
_SCROLLS = {"up": -1, "down": 1, "pageup": -8, "pagedown": 8}


def scrolled(screen: ModalScreen[Any], key: str) -> bool:
    """Scroll if this key scrolls, and return whether it does."""
    if key in _SCROLLS:
        screen.query_one(VerticalScroll).scroll_relative(y=_SCROLLS[key], animate=False)
    return key in _SCROLLS


class KeysHelp(ModalScreen[None]):
    DEFAULT_CSS = """
    KeysHelp { align: center middle; }
    KeysHelp > VerticalScroll { width: 60; max-width: 100%; height: auto; max-height: 100%; background: $panel;
                            border: round $primary; padding: 0 1; scrollbar-size-vertical: 1; }
    """

    def compose(self) -> ComposeResult:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for key, does in _KEYS:
            table.add_row(key, does)
        with VerticalScroll(can_focus=False):
            yield Static(table)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if not scrolled(self, event.key):
            self.dismiss(None)

    def on_click(self) -> None:
        self.dismiss(None)


DARK = Theme(
    name="hermes-dark", primary="#7aa2f7", secondary="#9ece6a", accent="#e0af68", warning="#e0af68", error="#f7768e",
    success="#9ece6a", foreground="#d5d9e8", background="#16181f", surface="#1c1f29", panel="#242836", dark=True,
)  # fmt: skip
LIGHT = Theme(
    name="hermes-light", primary="#2f5fb3", secondary="#3d7a1f", accent="#9a6200", warning="#9a6200", error="#b3261e",
    success="#3d7a1f", foreground="#22252e", background="#fbfbf8", surface="#f2f2ec", panel="#e6e6de", dark=False,
)  # fmt: skip
THEMES = {"dark": DARK, "light": LIGHT}


@dataclass(frozen=True, slots=True)
class Inks:
    """The colours of the window."""

    console: Console
    code: str
    """The name of the highlighting style of code."""
    person: str
    dim: str
    good: str
    bad: str


def inks(*, dark: bool) -> Inks:
    theme = DARK if dark else LIGHT
    dim = "#8b90a5" if dark else "#6a6d78"
    styles = {
        "markdown.h1": f"bold underline {theme.primary}", "markdown.h2": f"bold {theme.primary}",
        "markdown.h3": f"bold {theme.primary}", "markdown.h4": "bold", "markdown.h5": "bold", "markdown.h6": "bold",
        "markdown.code": f"{theme.accent}", "markdown.block_quote": f"italic {dim}", "markdown.hr": dim,
        "markdown.item.bullet": f"{theme.primary}", "markdown.item.number": f"{theme.primary}",
        "markdown.link": f"{theme.primary}", "markdown.link_url": f"underline {dim}",
        "markdown.table.border": dim, "markdown.table.header": f"bold {theme.primary}",
    }  # fmt: skip
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False, emoji=False,
        markup=False, highlight=False, theme=RichTheme(styles), _environ={},
    )  # fmt: skip
    return Inks(
        console=console, code="monokai" if dark else "friendly", person=f"bold {theme.primary}", dim=dim,
        good=theme.success or "", bad=theme.error or "",
    )  # fmt: skip


def chosen_shade(skin: str) -> str:
    """Return `dark` or `light`: the configured one, else the terminal's background, else dark."""
    if skin in THEMES:
        return skin
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in ("7", "15") else "dark"
