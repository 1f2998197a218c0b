"""What the demo model answers to the two questions Hermes itself asks: a summary, a title.

Both are deterministic extracts. A summary is made of what the person asked for, what was called, which files were
named and what must not be forgotten, under the headings the question lists, within the room it gives.
"""

from __future__ import annotations

import re

from hermes_agent.models.demo_request import DemoRequest

_CONVERSATION = re.compile(r"<<<CONVERSATION\n(.*)\nCONVERSATION>>>", re.DOTALL)
_PREVIOUS = re.compile(r"<<<SUMMARY\n(.*)\nSUMMARY>>>", re.DOTALL)
_ROOM = re.compile(r"about (\d+) tokens")
_SPEAKER = re.compile(r"^(PERSON|ASSISTANT|USER|HUMAN|TOOL \w*): ?", re.MULTILINE)
_CALL = re.compile(r"\(calls (\w+) (\{.*?\})\)")
_FILE = re.compile(r"(?<![\w/])(?:~?/|\.{1,2}/)?[\w.-]+(?:/[\w.-]+)*\.[a-z]{1,5}\b")
_LASTING = re.compile(
    r"\b(?:remember|always|never|prefer|allerg|must|don't|do not|my name|deadline|budget)\w*", re.IGNORECASE
)
_POLITE = re.compile(
    r"^(?:please|can you|could you|would you|hey|hello|hi|bitte|i want you to|i'd like to|let's)[,\s]+", re.IGNORECASE
)
_ASIDE = 600
_CLIP = 160


def asked_for(request: DemoRequest) -> str | None:
    """`summary`, `title`, or None: an ordinary conversation."""
    if _CONVERSATION.search(request.last):
        return "summary"
    if request.tools or len(request.said) != 1 or request.count > 2:
        return None
    aside = f"{request.system[:_ASIDE]}\n{request.last[:_ASIDE]}".lower() if len(request.system) < 2_000 else ""
    if re.search(r"\bsummar(?:y|ies|ise|ize)\b", request.system[:_ASIDE].lower()) and aside:
        return "summary"
    return "title" if re.search(r"\btitles?\b", request.system[:_ASIDE].lower()) and aside else None


def summary(request: DemoRequest) -> str:
    found = _CONVERSATION.search(request.last)
    source = found[1] if found else request.last
    spoken = _spoken(source)
    asks = [text for who, text in spoken if who in ("PERSON", "USER", "HUMAN")] or [source]
    said = [text for who, text in spoken if who == "ASSISTANT" and not text.startswith("(calls")]
    calls = [f"`{name}` {_clip(arguments, 100)}" for name, arguments in _CALL.findall(source)]
    before = _PREVIOUS.search(request.last)
    earlier = before[1] if before else ""
    sections = (
        ("Goal", [_clip(asks[0])]),
        ("Completed actions", _once(calls)[-12:]),
        ("Constraints and preferences", [_clip(text) for text in asks if _LASTING.search(text)][-8:]),
        ("Relevant files", _once(_FILE.findall(source))[-10:]),
        ("Pending asks", [_clip(asks[-1])]),
        ("Critical context", [*_lines_of(earlier), *(_clip(text) for text in [*asks[1:-1][-4:], *said[-4:]])]),
    )  # fmt: skip
    asked = _ROOM.search(request.last)
    room = min(int(asked[1]) * 3 if asked else 4_000, max(200, len(source) // 2))
    return _within(sections, room)


def _within(sections: tuple[tuple[str, list[str]], ...], room: int) -> str:
    """As many lines as fit, each section its first line before any its second."""
    taken: dict[str, list[str]] = {}
    for depth in range(max(len(lines) for _name, lines in sections)):
        for name, lines in sections:
            if depth < len(lines):
                room -= len(lines[depth]) + (3 if name in taken else len(name) + 8)
                if room < 0 and taken:
                    return _written(sections, taken)
                taken.setdefault(name, []).append(lines[depth])
    return _written(sections, taken)


def _written(sections: tuple[tuple[str, list[str]], ...], taken: dict[str, list[str]]) -> str:
    parts = [
        f"## {name}\n" + "\n".join(f"- {line}" for line in taken[name]) for name, _lines in sections if name in taken
    ]
    return "\n\n".join(parts)


def title(request: DemoRequest) -> str:
    """Up to six words of what the person said first."""
    spoken = [text for who, text in _spoken(request.last) if who in ("PERSON", "USER", "HUMAN")]
    source = (spoken[0] if spoken else request.last.strip().split("\n\n")[-1]).strip()
    line = source.splitlines()[0] if source else ""
    line = _POLITE.sub("", line.strip(" \t\"'“”«»`")).strip()
    words = re.sub(r"[\"“”`#]|\*\*|(?<!\w)_|_(?!\w)", "", line).split()  # marks of emphasis; 6*7 and a_name stay
    short = " ".join(words[:6])[:48].rstrip(" ,;:.!?-–—。！？、")
    return short[:1].upper() + short[1:] if short else "A conversation with the demo model"


def _spoken(text: str) -> list[tuple[str, str]]:
    """(speaker, words) of a transcript that was written out as text."""
    pieces = _SPEAKER.split(re.sub(r"(?mi)^(user|human|person|assistant):", lambda m: m[1].upper() + ":", text))
    return [(who, words.strip()) for who, words in zip(pieces[1::2], pieces[2::2], strict=False) if words.strip()]


def _lines_of(earlier: str) -> list[str]:
    lines = [line.lstrip("-* ").strip() for line in earlier.splitlines() if not line.startswith("#")]
    return [_clip(line) for line in lines if line][:8]


def _once(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _clip(text: str, most: int = _CLIP) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"
