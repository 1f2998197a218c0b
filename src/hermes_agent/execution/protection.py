"""Files that other programs run when they start: what a command did to them is undone when it has ended.

bubblewrap mounts them read-only, but a folder above one can be moved away and made anew, a file that was not there
cannot be mounted over, and Landlock cannot exempt a file from its folder. So the files are remembered before a command
and compared after it. A changed one gets its content back. A new one in a folder that was there before is renamed, with
nothing lost; in a folder that the command made itself (a repository, an unpacked archive) it is the command's own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hermes_agent.tools.descriptors import Folder, opened
from hermes_config.secret_places import PROTECTED_FILES, Found

ASIDE = ".set-aside"
_MOST_FILES = 2_000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


class Protection:
    """The protected files of a workspace as they were before one command."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._files: dict[Path, _File] = {}
        for path in found.protected:
            for file in _files(path):
                if len(self._files) >= _MOST_FILES:
                    return
                if (kept := _read(file)) is not None:
                    self._files[file] = kept

    def undo(self, now: Found) -> list[str]:
        """Put back what was changed, set aside what is new. One line each, for the model and the log."""
        said: list[str] = []
        for path, before in self._files.items():
            if (link := _first_link(path)) is not None:
                said.append(_set_aside(link))
            if link == path or (path.exists() and _read(path) != before):
                said.append(_put_back(path, before))
        known = {*self._found.protected, *self._found.secrets}
        # A file can be both, such as .envrc.
        for path in (*now.protected, *(path for path in now.secrets if path.name in PROTECTED_FILES)):
            if path in known:
                said += [_set_aside(file) for file in _files(path) if self._is_new(file)]
            elif str(path.parent) in self._found.folders:
                said.append(_set_aside(path))
        return said

    def _is_new(self, file: Path) -> bool:
        full = len(self._files) >= _MOST_FILES
        return not full and file not in self._files and not file.name.endswith(ASIDE)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the files of a folder that somebody could run."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names if not name.endswith(".sample"))
    yield from islice(found, _MOST_FILES)


def _first_link(path: Path) -> Path | None:
    """The outermost part of a path that is a link by now; it was none when the path was remembered."""
    return next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)


def _read(path: Path) -> _File | None:
    """What a plain file holds; None for anything else, also when a part of its path is a link."""
    try:
        with opened(path.parent) as folder, os.fdopen(folder.open(path.name), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > _MOST_BYTES:
                return None
            return _File(file.read(_MOST_BYTES), stat.S_IMODE(status.st_mode))
    except OSError:
        return None


def _put_back(path: Path, before: _File) -> str:
    def act() -> None:
        with opened(path.parent) as folder:
            there = folder.status(path.name)
            if there is not None and stat.S_ISDIR(there.st_mode):
                folder.rename(path.name, _free_name(folder, path.name))
            folder.write(path.name, before.content, mode=before.mode, replace=True)

    return _attempt(path, "it has its old content back", act)


def _set_aside(path: Path) -> str:
    name = f"{path.name}{ASIDE}"

    def act() -> None:
        with opened(path.parent) as folder:
            folder.rename(path.name, _free_name(folder, path.name))

    return _attempt(path, f"it is now {name}", act)


def _free_name(folder: Folder, name: str) -> str:
    names = (f"{name}{ASIDE}{number or ''}" for number in range(10_000))
    return next(one for one in names if folder.status(one) is None)


def _attempt(path: Path, done: str, act: Callable[[], None]) -> str:
    try:
        act()
    except OSError as error:
        return f"{path} is run by other programs, was changed, and could not be put back ({error.strerror}): look at it"
    return f"{path} is run by other programs when they start: {done}; write_file asks a person to write it"
