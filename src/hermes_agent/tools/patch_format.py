"""Reading a patch: a unified diff, or the `*** Begin Patch` form. Both become the same list of file changes.

Nothing here touches a file. A patch is read leniently in form (missing end marker, missing line counts, `a/` and `b/`
prefixes, a code fence around it) because the content of its lines decides where it goes, not its arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

_UNIFIED_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
_SECTION = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")


class BadPatch(Exception):
    """Why a patch cannot be read or applied, worded for the model."""


@dataclass(slots=True)
class Hunk:
    """Consecutive old lines and their replacement."""

    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    line: int = 0
    """The line number in the diff, from 1; 0 if it has none."""
    anchor: str = ""
    """A line somewhere above the hunk."""
    bare: int = 0
    """How many empty lines end the hunk: context that lost its blank, or space between two files."""


@dataclass(slots=True)
class FileChange:
    kind: Literal["add", "update", "delete"]
    path: str
    move_to: str = ""
    hunks: list[Hunk] = field(default_factory=list)
    ends_without_newline: bool = False


def parse(text: str) -> list[FileChange]:
    """The changes a patch asks for, at least one. Raises `BadPatch`."""
    lines = text.strip("\n").split("\n")
    if lines and lines[0].startswith("```"):
        lines = lines[1:-1] if lines[-1].startswith("```") else lines[1:]
    lines = [line.removesuffix("\r") for line in lines]
    sectioned = any(_SECTION.match(line) for line in lines)
    changes = _sections(lines) if sectioned else _unified(lines)
    if not changes:
        raise BadPatch("it names no file: write a unified diff (---, +++, @@) or a *** Begin Patch text")
    for change in changes:
        for hunk in change.hunks:
            if hunk.bare:
                del hunk.old[-hunk.bare :], hunk.new[-hunk.bare :]
        change.hunks = [hunk for hunk in change.hunks if hunk.old or hunk.new]
        if change.kind == "update" and not change.hunks and not change.move_to:
            raise BadPatch(f"the change of {change.path} has no lines")
    return changes


def _sections(lines: list[str]) -> list[FileChange]:
    changes: list[FileChange] = []
    for number, line in enumerate(lines, start=1):
        section = _SECTION.match(line)
        if section:
            kind: Literal["add", "update", "delete"] = (
                "add" if section[1] == "Add" else "delete" if section[1] == "Delete" else "update"
            )
            changes.append(FileChange(kind, section[2].strip()))
        elif line.startswith("*** Move to: ") and changes:
            changes[-1].move_to = line.removeprefix("*** Move to: ").strip()
        elif line.startswith("***"):
            continue  # Begin Patch, End Patch, End of File
        elif not changes:
            if line.strip():
                raise BadPatch(f"line {number} stands before the first file: {line[:60]!r}")
        elif changes[-1].kind == "delete":
            if line.strip():
                raise BadPatch(f"line {number}: a deleted file has no lines")
        else:
            _take(changes[-1], line, number)
    return changes


def _unified(lines: list[str]) -> list[FileChange]:
    changes: list[FileChange] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            changes.append(_header(_name(line), _name(lines[at + 1])))
            at += 1
        elif line.startswith("\\ No newline") and changes:
            changes[-1].ends_without_newline = True
        elif not changes or line.startswith(("diff --git ", "index ", "new file", "deleted file", "similarity ")):
            pass  # text around a diff
        elif changes[-1].hunks or line.startswith("@@"):
            _take(changes[-1], line, at + 1)
        at += 1
    return changes


def _header(old: str, new: str) -> FileChange:
    if old == "/dev/null":
        return FileChange("add", new.removeprefix("b/"))
    if new == "/dev/null":
        return FileChange("delete", old.removeprefix("a/"))
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return FileChange("update", old, move_to="" if old == new else new)


def _name(line: str) -> str:
    return line[4:].partition("\t")[0].strip().strip('"')


def _take(change: FileChange, line: str, number: int) -> None:
    """One line of a file's change: the begin of a hunk, or a line of the current one."""
    if line.startswith("@@"):
        unified = _UNIFIED_HUNK.match(line)
        if unified:
            change.hunks.append(Hunk(line=int(unified[1]), anchor=""))
        else:
            change.hunks.append(Hunk(anchor=line[2:].strip().removesuffix("@@").strip()))
        return
    if not change.hunks:
        change.hunks.append(Hunk())
    hunk = change.hunks[-1]
    mark, rest = line[:1], line[1:]
    if change.kind == "delete":
        return  # the whole file is removed, whatever lines the diff shows
    if line == "" and change.kind == "add":
        return
    hunk.bare = hunk.bare + 1 if line == "" else 0
    if change.kind == "add" and mark != "+":
        raise BadPatch(f"line {number}: every line of a new file begins with +, not {line[:40]!r}")
    if mark == "-":
        hunk.old.append(rest)
    elif mark == "+":
        hunk.new.append(rest)
    elif mark in (" ", ""):
        hunk.old.append(rest)
        hunk.new.append(rest)
    else:
        raise BadPatch(f"line {number} begins with neither blank, + nor -: {line[:40]!r}")
