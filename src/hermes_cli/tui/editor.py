"""The editor: several lines, history, completion, pastes of any size, and the clipboard's picture.

Enter sends; Shift+Enter, Alt+Enter and Ctrl+J begin a new line. ↑ at the first line and ↓ at the last walk through the
history. A long paste is shown as one word, `[paste 1: 20,412 lines]`, and replaced by its text when the message is
sent; so a megabyte costs no more than a word. Terminals paste text alone, so `/paste` asks the system's own programs
for a picture. The text may come from strangers (a stored message, a file name): it is
shown harmless and sent unchanged.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, overload

from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Document
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.message import Message
from textual.widgets import TextArea

from hermes_cli.framework import text as words
from hermes_config.errors import HermesError

_PASTE_CHARACTERS, _PASTE_LINES = 8_000, 120
_STANDS_FOR = re.compile(r"\[paste (\d+): [^\]]*\]")
_NEW_LINE = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter"})


def _is_long(text: str) -> bool:
    """Whether a text is too long to be edited by hand."""
    return len(text) > _PASTE_CHARACTERS or _lines(text) > _PASTE_LINES


def _lines(text: str) -> int:
    """Count the lines; a final line break does not begin another one."""
    return text.count("\n") + (not text.endswith("\n"))


class _Written(Document):
    """A document with the exact text, whose lines for measuring and drawing are harmless, character for character."""

    @property
    def lines(self) -> list[str]:
        return [_shown(line) for line in self._lines]

    @overload
    def __getitem__(self, line_index: int) -> str: ...
    @overload
    def __getitem__(self, line_index: slice) -> list[str]: ...
    def __getitem__(self, line_index: int | slice) -> str | list[str]:
        if isinstance(line_index, slice):
            return [_shown(line) for line in self._lines[line_index]]
        return _shown(self._lines[line_index])


def _shown(line: str) -> str:
    """Make a line harmless. Tabs stay, and each character stays one, so that the cursor fits."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(one if one == "\t" else words.harmless(one) or "\ufffd" for one in line)


class Editor(TextArea):
    DEFAULT_CSS = """
    Editor { height: auto; min-height: 1; max-height: 10; border: none; padding: 0; background: $surface;
             scrollbar-size-vertical: 1; }
    Editor:focus { border: none; }
    Editor .text-area--placeholder { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+u", "delete_to_start_of_line", show=False),
        Binding("ctrl+w,alt+backspace", "delete_word_left", show=False),
        Binding("pageup", "app.read('up')", show=False),
        Binding("pagedown", "app.read('down')", show=False),
    ]

    class Sent(Message):
        """A message is to be sent; the editor is empty."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(
            id="editor", soft_wrap=True, tab_behavior="focus", show_line_numbers=False, compact=True,
            highlight_cursor_line=False, placeholder="Say something · /help · Ctrl+D leaves",
        )  # fmt: skip
        self.cursor_blink = False  # an idle window writes nothing: over a slow link each byte counts
        self.take_key: Callable[[str], bool] = lambda key: False
        """The completion list's handler, which gets each key first; True when it used the key."""
        self._pastes: list[str] = []
        self._history: list[str] = []
        self._place = 0
        """The place in the history; after its end comes the draft."""
        self._draft = ""

    def _set_document(self, text: str, language: str | None) -> None:
        super()._set_document("", language)
        self.document = _Written(text)
        self.wrapped_document = WrappedDocument(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    # -- typing --------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        key = event.key
        if self.take_key(key):
            done = True
        elif key == "enter":
            done = True
            self.send()
        elif key in ("tab", "shift+tab"):
            done = True  # there is nothing to complete, and nowhere else to go
        elif key in _NEW_LINE:
            done = True
            self.insert("\n")
        elif (key == "up" and self.cursor_at_first_line) or (key == "down" and self.cursor_at_last_line):
            done = self._walk(-1 if key == "up" else 1)
        else:
            done = False
        if done:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        from hermes_agent import mentions

        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        event.stop()
        event.prevent_default()
        self.replace(self._stand_in(text) if _is_long(text) else mentions.dropped(text), *self.selection)

    def _stand_in(self, paste: str) -> str:
        """Return the placeholder of a paste; the same paste gets the same one."""
        if paste not in self._pastes:
            self._pastes.append(paste)
        lines = _lines(paste)
        size = words.counted(lines, "line") if lines > 1 else words.counted(len(paste), "character")
        return f"[paste {self._pastes.index(paste) + 1}: {size}]"

    def send(self) -> None:
        written = self.text
        message = self.whole(written)
        if not message.strip():
            return
        self._keep(written)
        self.clear()
        self.post_message(self.Sent(message))

    def drop(self) -> None:
        """Clear the line; ↑ brings its text back."""
        came_by = self._place < len(self._history) and self._history[self._place] == self.text
        self._keep("" if came_by else self.text)
        self.clear()

    def _keep(self, written: str) -> None:
        """Add a message to the history and move to its end."""
        if written.strip() and (not self._history or self._history[-1] != written):
            self._history.append(written)
        self._place, self._draft = len(self._history), ""

    def whole(self, written: str) -> str:
        """Replace every placeholder by its paste."""

        def pasted(found: re.Match[str]) -> str:
            number = int(found[1])
            return self._pastes[number - 1] if 0 < number <= len(self._pastes) else found[0]

        return _STANDS_FOR.sub(pasted, written)

    def put(self, text: str) -> None:
        """Put text into the editor."""
        self.text = text
        self.move_cursor(self.document.end)

    def give_back(self, message: str) -> None:
        """Put an unanswered message before the typed text, with placeholders for long pastes."""
        for paste in self._pastes:
            message = message.replace(paste, self._stand_in(paste))
        if _is_long(message):
            message = self._stand_in(message)
        self.put(f"{message}\n\n{self.text}" if self.text.strip() else message)

    def before_cursor(self) -> str:
        """Return the exact text before the cursor in its line."""
        row, column = self.cursor_location
        return self.document.get_text_range((row, 0), (row, column))

    # -- history -------------------------------------------------------------------------------------------

    def remember(self, said: Sequence[str]) -> None:
        """Use the history of another conversation."""
        self._history = [one for one in said if one.strip()]
        self._place = len(self._history)

    def _walk(self, step: int) -> bool:
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return False
        if self._place == len(self._history):
            self._draft = self.text
        self._place = place
        self.put(self._draft if place == len(self._history) else self._history[place])
        if step < 0:
            self.move_cursor((0, len(self.document.get_line(0))))
        return True


_CLIPBOARD_PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)
_CLIPBOARD_SECONDS = 5.0


class NothingToPaste(HermesError):
    """There is no picture in the clipboard."""


def clipboard_picture() -> Path:
    """Save the clipboard's picture as a temporary file of this user alone. Blocks. Raises `NothingToPaste`."""
    from hermes_agent.media import pictures  # late: the window opens without it

    programs = [one for one in _CLIPBOARD_PROGRAMS if shutil.which(one[0])]
    if not programs:
        hint = "Install wl-clipboard or xclip (macOS: pngpaste), or drop the file on this window."
        raise NothingToPaste("no program here reads the clipboard", hint=hint)
    for program in programs:
        try:
            data = subprocess.run(
                program, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLIPBOARD_SECONDS, check=True
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue  # no display of its kind, or no picture there
        if pictures.picture_type(data[:16]) is not None:
            with tempfile.NamedTemporaryFile(prefix="hermes-paste-", suffix=".png", delete=False) as file:
                file.write(data)
            return Path(file.name)
    raise NothingToPaste(hint="Copy a picture first, or drop its file on this window.")
