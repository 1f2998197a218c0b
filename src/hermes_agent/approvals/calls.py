"""What reading a command line gives: its simple commands, its assignments, and what was not understood."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.words import UNKNOWN, Value, Word


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class Call:
    """One simple command as it would run."""

    words: tuple[Word, ...]
    scope: Scope
    """A copy: what was known when it runs."""
    assigned: tuple[tuple[str, Value], ...] = ()
    """`A=b command …`."""
    redirects: tuple[Redirect, ...] = ()
    piped: bool = False
    """Something stands before it in a pipe."""
    stdin: str | None = None
    """What comes in by a here-document or from `echo`, where that is known."""

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""

    def shown(self) -> str:
        return " ".join(word.text.replace(UNKNOWN, "…") for word in self.words)


@dataclass(slots=True)
class Reading:
    calls: list[Call] = field(default_factory=list)
    assigned: list[tuple[str, Value, bool]] = field(default_factory=list)
    """Every assignment of the shell itself: name, value, exported."""
    troubles: list[str] = field(default_factory=list)
    bombs: list[str] = field(default_factory=list)
    """Functions that start themselves again in the background."""
    overflow: bool = False
    """There was more than is read: what was left out could be anything."""


def printed(call: Call) -> str | None:
    """What a call prints, where it only repeats what is known."""
    arguments = [word.text for word in call.words[1:]]
    if call.name == "cat" and not arguments:
        return call.stdin
    if call.name not in ("echo", "printf") or UNKNOWN in "".join(arguments):
        return None
    while arguments and arguments[0] in ("-n", "-e", "-ne", "-en", "-E", "--", "%s", "%s\\n", "%b"):
        arguments = arguments[1:]
    return " ".join(arguments).replace("\\n", "\n")
