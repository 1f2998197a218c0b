"""Files that people send: fetched after authorisation, limited in size, stored by hash, and described to the model.

Every file passes `take`. Its first bytes decide its type, not the name or type that came with it: a false picture is a
document, a program is refused. A path never contains a sender's file name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from gateway.platforms.base import Attachment, BasePlatformAdapter, CannotFetch, MessageType
from hermes_agent.media import pictures
from hermes_state.people import media_files

_MIB = 1 << 20
_HEAD = 64

_SEEN: tuple[tuple[bytes, str, str], ...] = (
    (b"%PDF-", ".pdf", "application/pdf"),
    (b"OggS", ".ogg", "audio/ogg"),
    (b"ID3", ".mp3", "audio/mpeg"),
    (b"fLaC", ".flac", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", ".webm", "video/webm"),
    (b"PK\x03\x04", ".zip", "application/zip"),
)
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xcf")
_OFFICE = frozenset([".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub"])
_TEXTS = frozenset(
    [
        ".txt", ".md", ".csv", ".tsv", ".json", ".yaml", ".yml", ".toml", ".xml", ".html", ".log", ".py", ".js", ".ts",
        ".sql", ".diff",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    file_bytes: int = 20 * _MIB
    """A larger file is not fetched (`gateway.media_bytes`)."""
    folder_bytes: int = 2048 * _MIB
    """Beyond it the least recently used files are removed (`limits.media_folder_bytes`)."""
    needed: Callable[[], Collection[str]] = tuple
    """The names of files that stay, because a delivery or a message still needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored file: its path and real type."""

    path: Path
    sha256: str
    size: int
    mime: str
    kind: MessageType
    name: str
    """The sender's name for it, on one line, for display."""

    @property
    def is_picture(self) -> bool:
        return self.mime in pictures.ENDINGS


async def take(adapter: BasePlatformAdapter, attachment: Attachment, *, home: Path, limits: MediaLimits) -> Stored:
    """Fetch and store a file. Raises `CannotFetch`, or `MediaError` of the disk, with a text for the person."""
    named = shown_name(attachment)
    if attachment.size is not None and attachment.size > limits.file_bytes:
        raise CannotFetch(f"{named} has {attachment.size:,} bytes; at most {limits.file_bytes:,} are accepted")
    draft = await asyncio.to_thread(media_files.draft, home)
    try:
        await adapter.fetch(attachment, draft, limit=limits.file_bytes)
        return await asyncio.to_thread(_keep, home, draft, attachment, limits)
    finally:
        await asyncio.to_thread(draft.unlink, missing_ok=True)


def stored_here(home: Path, attachment: Attachment) -> Stored:
    """A picture that was stored by its hash before its message. Blocks. Raises `CannotFetch`."""
    path = media_files.folder(home) / attachment.ref
    try:
        if not media_files.is_kept_name(attachment.ref):
            raise CannotFetch("there is no such file")
        with path.open("rb") as file:
            mime = pictures.picture_type(file.read(_HEAD))
        size = path.stat().st_size
    except OSError as error:
        raise CannotFetch("it no longer exists") from error
    if mime is None:
        raise CannotFetch("it is not a picture")
    return Stored(
        path=path, sha256=path.stem, size=size, mime=mime, kind=MessageType.PHOTO, name=shown_name(attachment)
    )  # fmt: skip


def image_part(stored: Stored) -> dict[str, object]:
    """A picture as part of a user message. Blocks on the file."""
    return pictures.part(stored.path.read_bytes(), stored.mime)


def line(stored: Stored, *, has_files: bool) -> str:
    """One line for the model: the file that came with the message, and where it can be read."""
    what = f"[{stored.kind.value}: {stored.name}, {stored.size:,} bytes"
    if stored.is_picture:
        return f"{what}]"
    return f"{what}; it lies at {stored.path}]" if has_files else f"{what}; its content was not read]"


def heard_line(stored: Stored, words: str) -> str:
    """A voice message for the model: what the person said."""
    return f"[{stored.kind.value} message, as text:] {words}"


def not_heard_line(stored: Stored, error: Exception) -> str:
    what = f"{stored.kind.value} message, {stored.size:,} bytes"
    return f"[{what}; it could not be heard: {str(error).rstrip('.')}. The recording is kept.]"


def refusal_line(attachment: Attachment, error: Exception) -> str:
    """One line for the model in place of a file that was not accepted."""
    return f"[{attachment.kind.value}: {shown_name(attachment)}; it was not accepted: {_one_line(str(error), 200)}]"


def shown_name(attachment: Attachment) -> str:
    return _one_line(attachment.name, 120) or attachment.kind.value


def _keep(home: Path, draft: Path, attachment: Attachment, limits: MediaLimits) -> Stored:
    with draft.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(_PROGRAMS):
        raise CannotFetch(f"{shown_name(attachment)} is a program; programs are not accepted")
    ending, mime = _file_type(head, attachment)
    kept = media_files.keep(home, draft, ending=ending, most=limits.file_bytes)
    media_files.bound(home, most=max(limits.folder_bytes, kept.size), needed=limits.needed)
    kind = attachment.kind
    if kind is MessageType.PHOTO and mime not in pictures.ENDINGS:
        kind = MessageType.DOCUMENT
    return Stored(path=kept.path, sha256=kept.sha256, size=kept.size, mime=mime, kind=kind, name=shown_name(attachment))


def _file_type(head: bytes, attachment: Attachment) -> tuple[str, str]:
    """The ending and type of a file by its first bytes, or else by its name from a short list."""
    named = Path(attachment.name).suffix.lower()
    if picture := pictures.picture_type(head):
        return pictures.ENDINGS[picture], picture
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return ".wav", "audio/wav"
    if head[4:8] == b"ftyp":
        return (".m4a", "audio/mp4") if attachment.mime.startswith("audio/") else (".mp4", "video/mp4")
    for start, ending, mime in _SEEN:
        if head.startswith(start):
            return (named if ending == ".zip" and named in _OFFICE else ending), mime
    if b"\0" not in head and named in _TEXTS:
        return named, "text/plain"
    return ".bin", "application/octet-stream"


def _one_line(text: str, most: int) -> str:
    """One printable line of at most `most` characters: names come from strangers."""
    plain = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(plain.split())[:most]
