"""Finding the place a change means, and making it.

A place is looked for in rounds, from exact to forgiving: the very text; lines that differ in blanks at their ends; in
indentation; in typographic quotes, dashes and blanks. The first round that finds something decides, and it must find
exactly one place unless every place is wanted: a change that could mean two places is refused, never guessed. When
indentation differed, the new lines are moved by the same amount.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from hermes_agent.tools.patch_text import FileChange, Hunk

_TYPOGRAPHY = str.maketrans("‘’‚“”„«»–—−‐‑\u00a0\u2009\u202f", '\'\'\'"""""-----   ')
_NEAR_CHARS = 400


class NoPlace(Exception):
    """Why a change could not be made, in words for the model."""


def replace(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int, str]:
    """`text` with `old` replaced; how often; and how the place was found (empty: exactly)."""
    count = text.count(old)
    if count == 1 or (count > 1 and everywhere):
        return text.replace(old, new), count, ""
    if count > 1:
        raise NoPlace(
            f"old_string is found {count} times (lines {_line_list(text, old)});"
            " give more lines around it, or set replace_all"
        )
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    spots, how = _search(lines, wanted)
    if not spots:
        raise NoPlace(f"old_string is not in the file.{_nearest(lines, wanted)}")
    if len(spots) > 1 and not everywhere:
        at = ", ".join(str(spot + 1) for spot in spots[:10])
        raise NoPlace(f"old_string is found {len(spots)} times ({how}; lines {at}); give more lines around it")
    fresh = new.strip("\n").split("\n") if new.strip("\n") else []
    for spot in reversed(spots):
        found = lines[spot : spot + len(wanted)]
        lines[spot : spot + len(wanted)] = _moved(fresh, wanted, found)
    return "\n".join(lines), len(spots), how


def apply(text: str, change: FileChange) -> tuple[str, list[str]]:
    """The text after all hunks, and a note for every hunk that was not found exactly."""
    lines = text.split("\n")
    notes: list[str] = []
    after = shift = 0
    for number, hunk in enumerate(change.hunks, start=1):
        spot, how = _place(lines, hunk, after, shift, number)
        found = lines[spot : spot + len(hunk.old)]
        lines[spot : spot + len(hunk.old)] = _kept_context(hunk, found)
        after = spot + len(hunk.new)
        shift += len(hunk.new) - len(hunk.old)
        if how:
            notes.append(f"hunk {number} of {change.path} was found {how}, at line {spot + 1}")
    return "\n".join(lines), notes


def _place(lines: list[str], hunk: Hunk, after: int, shift: int, number: int) -> tuple[int, str]:
    """Where a hunk goes: below `after`, near the line it names (moved by `shift`), else in its only place."""
    if hunk.anchor:
        heads = [at for at, line in enumerate(lines) if at >= after and line.strip() == hunk.anchor.strip()]
        if not heads:
            raise NoPlace(f"hunk {number}: the line after @@ is not in the file: {hunk.anchor[:80]!r}")
        after = heads[0] + 1
    if not hunk.old:
        # Lines without a place of their own go below their anchor, where the diff says, or to the end.
        end = len(lines) - 1 if lines and lines[-1] == "" else len(lines)
        return (after if hunk.anchor else min(hunk.line + shift, end) if hunk.line else end), ""
    spots, how = _search(lines, hunk.old)
    spots = [spot for spot in spots if spot >= after] or ([] if hunk.anchor else spots)
    if not spots:
        raise NoPlace(f"hunk {number} does not fit.{_nearest(lines, hunk.old)}")
    if len(spots) > 1 and not hunk.line and not hunk.anchor:
        at = ", ".join(str(spot + 1) for spot in spots[:10])
        raise NoPlace(f"hunk {number} fits in {len(spots)} places (lines {at}); give more lines of context")
    return (min(spots, key=lambda spot: abs(spot - (hunk.line - 1 + shift))) if hunk.line else spots[0]), how


def _search(lines: list[str], wanted: list[str]) -> tuple[list[int], str]:
    """Where the wanted lines stand, and in which way they had to be compared."""
    rounds: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("", lambda line: line),
        ("but for blanks at line ends", str.rstrip),
        ("but for indentation", str.strip),
        ("but for quotes, dashes and blanks", lambda line: " ".join(line.translate(_TYPOGRAPHY).split())),
    )
    for how, form in rounds:
        have, want = [form(line) for line in lines], [form(line) for line in wanted]
        if not any(want):
            return [], ""
        spots: list[int] = []
        for at in range(len(have) - len(want) + 1):
            apart = not spots or at - spots[-1] >= len(want)
            if apart and have[at] == want[0] and have[at : at + len(want)] == want:
                spots.append(at)
        if spots:
            return spots, how
    return [], ""


def _moved(fresh: list[str], wanted: list[str], found: list[str]) -> list[str]:
    """The new lines, indented as the found lines are compared with the wanted ones."""
    for want, have in zip(wanted, found, strict=True):
        if want.strip():
            before, now = _indent(want), _indent(have)
            break
    else:
        return fresh
    if before == now:
        return fresh
    if now.startswith(before):
        more = now[len(before) :]
        return [more + line if line.strip() else line for line in fresh]
    return [now + line.removeprefix(before) if line.startswith(before) and line.strip() else line for line in fresh]


def _kept_context(hunk: Hunk, found: list[str]) -> list[str]:
    """The hunk's new lines; those that only give context stay byte for byte as the file has them."""
    matcher = difflib.SequenceMatcher(a=hunk.old, b=hunk.new, autojunk=False)
    result: list[str] = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            result += found[old_start:old_end]
        else:
            result += _moved(hunk.new[new_start:new_end], hunk.old, found)
    return result


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line_list(text: str, part: str) -> str:
    numbers: list[str] = []
    at = text.find(part)
    while at >= 0 and len(numbers) < 10:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(part, at + len(part))
    return ", ".join(numbers)


def _nearest(lines: list[str], wanted: list[str]) -> str:
    """The line most like the first wanted one, so that the next try has something to go by."""
    first = next((line.strip() for line in wanted if line.strip()), "")
    near = difflib.get_close_matches(first[:_NEAR_CHARS], [line.strip()[:_NEAR_CHARS] for line in lines[:20_000]], n=1)
    if not near:
        return " Nothing in it is like its first line; read the file again."
    at = next(number for number, line in enumerate(lines, start=1) if line.strip()[:_NEAR_CHARS] == near[0])
    return f" The nearest line is {at}: {near[0][:120]!r}. Read the file again."
