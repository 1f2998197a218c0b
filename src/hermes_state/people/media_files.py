"""Received and outgoing files, stored by the hash of their content under `<home>/media`.

A name is never a path: a file's path is `<home>/media/<sha256>.<ending>`, mode 0600, with one of our endings. Equal
content is stored once. A stored file never changes, so the recorded file is the one that is sent, also after a restart.
The folder is bounded: `bound` removes the files that were used longest ago, but none that is still `needed`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from hermes_config import home as homes
from hermes_config.errors import HermesError
from hermes_config.home import advice

if TYPE_CHECKING:
    from hermes_state import SessionDB

_STEP = 1 << 20
_ENDING = re.compile(r"\.[a-z0-9]{1,8}")
_KEPT = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")


class MediaError(HermesError):
    """The file cannot be stored."""


class Kept(NamedTuple):
    path: Path
    sha256: str
    size: int


def folder(home: Path) -> Path:
    return home / "media"


def is_kept_name(name: str) -> bool:
    """Whether a stored file could have this name."""
    return _KEPT.fullmatch(name) is not None


def draft(home: Path) -> Path:
    """A path for a file that is about to be written here; `keep` gives it its name. Creates the folder."""
    media = folder(home)
    try:
        media.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MediaError(
            f"cannot create the folder for files: {error.strerror}", where=str(media), hint=advice(error)
        ) from error
    return media / f".{os.urandom(8).hex()}.part"


def keep(home: Path, source: Path, *, ending: str, most: int) -> Kept:
    """Rename a draft to its hash, durably. Blocks."""
    with source.open("rb") as file:
        found = _digest(file.fileno(), most)
    return _settle(home, source, found, ending)


def copy(home: Path, source: int, *, ending: str, most: int) -> Kept:
    """Store a copy of an open file's present content. Blocks; raises `MediaError` beyond `most` bytes."""
    target = draft(home)
    try:
        with homes.private_open(target, "xb") as file:
            found = _digest(source, most, into=file)
        return _settle(home, target, found, ending)
    finally:
        target.unlink(missing_ok=True)  # already renamed, unless there was an error


def keep_bytes(home: Path, data: bytes, *, ending: str) -> Kept:
    """Store data under its hash, durably. Blocks."""
    target = draft(home)
    try:
        with homes.private_open(target, "xb") as file:
            file.write(data)
        return keep(home, target, ending=ending, most=len(data))
    finally:
        target.unlink(missing_ok=True)  # already renamed, unless there was an error


def needed(db: SessionDB) -> set[str]:
    """The names of files that a delivery or a message which is not answered yet still needs. Blocks."""
    return db.outbox.files_to_send() | db.inbox.files_to_read()


def surplus(home: Path, *, most: int, needed: Callable[[], Collection[str]]) -> list[Path]:
    """The files used longest ago, without which at most `most` bytes remain. Blocks. `needed`: names that stay."""
    files = []
    try:
        with os.scandir(folder(home)) as entries:
            for entry in entries:
                if _KEPT.fullmatch(entry.name) and stat.S_ISREG((found := entry.stat(follow_symlinks=False)).st_mode):
                    files.append((found.st_mtime_ns, found.st_size, entry.path))
    except FileNotFoundError:
        return []
    total = sum(size for _, size, _ in files)
    stays = needed() if total > most else ()
    gone = []
    for _, size, path in sorted(files):
        if total <= most:
            break
        if (file := Path(path)).name not in stays:
            gone.append(file)
            total -= size
    return gone


def bound(home: Path, *, most: int, needed: Callable[[], Collection[str]]) -> int:
    """Remove the surplus; returns its number. Blocks."""
    gone = surplus(home, most=most, needed=needed)
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def _digest(descriptor: int, most: int, into: IO[bytes] | None = None) -> tuple[str, int]:
    """(hash, size) of an open file from its present position on, copied to `into` meanwhile."""
    digest, size = hashlib.sha256(), 0
    while block := os.read(descriptor, _STEP):
        size += len(block)
        if size > most:
            raise MediaError(f"the file has more than {most:,} bytes")
        digest.update(block)
        if into is not None:
            into.write(block)
    return digest.hexdigest(), size


def _settle(home: Path, source: Path, found: tuple[str, int], ending: str) -> Kept:
    """Give a draft its name. If the file exists, mark it as used and remove the draft."""
    sha256, size = found
    target = folder(home) / f"{sha256}{ending if _ENDING.fullmatch(ending) else '.bin'}"
    try:
        source.chmod(0o600)
        with source.open("rb") as file:
            os.fsync(file.fileno())
        source.replace(target)
        os.utime(target)
        homes.sync_folder(target.parent)
    except OSError as error:
        raise MediaError(f"cannot store the file: {error.strerror}", where=str(target), hint=advice(error)) from error
    return Kept(target, sha256, size)
