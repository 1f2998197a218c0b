"""How commands say things: short, plain text that reads well in a terminal and in a chat."""

from __future__ import annotations

from typing import Any

_AGES = ((60, "min"), (3_600, "h"), (86_400, "d"), (30 * 86_400, "mo"), (365 * 86_400, "y"))
_TITLE_CHARS = 60


def ago(instant: float, now: float) -> str:
    """`now`, `2 min`, `3 d`."""
    seconds = max(now - instant, 0)
    return next((f"{int(seconds // size)} {unit}" for size, unit in reversed(_AGES) if seconds >= size), "now")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def brief(text: str, most: int = _TITLE_CHARS) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def named(session: dict[str, Any]) -> str:
    """What a conversation is called for a person: its title, else how it began."""
    return brief(session["title"] or session.get("preview") or "(untitled)")


def text_of(content: Any) -> str:
    """The words of a message, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def columns(rows: list[tuple[str, str]]) -> str:
    """Two columns, the first as wide as its widest cell."""
    wide = max((len(left) for left, _ in rows), default=0)
    return "\n".join(f"{left:<{wide}}  {right}".rstrip() for left, right in rows)
