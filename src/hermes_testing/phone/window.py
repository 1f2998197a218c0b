"""The phone's window: the chat, which changes where it stands, above the line that is being typed."""

from __future__ import annotations

import threading
from typing import ClassVar

import httpx2
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Static

from hermes_cli.framework.text import shorten
from hermes_cli.framework.text import width as width_of
from hermes_cli.tui.driver import TolerantDriver
from hermes_cli.tui.widgets import LineInput
from hermes_testing.phone import screen
from hermes_testing.phone.app import CannotReach, Phone
from hermes_testing.phone.screen import Style, harmless
from hermes_testing.telegram.answers import Json

_HINT = "Enter sends · 1 2 3 press a button · PgUp scrolls · :help · Ctrl-C leaves"
_NO_CONNECTION = "no connection to the pretend Telegram; trying again (make run starts one)"
_NOT_SENT = "not sent; Enter tries again"
_AGAIN_SECONDS, _NEWS_SECONDS = 0.5, 2.0


class _Line(LineInput):
    """Sends and empties itself at the key: as a binding, Enter comes after the next line of a paste."""

    async def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            await self.action_submit()
            self.clear()


class PhoneWindow(App[int]):
    """One person's chat on a terminal. A thread of its own waits for news of the fake."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen, Input, VerticalScroll { background: ansi_default; color: ansi_default; border: none; padding: 0; }
    VerticalScroll { height: 1fr; align: left bottom; scrollbar-size: 0 0; }
    Static { height: auto; }
    #title { text-style: reverse; }
    #state { padding: 0 2; height: 1; text-style: dim italic; }
    #line { height: 1; padding: 0 0 0 2; }
    #prompt { width: 2; text-style: bold; color: ansi_blue; }
    #hint { padding: 0 2; height: 1; text-style: dim; text-wrap: nowrap; text-overflow: ellipsis; }
    Input { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+d", "leave_when_empty", show=False, priority=True),
        Binding("up", "scroll(-1)", show=False, priority=True),
        Binding("down", "scroll(1)", show=False, priority=True),
        Binding("pageup", "scroll(-10)", show=False, priority=True),
        Binding("pagedown", "scroll(10)", show=False, priority=True),
    ]

    def __init__(self, phone: Phone) -> None:
        super().__init__(driver_class=TolerantDriver, ansi_color=True)
        self._phone, self._chat = phone, phone.look()
        self._said, self._lost = "", False
        self._view, self._bubbles = VerticalScroll(can_focus=False), Static()
        self._title, self._state, self._line = Static(id="title"), Static(id="state"), _Line(compact=True)

    def compose(self) -> ComposeResult:
        yield self._title
        with self._view:
            yield self._bubbles
        yield self._state
        with Horizontal(id="line"):
            yield Static("> ", id="prompt")
            yield self._line
        yield Static(_HINT, id="hint")

    def on_mount(self) -> None:
        self._line.focus()
        self._view.anchor()  # it stays at the newest message until the person scrolls
        threading.Thread(target=self._watch, daemon=True).start()

    def on_resize(self, event: events.Resize) -> None:
        self._show()

    # -- the fake ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Pass on the chat when it changes, or after a while; after a lost connection look for the next fake."""
        phone, again = self._phone, threading.Event()
        version: int | None = self._chat["version"]
        while self.is_running:
            try:
                if version is None:
                    phone.find_again()
                    chat = phone.look()
                else:
                    name = phone.person.name
                    chat = phone.telegram.watch(name, version=version, chat=phone.chat, within=_NEWS_SECONDS)
                version = chat["version"]
            except (httpx2.HTTPError, OSError, CannotReach, RuntimeError):  # the last: another fake does not know us
                chat, version = {}, None
                again.wait(_AGAIN_SECONDS)
            self.call_later(self._taken, chat)

    def _taken(self, chat: Json) -> None:
        """Show the chat; an empty one: the connection is lost."""
        before, self._lost = self._chat, not chat
        if chat:
            self._chat = chat
            if chat["toasts"] and chat["toasts"] != before["toasts"]:
                self._said = harmless(chat["toasts"][-1]["text"])
        self._show()

    # -- what is shown -------------------------------------------------------------------------------------

    def _show(self) -> None:
        chat, width = self._chat, self.size.width
        title, owner = f"  ● {harmless(chat['title'])}   @{chat['bot']} · pretend Telegram", self._phone.person.name
        owner = f"you are {harmless(owner)}  "
        self._title.update(Text(shorten(f"{title}{' ' * max(1, width - width_of(title + owner))}{owner}", width)))
        self._bubbles.update(Text.from_ansi("\n".join(screen.lines(chat, width, Style()))))
        self.call_after_refresh(self._show_state)

    def _show_state(self) -> None:
        news = filter(None, (self._said, _NO_CONNECTION if self._lost else screen.doing(self._chat)))
        below = not self._view.is_vertical_scroll_end
        self._state.update(Text(" · ".join(news) or ("↓ more below" if below else "")))

    # -- keys ----------------------------------------------------------------------------------------------

    def action_scroll(self, lines: int) -> None:
        self._view.scroll_relative(y=lines, animate=False, force=True)
        self.call_after_refresh(self._show_state)

    def action_leave_when_empty(self) -> None:
        if not self._line.value:
            self.exit()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() in (":quit", ":q"):
            self.exit()
            return
        self._view.anchor()
        try:
            self._said = self._phone.enter(event.value)
        except (httpx2.HTTPError, OSError):
            self._said = _NOT_SENT
            self._line.insert(event.value, 0)
        except RuntimeError as error:  # the fake says no: a message that cannot be sent
            self._said = harmless(str(error))
        self._show()
