"""What the judge says of a command line: what it would need, and which programs it names.

The judge decides whom to ask and proves nothing. A command without a visible need runs confined, whatever it does
there; the wall is the kernel's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNSURE = "…"
"""In `Program.words`: something that only the running shell knows; it may turn out to be any number of words."""

Kind = Literal["network", "folder", "host", "change"]


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a command visibly needs a person's yes for."""

    kind: Kind
    """`network`: reach other machines. `folder`: write outside the workspace. `host`: act on the machine itself (a
    service, another user's rights, a container, other processes). `change`: an irreversible change inside the
    workspace, which needs no opening in the wall."""
    value: str
    """`folder`: the absolute path of the folder. Else the program that needs it (`curl`, `git push`)."""
    why: str
    """For a person, in one line: "curl reaches the network"."""


@dataclass(frozen=True, slots=True)
class Program:
    """One simple command as it would run, for the rules of `approvals.deny` and `approvals.ask`."""

    name: str | None
    """The program's own name, resolved (`/usr/bin/git` → `git`); None when only the running shell can know it."""
    words: tuple[str, ...]
    """The name and the arguments, global options before a subcommand left out (`git -C x push` → git, push)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    level: Literal["run", "ask", "never"]
    """`run`: no need was seen. `ask`: see `needs`. `never`: the floor."""
    why: str = ""
    needs: tuple[Need, ...] = ()
    programs: tuple[Program, ...] = ()
    understood: bool = True
    """False when the line could not be read to its end; it may then hold programs that `programs` does not name."""
