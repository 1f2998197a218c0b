"""What becomes of a tool's output before the model reads it.

Control sequences go, binary data is described and not dumped, and a text longer than the tool's row in the table of
limits is cut to its head and tail around a line that says how much is missing and where it is. The whole text lies in
`<home>/results/<conversation>/`, 0600, where `read_file` pages through it. Result files of a conversation are bounded
in bytes, all of them in age, and they go with their conversation; whatever is removed was a copy for convenience, the
transcript keeps what was read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hermes_agent.tools.base import Tool, ToolContext, ToolResult
from hermes_config.home import private_open
from hermes_state.conversations.delete import results_folder

_SAMPLE = 8_192
_SWEEP_SECONDS = 3_600
# CSI, OSC (closed by BEL or ST), the other string sequences, two-character escapes.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2048}(?:\x1b\\)?|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SAID = 300
_FAILED = re.compile(
    r"was not run|failed:|was stopped after|was interrupted|Nothing was changed:|There is no tool named"
)
_ENDED_BADLY = re.compile(r"^\[(?:exit code (?!0\])|killed|stopped after|interrupted by)", re.MULTILINE)
_OVERWRITTEN = re.compile(r"[^\n\r]*\r(?=[^\n])")


def clean(text: str) -> str:
    """Text without terminal control. Of a line that was drawn over (a progress bar) the last state stays."""
    if "\x1b" in text or "\x9b" in text:
        text = _SEQUENCE.sub("", text)
    if "\r" in text:
        text = re.sub(r"\r+\n", "\n", text)
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _CONTROL.sub("", text)


def looks_failed(content: str) -> bool:
    """Of a stored result, which tells it in words alone: whether the call failed or was not allowed."""
    return bool(_FAILED.search(content[:_SAID])) or bool(_ENDED_BADLY.search(content[-_SAID:]))


def is_binary(data: bytes | bytearray) -> bool:
    """Whether nobody would want to read these bytes as text."""
    sample = bytes(data[:_SAMPLE])
    if b"\0" in sample:
        return True
    # A character cut in two at an end of the sample is not a sign of anything.
    broken = sample.decode("utf-8", "replace").count("�") - 6
    return broken * 10 > len(sample)


def text_of(data: bytes, *, size: int | None = None) -> str:
    """Output as text, or one line that says what it is. `size` is the length of the whole when `data` is a part."""
    if is_binary(data):
        return describe_binary(data, size=len(data) if size is None else size)
    return clean(data.decode("utf-8", "replace"))


def describe_binary(data: bytes, *, size: int) -> str:
    """`[binary data: PNG image, 34,211 bytes; not shown]`"""
    from hermes_agent.tools import media  # needed for the rare binary output only

    return f"[binary data: {media.kind(data) or 'unknown kind'}, {size:,} bytes; not shown]"


def fit(result: ToolResult, *, tool: Tool, ctx: ToolContext) -> ToolResult:
    """The result as it may go to the model: clean, within the tool's limit, the whole of it kept in a file."""
    content = clean(result.content)
    shown = " ".join(clean(result.shown).split())
    limit: int = getattr(ctx.db.limits, tool.output_limit)
    if len(content) > limit:
        note = where_note(keep(content, tool_name=tool.name, ctx=ctx))
        content = head_and_tail(content[:limit], content[-limit:], limit=limit, whole=len(content), note=note)
    return replace(result, content=content, shown=shown)


def head_and_tail(head: str, tail: str, *, limit: int, whole: int, note: str, unit: str = "characters") -> str:
    """Two thirds of the room for the beginning, one for the end, cut at line ends where one is near."""
    room = max(limit - len(note) - 120, limit // 2)
    first, last = head[: room * 2 // 3], tail[-(room - room * 2 // 3) :]
    edge = first.rfind("\n", len(first) - 500) if len(first) > 500 else -1
    first = first if edge < 0 else first[: edge + 1]
    edge = last.find("\n", 0, 500)
    last = last if edge < 0 else last[edge + 1 :]
    shown = len(first) + len(last) if unit == "characters" else len(first.encode()) + len(last.encode())
    left_out = f"[… {whole - shown:,} of {whole:,} {unit} left out here; {note} …]"
    return f"{first.rstrip()}\n\n{left_out}\n\n{last}"


def where_note(file: Path | None) -> str:
    return "they could not be kept" if file is None else f"read the whole with read_file: {file}"


def keep(text: str, *, tool_name: str, ctx: ToolContext) -> Path | None:
    """Put the whole text (as far as the limit allows) into the call's file. None when the disk refuses."""
    data = text.encode("utf-8", "replace")[: ctx.db.limits.result_file_bytes]
    try:
        file = new_file(tool_name=tool_name, ctx=ctx)
        with private_open(file, "wb") as out:
            out.write(data)
    except OSError:
        return None
    return file


def new_file(*, tool_name: str, ctx: ToolContext) -> Path:
    """The file of this call, its folder made and brought under its bounds. The same call has the same file."""
    place = results_folder(ctx.home, ctx.conversation_id)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(place.parent, place, ctx)
    import hashlib  # only a long result needs it

    call = hashlib.sha256(f"{ctx.turn_id}/{ctx.call_id}".encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9_]", "", tool_name.lower())[:40]
    return place / f"{name}-{call}.txt"


_swept: dict[Path, float] = {}


def _sweep(root: Path, own: Path, ctx: ToolContext) -> None:
    """Bring this conversation's files under their bytes and, now and then, everybody's under their age."""
    files = _by_age(own)
    total = sum(files.values())
    for file, size in files.items():
        if total <= ctx.db.limits.results_bytes:
            break
        file.unlink(missing_ok=True)
        total -= size
    now = time.monotonic()
    if now - _swept.get(root, -_SWEEP_SECONDS) < _SWEEP_SECONDS:
        return
    _swept.clear()
    _swept[root] = now
    oldest = time.time() - ctx.db.limits.results_days * 86_400
    for place in root.iterdir():
        for file in _by_age(place) if place.is_dir() else ():
            if file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)


def _by_age(place: Path) -> Mapping[Path, int]:
    """Files and sizes, oldest first."""
    found = sorted((entry.stat().st_mtime, entry, entry.stat().st_size) for entry in place.glob("*.txt"))
    return {entry: size for _modified, entry, size in found}
