"""The completion list above the editor: slash commands, and files after an @.

The window asks the server for completions of the word at the cursor and discards answers for an older word. Tab or
Enter takes the marked entry, Escape closes the list.
"""

from __future__ import annotations

import re
from typing import Any

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hermes_cli.framework import text as words
from hermes_cli.tui.editor import Editor
from hermes_cli.tui.rpc_client import Ask

_FILE = re.compile(r"""(?:^|\s)(@(?:file:|folder:)?(?:"[^"]*|[^\s"]*))$""")
_MOST = 8


class CompletionList(OptionList, can_focus=False):
    DEFAULT_CSS = """
    CompletionList { display: none; height: auto; max-height: 8; border: none; padding: 0 1; background: $panel;
             scrollbar-size-vertical: 1; }
    CompletionList.open { display: block; }
    """

    def __init__(self, editor: Editor, ask: Ask) -> None:
        super().__init__(id="offers", compact=True, markup=False)
        self._editor, self._ask = editor, ask
        self._found: list[str] = []
        self._word = ""
        self._refused = ""
        """The word at which Escape was pressed."""
        editor.take_key = self._key

    @property
    def open(self) -> bool:
        return self.has_class("open")

    def word(self) -> str:
        """Return the word at the cursor if it can be completed."""
        before = self._editor.before_cursor()
        if before.startswith("/") and " " not in before and self._editor.document.line_count == 1:
            return before
        found = _FILE.search(before)
        return found[1] if found else ""

    async def look(self, session_id: str) -> None:
        """Update the list after a key."""
        word = self._word = self.word()
        if not word or word == self._refused:
            self.close()
            return
        if word.startswith("/"):
            answer = await self._ask("complete.slash", text=word)
        else:
            answer = await self._ask("complete.path", word=word, session_id=session_id)
        if word == self._word == self.word():
            self._offer(word, answer.get("items") or [])

    def _offer(self, word: str, items: list[dict[str, Any]]) -> None:
        self._found = [str(item["text"]) for item in items]
        if not self._found or self._found == [word]:
            self.close()
            return
        self.clear_options()
        self.add_options([Option(_option_line(item)) for item in items])
        self.highlighted = 0
        self.add_class("open")

    def close(self) -> None:
        self.remove_class("open")

    def _key(self, key: str) -> bool:
        if not self.open:
            return False
        if key == "escape":
            self._refused = self._word
            self.close()
            return True
        if key in ("up", "down"):
            step = -1 if key == "up" else 1
            self.highlighted = ((self.highlighted or 0) + step) % len(self._found)
            return True
        if key == "tab" or (key == "enter" and self._word not in self._found):
            self._take()
            return True
        if key == "enter":
            self.close()
        return False

    def _take(self) -> None:
        chosen = self._found[self.highlighted or 0]
        row, column = self._editor.cursor_location
        goes_on = chosen.endswith("/") and chosen.startswith("@")
        self._editor.replace(f"{chosen}{'' if goes_on else ' '}", (row, column - len(self._word)), (row, column))
        self.close()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._take()
        self._editor.focus()


def _option_line(item: dict[str, Any]) -> Text:
    shown, meta = words.harmless(str(item.get("display") or item["text"])), words.harmless(str(item.get("meta") or ""))
    line = Text(shown, no_wrap=True, overflow="ellipsis")
    if meta:
        line.append(f"  {meta}", style="dim")
    return line
