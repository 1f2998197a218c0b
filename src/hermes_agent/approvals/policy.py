"""`approvals:` and `command_allowlist:` of config.yaml: when to ask, for how long, and what is settled beforehand.

| key | means |
|---|---|
| `approvals.mode` | `manual` (the default) asks; `off` (or false) does not. Anything else is read as `manual` |
| `approvals.timeout` | seconds until a question lapses, which is a denial |
| `approvals.deny` | patterns that are refused whatever the mode |
| `approvals.ask` | patterns that are asked about even where the judge finds nothing |
| `command_allowlist` | exact commands that need no question; a pattern allows commands that are merely unknown |

A pattern (`git push*`) is held against the whole line and against each command in it, with quotes, variables and
wrappers resolved, so that `env g'it' push` does not slip past a rule about git push.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from hermes_agent.approvals.base import Judgement
from hermes_config.records import record

SECONDS = 60.0
_LONGEST = 86_400.0


@record
class Policy:
    mode: Literal["manual", "off"] = "manual"
    seconds: float = SECONDS
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What in the configuration is not taken as it is written; `hermes config check` shows it."""

    def denied(self, command: str, calls: Iterable[str]) -> str:
        """The deny rule that hits, or nothing."""
        return _hit(self.deny, (command, *calls))

    def asks(self, command: str, calls: Iterable[str]) -> str:
        return _hit(self.ask, (command, *calls))

    def allows(self, command: str, judged: Judgement) -> bool:
        """An exact entry allows the line; a pattern only what is unknown but shows no danger, command by command."""
        if command.strip() in self.allow:
            return True
        return judged.unfamiliar and bool(judged.calls) and all(_hit(self.allow, (call,)) for call in judged.calls)


def read_policy(tree: Mapping[str, Any]) -> Policy:
    """From the whole of config.yaml. What cannot be read is taken on the safe side, and noted."""
    section = tree.get("approvals")
    notes: list[str] = []
    if section is not None and not isinstance(section, Mapping):
        notes.append("approvals must be a section; the defaults hold")
    values: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
    return Policy(
        mode=_mode(values.get("mode"), notes),
        seconds=_seconds(values.get("timeout"), notes),
        deny=_patterns(values.get("deny"), "approvals.deny", notes),
        ask=_patterns(values.get("ask"), "approvals.ask", notes),
        allow=_patterns(tree.get("command_allowlist"), "command_allowlist", notes),
        notes=tuple(notes),
    )


def _mode(value: Any, notes: list[str]) -> Literal["manual", "off"]:
    word = "off" if value is False else str(value).strip().lower()
    if word == "off":
        return "off"
    if word == "smart":
        notes.append("approvals.mode smart is read as manual: no model decides here, a person does")
    elif value is not None and word != "manual":
        notes.append(f"approvals.mode {word[:20]!r} is not known and read as manual")
    return "manual"


def _seconds(value: Any, notes: list[str]) -> float:
    if value is None:
        return SECONDS
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if isinstance(value, bool) or not 0 < seconds <= _LONGEST:
        notes.append(f"approvals.timeout must be a number of seconds up to {_LONGEST:,.0f}; {SECONDS:.0f} is used")
        return SECONDS
    return seconds


def _patterns(value: Any, key: str, notes: list[str]) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else () if value is None else (value,)
    found = tuple(item.strip() for item in items if isinstance(item, str) and item.strip())
    if len(found) != len(items):
        notes.append(f"{key} holds entries that are not text; they are ignored")
    return found


def _hit(patterns: Iterable[str], texts: Iterable[str]) -> str:
    plain = [" ".join(text.split()).casefold() for text in texts]
    return next((rule for rule in patterns if any(fnmatchcase(text, rule.casefold()) for text in plain)), "")
