"""The window: its layout and its keys.

Ctrl-C copies the marked text, else closes a list, else stops the turn, else clears the line, else (twice) leaves. A
signal to end, or a closed terminal, ends the window like Ctrl-D; a defect ends it with the terminal restored and leaves
`failure` for the caller. A SIGINT from another program counts as Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from hermes_cli.tui.blocks import Clipboard
from hermes_cli.tui.completion import CompletionList
from hermes_cli.tui.conversation import Conversation
from hermes_cli.tui.dialogs import Dialogs
from hermes_cli.tui.driver import TolerantDriver
from hermes_cli.tui.editor import Editor, NothingToPaste, clipboard_picture
from hermes_cli.tui.rpc_client import RESTARTS, ChatOptions, RequestRefused, RpcClient, ServerLost, is_command
from hermes_cli.tui.transcript import TranscriptView
from hermes_cli.tui.widgets import THEMES, StatusBar, WaitingBar

_TWICE_SECONDS = 2.0
_LEAVE = frozenset({"/quit", "/exit"})
_DEFECT = 70
_OWN_COMMANDS = "Of this window: /keys (F1) · /theme · /paste (a picture) · /quit, /exit (Ctrl+D)"


class HermesApp(App[int]):
    TITLE = "Hermes"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    TranscriptView { height: 1fr; }
    #line { height: auto; background: $surface; padding: 0 1; }
    #prompt { width: 2; height: 1; color: $primary; text-style: bold; background: $surface; }
    Editor { width: 1fr; }
    ToastRack { dock: top; align: right top; margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop_or_leave", show=False, priority=True),
        Binding("ctrl+d", "leave_when_empty", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("escape", "stop", show=False),
        Binding("ctrl+o", "tool_output", show=False, priority=True),
        Binding("ctrl+r,f2", "conversations", show=False, priority=True),
        Binding("f3", "models", show=False, priority=True),
        Binding("f4", "shade", show=False, priority=True),
        Binding("f1", "keys", show=False, priority=True),
        Binding("ctrl+y", "copy", show=False, priority=True),
        Binding("ctrl+end", "newest", show=False, priority=True),
    ]

    def __init__(self, client: RpcClient, start: ChatOptions, *, shade: str = "dark") -> None:
        super().__init__(driver_class=TolerantDriver, ansi_color="NO_COLOR" in os.environ)
        self._early: list[events.Event] | None = []
        """Keys typed before the editor was ready; afterwards None."""
        self.failure: Exception | None = None
        self._client, self._shade = client, shade
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES[shade].name
        self._transcript = TranscriptView(wants_older=self._older, is_behind=self.is_behind, dark=shade == "dark")
        self._transcript.moved = self._moved
        self._waiting, self._status, self._editor = WaitingBar(), StatusBar(self.is_behind), Editor()
        self._dialogs = Dialogs(self, self._answer, by_gateway=self._status.by_gateway)
        self.conversation = Conversation(
            client, self._editor, self._transcript, self._waiting, self._status, start, self._dialogs.heard
        )
        self._completion = CompletionList(self._editor, client.ask)
        self._copied = Clipboard()
        self._pressed_at = 0.0

    def compose(self) -> ComposeResult:
        yield self._transcript
        yield self._waiting
        yield self._completion
        with Horizontal(id="line"):
            yield Static("❯ ", id="prompt")
            yield self._editor
        yield self._status

    def on_load(self) -> None:
        """Set up the loop before Textual touches the terminal."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._went_wrong)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit, 128 + number)
        loop.add_signal_handler(signal.SIGINT, lambda: self.call_later(self.action_stop_or_leave))

    # -- keys ----------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Hold keys that are pressed while the window opens."""
        if self._early is not None and isinstance(event, (events.Key, events.Paste)):
            self._early.append(event)
        else:
            await super().on_event(event)

    async def listen(self) -> None:
        """Pass the held keys to the editor, which is ready now."""
        early, self._early = self._early or [], None
        for event in early:
            await self.on_event(event)

    # -- the terminal --------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether the terminal is slower than the window paints, as far as its driver knows."""
        return bool(getattr(self._driver, "is_behind", False))

    # -- errors --------------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """End the window with this error."""
        if self.failure is None:
            self.failure = error
        self.exit(_DEFECT)

    def _handle_exception(self, error: Exception) -> None:
        """End with a one-line error and a crash report instead of Textual's traceback."""
        self.fail(error)

    def _went_wrong(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Handle an error in a callback of the loop, such as a server event."""
        if isinstance(error := context.get("exception"), Exception):
            self.fail(error)
        else:
            loop.default_exception_handler(dict(context))

    # -- coming and going ----------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._editor.focus()
        self._client.heard, self._client.lost = self.conversation.heard, self._server_lost
        self._client.failed = self.fail
        self._client.attach(asyncio.get_running_loop())
        self.app_resume_signal.subscribe(self, lambda app: self.screen.refresh(layout=True))  # back from Ctrl+Z
        self._do(self.conversation.begin())
        self.call_after_refresh(self.listen)

    def _do(self, work: Awaitable[object]) -> None:
        """Run work on the loop and show its errors as a line."""

        async def told() -> None:
            try:
                await work
            except (RequestRefused, ServerLost) as error:
                if not (isinstance(error, ServerLost) and error.told):
                    self.conversation.trouble(error.one_line())
                self._status.show("ready")

        self.run_worker(told(), exit_on_error=True)

    def _server_lost(self, why: str) -> None:
        for screen in [one for one in self.screen_stack if isinstance(one, ModalScreen)]:
            screen.dismiss(None)
        self._dialogs.clear()
        if not self._client.may_restart():
            self.conversation.given_up()
            self.conversation.trouble(
                f"{why}. It was started {RESTARTS} times; hermes doctor may tell why. Ctrl+D leaves."
            )
            self._status.show("ready")
            return
        self._client.start()
        self._do(self.conversation.restarted(why))

    def action_leave_when_empty(self) -> None:
        if not self._editor.text or isinstance(self.screen, ModalScreen):
            self.exit(0)
        else:
            self._editor.action_delete_right()

    async def action_stop_or_leave(self) -> None:
        if marked := self.screen.get_selected_text() or self._editor.selected_text:
            self.copy_to_clipboard(marked)
            self.screen.clear_selection()
            self._editor.move_cursor(self._editor.cursor_location)
            self.notify("copied", timeout=1.5)
        elif isinstance(self.screen, ModalScreen) and not self._dialogs.is_asked(self.screen):
            self.screen.dismiss(None)
        elif self.conversation.running:
            self.action_stop()
        elif self._editor.text:
            self._editor.drop()
        elif time.monotonic() - self._pressed_at < _TWICE_SECONDS:
            self.exit(0)
        else:
            self._pressed_at = time.monotonic()
            self.notify("Ctrl+C again leaves", timeout=_TWICE_SECONDS)

    def action_stop(self) -> None:
        if not self.conversation.running:
            self.screen.clear_selection()
        elif self._status.state == "stopping":
            self.notify("it is being stopped; Ctrl+D leaves", timeout=2.0)
        else:
            self._do(self.conversation.interrupt())

    # -- typed text ----------------------------------------------------------------------------------------

    @on(Editor.Sent)
    def _sent(self, event: Editor.Sent) -> None:
        self._completion.close()
        typed = event.text.strip()
        local = {"/sessions": self.action_conversations, "/resume": self.action_conversations,
                 "/model": self.action_models, "/keys": self.action_keys, "/theme": self.action_shade}  # fmt: skip
        if typed.partition(" ")[0] in _LEAVE:
            self.exit(0)
        elif typed in local:
            local[typed]()
        elif typed == "/paste":
            self._do(self._paste())
        elif is_command(typed) and self.conversation.sid:
            self._do(self._command(typed))
        else:
            self._do(self.conversation.say(event.text))

    async def _paste(self) -> None:
        """Put a mention of the clipboard's picture into the editor."""
        try:
            self._editor.insert(f'@"{await asyncio.to_thread(clipboard_picture)}" ')
        except NothingToPaste as error:
            self.conversation.trouble(error.one_line())

    async def _command(self, typed: str) -> None:
        try:
            await self.conversation.slash(typed)
            if typed == "/help":
                self.conversation.note(_OWN_COMMANDS)
        except RequestRefused as error:
            self.conversation.trouble(error.one_line())
            self._editor.give_back(typed)

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        if self._completion.open or self._completion.word():
            self._do(self._completion.look(self.conversation.sid))

    def action_read(self, way: str) -> None:
        """Scroll up or down."""
        if way == "up":
            self._transcript.scroll_page_up(animate=False)
        else:
            self._transcript.scroll_page_down(animate=False)

    def on_resize(self, event: events.Resize) -> None:
        self._editor.styles.max_height = max(1, min(10, event.size.height // 3))
        self._completion.styles.max_height = max(1, min(8, event.size.height // 3))

    def unsent(self, *, on_purpose: bool = True) -> list[str]:
        """Return the typed messages that no turn has taken; the draft is the last."""
        draft = self._editor.whole(self._editor.text)
        return [*self.conversation.left(on_purpose=on_purpose), *([draft] if draft.strip() else [])]

    def _older(self) -> None:
        self._do(self.conversation.older())

    # -- answers to questions ------------------------------------------------------------------------------

    def _answer(self, method: str, params: dict[str, Any]) -> None:
        if method == "approval.respond":
            params = {**params, "session_id": self.conversation.sid}
        self._do(self._client.ask(method, **params))

    # -- lists and looks -----------------------------------------------------------------------------------

    def action_conversations(self) -> None:
        from hermes_cli.tui.pickers import SessionPicker

        if not isinstance(self.screen, ModalScreen):
            self.push_screen(SessionPicker(self._client.ask), self._go_on_with)

    def _go_on_with(self, chosen: str | None) -> None:
        if not chosen:
            return
        if self.conversation.running:
            self.conversation.note("a turn runs here; Esc stops it, then choose again")
            return
        self._do(self.conversation.resume(chosen))

    def action_models(self) -> None:
        from hermes_cli.tui.pickers import ModelPicker

        if not isinstance(self.screen, ModalScreen) and self.conversation.sid:
            self.push_screen(ModelPicker(self._client.ask, self.conversation.sid), self._use_model)

    def _use_model(self, chosen: str | None) -> None:
        if chosen:
            self._do(self.conversation.slash(f"/model {chosen}"))

    def action_keys(self) -> None:
        from hermes_cli.tui.widgets import KeysHelp

        if not isinstance(self.screen, ModalScreen):
            self.push_screen(KeysHelp())

    def action_copy(self) -> None:
        copied, told = self._copied.next(self._transcript.blocks)
        if copied:
            self.copy_to_clipboard(copied)
        self.notify(told, timeout=2.5)

    def action_newest(self) -> None:
        self._transcript.follow()

    def _moved(self, at_end: bool) -> None:
        self._status.reads_back = not at_end
        self._status.show()

    def action_tool_output(self) -> None:
        if not self._transcript.fold_all():
            self.notify("no tool was called here", timeout=1.5)

    def action_shade(self) -> None:
        self._shade = "light" if self._shade == "dark" else "dark"
        self.theme = THEMES[self._shade].name
        self._transcript.repaint(dark=self._shade == "dark")
        self._do(self._client.ask("config.set", key="skin", value=self._shade, scope="global"))
