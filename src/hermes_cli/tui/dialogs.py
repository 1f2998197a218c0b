"""Modal dialogs: the approval card, and a question of the model.

The card shows the whole exact command, its folder and the reason for the question. A person cannot answer by accident:
keys typed before the dialog appeared do not count, and Enter and Escape deny.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, Label, Static

from hermes_agent.approvals import text as approval_text
from hermes_cli.framework import text as words
from hermes_cli.tui.widgets import LineInput, folder, scrolled

_QUIET_SECONDS = 0.6
"""Seconds without a key press before a key counts as an answer."""
_DENY = "Deny (Enter)"
_KEYS = {
    "t": "task", "o": "once", "y": "once", "s": "session", "a": "always", "d": "deny", "n": "deny", "enter": "deny",
    "escape": "deny",
}  # fmt: skip


class _Choice(Button, can_focus=False):
    """A button for the mouse."""


class ApprovalDialog(ModalScreen[str]):
    """The approval card. Dismissed with a choice; with nothing when another client closed the question."""

    DEFAULT_CSS = """
    ApprovalDialog { align: center middle; }
    ApprovalDialog > Vertical { width: 90%; max-width: 100; height: auto; max-height: 100%; background: $panel;
                          border: round $warning; padding: 0 1; }
    ApprovalDialog VerticalScroll { height: auto; max-height: 10; background: $background; padding: 0 1; margin: 1 0;
                              scrollbar-size-vertical: 1; }
    ApprovalDialog #more { height: 1; padding: 0 1; color: $warning; }
    ApprovalDialog #facts { height: auto; padding: 0 1; }
    ApprovalDialog #choices { height: auto; margin: 1 0 0 0; }
    ApprovalDialog.low VerticalScroll { max-height: 5; }
    ApprovalDialog.low #choices, ApprovalDialog.small #choices { margin: 0; }
    ApprovalDialog Button { min-width: 4; height: 1; border: none; margin: 0 1 0 0; }
    ApprovalDialog.small > Vertical { border: none; width: 100%; padding: 0; }
    ApprovalDialog.small #facts { display: none; }
    ApprovalDialog.small VerticalScroll { max-height: 3; margin: 0; }
    """

    def __init__(self, question: Mapping[str, Any], runs: str) -> None:
        super().__init__()
        self.number = str(question.get("approval_id") or "")
        self._question, self._runs = question, runs
        self._choices = [str(one) for one in question.get("choices") or ("once", "deny")]
        self._lapses = time.monotonic() + float(question.get("expires_in") or 0)
        self._last_key = 0.0

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(Text(approval_text.heading(str(self._question.get("kind") or "command")), style="bold"))
            with VerticalScroll(can_focus=False):
                shown = [str(self._question.get(part) or "") for part in ("command", "content")]
                lines = [line for part in shown if part for line in approval_text.exactly(part)]
                yield Static(Text("\n".join(lines)), id="command")
            yield Static(id="more")
            yield Static(id="facts")
            with Vertical(id="choices"):
                labels = self._question.get("labels") or {}
                for choice in self._choices:
                    said = _DENY if choice == "deny" else words.harmless(str(labels.get(choice) or choice.capitalize()))
                    yield _Choice(Text(f"[{choice[0]}] {said}"), id=choice, compact=True)

    def answer(self, choice: str) -> tuple[str, dict[str, Any]]:
        """The request that answers with it."""
        return "approval.respond", {"approval_id": self.number, "choice": choice}

    def on_mount(self) -> None:
        self._last_key = time.monotonic()
        self._tell()
        self.call_after_refresh(self._tell_more)
        self.call_after_refresh(self._make_room)
        self.set_interval(1.0, self._tell)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < 14 or event.size.width < 40, "small")
        self.set_class(event.size.height < 30, "low")
        self.call_after_refresh(self._make_room)

    def _make_room(self) -> None:
        """Cut the facts where the choices would not be on the screen."""
        box, more, choices = (self.query_one(name) for name in ("VerticalScroll", "#more", "#choices"))
        others = [one.outer_size.height + one.styles.margin.height for one in (box, choices)]
        left = self.size.height - 2 - 1 - sum(others) - more.display  # without the border and the heading
        self.query_one("#facts").styles.max_height = max(left, 1)

    def _tell(self) -> None:
        left = max(0.0, self._lapses - time.monotonic())
        why = str(self._question.get("description") or "").partition(": ")[2]
        facts = [
            ("what", str(self._question.get("detail") or "")),
            ("where", folder(str(self._question.get("workdir") or ""))),
            ("runs", "" if self._question.get("kind") == "mcp" else self._runs),  # its sandbox says where
            ("for", str(self._question.get("requester") or "")), ("why", why),
            ("sandbox", str(self._question.get("sandbox") or "")),
            ("expires", f"in {approval_text.wait(left)}; then it is denied"),
        ]  # fmt: skip
        lines = [f"{name:<7} {approval_text.in_line(value)}" for name, value in facts if value]
        self.query_one("#facts", Static).update(Text("\n".join(lines)))
        self._tell_more()
        self._make_room()

    def _tell_more(self) -> None:
        """Show how many lines of the command are below the box."""
        box, more = self.query_one(VerticalScroll), self.query_one("#more", Static)
        hidden = box.virtual_size.height - box.size.height - round(box.scroll_y)
        more.display = hidden > 0
        more.update(f"↓ {words.counted(hidden, 'more line')} below; ↓ PgDn or the wheel shows them")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if scrolled(self, event.key):
            self.call_after_refresh(self._tell_more)
            return
        now, before = time.monotonic(), self._last_key
        self._last_key = now
        choice = _KEYS.get(event.key)
        if choice in self._choices and now - before >= _QUIET_SECONDS:
            self.dismiss(choice)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(str(event.button.id))


class QuestionDialog(ModalScreen[str]):
    """Asks a question of the model, with numbered choices."""

    DEFAULT_CSS = """
    QuestionDialog { align: center middle; }
    QuestionDialog > Vertical { width: 90%; max-width: 100; height: auto; max-height: 100%; background: $panel;
                          border: round $primary; padding: 0 1; }
    QuestionDialog Static { height: auto; max-height: 12; }
    QuestionDialog Input { background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, question: Mapping[str, Any]) -> None:
        super().__init__()
        self.number = str(question.get("request_id") or "")
        self._question = str(question.get("question") or "")
        self._choices = [str(one) for one in question.get("choices") or ()]

    def answer(self, said: str) -> tuple[str, dict[str, Any]]:
        """The request that answers with it."""
        return "clarify.respond", {"request_id": self.number, "answer": said}

    def compose(self) -> ComposeResult:
        lines = [words.harmless_block(self._question)]
        lines += [f"  {place}. {words.harmless(choice)}" for place, choice in enumerate(self._choices, start=1)]
        hint = "a number, or your own words" if self._choices else "your answer"
        with Vertical():
            yield Static(Text("\n".join(lines)))
            yield LineInput(compact=True, placeholder=f"{hint} · Escape answers nothing")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        chosen = words.numbered(event.value, self._choices)
        self.dismiss(event.value if chosen is None else chosen)

    def action_leave(self) -> None:
        self.dismiss("")


class Dialogs:
    """The questions of turns, one at a time. `answer` sends a request: its method and parameters.

    `by_gateway` says whether the gateway drives the conversation, and so runs what is asked about.
    """

    def __init__(
        self, app: App[int], answer: Callable[[str, dict[str, Any]], None], *, by_gateway: Callable[[], bool]
    ) -> None:
        self._app, self._answer, self._by_gateway = app, answer, by_gateway
        self._waiting: list[ApprovalDialog | QuestionDialog] = []
        self._asking: ApprovalDialog | QuestionDialog | None = None
        self.heard: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "approval.request": self._approval, "approval.closed": self._closed,
            "clarify.request": lambda question: self._put(QuestionDialog(question)), "clarify.expire": self._closed,
        }  # fmt: skip
        """By event."""

    def is_asked(self, screen: Screen[Any]) -> bool:
        """Whether a screen is a question of a turn."""
        return screen is self._asking

    def clear(self) -> None:
        self._waiting.clear()

    def _approval(self, question: Mapping[str, Any]) -> None:
        """Show an approval card."""
        self._put(ApprovalDialog(question, "in the gateway" if self._by_gateway() else "on this machine, as you"))

    def _closed(self, payload: Mapping[str, Any]) -> None:
        """Close a question that another client answered or that expired."""
        number = str(payload.get("approval_id") or payload.get("request_id"))
        self._waiting = [one for one in self._waiting if one.number != number]
        asking = self._asking
        if asking is not None and asking.number == number and asking.is_current:
            asking.dismiss(None)

    def _put(self, dialog: ApprovalDialog | QuestionDialog) -> None:
        self._waiting.append(dialog)
        if self._asking is None:
            self._next()

    def _next(self) -> None:
        if not self._waiting:
            return
        asking = self._asking = self._waiting.pop(0)

        def done(said: str | None) -> None:
            self._asking = None
            if said is not None:
                self._answer(*asking.answer(said))
            self._next()

        self._app.push_screen(asking, done)
