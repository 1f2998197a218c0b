"""What `patch` does: changes to any number of files, all of them or none.

Everything is worked out in memory first: a patch that does not fit somewhere changes nothing anywhere. Then the gate is
asked for every place, and only then the files are written, one rename each. Should a write fail in the middle, the
files written before it get their old content back and the result says so.
"""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import dataclass
from typing import Any

from hermes_agent.tools import patch_apply, patch_text, paths, results
from hermes_agent.tools.base import ToolContext, ToolResult

_BOM = "\ufeff"
_DIFF_LINES = 200


@dataclass(slots=True)
class _Edit:
    """One file: what it was, what it becomes. None stands for no file."""

    raw: str
    before: bytes | None
    after: bytes | None


async def run(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    mode = args.get("mode") or ("patch" if "patch" in args else "replace")
    try:
        edits, notes = await (_from_patch(args, ctx) if mode == "patch" else _from_replace(args, ctx))
    except (patch_text.BadPatch, patch_apply.NoPlace) as error:
        return ToolResult(f"Nothing was changed: {error}", is_error=True)
    await _write(edits, ctx)
    names = ", ".join(f"{edit.raw} ({_done(edit)})" for edit in edits)
    shown = await asyncio.to_thread(_diff, edits)
    return ToolResult("\n".join([f"Changed: {names}.", *notes, shown]).rstrip(), shown=names)


async def _from_replace(args: dict[str, Any], ctx: ToolContext) -> tuple[list[_Edit], list[str]]:
    missing = [name for name in ("path", "old_string", "new_string") if name not in args]
    if missing:
        raise patch_apply.NoPlace(f"the mode replace needs {', '.join(missing)}")
    if args["old_string"] == args["new_string"]:
        raise patch_apply.NoPlace("old_string and new_string are the same")
    if not args["old_string"]:
        raise patch_apply.NoPlace("old_string is empty; write_file makes a new file")
    before = await _content(args["path"], ctx)
    text, style = _decoded(before, args["path"])
    after, count, how = await asyncio.to_thread(
        patch_apply.replace,
        text, _plain(args["old_string"]), _plain(args["new_string"]),
        everywhere=args.get("replace_all", False),
    )  # fmt: skip
    notes = [f"The text was found {how}."] if how else []
    if count > 1:
        notes.append(f"{count} places were replaced.")
    return [_Edit(args["path"], before, style.encode(after))], notes


async def _from_patch(args: dict[str, Any], ctx: ToolContext) -> tuple[list[_Edit], list[str]]:
    if not args.get("patch"):
        raise patch_text.BadPatch("the mode patch needs the text of the patch")
    edits: dict[str, _Edit] = {}
    notes: list[str] = []
    for change in patch_text.parse(args["patch"]):
        known = edits.get(change.path)
        if change.kind == "add":
            place = await asyncio.to_thread(paths.locate, change.path, ctx)
            if known is not None or place.status is not None:
                raise patch_apply.NoPlace(f"{change.path} is there already; update it instead of adding it")
            lines = [line for hunk in change.hunks for line in hunk.new]
            text = "\n".join(lines) + ("" if change.ends_without_newline or not lines else "\n")
            edits[change.path] = _Edit(change.path, None, text.encode())
            continue
        before = known.before if known else await _content(change.path, ctx)
        current = known.after if known else before
        if current is None:
            raise patch_apply.NoPlace(f"{change.path} is not there any more")
        after: bytes | None = None
        if change.kind == "update":
            text, style = _decoded(current, change.path)
            changed, found = await asyncio.to_thread(patch_apply.apply, text, change)
            after, notes = style.encode(changed), notes + found
        if change.move_to:
            target = await asyncio.to_thread(paths.locate, change.move_to, ctx)
            if target.status is not None or change.move_to in edits:
                raise patch_apply.NoPlace(f"{change.path} cannot become {change.move_to}: that is there already")
            edits[change.move_to] = _Edit(change.move_to, None, after)
            after = None
        edits[change.path] = _Edit(change.path, before, after)
    return list(edits.values()), notes


async def _content(raw: str, ctx: ToolContext) -> bytes:
    place = await paths.for_reading(raw, ctx)
    return await asyncio.to_thread(paths.read_bytes, place, most=ctx.db.limits.read_file_bytes)


@dataclass(frozen=True, slots=True)
class _Style:
    """How a file writes its text, so that a change keeps it."""

    windows_lines: bool
    mark: bool

    def encode(self, text: str) -> bytes:
        text = text.replace("\n", "\r\n") if self.windows_lines else text
        return ((_BOM if self.mark else "") + text).encode()


def _decoded(data: bytes, raw: str) -> tuple[str, _Style]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise patch_apply.NoPlace(f"{raw} is not text in UTF-8") from None
    if "\0" in text:
        raise patch_apply.NoPlace(f"{raw} is not a text file")
    # Only a file that ends every line this way is one; in a mixed file each line keeps what it has.
    windows = "\r\n" in text and text.count("\r\n") == text.count("\n")
    style = _Style(windows, text.startswith(_BOM))
    return (text.replace("\r\n", "\n") if windows else text).removeprefix(_BOM), style


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


async def _write(edits: list[_Edit], ctx: ToolContext) -> None:
    most = ctx.db.limits.write_file_bytes
    for edit in edits:
        if edit.after is not None and len(edit.after) > most:
            raise paths.Refused(f"{edit.raw} would have {len(edit.after):,} bytes; at most {most:,} are written")
    writes = [await paths.for_writing(edit.raw, edit.after, ctx, detail=f"patch: {_done(edit)}") for edit in edits]
    for edit, write in zip(edits, writes, strict=True):
        if write.before != edit.before:
            raise paths.Refused(f"{edit.raw} was changed by somebody else meanwhile", hint="Read it again.")
    await asyncio.to_thread(_write_all, writes)


def _write_all(writes: list[paths.Write]) -> None:
    for write in writes:
        paths.check(write)
    done: list[paths.Write] = []
    try:
        for write in writes:
            paths.carry_out(write)
            done.append(write)
    except paths.Refused as error:
        for write in reversed(done):
            paths.undo(write)
        raise paths.Refused(f"{error.what}; nothing was changed") from error


def _done(edit: _Edit) -> str:
    return "created" if edit.before is None else "deleted" if edit.after is None else "changed"


def _diff(edits: list[_Edit]) -> str:
    """What changed, for the model to see that it is what it meant."""
    shown: list[str] = []
    for edit in edits:
        if edit.before is None or edit.after is None:
            continue
        before, after = (results.clean(data.decode()).split("\n") for data in (edit.before, edit.after))
        shown += difflib.unified_diff(before, after, edit.raw, edit.raw, lineterm="", n=2)
    if len(shown) > _DIFF_LINES:
        shown = [*shown[:_DIFF_LINES], f"[… {len(shown) - _DIFF_LINES} more lines of the difference]"]
    return "\n".join(shown)
