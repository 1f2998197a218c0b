"""Files to and from Telegram: at most 20 MB come in and 50 MB go out through its own servers."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gateway.platforms.base import Attachment, CannotFetch
from gateway.platforms.telegram.runs import units

if TYPE_CHECKING:
    from telegram import Bot

UPLOAD_BYTES = 50 * 1024 * 1024
PICTURE_BYTES = 10 * 1024 * 1024
CAPTION_UNITS = 1024
_PICTURES = frozenset({".png", ".jpg", ".jpeg"})
_DOWNLOAD_SECONDS = 120.0


class CannotSend(Exception):
    """A file that Telegram would not take."""


class Upload(NamedTuple):
    name: str
    data: bytes
    is_picture: bool


def read_upload(path: Path, name: str) -> Upload:
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
    return Upload(name, data, Path(name).suffix.lower() in _PICTURES and len(data) <= PICTURE_BYTES)


def fitting_caption(text: str) -> str:
    """A caption is plain text of at most 1,024 units; the rest is left out, and one sees it."""
    if units(text) <= CAPTION_UNITS:
        return text
    cut = text.encode("utf-16-le", "replace")[: (CAPTION_UNITS - 1) * 2].decode("utf-16-le", "ignore")
    return f"{cut}…"


async def fetch(
    bot: Bot, attachment: Attachment, target: Path, *, limit: int, local: bool, say: Callable[[BaseException], str]
) -> None:
    """Download a file of Telegram's to a new file. Raises `CannotFetch`."""
    from telegram.error import TelegramError

    try:
        file = await bot.get_file(attachment.ref, read_timeout=_DOWNLOAD_SECONDS)
        address = file.file_path or ""
        if not address.startswith(("http://", "https://")) and not local:
            raise CannotFetch(
                "the server names a file of this machine", hint="Set platforms.telegram.extra.local_mode."
            )
        size = file.file_size or attachment.size
        if size is not None and size > limit:
            raise CannotFetch(f"the file has {size:,} bytes; at most {limit:,} are taken")
        data = await file.download_as_bytearray(read_timeout=_DOWNLOAD_SECONDS)
    except TelegramError as error:
        raise CannotFetch(f"Telegram did not hand out the file: {say(error)}") from None
    except OSError as error:
        raise CannotFetch(f"the file cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise CannotFetch(f"the file has {len(data):,} bytes; at most {limit:,} are taken")
    await asyncio.to_thread(_write, target, data)


def _write(target: Path, data: bytearray) -> None:
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise CannotFetch(f"the file cannot be stored: {error.strerror}") from None
