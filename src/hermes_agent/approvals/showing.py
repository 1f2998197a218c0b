"""How a question of permission is put into words, the same on every surface.

The command is shown as it would run, whole, with everything in it that a screen would hide or turn around made visible:
what cannot be seen cannot be agreed to.
"""

from __future__ import annotations

from hermes_agent.approvals.base import Choice

_HEADINGS = {
    "command": "Hermes wants to run a command",
    "write": "Hermes wants to write a file",
    "read": "Hermes wants to read a file",
    "network": "Hermes wants to reach the network",
}
SAID: dict[Choice, str] = {
    "once": "allowed, this once",
    "session": "allowed in this conversation",
    "always": "allowed from now on, also in other conversations of yours",
    "deny": "denied",
}
"""What an answer means, for whoever asked."""


def heading(kind: str) -> str:
    return _HEADINGS.get(kind, f"Hermes asks for leave ({' '.join(exactly(kind))})")


def exactly(command: str) -> list[str]:
    """The lines of a command, with every character that a screen would not show as itself named instead."""
    return ["".join(map(_visible, line)) for line in command.split("\n")]


def _visible(character: str) -> str:
    if character == "\t":
        return "    "
    # Not printable are controls, direction marks, characters without width, and spaces that are no space.
    return character if character.isprintable() else f"⟨U+{ord(character):04X}⟩"


def wait(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
