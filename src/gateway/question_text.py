"""The words of questions in chats. What somebody else wrote stands in a block of code: it can be read, not obeyed."""

from __future__ import annotations

import re
from typing import Any

from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.base import ApprovalQuestion, Choice

LONGEST = 12_000
"""Characters of a command that a chat can show as a whole; nobody is asked about what they cannot read."""
_LABEL = 60
_LABELS: dict[Choice, str] = {"once": "Once", "session": "This conversation", "always": "Always", "deny": "Deny"}


def approval(question: ApprovalQuestion, *, who: str, buttons: bool) -> str:
    """Everything a person needs to decide, and how to answer."""
    facts = [("where", question.workdir), ("for", who), ("why", question.why)]
    if question.detail:
        facts.insert(0, ("what", question.detail))
    facts.append(("lapses", f"in {approval_text.wait(question.seconds)}; then it is denied"))
    lines = [f"{name:<7} {' '.join(' '.join(approval_text.exactly(value)).split())}" for name, value in facts]
    allow = [choice for choice in question.choices if choice != "deny"]
    how = "Or reply" if buttons else "Reply"
    return "\n\n".join([
        f"**{approval_text.heading(question.kind)}**",
        block("\n".join(approval_text.exactly(question.command))),
        block("\n".join(lines)),
        f"{how}: `/approve {question.id} {'|'.join(allow)}` or `/deny {question.id}`",
    ])  # fmt: skip


def settled(question: ApprovalQuestion, *, who: str, outcome: str) -> str:
    """What stands in the question's place when it is over."""
    command = block("\n".join(approval_text.exactly(question.command)))
    return f"**{approval_text.heading(question.kind)}**\n\n{command}\n\n{block(f'for     {who}')}\n\n→ {outcome}"


def approval_buttons(question: ApprovalQuestion) -> list[list[dict[str, Any]]]:
    made = [
        {"label": _LABELS[choice], "answer": {"kind": "approval", "id": question.id, "choice": choice}}
        for choice in question.choices
    ]
    return [made[at : at + 2] for at in range(0, len(made), 2)]


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
