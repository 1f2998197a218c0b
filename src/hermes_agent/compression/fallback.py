"""A summary without a model: what can be read off the rows. It always succeeds, and the same rows give the same text.

It cannot weigh what matters, so it keeps what is cheap and rarely wrong: what the person asked, in their own words and
shortened; which files and commands the tools were called with; what the assistant said last; and the summary before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hermes_agent.compression import reading
from hermes_agent.models.base import Message
from hermes_config.limits import DEFAULTS

MOST_CHARS = DEFAULTS.fallback_summary_chars
_PATHS = ("path", "file", "file_path", "filename", "workdir", "cwd")
_COMMANDS = ("command", "cmd", "query", "pattern", "url")
_LISTED = 30


def write(middle: Sequence[Message], *, previous: Sequence[str], focus: str | None, most_chars: int) -> str:
    """The text, at most `most_chars` and never more than 8,000 characters long."""
    most = max(min(most_chars, MOST_CHARS), 0)
    intro = f"(Put together without a model, from {len(middle)} messages that are left out; details are missing.)"
    parts = [intro]
    left = most - len(intro)
    sections = [
        ("Critical context from before", "\n".join(previous), left // 3),
        ("What the person asked", _lines(_asked(middle)), left // 3),
        ("Relevant files", ", ".join(_arguments(middle, _PATHS)), left // 8),
        ("Commands and searches that were run", _lines(_arguments(middle, _COMMANDS)), left // 6),
        ("What the assistant said last", _lines(_answered(middle)), left // 4),
    ]
    if focus and focus.strip():
        sections.insert(0, ("The person wanted kept above all", focus.strip(), 400))
    for name, text, share in sections:
        if not text.strip():
            continue
        piece = f"\n\n## {name}\n{reading.clipped(text.strip(), share)}"
        if len(piece) > left:
            continue
        parts.append(piece)
        left -= len(piece)
    return "".join(parts)[:most]


def _lines(texts: Iterator[str] | list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _asked(middle: Sequence[Message]) -> list[str]:
    """The first request and the newest ones: the goal, and where it has got to."""
    said = [_one_line(row, 300) for row in middle if row.get("role") == "user" and reading.text_of(row).strip()]
    return said if len(said) <= 8 else [said[0], f"… {len(said) - 8} more …", *said[-7:]]


def _answered(middle: Sequence[Message]) -> list[str]:
    return [_one_line(row, 400) for row in middle if row.get("role") == "assistant" and reading.text_of(row).strip()][
        -4:
    ]


def _arguments(middle: Sequence[Message], names: tuple[str, ...]) -> list[str]:
    """What the calls were given under these names, each once, the newest last."""
    found: dict[str, None] = {}
    for row in middle:
        for call in reading.calls_of(row):
            given = reading.arguments_of(call)
            for name in names:
                value = given.get(name)
                if isinstance(value, str) and value.strip():
                    text = reading.clipped(" ".join(value.split()), 200)
                    found.pop(text, None)
                    found[text] = None
    return list(found)[-_LISTED:]


def _one_line(row: Message, most: int) -> str:
    return reading.clipped(" ".join(reading.text_of(row).split()), most)
