"""Prepares a tool's output for the model.

Control sequences are removed, binary data is described instead of shown, and a text longer than
`limits.tool_result_chars` is cut to its head and tail around a line that says how much is missing and where it is. The
whole text is kept in `<home>/results/<conversation>/` (mode 0600), where `read_file` can page through it. Result files
are limited in bytes per conversation and in age, and are deleted with their conversation; the transcript keeps the text
that the model read.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from hermes_agent.tools.base import Tool, ToolContext, ToolResult
from hermes_config.home import private_open
from hermes_state.conversations.delete import results_folder

_SAMPLE = 8_192
_MOST_IMAGES, _IMAGE_BYTES = 4, 3_500_000  # as base64 below the providers' limit of 5 MB
_SWEEP_SECONDS = 3_600
# CSI, OSC (closed by BEL or ST), the other string sequences, two-character escapes.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2048}(?:\x1b\\)?|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ENDED = re.compile(
    r"^\[((?:exit code|killed|stopped after|interrupted|not run)[^\n]*(?=\]$)|runs in the background as \w+)",
    re.MULTILINE,
)
_WELL = re.compile(r"done|exit code 0\b|runs in the background")
_NOT_RUN = ("Not run:", "The command was not run", "The person interrupted", "The turn ended before")
_FAILED = ("There is no tool named", "Nothing was changed: ", "Nothing was proposed: ", "Nothing was sent: ")
_OVERWRITTEN = re.compile(r"[^\n\r]*\r(?=[^\n])")


def clean(text: str) -> str:
    """The text without terminal control sequences. An overwritten line (a progress bar) keeps its last state."""
    if "\x1b" in text or "\x9b" in text:
        text = _SEQUENCE.sub("", text)
    if "\r" in text:
        text = re.sub(r"\r+\n", "\n", text)
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _CONTROL.sub("", text)


def outcome_of(tool_name: str, content: str) -> str:
    """How a call ended: `done`, `failed`, `not run`, or how its command ended. A stored result has no mark for errors;
    the words that it begins with, or that end a command's output, tell it."""
    if tool_name == "terminal" and (found := _ENDED.findall(content)):
        return str(found[-1])
    if content.startswith((*_NOT_RUN, f"{tool_name} was not run")):
        return "not run"
    failed = (*_FAILED, f"{tool_name}: ", f"{tool_name} failed", f"{tool_name} was ")
    return "failed" if content.startswith(failed) else "done"


def looks_failed(tool_name: str, content: str) -> bool:
    """Whether a stored result says that its call failed or was denied."""
    return _WELL.match(outcome_of(tool_name, content)) is None


def is_binary(data: bytes | bytearray) -> bool:
    """Whether the bytes are not readable text."""
    sample = bytes(data[:_SAMPLE])
    if b"\0" in sample:
        return True
    # A character cut in two at an end of the sample does not count.
    broken = sample.decode("utf-8", "replace").count("�") - 6
    return broken * 10 > len(sample)


def text_of(data: bytes) -> str:
    """The output as text, or one line that describes it."""
    if is_binary(data):
        return describe_binary(data, size=len(data))
    return clean(data.decode("utf-8", "replace"))


def describe_binary(data: bytes, *, size: int) -> str:
    """`[binary data: PNG image, 34,211 bytes; not shown]`"""

    return f"[binary data: {media_kind(data) or 'unknown kind'}, {size:,} bytes; not shown]"


def fit(result: ToolResult, *, tool: Tool, ctx: ToolContext) -> ToolResult:
    """The result for the model: clean and within the tool's limit; a longer text is kept whole in a file."""
    content = clean(result.content)
    shown = " ".join(clean(result.shown).split())
    limit = ctx.db.limits.tool_result_chars
    if len(content) > limit:
        note = where_note(keep(content, tool_name=tool.name, ctx=ctx))
        content = head_and_tail(content[:limit], content[-limit:], limit=limit, whole=len(content), note=note)
    # By their bytes: a provider refuses a picture that is none or another, again with every later request.
    images = tuple(
        replace(one, mime=kind)
        for one in result.images
        if (kind := _picture_type(one.data)) is not None and len(one.data) <= _IMAGE_BYTES
    )
    if left := len(result.images) - len(images[:_MOST_IMAGES]):
        content = f"{content}\n[{left} of {len(result.images)} images left out: too many, too large or of another kind]"
    return replace(result, content=content, shown=shown, images=images[:_MOST_IMAGES])


def _picture_type(data: bytes) -> str | None:
    from hermes_agent.media.pictures import picture_type  # only a result with pictures needs it

    return picture_type(data)


def head_and_tail(head: str, tail: str, *, limit: int, whole: int, note: str, unit: str = "characters") -> str:
    """Cut a text to two thirds beginning and one third end, at line ends if one is near."""
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
    """Write the whole text, up to the limit, to the call's file; None if the disk refuses."""
    data = text.encode("utf-8", "replace")[: ctx.db.limits.result_file_bytes]
    try:
        file = new_file(tool_name=tool_name, ctx=ctx)
        with private_open(file, "wb") as out:
            out.write(data)
    except OSError:
        return None
    return file


def new_file(*, tool_name: str, ctx: ToolContext, key: str = "") -> Path:
    """The file of the call, or of `key`, always the same one; creates its folder, removes files above the limits."""
    place = results_folder(ctx.home, ctx.conversation_id)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(place.parent, place, ctx)
    import hashlib  # only a long result needs it

    which = hashlib.sha256((key or f"{ctx.turn_id}/{ctx.call_id}").encode()).hexdigest()[: 32 if key else 12]
    name = re.sub(r"[^a-z0-9_]", "", tool_name.lower())[:40]
    return place / f"{name}-{which}.txt"


_swept: dict[Path, float] = {}


def _sweep(root: Path, own: Path, ctx: ToolContext) -> None:
    """Remove this conversation's files above the size limit and, now and then, all files above the age limit."""
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


_BYTES_A_CHARACTER = 4  # at most, in UTF-8


class Capture:
    """Collects output bytes; `text` is the part for the model. A context manager, because it may open a file."""

    def __init__(self, *, tool_name: str, ctx: ToolContext) -> None:
        self._tool_name = tool_name
        self._ctx = ctx
        self._limit = ctx.db.limits.tool_result_chars
        self._room = self._limit * _BYTES_A_CHARACTER
        self._head = bytearray()
        self._tail = bytearray()
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._kept = 0
        self._failed = False
        self.size = 0

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, data: bytes) -> None:
        self.size += len(data)
        free = self._room - len(self._head)
        if free >= len(data) and not self._tail:
            self._head += data
            return
        if self._file is None:
            self._open()
        self._write(data)
        self._head += data[: max(free, 0)]
        self._tail += data[max(free, 0) :]
        if len(self._tail) > 2 * self._room:
            del self._tail[: -self._room]

    def text(self) -> str:
        """Clean text within the limit, or the description of binary output."""
        if is_binary(self._head):
            self.__exit__()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            return describe_binary(bytes(self._head), size=self.size)
        head = text_of(bytes(self._head))
        if not self._tail:
            return head  # the registry cuts it if necessary, and keeps the whole
        tail = text_of(bytes(self._tail[-self._room :]))
        note = where_note(self._path)
        if self._path is not None and self._kept < self.size:
            note = f"{note} (its first {self._kept:,} bytes)"
        return head_and_tail(head, tail, limit=self._limit, whole=self.size, note=note, unit="bytes")

    def _open(self) -> None:
        if self._failed:
            return
        try:
            self._path = new_file(tool_name=self._tool_name, ctx=self._ctx)
            self._file = private_open(self._path, "wb")
        except OSError:
            self._failed, self._path = True, None
            return
        self._write(bytes(self._head))

    def _write(self, data: bytes) -> None:
        room = self._ctx.db.limits.result_file_bytes - self._kept
        if self._file is None or room <= 0:
            return
        try:
            self._file.write(data[:room])
            self._kept += min(len(data), room)
        except OSError:
            # On a full disk the model still reads head and tail, and learns that the rest is lost.
            self.__exit__()
            self._failed, self._path = True, None


_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"BM", "BMP image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "zip archive (or an office document)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive"),
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"\xcf\xfa\xed\xfe", "macOS program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
)


def media_kind(data: bytes) -> str:
    """The kind of the data: `PNG image, 640 × 480`, `gzip data` …; empty if unknown."""
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE", b"AVI "):
        return {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}[data[8:12]]
    if data[4:8] == b"ftyp":
        return "MP4 media"
    name = next((name for start, name in _SIGNATURES if data.startswith(start)), "")
    size = _size(name, data) if name.endswith("image") else None
    return f"{name}, {size[0]} × {size[1]}" if size else name


def _size(name: str, data: bytes) -> tuple[int, int] | None:
    try:
        if name.startswith("PNG"):
            width, height = struct.unpack_from(">II", data, 16)
        elif name.startswith("GIF"):
            width, height = struct.unpack_from("<HH", data, 6)
        elif name.startswith("JPEG"):
            return _jpeg_size(data)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None
