"""The program that `search_files` runs without ripgrep. Started by path, imports the standard library only.

Takes one question as JSON and prints `path NUL number : line` for each match and `-` instead of `:` for context; for
names, `path NUL 0 :`. Files are taken in the order of their paths. `.gitignore` files are honoured as far as people
use them (comments, negation, folders, anchors, `*`, `?`, `**`); binary and oversized files are passed over. Ends with 0
when something was found, 1 when nothing was, 2 when the pattern is not valid.
"""

# Without pathlib, which alone would double the time this program needs to start.
# ruff: noqa: PTH112, PTH113, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import NamedTuple

_SAMPLE = 8_192
_LONGEST = 2_000
_MOST_RULES = 1_000_000


class _Rule(NamedTuple):
    base: str
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def main(question: str) -> int:
    asked = json.loads(question)
    root: str = asked["root"]
    try:
        wanted = _glob(asked["pattern"]) if asked["names"] else re.compile(asked["pattern"])
        named = _glob(asked["glob"]) if asked["glob"] else None
    except re.error as error:
        print(f"the regular expression is not valid: {error}")
        return 2
    found = False
    for path in _files(root):
        relative = os.path.relpath(path, root) if path != root else os.path.basename(path)
        if asked["names"]:
            if wanted.match(relative):
                _say(path, 0, ":", "")
                found = True
        elif named is None or named.match(relative):
            found = _search(path, wanted, asked["context"], asked["largest"]) or found
    return 0 if found else 1


def _say(path: str, number: int, mark: str, line: str) -> None:
    text = f"{number}{mark}{line[:_LONGEST]}\n".encode("utf-8", "replace")
    sys.stdout.buffer.write(os.fsencode(path) + b"\0" + text)


def _search(path: str, wanted: re.Pattern[str], context: int, largest: int) -> bool:
    data = _content(path, largest)
    if data is None:
        return False  # like ripgrep's --no-messages: unreadable files are skipped
    if b"\0" in data[:_SAMPLE]:
        return False
    lines = data.decode("utf-8", "replace").splitlines()
    hits = [number for number, line in enumerate(lines) if wanted.search(line)]
    shown: set[int] = set()
    marks = set(hits)
    for hit in hits:
        for number in range(max(0, hit - context), min(len(lines), hit + context + 1)):
            if number not in shown:
                shown.add(number)
                _say(path, number + 1, ":" if number in marks else "-", lines[number])
    sys.stdout.flush()
    return bool(hits)


def _content(path: str, largest: int) -> bytes | None:
    """The content of a plain file; None for anything else. A command may have put a pipe there, which never ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= largest else None


def _files(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
        return
    yield from _walk(root, _rules_above(root))


def _walk(root: str, rules: list[_Rule]) -> Iterator[str]:
    within = [_entries(root, rules)]  # no recursion: a command can make folders deeper than Python can call
    while within:
        entry, rules = next(within[-1], (None, []))
        if entry is None:
            within.pop()
        elif entry.is_dir(follow_symlinks=False):
            within.append(_entries(entry.path, rules))
        elif entry.is_file(follow_symlinks=False):
            yield entry.path


def _entries(folder: str, rules: list[_Rule]) -> Iterator[tuple[os.DirEntry[str], list[_Rule]]]:
    """The entries of a folder that are not ignored, with the rules that hold there."""
    rules = rules + _rules(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() or entry.name == ".git":
            continue
        if not _ignored(entry.path, entry.is_dir(follow_symlinks=False), rules):
            yield entry, rules


def _rules_above(root: str) -> list[_Rule]:
    """The rules of the folders above, up to the one that holds the repository."""
    folders: list[str] = []
    folder = root
    while not os.path.isdir(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return []
        folders.append(folder := parent)
    return [rule for above in reversed(folders) for rule in _rules(above)]


def _rules(folder: str) -> list[_Rule]:
    content = _content(os.path.join(folder, ".gitignore"), _MOST_RULES)
    lines = content.decode("utf-8", "replace").splitlines() if content else []
    rules: list[_Rule] = []
    for line in lines:
        text = line.rstrip()
        if not text or text.startswith("#"):
            continue
        keeps, text = text.startswith("!"), text.removeprefix("!")
        folders_only, text = text.endswith("/"), text.rstrip("/")
        pattern = _glob(text.removeprefix("/"), "/" in text)
        rules.append(_Rule(folder, pattern, keeps, folders_only))
    return rules


def _ignored(path: str, is_folder: bool, rules: list[_Rule]) -> bool:
    ignored = False
    for rule in rules:
        if (is_folder or not rule.folders_only) and rule.pattern.match(os.path.relpath(path, rule.base)):
            ignored = not rule.keeps
    return ignored


def _glob(text: str, anchored: bool | None = None) -> re.Pattern[str]:
    """A glob as a pattern for a relative path: on the last part, or on all of it when it has a slash."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif text.startswith("**", at):
            parts.append(".*")
            at += 2
        elif text[at] == "[" and "]" in text[at + 2 :]:
            end = text.index("]", at + 2)
            inside = text[at + 1 : end].replace("\\", "\\\\")
            parts.append(f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]")
            at = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(text[at], re.escape(text[at])))
            at += 1
    whole = anchored if anchored is not None else "/" in text
    return re.compile(("" if whole else "(?:.*/)?") + "".join(parts) + r"\Z", re.DOTALL)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(1)
