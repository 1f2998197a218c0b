"""Short, plain text for people and models: ages, counts, one line, a long text cut to its two ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_AGES = ((60, "min"), (3_600, "h"), (86_400, "d"), (30 * 86_400, "mo"), (365 * 86_400, "y"))
_TITLE_CHARS = 60


SILENCE = frozenset({"[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"})
"""A model that answers nothing but one of these wants nothing to be sent."""


def is_silence(text: str) -> bool:
    """Whether the whole answer is a silence marker. Inside other text a marker is just text."""
    return text.strip() in SILENCE


def ago(instant: float, now: float) -> str:
    """How long ago an instant is: `now`, `2 min`, `3 d`."""
    seconds = max(now - instant, 0)
    return next((f"{int(seconds // size)} {unit}" for size, unit in reversed(_AGES) if seconds >= size), "now")


def skill_request(name: str, args: str) -> str:
    """What the model receives for `/name args`, where `name` is a skill."""
    return f"[Use the skill {name}: load it with skill_view first.]\n{args.strip() or 'Do what it says.'}"


def as_typed(text: str) -> str:
    """The command behind a `skill_request`, as a screen shows it; any other text unchanged."""
    head, _, rest = text.partition(": load it with skill_view first.]\n")
    name = head.removeprefix("[Use the skill ")
    if name == head or text != skill_request(name, rest):
        return text
    return f"/{name} {'' if rest == 'Do what it says.' else rest}".rstrip()


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 message`, `2 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def brief(text: str, most: int = _TITLE_CHARS) -> str:
    """The text as one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def inline_code(text: str) -> str:
    """The text as inline code, so that no chat formats it."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def fenced(text: str, kind: str = "") -> str:
    """The text as a code block, whose fence is longer than any run of backticks in it."""
    fence = "`" * (max(2, *map(len, re.findall("`+", text)), 2) + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def named(session: dict[str, Any]) -> str:
    """A conversation's name for a person: its title, else its first words."""
    return brief(session["title"] or session.get("preview") or "(untitled)")


def shortened(text: str, most: int, *, of: str = "") -> str:
    """At most `most` characters: of a longer text its beginning, a note on the missing part, and its end."""
    if len(text) <= most:
        return text
    note = f" [… {len(text) - most:,} characters{f' of {of}' if of else ''} left out …] "
    if most <= len(note) + 20:
        return text[: max(most, 0)]
    front = (most - len(note)) * 2 // 3
    return text[:front] + note + text[len(text) - (most - len(note) - front) :]


def close_names(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """The names most similar to a misspelt one."""
    import difflib  # slow to import, and only misspelt names need it

    return difflib.get_close_matches(name[:200], list(names), n=most, cutoff=cutoff)


def columns(rows: list[tuple[str, str]]) -> str:
    """Two columns, the first as wide as its widest cell."""
    wide = max((len(left) for left, _ in rows), default=0)
    return "\n".join(f"{left:<{wide}}  {right}".rstrip() for left, right in rows)
