"""`patch`: changes parts of files, by a text to replace or by a patch over several files; all of it or nothing.

The changes are computed in memory first: a patch that does not fit somewhere changes nothing. Then the gate is asked
about every file, and only then the files are written, one rename each. If a write fails, the files written before it
get their old content back and the result says so.

The old text is searched in rounds, from exact to lenient: equal text; then ignoring blanks at line ends; indentation;
typographic quotes, dashes and blanks. The first round with a match decides, and it must find exactly one match unless
all are wanted: an ambiguous change is refused. If indentation differed, the new lines are indented accordingly.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermes_agent.tools import output, paths
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_agent.tools.patch_format import BadPatch, FileChange, Hunk, parse

_TYPOGRAPHY = str.maketrans("‘’‚“”„«»–—−‐‑\u00a0\u2009\u202f", '\'\'\'"""""-----   ')
_NEAR_CHARS = 400
_BOM = "\ufeff"
_DIFF_LINES = 200


def replace_text(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int, str]:
    """`text` with `old` replaced; the number of replacements; and how the match was found (empty: exactly)."""
    count = text.count(old)
    if count == 1 or (count > 1 and everywhere):
        return text.replace(old, new), count, ""
    if count > 1:
        raise BadPatch(
            f"old_string is found {count} times (lines {_line_list(text, old)});"
            " give more lines around it, or set replace_all"
        )
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    spots, how = _search(lines, wanted)
    if not spots:
        raise BadPatch(f"old_string is not in the file.{_nearest(lines, wanted)}")
    if len(spots) > 1 and not everywhere:
        at = ", ".join(str(spot + 1) for spot in spots[:10])
        raise BadPatch(f"old_string is found {len(spots)} times ({how}; lines {at}); give more lines around it")
    fresh = new.strip("\n").split("\n") if new.strip("\n") else []
    for spot in reversed(spots):
        found = lines[spot : spot + len(wanted)]
        lines[spot : spot + len(wanted)] = _moved(fresh, wanted, found)
    return "\n".join(lines), len(spots), how


def apply_change(text: str, change: FileChange) -> tuple[str, list[str]]:
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
    """The line where a hunk applies: after `after`, near the line it names (moved by `shift`), else its only match."""
    if hunk.anchor:
        heads = [at for at, line in enumerate(lines) if at >= after and line.strip() == hunk.anchor.strip()]
        if not heads:
            raise BadPatch(f"hunk {number}: the line after @@ is not in the file: {hunk.anchor[:80]!r}")
        after = heads[0] + 1
    if not hunk.old:
        # Pure additions go below their anchor, to the line the diff names, or to the end.
        end = len(lines) - 1 if lines and lines[-1] == "" else len(lines)
        return (after if hunk.anchor else min(hunk.line + shift, end) if hunk.line else end), ""
    spots, how = _search(lines, hunk.old)
    spots = [spot for spot in spots if spot >= after] or ([] if hunk.anchor else spots)
    if not spots:
        raise BadPatch(f"hunk {number} does not fit.{_nearest(lines, hunk.old)}")
    if len(spots) > 1 and not hunk.line and not hunk.anchor:
        at = ", ".join(str(spot + 1) for spot in spots[:10])
        raise BadPatch(f"hunk {number} fits in {len(spots)} places (lines {at}); give more lines of context")
    return (min(spots, key=lambda spot: abs(spot - (hunk.line - 1 + shift))) if hunk.line else spots[0]), how


def _search(lines: list[str], wanted: list[str]) -> tuple[list[int], str]:
    """The line numbers of the matches, and how the lines were compared."""
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
    """The new lines, indented by the difference between the found and the wanted lines."""
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
    """The hunk's new lines; context lines keep the file's exact bytes."""
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
    """The line most similar to the first wanted one, as a hint for the next try."""
    first = next((line.strip() for line in wanted if line.strip()), "")
    near = difflib.get_close_matches(first[:_NEAR_CHARS], [line.strip()[:_NEAR_CHARS] for line in lines[:20_000]], n=1)
    if not near:
        return " Nothing in it is like its first line; read the file again."
    at = next(number for number, line in enumerate(lines, start=1) if line.strip()[:_NEAR_CHARS] == near[0])
    return f" The nearest line is {at}: {near[0][:120]!r}. Read the file again."


@dataclass(slots=True)
class _Edit:
    """The old and new content of one file. None stands for no file."""

    raw: str
    before: bytes | None
    after: bytes | None


async def patch(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    mode = args.get("mode") or ("patch" if "patch" in args else "replace")
    try:
        edits, notes = await (_from_patch(args, ctx) if mode == "patch" else _from_replace(args, ctx))
    except BadPatch as error:
        return ToolResult(f"Nothing was changed: {error}", is_error=True)
    await _write(edits, ctx)
    names = ", ".join(f"{edit.raw} ({_done(edit)})" for edit in edits)
    shown = await asyncio.to_thread(_diff, edits)
    return ToolResult("\n".join([f"Changed: {names}.", *notes, shown]).rstrip(), shown=names)


async def _from_replace(args: dict[str, Any], ctx: ToolContext) -> tuple[list[_Edit], list[str]]:
    missing = [name for name in ("path", "old_string", "new_string") if name not in args]
    if missing:
        raise BadPatch(f"the mode replace needs {', '.join(missing)}")
    if args["old_string"] == args["new_string"]:
        raise BadPatch("old_string and new_string are the same")
    if not args["old_string"]:
        raise BadPatch("old_string is empty; write_file makes a new file")
    before = await _content(args["path"], ctx)
    text, style = _decoded(before, args["path"])
    after, count, how = await asyncio.to_thread(
        replace_text,
        text, _plain(args["old_string"]), _plain(args["new_string"]),
        everywhere=args.get("replace_all", False),
    )  # fmt: skip
    notes = [f"The text was found {how}."] if how else []
    if count > 1:
        notes.append(f"{count} places were replaced.")
    return [_Edit(args["path"], before, style.encode(after))], notes


async def _from_patch(args: dict[str, Any], ctx: ToolContext) -> tuple[list[_Edit], list[str]]:
    if not args.get("patch"):
        raise BadPatch("the mode patch needs the text of the patch")
    edits: dict[str, _Edit] = {}
    notes: list[str] = []
    for change in parse(args["patch"]):
        known = edits.get(change.path)
        if change.kind == "add":
            place = await asyncio.to_thread(paths.locate, change.path, ctx)
            if known is not None or place.status is not None:
                raise BadPatch(f"{change.path} is there already; update it instead of adding it")
            lines = [line for hunk in change.hunks for line in hunk.new]
            text = "\n".join(lines) + ("" if change.ends_without_newline or not lines else "\n")
            edits[change.path] = _Edit(change.path, None, text.encode())
            continue
        before = known.before if known else await _content(change.path, ctx)
        current = known.after if known else before
        if current is None:
            raise BadPatch(f"{change.path} is not there any more")
        after: bytes | None = None
        if change.kind == "update":
            text, style = _decoded(current, change.path)
            changed, found = await asyncio.to_thread(apply_change, text, change)
            after, notes = style.encode(changed), notes + found
        if change.move_to:
            target = await asyncio.to_thread(paths.locate, change.move_to, ctx)
            if target.status is not None or change.move_to in edits:
                raise BadPatch(f"{change.path} cannot become {change.move_to}: that is there already")
            edits[change.move_to] = _Edit(change.move_to, None, after)
            after = None
        edits[change.path] = _Edit(change.path, before, after)
    return list(edits.values()), notes


async def _content(raw: str, ctx: ToolContext) -> bytes:
    place = await paths.for_reading(raw, ctx)
    return await asyncio.to_thread(paths.read_bytes, place, most=ctx.db.limits.read_file_bytes)


@dataclass(frozen=True, slots=True)
class _Style:
    """A file's encoding and line ends, which a change keeps."""

    windows_lines: bool
    mark: bool

    def encode(self, text: str) -> bytes:
        text = text.replace("\n", "\r\n") if self.windows_lines else text
        return ((_BOM if self.mark else "") + text).encode()


def _decoded(data: bytes, raw: str) -> tuple[str, _Style]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadPatch(f"{raw} is not text in UTF-8") from None
    if "\0" in text:
        raise BadPatch(f"{raw} is not a text file")
    # Only if every line ends this way; in a mixed file each line keeps its own end.
    windows = "\r\n" in text and text.count("\r\n") == text.count("\n")
    style = _Style(windows, text.startswith(_BOM))
    return (text.replace("\r\n", "\n") if windows else text).removeprefix(_BOM), style


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


async def _write(edits: list[_Edit], ctx: ToolContext) -> None:
    writes = [await paths.for_writing(edit.raw, edit.after, ctx, detail=f"patch: {_done(edit)}") for edit in edits]
    for edit, write in zip(edits, writes, strict=True):
        if write.before != edit.before:
            raise paths.ToolRefused(f"{edit.raw} was changed by somebody else meanwhile", hint="Read it again.")
    await ctx.begin()
    await asyncio.to_thread(_write_all, writes)


def _write_all(writes: list[paths.Write]) -> None:
    for write in writes:
        paths.check(write)
    done: list[paths.Write] = []
    try:
        for write in writes:
            paths.carry_out(write)
            done.append(write)
    except paths.ToolRefused as error:
        for write in reversed(done):
            paths.undo(write)
        raise paths.ToolRefused(f"{error.what}; nothing was changed") from error


def _done(edit: _Edit) -> str:
    return "created" if edit.before is None else "deleted" if edit.after is None else "changed"


def _diff(edits: list[_Edit]) -> str:
    """The difference, so that the model can check the change."""
    shown: list[str] = []
    for edit in edits:
        if edit.before is None or edit.after is None:
            continue
        before, after = (output.clean(data.decode()).split("\n") for data in (edit.before, edit.after))
        shown += difflib.unified_diff(before, after, edit.raw, edit.raw, lineterm="", n=2)
    if len(shown) > _DIFF_LINES:
        shown = [*shown[:_DIFF_LINES], f"[… {len(shown) - _DIFF_LINES} more lines of the difference]"]
    return "\n".join(shown)


TOOL = Tool(
    name="patch",
    toolset="file",
    description=(
        "Change parts of files. Mode replace (default): `old_string` in `path` becomes `new_string`; it must be found"
        " exactly once unless replace_all is set, differences in whitespace are forgiven. Mode patch: `patch` is a"
        " unified diff or a `*** Begin Patch` text with *** Add/Update/Delete File sections, over any number of files."
        " All of it is applied, or nothing."
    ),
    parameters=parameters(
        mode=value("string", "Default replace.", enum=["replace", "patch"]),
        path=value("string", "replace: the file.", minLength=1),
        old_string=value("string", "replace: the text to find, with some lines around it."),
        new_string=value("string", "replace: what it becomes; empty removes it."),
        replace_all=value("boolean", "replace: every place, not exactly one."),
        patch=value("string", "patch: the text of the patch."),
    ),
    handler=patch,
    begins=True,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("path") or "several files"),
)
