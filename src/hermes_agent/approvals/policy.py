"""The settings `approvals:` and `command_allowlist:`: when to ask, how long, and which calls are decided beforehand.

| key | means |
|---|---|
| `approvals.mode` | `manual` (the default) asks; `off` (or false) does not. Anything else is read as `manual` |
| `approvals.timeout` | seconds until a question expires, which is a denial |
| `approvals.deny` | patterns that are refused whatever the mode |
| `approvals.ask` | patterns that are asked about even where the judge sees no need |
| `command_allowlist` | exact commands that need no question: the owner's standing permission |

A pattern (`git push*`) is compared with every program in a command as it would run: its own name without a folder, a
subcommand without the options before it, then its arguments. `/usr/bin/git -C . push` is a `git push`. For a call that
is no command, the path or the tool's name with its arguments is compared. A program whose name only the running shell
can know fits no pattern and hides from every rule, so with a deny rule it is refused, and with an ask rule it asks. The
same goes for arguments: in `xargs git`, whatever begins like `git ` may be meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hermes_agent.approvals.types import UNSURE, Judgement

if TYPE_CHECKING:
    from hermes_config.config import Config


_NOT_KNOWN = "names a program that only the running shell can know"


def denied(config: Config, kind: str, text: str, judged: Judgement) -> str:
    """Why the deny rules refuse this call; empty if they do not."""
    rules = config.approvals.deny
    if rule := _hit(rules, _texts(kind, text, judged)):
        return f"the rule {rule!r} of approvals.deny forbids this"
    hidden = rules and _hides(kind, judged)
    return f"approvals.deny is set, and this {_NOT_KNOWN}: write it out plainly" if hidden else ""


def asks(config: Config, kind: str, text: str, judged: Judgement) -> str:
    """Why the ask rules want a person asked; empty if they do not."""
    rules = config.approvals.ask
    if rule := _hit(rules, _texts(kind, text, judged)):
        return f"the rule {rule!r} of approvals.ask"
    return f"approvals.ask is set, and this {_NOT_KNOWN}" if rules and _hides(kind, judged) else ""


def allows(config: Config, command: str) -> bool:
    """Whether the owner's configuration permits exactly this command."""
    return command.strip() in config.command_allowlist


def notes(config: Config) -> list[str]:
    """Settings that do not mean what they seem to; `hermes config check` shows them."""
    return [
        f"command_allowlist {entry[:60]!r} is compared letter by letter: a pattern permits nothing here"
        " (most commands need no permission in the sandbox)"
        for entry in config.command_allowlist
        if any(mark in entry for mark in "*?[")
    ]


def _texts(kind: str, text: str, judged: Judgement) -> list[str]:
    if kind != "command":
        return [text]
    return [" ".join((one.name, *one.words[1:])) for one in judged.programs if one.name is not None]


def _hides(kind: str, judged: Judgement) -> bool:
    return kind == "command" and (not judged.understood or any(one.name is None for one in judged.programs))


def _hit(patterns: Iterable[str], texts: Iterable[str]) -> str:
    plain = [" ".join(text.split()).casefold() for text in texts]
    begun = tuple(start for text in plain if UNSURE in text and (start := text.partition(UNSURE)[0]))
    plain += [f"{text} " for text in plain]  # `curl *` also means `curl` alone

    def fits(rule: str) -> bool:
        return rule.startswith(begun) or any(fnmatchcase(text, rule) for text in plain)

    return next((rule for rule in patterns if fits(rule.casefold())), "")
