"""Which key does what, for people: the box that F1 opens. Any key closes it."""

from __future__ import annotations

from rich.table import Table
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

_KEYS = (
    ("Enter", "send"),
    ("Ctrl+J, Alt+Enter", "new line"),
    ("Tab", "complete a /command or an @file"),
    ("↑ ↓", "what was said before"),
    ("Esc, Ctrl+C", "stop what runs"),
    ("Ctrl+R, F2", "conversations: search, go on with one"),
    ("F3", "model"),
    ("F4", "light and dark"),
    ("Ctrl+Y", "copy the answer; again: its code"),
    ("mouse, Ctrl+C", "mark and copy; twice: a message"),
    ("Ctrl+O, click", "open and close tool output"),
    ("PgUp PgDn, wheel", "read back"),
    ("Ctrl+End", "to the newest"),
    ("/undo /branch", "take back a turn, go on in a copy"),
    ("Ctrl+Z", "to the shell; fg comes back"),
    ("Ctrl+D", "leave; the conversation is kept"),
)
_SCROLLS = {"up": -1, "down": 1, "pageup": -8, "pagedown": 8}


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
        if event.key in _SCROLLS:
            self.query_one(VerticalScroll).scroll_relative(y=_SCROLLS[event.key], animate=False)
        else:
            self.dismiss(None)

    def on_click(self) -> None:
        self.dismiss(None)
