"""The approval card at a terminal, where Enter means no.

The card shows the whole command exactly as it would run, and makes characters visible that a terminal would hide or
reorder: nobody can approve what they cannot see.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.text import answer_in_words
from hermes_cli.chat.keyboard import Keyboard
from hermes_cli.chat.render import Screen
from hermes_cli.framework import output, text

if TYPE_CHECKING:
    from hermes_agent.approvals.types import ApprovalQuestion, Choice

_LETTERS: dict[str, Choice] = {
    "t": "task", "task": "task", "o": "once", "once": "once", "s": "session", "session": "session",
    "conversation": "session", "a": "always", "always": "always", "d": "deny", "": "deny",
}  # fmt: skip


def put(
    question: ApprovalQuestion,
    *,
    screen: Screen,
    keyboard: Keyboard,
    whom: str,
    over: Callable[[], bool],
    unanswered: Callable[[], str] = lambda: "no answer: denied",
) -> Choice:
    """Show the card and return the answer. No answer in time, or before `over`, is a denial.

    `unanswered` makes the line that is shown then; another client may have answered.
    """
    screen.say(box(question, whom=whom))
    deadline = time.monotonic() + question.seconds
    while True:
        typed = keyboard.answer(_prompt(question), seconds=deadline - time.monotonic(), over=over)
        if typed is None:
            screen.say(f"\n  → {unanswered()}")
            return "deny"
        choice = _LETTERS.get(typed.strip().lower()) or answer_in_words(typed)
        if choice in question.choices:
            said = approval_text.SAID[choice]
            screen.say(f"  → {said}", style="" if choice == "deny" else "yellow")
            return choice
        screen.say("  Please type one of these letters, yes (once) or no; Enter denies.")


def box(question: ApprovalQuestion, *, whom: str) -> str:
    """Draw the card, at most as wide as the window."""
    columns = max(40, min(100, shutil.get_terminal_size().columns)) - 3
    lines = [f"╭ {approval_text.heading(question.kind)}", "│", *_block(question.command, columns)]
    if question.content:
        lines += ["│", *_block(question.content, columns)]
    lines.append("│")
    facts = approval_text.facts(question, whom=whom)
    for name, value in facts:
        first, *rest = _wrapped(value, columns - 9)
        lines.append(f"│ {name:<8}{first}")
        lines += [f"│ {'':<8}{line}" for line in rest]
    lines.append("│")
    lines += [f"│ [{choice[0]}] {text.harmless(question.label(choice))}" for choice in question.choices]
    return "\n".join([*lines, "╰"])


def _block(shown: str, columns: int) -> list[str]:
    lines: list[str] = []
    for line in approval_text.exactly(shown):
        first, *rest = _wrapped(line, columns - 3)
        lines += [f"│   {first}", *(f"│ ↪ {more}" for more in rest)]  # ↪ marks a wrapped line of the command
    return lines


def _wrapped(line: str, columns: int) -> list[str]:
    """Wrap a line at the window's width, between words if possible; no character is dropped."""
    found: list[str] = []
    while text.width(line) > columns:
        cut = next(at for at in range(1, len(line) + 1) if text.width(line[:at]) > columns) - 1
        space = line.rfind(" ", cut // 2, cut)
        cut = space + 1 if space > 0 else max(cut, 1)
        found.append(line[:cut])
        line = line[cut:]
    return [*found, line]


def _prompt(question: ApprovalQuestion) -> str:
    return "  " + " · ".join(_offer(choice) for choice in question.choices) + " > "


def _offer(choice: Choice) -> str:
    letter = output.style(f"[{choice[0]}]", "bold")
    return f"{letter}{choice[1:]}{' (Enter)' if choice == 'deny' else ''}"


def clarify(
    question: str, choices: tuple[str, ...], *, screen: Screen, keyboard: Keyboard, over: Callable[[], bool]
) -> str | None:
    """Ask a question of the model. A number selects a choice, other text is the answer; None when nobody answers."""
    lines = [f"? {text.harmless_block(question)}"]
    lines += [f"  {number}. {text.harmless(choice)}" for number, choice in enumerate(choices, start=1)]
    screen.say("\n".join(lines), style="bold")
    typed = keyboard.answer("  > ", seconds=None, over=over)
    chosen = None if typed is None else text.numbered(typed, choices)
    return typed if chosen is None else chosen
