"""The words of questions in chats. What somebody else wrote stands in a block of code: it can be read, not obeyed."""

from __future__ import annotations

import re
from typing import Any

from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.types import ApprovalQuestion, Choice

LONGEST = 12_000
"""Characters of a command, as it is shown, that a chat can hold; nobody is asked about what they cannot read."""
_LABEL = 60
_TYPED: dict[Choice, str] = {"session": "conversation"}
"""What a person types instead of the word on the wire."""
_SHOWN_AGAIN = 300


def is_too_long(question: ApprovalQuestion) -> bool:
    return sum(len(line) + 1 for line in approval_text.exactly(question.command)) > LONGEST


def approval(question: ApprovalQuestion, *, who: str, buttons: bool) -> str:
    """Everything a person needs to decide, and how to answer."""
    return "\n\n".join([*_asked(question, who=who), _how(question, buttons=buttons)])


def approval_parts(question: ApprovalQuestion, *, who: str, buttons: bool) -> tuple[str, str]:
    """The same for a question that fills several messages: all of it, then what stands with the buttons. The second
    repeats the start of the command with its length and hash, so that nobody answers to what has scrolled away."""
    measure = approval_text.measure(question.command)
    again = "\n\n".join([
        f"**{approval_text.heading(question.kind)}**: the one above, {measure}. It begins",
        block(approval_text.beginning(question.command, _SHOWN_AGAIN)),
        block("\n".join(line[:_SHOWN_AGAIN] for line in _lines([("why", question.why), ("wall", question.wall)]))),
        _how(question, buttons=buttons),
    ])  # fmt: skip
    return "\n\n".join(_asked(question, who=who)), again


def _asked(question: ApprovalQuestion, *, who: str) -> list[str]:
    shown = [f"**{approval_text.heading(question.kind)}**", block("\n".join(approval_text.exactly(question.command)))]
    if question.content:
        shown.append(block(question.content))
    return [*shown, block("\n".join(_lines(approval_text.facts(question, whom=who))))]


def _lines(facts: list[tuple[str, str]]) -> list[str]:
    return [f"{name:<7} {' '.join(' '.join(approval_text.exactly(value)).split())}" for name, value in facts]


def _how(question: ApprovalQuestion, *, buttons: bool) -> str:
    allow = [_TYPED.get(choice, choice) for choice in question.choices if choice != "deny"]
    offered = f"`/approve {question.id} {'|'.join(allow)}` or `/deny {question.id}`"
    if buttons:
        return f"Or reply to this message with yes (once) or no, or send {offered}"
    grants = [f"{_TYPED.get(one, one)}: {question.label(one)}" for one in question.choices if one != "deny"]
    return "\n\n".join([block("\n".join(grants)), f"Reply: {offered}"])


def settled(question: ApprovalQuestion, *, who: str, outcome: str, brief: bool = False) -> str:
    """What stands in the question's place when it is over."""
    lines = (
        [approval_text.beginning(question.command, _SHOWN_AGAIN)] if brief else approval_text.exactly(question.command)
    )
    command = block("\n".join(lines))
    return f"**{approval_text.heading(question.kind)}**\n\n{command}\n\n{block(f'for     {who}')}\n\n→ {outcome}"


def approval_buttons(question: ApprovalQuestion) -> list[list[dict[str, Any]]]:
    return [
        [{"label": question.label(choice), "answer": {"kind": "approval", "id": question.id, "choice": choice}}]
        for choice in question.choices
    ]


def clarification(question: str, choices: tuple[str, ...], *, buttons: bool) -> str:
    lines = [question.strip()]
    if choices and not buttons:
        lines += ["", *(f"{place}. {choice}" for place, choice in enumerate(choices, start=1)), ""]
        lines.append("Answer with a number, or in your own words.")
    return "\n".join(lines)


def clarify_buttons(question_id: str, choices: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    return [
        [{"label": _short(choice), "answer": {"kind": "clarify", "id": question_id, "choice": str(place)}}]
        for place, choice in enumerate(choices)
    ]


def block(text: str) -> str:
    """A block of code that nothing in the text can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…"
