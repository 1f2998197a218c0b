"""What is known while a command line is read from left to right: variables and the working directory.

Both are kept only as long as they are certain. Where the line may take one of two ways, what differs afterwards is
unknown; a `cd` that may have failed leaves two directories a relative path can mean, and both are judged.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from hermes_agent.approvals.words import NOT_KNOWN, Value, Word


@dataclass(slots=True)
class Scope:
    cwd: str | None
    """Where the line is if every `cd` worked; None when that depends on the running shell."""
    others: frozenset[str | None] = frozenset()
    """Where it may be instead."""
    variables: dict[str, Value] = field(default_factory=dict)
    lost: bool = False
    """Anything may have been assigned: text was run that nobody could read."""

    def fork(self) -> Scope:
        return Scope(self.cwd, self.others, dict(self.variables), self.lost)

    def places(self) -> tuple[str | None, ...]:
        return (self.cwd, *sorted(self.others - {self.cwd}, key=str))

    def value(self, name: str) -> Value:
        if name == "PWD" and self.cwd is not None and not self.lost:
            return Value(self.cwd, sure=not self.others)
        return NOT_KNOWN if self.lost else self.variables.get(name, NOT_KNOWN)

    def known(self, name: str) -> bool:
        return not self.lost and name in self.variables

    def assign(self, name: str, value: Value) -> None:
        self.variables[name] = value

    def join(self, other: Scope) -> None:
        """After a fork in the road: what the two ways do not agree on is unknown."""
        if other.cwd != self.cwd:
            self.others |= {other.cwd}
        self.others |= other.others
        self.lost |= other.lost
        for name in self.variables.keys() | other.variables.keys():
            if self.variables.get(name) != other.variables.get(name):
                self.variables[name] = NOT_KNOWN

    def child(self) -> Scope:
        """What another shell started here knows: the place, and of the variables only those it is sure to inherit."""
        kept = {name: value for name, value in self.variables.items() if name in ("HOME", "HERMES_HOME")}
        return Scope(self.cwd, self.others, kept, self.lost)

    def forget(self) -> None:
        self.cwd, self.others, self.lost = None, frozenset(), True

    def forget_named(self, text: str) -> None:
        """A body that may run again: whatever it names without `$` may have another value the second time."""
        for name in self.variables:
            if re.search(rf"(?<![\w$]){re.escape(name)}\b", text):
                self.variables[name] = NOT_KNOWN

    def enter(self, folder: Word | None) -> None:
        """`cd folder`; None for a place nobody can know."""
        old = self.cwd
        if folder is None or not folder.sure or folder.glob:
            self.cwd = None
        elif folder.text.startswith("/"):
            self.cwd = posixpath.normpath(folder.text)
        else:
            self.cwd = None if old is None else posixpath.normpath(posixpath.join(old, folder.text))
        self.others |= {old}
