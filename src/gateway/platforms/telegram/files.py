"""Files to and from Telegram: at most 20 MB come in and 50 MB go out through its own servers.

Up to ten pictures, or ten documents, go out as one album.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gateway.platforms.base import Attachment, CannotFetch, OutgoingFile, units
from gateway.platforms.telegram import errors

if TYPE_CHECKING:
    import httpx

    from gateway.platforms.telegram.client import BotClient

UPLOAD_BYTES = 50 * 1024 * 1024
PICTURE_BYTES = 10 * 1024 * 1024
ALBUM_FILES = 10
_ALBUM_BYTES = UPLOAD_BYTES - 1024 * 1024
"""An album is one request, and Telegram refuses a larger one as a whole."""
CAPTION_UNITS = 1024
_PICTURES = frozenset({".png", ".jpg", ".jpeg"})
_ASK_SECONDS = 120.0
_PIECE = 1024 * 1024


class CannotSend(Exception):
    """A file that Telegram would refuse."""


class FileUpload(NamedTuple):
    name: str
    data: bytes
    is_picture: bool


def read_upload(path: Path, name: str) -> FileUpload:
    """The file as it is now, under the name that people see. Blocks."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise CannotSend(f"{name} is not a plain file")
        if not 0 < status.st_size <= UPLOAD_BYTES:
            raise CannotSend(f"{name} has {status.st_size:,} bytes; Telegram takes 1 to {UPLOAD_BYTES:,}")
        # A link or a pipe may have taken its place meanwhile: neither is followed or waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            data = file.read(UPLOAD_BYTES + 1)
    except OSError as error:
        raise CannotSend(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > UPLOAD_BYTES:
        raise CannotSend(f"{name} has grown beyond {UPLOAD_BYTES:,} bytes")
    return FileUpload(name, data, _is_picture(name, len(data)))


def _is_picture(name: str, size: int) -> bool:
    return Path(name).suffix.lower() in _PICTURES and size <= PICTURE_BYTES


def album(outgoing: Sequence[OutgoingFile]) -> int:
    """How many of these files, from the first on, one album holds: documents stand with documents only."""
    kind, total, count = None, 0, 0
    for file in outgoing[:ALBUM_FILES]:
        try:
            size = file.path.lstat().st_size
        except OSError:
            break
        total += size
        picture = _is_picture(file.name or file.path.name, size)
        if kind not in (None, picture) or total > _ALBUM_BYTES:
            break
        kind, count = picture, count + 1
    return max(1, count)


def fitting_caption(text: str) -> str:
    """A caption of at most 1,024 units of plain text; a longer one visibly ends early."""
    if units(text) <= CAPTION_UNITS:
        return text
    cut = text.encode("utf-16-le", "replace")[: (CAPTION_UNITS - 1) * 2].decode("utf-16-le", "ignore")
    return f"{cut}…"


async def fetch(line: BotClient, attachment: Attachment, target: Path, *, limit: int, local: bool) -> None:
    """Download a file of Telegram's to a new file, piece by piece. Raises `CannotFetch`."""
    import httpx
    from telegram.error import TelegramError

    try:
        file = await line.bot.get_file(attachment.ref, read_timeout=_ASK_SECONDS)
        address = file.file_path or ""
        _check_size(file.file_size or attachment.size, limit)
        if address.startswith(("http://", "https://")):
            async with line.file_client() as client:
                await _download(client, address, target, limit)
        elif local:
            await asyncio.to_thread(_copy, Path(address), target, limit)
        else:
            raise CannotFetch(
                "the server names a file of this machine", hint="Set platforms.telegram.extra.local_mode."
            )
    except (TelegramError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise CannotFetch(f"Telegram did not hand out the file: {errors.said(error, line.token)}") from None
    except OSError as error:
        raise CannotFetch(f"the file cannot be read or stored: {error.strerror}") from None


async def _download(client: httpx.AsyncClient, address: str, target: Path, limit: int) -> None:
    # As it is: what a server packs may be a thousand times larger when it is unpacked.
    async with client.stream("GET", address, headers={"accept-encoding": "identity"}) as answer:
        if answer.status_code != 200:
            raise CannotFetch(f"Telegram did not hand out the file: HTTP {answer.status_code}")
        length = answer.headers.get("content-length", "")
        _check_size(int(length) if length.isdecimal() else None, limit)
        size = 0
        with await asyncio.to_thread(_create, target) as kept:
            async for piece in answer.aiter_raw(_PIECE):
                size += len(piece)
                _check_size(size, limit)
                await asyncio.to_thread(kept.write, piece)


def _copy(source: Path, target: Path, limit: int) -> None:
    """Of a Bot API server on this machine, which hands out paths."""
    size = 0
    with source.open("rb") as file, _create(target) as kept:
        while piece := file.read(_PIECE):
            size += len(piece)
            _check_size(size, limit)
            kept.write(piece)


def _check_size(size: int | None, limit: int) -> None:
    if size is not None and size > limit:
        raise CannotFetch(f"the file is too large: at most {limit:,} bytes are accepted")


def _create(target: Path) -> BinaryIO:
    return os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
