"""Searchable lists of conversations and models.

A moment after the last key, the picker asks the server for matches; it discards late answers. A branch shows its origin
below its title.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hermes_cli.framework import text as words
from hermes_cli.tui.rpc_client import Ask, RequestRefused, ServerLost
from hermes_cli.tui.widgets import LineInput

_PAUSE = 0.08
_MOST_ROWS = 500
"""Models shown at a time; typing finds the others."""


@dataclass(frozen=True, slots=True)
class PickerRow:
    value: str
    line: Text


class Picker(ModalScreen[str]):
    """Dismissed with a value; with nothing by Escape."""

    DEFAULT_CSS = """
    Picker { align: center middle; }
    Picker > Vertical { width: 94%; max-width: 110; height: 90%; max-height: 30; background: $panel;
                        border: round $primary; padding: 0 1; }
    Picker Input { background: $background; }
    Picker OptionList { border: none; height: 1fr; padding: 0; background: $panel; scrollbar-size-vertical: 1; }
    Picker Static { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]
    prompt = "type to search"
    takes_typed = False
    """Whether typed text is itself a value."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[PickerRow] = []
        self._asked = 0

    async def rows(self, typed: str) -> Sequence[PickerRow]:
        raise NotImplementedError

    @property
    def columns(self) -> int:
        """The columns of a line."""
        return max(self.query_one(OptionList).size.width - 1, 12)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield LineInput(placeholder=self.prompt, compact=True)
            yield OptionList(markup=False)
            yield Static("looking …", id="about")

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self.run_worker(self._look(""), exclusive=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.run_worker(self._look(event.value), exclusive=True)

    async def _look(self, typed: str) -> None:
        self._asked += 1
        number = self._asked
        await asyncio.sleep(_PAUSE if typed else 0)
        try:
            found = list(await self.rows(typed.strip()))
        except (RequestRefused, ServerLost) as error:
            if self.is_mounted:
                self.query_one("#about", Static).update(Text(f"{error.one_line()} · Escape closes"))
            return
        if number != self._asked or not self.is_mounted:
            return
        self._rows = found
        offered = self.query_one(OptionList)
        offered.clear_options()
        offered.add_options([Option(row.line) for row in found])
        offered.highlighted = 0 if found else None
        said = "Enter chooses · Escape closes" if found else "nothing found · Escape closes"
        self.query_one("#about", Static).update(said)

    def action_move(self, step: int) -> None:
        offered = self.query_one(OptionList)
        if self._rows:
            offered.highlighted = max(0, min((offered.highlighted or 0) + step, len(self._rows) - 1))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        place = self.query_one(OptionList).highlighted
        if self._rows and place is not None:
            self.dismiss(self._rows[place].value)
        elif self.takes_typed and event.value.strip():
            self.dismiss(event.value.strip())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].value)

    def action_leave(self) -> None:
        self.dismiss("")


class SessionPicker(Picker):
    prompt = "words of a title or a message, or an id"

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    async def rows(self, typed: str) -> Sequence[PickerRow]:
        answer = await self._ask("session.list", limit=200, query=typed, deep=True)
        return [self._row(one) for one in answer.get("sessions") or ()]

    def _row(self, session: dict[str, Any]) -> PickerRow:
        title = words.harmless(str(session.get("title") or session.get("preview") or session["id"]))
        place = str(session.get("source") or "")
        count = words.counted(int(session.get("message_count") or 0), "message")
        source = words.SOURCE_NAMES.get(place, place)
        about = f"{source} · {count} · {words.ago(session.get('last_active'))}"
        room = self.columns
        about = words.shorten(about, max(room // 2, room - words.width(title) - 2))
        line = Text(words.shorten(title, room - words.width(about) - 2), style="bold", no_wrap=True)
        line.append(f"  {about}", style="not bold dim")
        if found := str(session.get("found") or ""):
            at = int(session.get("found_at") or 0)
            before = words.harmless(found[:at])
            shown = words.cut_around(f"{before}{words.harmless(found[at:])}", len(before), room - 4)
            line.append(f"\n    {shown}", style="not bold dim italic")
        if parent := session.get("branch_of"):
            shown = words.shorten(f"↳ branch of {words.harmless(str(parent))}", room - 4)
            line.append(f"\n    {shown}", style="not bold dim")
        return PickerRow(str(session["id"]), line)


class ModelPicker(Picker):
    prompt = "a model, for example anthropic/claude-sonnet-4.6"
    takes_typed = True

    def __init__(self, ask: Ask, session_id: str) -> None:
        super().__init__()
        self._ask, self._session = ask, session_id

    async def rows(self, typed: str) -> Sequence[PickerRow]:
        answer = await self._ask("model.options", session_id=self._session)
        found: list[PickerRow] = []
        for provider in answer.get("providers") or ():
            for model in provider.get("models") or ():
                here = model == answer.get("model") and provider.get("current")
                line = Text(f"{'● ' if here else '  '}{words.harmless(str(model))}", no_wrap=True, overflow="ellipsis")
                line.append(f"  {provider['name']}{' · in use' if here else ''}", style="dim")
                found.append(PickerRow(f"{provider['name']}/{model}", line))
        fitting = [row for row in found if typed.lower() in row.value.lower()][:_MOST_ROWS]
        if typed and all(typed not in (row.value, row.value.partition("/")[2]) for row in fitting):
            fitting.append(PickerRow(typed, Text(f"  {words.harmless(typed)}  use this name")))
        return fitting
